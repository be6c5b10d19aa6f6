//! A sorted multimap from 64-bit hashes to 32-bit ids, in 12 bytes an entry.

use std::collections::BTreeSet;

/// The index of the engine. A tree and not a hash table, because one change among millions must
/// never pay for a rehash.
#[derive(Default)]
pub(crate) struct Multimap(BTreeSet<[u32; 3]>);

impl Multimap {
    /// Adds a pair.
    pub(crate) fn insert(&mut self, hash: u64, id: u32) {
        self.0.insert(pack(hash, id));
    }

    /// Takes a pair out.
    pub(crate) fn remove(&mut self, hash: u64, id: u32) {
        self.0.remove(&pack(hash, id));
    }

    /// The ids of a hash, in ascending order.
    pub(crate) fn ids(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        self.0
            .range(pack(hash, 0)..=pack(hash, u32::MAX))
            .map(|&[_, _, id]| id)
    }

    /// Whether a hash has any id.
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.ids(hash).next().is_some()
    }

    /// The number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn pack(hash: u64, id: u32) -> [u32; 3] {
    [(hash >> 32) as u32, hash as u32, id]
}

#[cfg(test)]
mod tests {
    use super::Multimap;

    #[test]
    fn ids_of_one_hash_are_found_and_no_others() {
        let mut map = Multimap::default();
        for (hash, id) in [
            (1 << 40, 7),
            (1 << 40, 3),
            ((1 << 40) + 1, 9),
            (0, u32::MAX),
        ] {
            map.insert(hash, id);
        }
        assert_eq!(map.ids(1 << 40).collect::<Vec<_>>(), [3, 7]);
        map.remove(1 << 40, 3);
        map.remove(1 << 40, 8);
        assert_eq!(map.ids(1 << 40).collect::<Vec<_>>(), [7]);
        assert!(map.has(0) && !map.has(2));
        assert_eq!(map.len(), 3);
    }
}
