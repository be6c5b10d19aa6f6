//! How Istio's messages are read: protobuf's JSON form, with notes instead of silence.
//!
//! serde's derive can neither tell a misspelt field from one that is known and refused, nor take
//! `null` for "not set" as protobuf does, so messages are declared by [`message!`] and read by
//! [`Read`]. Nothing is allocated for a path until there is something to say about it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::note::{Notes, Step};
use crate::finding::cut;

/// A value in protobuf's JSON form.
pub(crate) trait Read: Sized {
    /// Reads a value that is not `null`.
    fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
        notes: &mut Notes,
    ) -> Result<Self, D::Error>;
}

/// A message with its fields. [`message!`] implements it.
pub(crate) trait Message: Default {
    /// The fields that are read.
    type Field: Copy;
    /// Names of fields that Istio knows and that are not read.
    const REFUSED: &'static [&'static str];
    /// The JSON names of the fields that are read.
    #[cfg(test)]
    const FIELDS: &'static [&'static str];
    /// The field of a name: itself, its number below 64, its name in messages.
    fn field(name: &str) -> Option<(Self::Field, u32, &'static str)>;
    /// Reads the value of a field; whether there was one.
    fn fill<'de, A: MapAccess<'de>>(
        &mut self,
        field: Self::Field,
        map: &mut A,
        notes: &mut Notes,
    ) -> Result<bool, A::Error>;
    /// The fault of a message with these fields, given as a set of their numbers.
    fn fault(set: u64) -> Option<Fault>;
}

/// A fault of a message whose fields can all be read.
pub(crate) enum Fault {
    /// A field that must be set is not.
    Missing(&'static str),
    /// More than one of these fields is set.
    Rivals(&'static [&'static str]),
}

/// Reads a message. Unknown fields become notes.
pub(crate) fn read_message<'de, M: Message, D: Deserializer<'de>>(
    deserializer: D,
    notes: &mut Notes,
) -> Result<M, D::Error> {
    struct Fields<'n, M>(&'n mut Notes, PhantomData<M>);

    impl<'de, M: Message> Visitor<'de> for Fields<'_, M> {
        type Value = M;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of fields")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<M, A::Error> {
            let notes = self.0;
            let mut message = M::default();
            let (mut seen, mut set) = (0_u64, 0_u64);
            while let Some(name) = map.next_key_seed(NameOf::<M>(PhantomData))? {
                let (field, number, name) = match name {
                    Name::Known(field, number, name) => (field, number, name),
                    Name::Other(name) => {
                        notes.add_field(&name, M::REFUSED.contains(&&*name))?;
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                };
                let bit = 1 << number;
                notes.enter(Step::Field(name));
                if seen & bit != 0 {
                    return Err(A::Error::custom(format_args!("{name} is written twice")));
                }
                seen |= bit;
                if message.fill(field, &mut map, notes)? {
                    #[cfg(test)]
                    super::tests::note_use::<M>(name);
                    set |= bit;
                }
                notes.leave();
            }
            match M::fault(set) {
                None => Ok(message),
                Some(Fault::Missing(name)) => Err(A::Error::missing_field(name)),
                Some(Fault::Rivals(names)) => Err(A::Error::custom(format_args!(
                    "at most one of {} may be set",
                    names.join(", ")
                ))),
            }
        }
    }

    deserializer.deserialize_map(Fields::<M>(notes, PhantomData))
}

/// The name of a field, which is allocated only where it is unknown.
enum Name<F> {
    Known(F, u32, &'static str),
    Other(Box<str>),
}

struct NameOf<M>(PhantomData<M>);

impl<'de, M: Message> DeserializeSeed<'de> for NameOf<M> {
    type Value = Name<M::Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<M: Message> Visitor<'_> for NameOf<M> {
    type Value = Name<M::Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(M::field(name).map_or_else(
            || Name::Other(name.into()),
            |(field, number, name)| Name::Known(field, number, name),
        ))
    }
}

/// Reads a value, or `None` for `null`, which protobuf takes for "not set".
pub(crate) struct Value<'n, T>(&'n mut Notes, PhantomData<T>);

impl<'n, T> Value<'n, T> {
    pub(crate) fn new(notes: &'n mut Notes) -> Self {
        Value(notes, PhantomData)
    }
}

impl<'de, T: Read> DeserializeSeed<'de> for Value<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Read> Visitor<'de> for Value<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        T::read(deserializer, self.0).map(Some)
    }
}

/// Reads a value of a list or map, where `null` means nothing.
struct Item<'n, T>(&'n mut Notes, PhantomData<T>);

