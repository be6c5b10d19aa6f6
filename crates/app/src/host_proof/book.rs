//! The proofs that are kept: a line for each host, which people can read.
//!
//! `a.example shop 1800000000` says that namespace `shop` has proven the host then.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use myriad_model::Host;

/// The most proofs, and the most of one namespace. All of them fit into a ConfigMap, but where
/// most of their names are of the longest.
pub(super) const PROOFS_MAX: usize = 8_192;
pub(super) const PROOFS_PER_NAMESPACE_MAX: usize = 1_024;

/// The most bytes of their text: the API server takes 1 MiB.
pub(super) const TEXT_BYTES_MAX: usize = 900 << 10;

/// The bytes of a line beside those of its names.
const LINE_BYTES: usize = 24;

/// Proofs by their hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProofBook {
    by_host: BTreeMap<Host, KeptProof>,
    counts: BTreeMap<Box<str>, usize>,
    bytes: usize,
}

/// A proof that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeptProof {
    namespace: Box<str>,
    /// When it was made, in seconds since the epoch.
    since: i64,
}

impl ProofBook {
    /// The namespace that has proven a host.
    pub(super) fn get(&self, host: &Host) -> Option<&str> {
        self.by_host.get(host).map(|proof| &*proof.namespace)
    }

    /// All hosts and who has proven them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Host, &str)> {
        let all = self.by_host.iter();
        all.map(|(host, proof)| (host, &*proof.namespace))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_host.len()
    }

    /// Keeps a proof, in place of another one of the host, if there is room. Where there are as
    /// many as there may be, the newest of a namespace that has more than this one makes room.
    /// Returns whether it is kept; otherwise all is as before.
    pub(super) fn put(&mut self, host: &Host, namespace: &str, now: i64) -> bool {
        let former = self.take(host);
        let bytes = bytes_of(host, namespace);
        let has_room = self.make_room(namespace, bytes);
        let proof = KeptProof {
            namespace: namespace.into(),
            since: now,
        };
        let kept = if has_room { Some(proof) } else { former };
        if let Some(proof) = kept {
            self.bytes += bytes_of(host, &proof.namespace);
            *self.counts.entry(proof.namespace.clone()).or_default() += 1;
            self.by_host.insert(host.clone(), proof);
        }
        has_room
    }

    /// Forgets the proof of a host.
    pub(super) fn remove(&mut self, host: &Host) {
        self.take(host);
    }

    fn take(&mut self, host: &Host) -> Option<KeptProof> {
        let former = self.by_host.remove(host)?;
        self.bytes -= bytes_of(host, &former.namespace);
        if let Some(count) = self.counts.get_mut(&former.namespace) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&former.namespace);
            }
        }
        Some(former)
    }

    fn make_room(&mut self, namespace: &str, bytes: usize) -> bool {
        if self.count(namespace) >= PROOFS_PER_NAMESPACE_MAX {
            return false;
        }
        while self.len() >= PROOFS_MAX || self.bytes + bytes > TEXT_BYTES_MAX {
            let Some(victim) = self.victim(self.count(namespace) + 1) else {
                return false;
            };
            self.remove(&victim);
        }
        true
    }

    fn count(&self, namespace: &str) -> usize {
        self.counts.get(namespace).copied().unwrap_or_default()
    }

    /// The newest proof of the namespace that has most of them, where it has more than so many.
    fn victim(&self, count: usize) -> Option<Host> {
        let most = self.counts.iter().max_by_key(|(_, count)| **count);
        let (namespace, _) = most.filter(|(_, most)| **most > count)?;
        let own = self.by_host.iter();
        let own = own.filter(|(_, proof)| proof.namespace == *namespace);
        let newest = own.max_by_key(|(_, proof)| proof.since);
        newest.map(|(host, _)| host.clone())
    }

    /// The text that says all of it.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(self.bytes);
        for (host, proof) in &self.by_host {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{host} {} {}", proof.namespace, proof.since);
        }
        text
    }

    /// Reads a text, and counts the lines in it that say nothing, or more than there may be.
    pub(super) fn read(text: &str) -> (ProofBook, usize) {
        let (mut book, mut unread) = (ProofBook::default(), 0);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let is_read = read_line(line)
                .is_some_and(|(host, namespace, since)| book.put(&host, namespace, since));
            unread += usize::from(!is_read);
        }
        (book, unread)
    }
}

