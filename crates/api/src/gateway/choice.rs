//! Words of enums, of which newer definitions may have more.

use serde::Deserializer;

use super::bounded::Text;
use crate::istio::note::Notes;
use crate::istio::reading::{Read, Wire};

/// A word of an enum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice<T> {
    /// A word that is known.
    Known(T),
    /// Any other, as it was written.
    Other(Box<str>),
}

/// An enum that has words.
pub trait Words: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];

    /// The word of a value.
    fn as_str(self) -> &'static str;
}

impl<T: Words> Choice<T> {
    /// The value, if the word is known.
    pub fn known(&self) -> Option<T> {
        match self {
            Choice::Known(value) => Some(*value),
            Choice::Other(_) => None,
        }
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        match self {
            Choice::Known(value) => value.as_str(),
            Choice::Other(word) => word,
        }
    }
}

impl<T: Default> Default for Choice<T> {
    fn default() -> Self {
        Choice::Known(T::default())
    }
}

impl<T: Words> Read for Choice<T> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let word: Box<str> = Text::<253>::read(d, notes)?.into_kept();
        let mut known = T::ALL.iter().copied();
        Ok(match known.find(|known| known.as_str() == &*word) {
            Some(value) => Choice::Known(value),
            None => Choice::Other(word),
        })
    }
}

/// Declares an enum of words; the first is the default.
macro_rules! choice {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $first:ident $first_word:literal,
            $($variant:ident $word:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            #[doc = concat!("`", $first_word, "`.")]
            #[default]
            $first,
            $(
                #[doc = concat!("`", $word, "`.")]
                $variant,
            )*
        }

        impl $crate::gateway::choice::Words for $name {
            const ALL: &'static [$name] = &[$name::$first, $($name::$variant),*];

            fn as_str(self) -> &'static str {
                match self {
                    $name::$first => $first_word,
                    $($name::$variant => $word,)*
                }
            }
        }
    };
}
pub(crate) use choice;
