//! The certificates of which people were told that they wait for an issuer: of each namespace so
//! many, so that none is told of less because of another.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The most of one namespace.
const OF_NAMESPACE_MAX: usize = 256;

/// The most of all.
const ALL_MAX: usize = 65_536;

/// The certificates that wait, with the names of their issuers.
#[derive(Default)]
pub(super) struct WaitingBook {
    issuers: BTreeMap<Arc<str>, Box<str>>,
    /// How many there are of each namespace.
    counts: BTreeMap<Box<str>, usize>,
}

impl WaitingBook {
    /// Notes that a certificate waits. Whether people are to be told.
    pub(super) fn add(&mut self, id: &Arc<str>, issuer: &str) -> bool {
        if let Some(known) = self.issuers.get_mut(id) {
            *known = issuer.into();
            return true;
        }
        let namespace = namespace_of(id);
        let count = self.counts.get(namespace).copied().unwrap_or(0);
        if count >= OF_NAMESPACE_MAX || self.issuers.len() >= ALL_MAX {
            return false;
        }
        self.counts.insert(namespace.into(), count + 1);
        self.issuers.insert(id.clone(), issuer.into());
        true
    }

    /// Notes that a certificate does not wait any more. Whether it did.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let has_waited = self.issuers.remove(id).is_some();
        if has_waited {
            self.release(id);
        }
        has_waited
    }

    /// Takes out the certificates that wait for an issuer.
    pub(super) fn take(&mut self, issuer: &str) -> Vec<Arc<str>> {
        let ended = self.issuers.extract_if(.., |_, of| **of == *issuer);
        let ended: Vec<Arc<str>> = ended.map(|(id, _)| id).collect();
        for id in &ended {
            self.release(id);
        }
        ended
    }

    fn release(&mut self, id: &str) {
        let namespace = namespace_of(id);
        let left = self.counts.remove(namespace).unwrap_or(0).saturating_sub(1);
        if left > 0 {
            self.counts.insert(namespace.into(), left);
        }
    }
}

fn namespace_of(id: &str) -> &str {
    id.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{OF_NAMESPACE_MAX, WaitingBook};

    #[test]
    fn a_namespace_of_thousands_keeps_no_other_from_being_told() {
        let mut book = WaitingBook::default();
        let id = |namespace: &str, number: usize| -> Arc<str> {
            format!("{namespace}/s{number}").into()
        };
        let crowd = (0..10_000).filter(|number| book.add(&id("crowd", *number), "le"));
        assert_eq!(crowd.count(), OF_NAMESPACE_MAX);
        assert!(book.add(&id("shop", 1), "own"));
        // The same one again is one.
        assert!(book.add(&id("crowd", 0), "le"));
        assert!(book.remove("crowd/s0") && !book.remove("crowd/s0"));
        assert!(book.add(&id("crowd", 9_999), "le"));
        assert!(!book.add(&id("crowd", 9_998), "le"));

        assert_eq!(book.take("le").len(), OF_NAMESPACE_MAX);
        assert!(book.take("le").is_empty());
        assert_eq!(book.take("own"), [id("shop", 1)]);
        assert!(book.issuers.is_empty() && book.counts.is_empty());
    }
}