fn read_line(line: &str) -> Option<(Host, &str, i64)> {
    let mut words = line.split_whitespace();
    let host = Host::parse(words.next()?).ok()?;
    let (namespace, since) = (words.next()?, words.next()?);
    Some((host, namespace, since.parse().ok()?)).filter(|_| words.next().is_none())
}

fn bytes_of(host: &Host, namespace: &str) -> usize {
    host.as_str().len() + namespace.len() + LINE_BYTES
}

#[cfg(test)]
mod tests {
    use myriad_model::Host;

    use super::{PROOFS_MAX, PROOFS_PER_NAMESPACE_MAX, ProofBook, TEXT_BYTES_MAX};

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_the_rest_is_counted() {
        let text = "*.a.test shop 1800000000\nb.test blog 1800000001\n";
        let (book, unread) = ProofBook::read(text);
        assert_eq!((book.len(), unread), (2, 0));
        assert_eq!(book.get(&host("*.a.test")), Some("shop"));
        assert_eq!(book.text(), text);
        let wrong = "a..test shop 1\na.test shop\na.test shop x\na.test shop 1 2\n\n";
        let (book, unread) = ProofBook::read(wrong);
        assert_eq!((book, unread), (ProofBook::default(), 4));
    }

    #[test]
    fn a_host_has_one_proof_and_what_is_forgotten_counts_for_nothing() {
        let mut book = ProofBook::default();
        assert!(book.put(&host("a.test"), "shop", 1));
        assert!(book.put(&host("a.test"), "blog", 2));
        assert_eq!(book.iter().collect::<Vec<_>>(), [(&host("a.test"), "blog")]);
        assert_eq!((book.count("shop"), book.count("blog")), (0, 1));
        book.remove(&host("a.test"));
        assert_eq!(book, ProofBook::default());
    }

    #[test]
    fn a_namespace_that_fills_the_book_gives_way_and_gets_no_more_than_its_share() {
        let mut book = ProofBook::default();
        for at in 0..=PROOFS_PER_NAMESPACE_MAX {
            let is_kept = book.put(&host(&format!("h{at}.test")), "flood", 1);
            assert_eq!(is_kept, at < PROOFS_PER_NAMESPACE_MAX);
        }
        for namespace in 1..PROOFS_MAX / PROOFS_PER_NAMESPACE_MAX {
            for at in 0..PROOFS_PER_NAMESPACE_MAX {
                let name = format!("n{namespace}");
                assert!(book.put(&host(&format!("h{at}.{name}.test")), &name, 2));
            }
        }
        assert_eq!(book.len(), PROOFS_MAX);
        // Whoever has as many as it may takes no host of another one by one more.
        assert!(!book.put(&host("h1.n1.test"), "flood", 3));
        assert_eq!(book.get(&host("h1.n1.test")), Some("n1"));
        assert_eq!(book.len(), PROOFS_MAX);
        assert!(book.put(&host("a.test"), "shop", 3), "others give way");
        assert_eq!(book.len(), PROOFS_MAX);
        assert_eq!(book.get(&host("a.test")), Some("shop"));
    }

    #[test]
    fn the_text_never_outgrows_its_bound() {
        let mut book = ProofBook::default();
        let label = "x".repeat(63);
        for at in 0..PROOFS_MAX {
            let long = format!("h{at:04}.{label}.{label}.{label}.test");
            book.put(&host(&long), &format!("n{:063}", at % 16).split_off(1), 1);
        }
        assert!(book.len() > 1_000, "{}", book.len());
        assert!(book.text().len() <= TEXT_BYTES_MAX);
    }
}
