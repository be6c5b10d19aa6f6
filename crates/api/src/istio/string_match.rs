//! `StringMatch`: one of three ways to compare a text.

use serde::Deserializer;
use serde::de::Error;

use super::note::Notes;
use super::reading::{Read, message};

/// How a text is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StringMatch {
    /// Nothing is set: for headers and query parameters, that there is one.
    #[default]
    Present,
    /// The whole text, by its bytes.
    Exact(Box<str>),
    /// The start of the text, by its bytes.
    Prefix(Box<str>),
    /// The whole text, by a regular expression in RE2's syntax.
    Regex(Box<str>),
}

message! {
    pub(super) struct RawStringMatch {
        exact: Option<Box<str>> = "exact",
        prefix: Option<Box<str>> = "prefix",
        regex: Option<Box<str>> = "regex",
    }
    one_of [exact = "exact", prefix = "prefix", regex = "regex"]
}

impl Read for StringMatch {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let raw = RawStringMatch::read(d, notes)?;
        match (raw.exact, raw.prefix, raw.regex) {
            (Some(exact), None, None) => Ok(StringMatch::Exact(exact)),
            (None, Some(prefix), None) => Ok(StringMatch::Prefix(prefix)),
            (None, None, Some(regex)) => Ok(StringMatch::Regex(regex)),
            (None, None, None) => Ok(StringMatch::Present),
            _ => Err(D::Error::custom("only one way to compare may be set")),
        }
    }
}