impl<'de, T: Read> DeserializeSeed<'de> for Item<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        let value = Value::new(self.0).deserialize(deserializer)?;
        value.ok_or_else(|| D::Error::custom("null stands in a list or map"))
    }
}

impl<T: Read> Read for Option<T> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        T::read(d, notes).map(Some)
    }
}

impl<T: Read> Read for Box<T> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        notes.count(size_of::<T>())?;
        T::read(d, notes).map(Box::new)
    }
}

impl<T: Read> Read for Box<[T]> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        struct Items<'n, T>(&'n mut Notes, PhantomData<T>);

        impl<'de, T: Read> Visitor<'de> for Items<'_, T> {
            type Value = Box<[T]>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Box<[T]>, A::Error> {
                let mut items = Vec::new();
                loop {
                    self.0.enter(Step::Index(items.len()));
                    let Some(item) = list.next_element_seed(Item(self.0, PhantomData))? else {
                        break;
                    };
                    self.0.count(size_of::<T>())?;
                    items.push(item);
                    self.0.leave();
                }
                self.0.leave();
                Ok(items.into())
            }
        }

        d.deserialize_seq(Items(notes, PhantomData))
    }
}

/// A map with text for keys, as pairs in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Map<T>(Box<[(Box<str>, T)]>);

impl<T> Map<T> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&T> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key));
        self.0.get(at.ok()?).map(|(_, value)| value)
    }
}

impl<T> Map<T> {
    /// The same keys with other values.
    pub(crate) fn map_values<U>(self, change: impl Fn(T) -> U) -> Map<U> {
        let pairs = self.0.into_iter();
        Map(pairs.map(|(key, value)| (key, change(value))).collect())
    }
}

impl<T> Default for Map<T> {
    fn default() -> Self {
        Map(Box::default())
    }
}

impl<T> std::ops::Deref for Map<T> {
    type Target = [(Box<str>, T)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> FromIterator<(Box<str>, T)> for Map<T> {
    /// The first of equal keys is kept.
    fn from_iter<I: IntoIterator<Item = (Box<str>, T)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_by(|(left, _), (right, _)| left.cmp(right));
        pairs.dedup_by(|(later, _), (earlier, _)| later == earlier);
        Map(pairs.into())
    }
}

impl<T: Read> Read for Map<T> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        struct Pairs<'n, T>(&'n mut Notes, PhantomData<T>);

        impl<'de, T: Read> Visitor<'de> for Pairs<'_, T> {
            type Value = Map<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Map<T>, A::Error> {
                let mut pairs: Vec<(Box<str>, T)> = Vec::new();
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    self.0.enter(Step::key(&key));
                    self.0.count(size_of::<(Box<str>, T)>() + key.len())?;
                    let value = map.next_value_seed(Item(self.0, PhantomData))?;
                    pairs.push((key.into(), value));
                    self.0.leave();
                }
                let written = pairs.len();
                let map: Map<T> = pairs.into_iter().collect();
                if map.len() < written {
                    return Err(A::Error::custom("a key is written twice"));
                }
                Ok(map)
            }
        }

        d.deserialize_map(Pairs(notes, PhantomData))
    }
}

/// The problem of a `spec` that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecProblem {
    /// Path of the field, from `spec`; at most 1 KiB of it.
    pub field: Box<str>,
    /// A description of the problem, without trailing stop; at most 1 KiB.
    pub message: Box<str>,
}

/// A value whose fault is kept, because its object must not seem absent.
impl<T: Read> Read for Result<T, SpecProblem> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        // A reader that has failed cannot go on, so the value is taken out of it first.
        let value = serde_json::Value::deserialize(d)?;
        let (depth, bytes) = (notes.depth(), notes.value_bytes());
        Ok(T::read(value, notes).map_err(|error| {
            let (field, message) = (notes.path(), cut(error.to_string()));
            notes.leave_to(depth);
            notes.replace_since(bytes, [&field, &message]);
            SpecProblem {
                field: field.into(),
                message: message.into(),
            }
        }))
    }
}

/// A value that is read in one form and kept in another, which does without its bounds.
pub(crate) trait Wire<T> {
    /// The value as it is kept.
    fn into_kept(self) -> T;
}

impl<T, W: Wire<T>> Wire<Option<T>> for Option<W> {
    fn into_kept(self) -> Option<T> {
        self.map(Wire::into_kept)
    }
}

/// Reads the value of a field, in the form of another type where one is given.
macro_rules! field_value {
    ($map:ident, $notes:ident) => {
        $map.next_value_seed(Value::new($notes))?
    };
    ($map:ident, $notes:ident, $wire:ty) => {
        $map.next_value_seed(Value::<$wire>::new($notes))?
            .map($crate::istio::reading::Wire::into_kept)
    };
}
pub(crate) use field_value;

