//! A head that outlives what it was read from: kept only while somebody is asked about it.

use std::borrow::Cow;
use std::sync::Arc;

use super::body::BodyLength;
use super::field::{Field, KnownField};
use super::head::{Head, Version};
use super::path::reading::Readings;

/// The bytes of a field beside its text, about.
const FIELD_BYTES: usize = 64;

/// The head of a request, with all of its text.
pub struct KeptHead {
    version: Version,
    method: Box<str>,
    path: Box<str>,
    readings: Option<Arc<Readings>>,
    query: Option<Box<str>>,
    host: Box<str>,
    authority: Box<str>,
    scheme: &'static str,
    fields: Vec<(Box<str>, Box<[u8]>)>,
    body: BodyLength,
    keep_alive: bool,
    upgrade: Option<Box<[u8]>>,
    expects_continue: bool,
}

impl KeptHead {
    /// A copy of a head.
    pub fn new(head: &Head<'_>) -> Self {
        let fields = head.fields.iter();
        KeptHead {
            version: head.version,
            method: head.method.into(),
            path: head.path.as_ref().into(),
            readings: head.readings.clone(),
            query: head.query.map(Into::into),
            host: head.host.as_ref().into(),
            authority: head.authority.into(),
            scheme: head.scheme,
            fields: fields
                .map(|field| (field.name.into(), field.value.into()))
                .collect(),
            body: head.body,
            keep_alive: head.keep_alive,
            upgrade: head.upgrade.map(Into::into),
            expects_continue: head.expects_continue,
        }
    }

    /// How many bytes of memory it takes, about.
    pub fn memory(&self) -> usize {
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| name.len() + value.len() + FIELD_BYTES);
        let target = self.path.len() + self.query.as_ref().map_or(0, |query| query.len());
        let upgrade = self.upgrade.as_ref().map_or(0, |upgrade| upgrade.len());
        let readings = match self.readings {
            Some(_) => Readings::memory(self.path.len()),
            None => 0,
        };
        let line = self.method.len() + target + self.host.len() + self.authority.len();
        line + readings + fields.sum::<usize>() + upgrade
    }

    /// The head.
    pub fn head(&self) -> Head<'_> {
        let fields = self.fields.iter().map(|(name, value)| Field {
            known: KnownField::of(name),
            name,
            value,
        });
        Head {
            version: self.version,
            method: &self.method,
            path: Cow::Borrowed(&self.path),
            readings: self.readings.clone(),
            query: self.query.as_deref(),
            host: Cow::Borrowed(&self.host),
            authority: &self.authority,
            scheme: self.scheme,
            fields: fields.collect(),
            body: self.body,
            keep_alive: self.keep_alive,
            upgrade: self.upgrade.as_deref(),
            expects_continue: self.expects_continue,
        }
    }

    /// Takes out the fields whose lower-case names `goes` is true for.
    pub fn remove(&mut self, goes: impl Fn(&str) -> bool) {
        self.fields
            .retain(|(name, _)| !goes(&name.to_ascii_lowercase()));
    }

    /// Adds a field that is not the client's.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        self.fields.push((name.into(), value.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::{FIELD_BYTES, KeptHead};
    use crate::codec::head;
    use crate::limits::{Limits, PathRule};

    #[test]
    fn all_readings_of_a_path_are_counted_whether_they_are_made_yet_or_not() {
        let part = "%255c%252f%5c%5c%2e%252e%253b/b;x/";
        let path = format!("/{}", part.repeat(40));
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let limits = Limits {
            paths: PathRule::AsIs,
            ..Limits::default()
        };
        let kept = KeptHead::new(&head::parse(text.as_bytes(), &limits).unwrap());
        let counted = kept.memory();
        let head = kept.head();
        let readings = head.readings.as_ref().unwrap();
        let others = readings.others(&head.path);
        let made: usize = others.map(str::len).sum();
        let made = made + readings.base().len();
        assert!(made > 5 * path.len(), "{made} of {}", path.len());
        assert!(made + path.len() <= counted, "{made}, not {counted}");
    }

    #[test]
    fn fields_that_belong_to_a_connection_are_not_kept() {
        let name = "x-".repeat(1_000);
        let memory = |connection: &str| {
            let text =
                format!("GET / HTTP/1.1\r\nHost: a\r\n{connection}: {name}\r\n{name}: b\r\n\r\n");
            KeptHead::new(&head::parse(text.as_bytes(), &Limits::default()).unwrap()).memory()
        };
        assert_eq!(
            memory("Connection") + name.len() + "b".len() + FIELD_BYTES,
            memory("Collection")
        );
    }
}
