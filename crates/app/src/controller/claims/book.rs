//! The text of the ConfigMaps, in parts by namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_translate::{ClaimsChange, LateClaims};

use super::text;

/// How many ConfigMaps there are. The roles of the chart name each of them.
pub(super) const SHARDS: usize = 8;

/// The most bytes of one: the API server takes 1 MiB.
const SHARD_BYTES_MAX: usize = 900 << 10;

/// All claims that are to be kept.
#[derive(Default)]
pub(super) struct Book {
    shards: [Shard; SHARDS],
}

#[derive(Default)]
struct Shard {
    objects: BTreeMap<ObjectKey, LateClaims>,
    beyond: BTreeSet<Arc<str>>,
    /// Whether it may differ from what was written.
    is_dirty: bool,
}

impl Book {
    /// Takes in what changed.
    pub(super) fn take(&mut self, change: ClaimsChange) {
        for claims in change.objects {
            let Some(shard) = self.shards.get_mut(shard_of(claims.key.namespace())) else {
                continue;
            };
            shard.is_dirty = true;
            match claims.is_empty() {
                true => drop(shard.objects.remove(&claims.key)),
                false => drop(shard.objects.insert(claims.key.clone(), claims)),
            }
        }
        for namespace in change.beyond {
            if let Some(shard) = self.shards.get_mut(shard_of(&namespace)) {
                shard.is_dirty = true;
                shard.beyond.insert(namespace);
            }
        }
    }

    /// A part is to be written again, though nothing changed.
    pub(super) fn touch(&mut self, shard: usize) {
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.is_dirty = true;
        }
    }

    /// Whether anything is to be written.
    pub(super) fn is_dirty(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_dirty)
    }

    /// The text of a part that is to be written; none of one that is not. Where it is too long, the
    /// namespace that takes more than its share: of several the one that came last to a host, so
    /// that nobody loses what was noted before others filled the part.
    pub(super) fn text(&self, shard: usize) -> Option<Result<String, Arc<str>>> {
        let shard = self.shards.get(shard).filter(|shard| shard.is_dirty)?;
        let text = text::write(shard.objects.values(), &shard.beyond);
        if text.len() <= SHARD_BYTES_MAX {
            return Some(Ok(text));
        }
        // The bytes of each, and when it came to a host last.
        let mut takers: BTreeMap<&str, (usize, i64)> = BTreeMap::new();
        for claims in shard.objects.values() {
            let (bytes, last) = takers.entry(claims.key.namespace()).or_default();
            *bytes += text::line(claims).len();
            let since = claims.claims.iter().map(|(_, since)| *since);
            *last = since.fold(*last, i64::max);
        }
        let share = SHARD_BYTES_MAX / takers.len().max(1);
        let rank = |(_, (bytes, last)): &(&str, (usize, i64))| match *bytes > share {
            true => (true, *last, *bytes),
            false => (false, 0, *bytes),
        };
        let found = takers.into_iter().max_by_key(rank);
        found.map(|(namespace, _)| Err(namespace.into()))
    }

    /// A part says this text now; it may have changed since.
    pub(super) fn written(&mut self, shard: usize, text: &str) {
        let newest = self.text(shard);
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.is_dirty = newest.is_some_and(|newest| newest.as_deref() != Ok(text));
        }
    }
}

/// The part of a namespace. It is the same for every version that reads them (FNV-1a).
fn shard_of(namespace: &str) -> usize {
    let hash = namespace
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    usize::try_from(hash % SHARDS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_model::Host;
    use myriad_translate::{Claimed, ClaimsChange, LateClaims};

    use super::{Book, SHARD_BYTES_MAX, SHARDS, shard_of};

    fn claims(namespace: &str, name: &str, hosts: usize) -> LateClaims {
        let host = |at: usize| {
            let host = Host::parse(&format!("h{at}.{namespace}.test"));
            Claimed::Host(host.expect("a host"))
        };
        LateClaims {
            key: ObjectKey::new(ObjectKind::Ingress, namespace, name),
            created: 7,
            claims: (0..hosts).map(|at| (host(at), 1_800_000_000)).collect(),
            left: Vec::new(),
        }
    }

    fn change(objects: Vec<LateClaims>) -> ClaimsChange {
        ClaimsChange {
            objects,
            beyond: Vec::new(),
        }
    }

    #[test]
    fn a_part_is_written_once_and_again_where_it_changed_meanwhile() {
        let (mut book, shard) = (Book::default(), shard_of("shop"));
        assert!(!book.is_dirty() && (0..SHARDS).all(|at| book.text(at).is_none()));
        book.take(change(vec![claims("shop", "a", 1)]));
        let first = book.text(shard).expect("to write").expect("short");
        book.take(change(vec![claims("shop", "b", 1)]));
        book.written(shard, &first);
        let second = book.text(shard).expect("to write").expect("short");
        assert!(second.starts_with(&first) && second.len() > first.len());
        book.written(shard, &second);
        assert!(!book.is_dirty());
        book.take(change(vec![claims("shop", "b", 0)]));
        assert_eq!(book.text(shard), Some(Ok(first)));
    }

    #[test]
    fn a_part_that_would_be_too_long_names_who_takes_most_of_it() {
        let shard = shard_of("shop");
        let mut others = (0..).map(|number| format!("n{number}"));
        let other = others
            .find(|it| shard_of(it) == shard)
            .expect("one of many");
        let mut book = Book::default();
        book.take(change(vec![
            claims("shop", "a", SHARD_BYTES_MAX / 16),
            claims(&other, "a", 10),
        ]));
        assert_eq!(book.text(shard), Some(Err("shop".into())));
        book.take(ClaimsChange {
            objects: vec![claims("shop", "a", 0)],
            beyond: vec!["shop".into()],
        });
        let text = book.text(shard).expect("to write").expect("short enough");
        assert_eq!(text.lines().count(), 2);
        assert!(text.starts_with("beyond shop\n"));
    }

    #[test]
    fn of_those_with_more_than_their_share_the_last_to_come_is_named() {
        let shard = shard_of("shop");
        let mut others = (0..).map(|number| format!("n{number}"));
        let mut other = || {
            let found = others.find(|it| shard_of(it) == shard);
            found.expect("one of many")
        };
        let (newcomer, small) = (other(), other());
        let since = |mut claims: LateClaims, since: i64| {
            for (_, known) in &mut claims.claims {
                *known = since;
            }
            claims
        };
        // The text of each host has some 30 bytes.
        let share = SHARD_BYTES_MAX / 3 / 30;
        let mut book = Book::default();
        book.take(change(vec![
            since(claims("shop", "a", 2 * share), 1_800_000_000),
            since(claims(&newcomer, "a", share + share / 2), 1_800_000_001),
            since(claims(&small, "a", 10), 1_800_000_002),
        ]));
        let named = book.text(shard).expect("to write").expect_err("too long");
        assert_eq!(*named, *newcomer);
    }

    #[test]
    fn namespaces_stay_in_their_parts() {
        let parts = ["shop", "blog", ""].map(shard_of);
        assert_eq!(parts, ["shop", "blog", ""].map(shard_of));
        assert!(parts.iter().all(|part| *part < SHARDS));
        let all: std::collections::BTreeSet<usize> =
            (0..100).map(|at| shard_of(&format!("n{at}"))).collect();
        assert_eq!(all.len(), SHARDS);
    }
}