/// Declares a message: each field with its type, its JSON name and, where that differs, its
/// protobuf name, which the JSON form accepts as well; `required` where Istio refuses the object
/// without it; `as` before a type in whose form it is read ([`Wire`]).
///
/// `rare` names a second structure for fields that few messages set, so that the others pay
/// eight bytes for all of them. `one_of` lists fields of which at most one may be set, `refused`
/// the names of fields that Istio knows and that are only noted.
macro_rules! message {
    (
        $(#[$attribute:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[$doc:meta])*
                $field:ident: $type:ty $(as $wire:ty)? = $json:literal
                    $(| $proto:literal)? $($required:ident)?,
            )*
        }
        $(rare $rare:ident {
            $(
                $(#[$rare_doc:meta])*
                $rare_field:ident: $rare_type:ty = $rare_json:literal $(| $rare_proto:literal)?,
            )*
        })?
        $(one_of [$($rival:ident = $rival_json:literal),+])*
        $(refused [$($refused:literal),+])?
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $vis struct $name {
            $(
                #[doc = concat!("API field `", $json, "`.")]
                $(#[$doc])*
                pub $field: $type,
            )*
            $(
                /// The fields that are seldom set; `None` where none of them is.
                pub rare: Option<Box<$rare>>,
            )?
        }

        $(
            #[doc = concat!("The fields of [`", stringify!($name), "`] that are seldom set.")]
            #[derive(Clone, Debug, Default, PartialEq)]
            $vis struct $rare {
                $(
                    #[doc = concat!("API field `", $rare_json, "`.")]
                    $(#[$rare_doc])*
                    pub $rare_field: $rare_type,
                )*
            }

            impl $name {
                /// The fields that are seldom set, with their defaults where none is.
                pub fn rare(&self) -> &$rare {
                    static UNSET: std::sync::LazyLock<$rare> =
                        std::sync::LazyLock::new($rare::default);
                    self.rare.as_deref().unwrap_or(&*UNSET)
                }
            }
        )?

        const _: () = {
            use $crate::istio::note::Notes;
            use $crate::istio::reading::{
                Fault, Message, Read, Value, field_value, read_message,
            };

            #[allow(non_camel_case_types)]
            #[derive(Clone, Copy)]
            pub(crate) enum Field {
                $($field,)*
                $($($rare_field,)*)?
            }

            impl Message for $name {
                type Field = Field;
                const REFUSED: &'static [&'static str] = &[$($($refused),+)?];
                #[cfg(test)]
                const FIELDS: &'static [&'static str] = &[$($json,)* $($($rare_json,)*)?];

                fn field(name: &str) -> Option<(Field, u32, &'static str)> {
                    let (field, name) = match name {
                        $($json $(| $proto)? => (Field::$field, $json),)*
                        $($($rare_json $(| $rare_proto)? => (Field::$rare_field, $rare_json),)*)?
                        _ => return None,
                    };
                    Some((field, field as u32, name))
                }

                fn fill<'de, A: serde::de::MapAccess<'de>>(
                    &mut self,
                    field: Field,
                    map: &mut A,
                    notes: &mut Notes,
                ) -> Result<bool, A::Error> {
                    match field {
                        $(Field::$field => {
                            let value = field_value!(map, notes $(, $wire)?);
                            let Some(value) = value else {
                                return Ok(false);
                            };
                            self.$field = value;
                        })*
                        $($(Field::$rare_field => {
                            let Some(value) = map.next_value_seed(Value::new(notes))? else {
                                return Ok(false);
                            };
                            if self.rare.is_none() {
                                notes.count(size_of::<$rare>())?;
                            }
                            self.rare.get_or_insert_default().$rare_field = value;
                        })*)?
                    }
                    Ok(true)
                }

                fn fault(set: u64) -> Option<Fault> {
                    let _ = set;
                    $($(
                        let $required = 1 << Field::$field as u32;
                        if set & $required == 0 {
                            return Some(Fault::Missing($json));
                        }
                    )?)*
                    $(
                        let rivals: u64 = $(1 << Field::$rival as u32)|+;
                        if (set & rivals).count_ones() > 1 {
                            return Some(Fault::Rivals(&[$($rival_json),+]));
                        }
                    )*
                    None
                }
            }

            impl Read for $name {
                fn read<'de, D: serde::Deserializer<'de>>(
                    deserializer: D,
                    notes: &mut Notes,
                ) -> Result<Self, D::Error> {
                    read_message(deserializer, notes)
                }
            }
        };
    };
}
pub(crate) use message;
