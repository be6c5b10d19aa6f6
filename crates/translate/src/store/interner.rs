//! Equal values stored once, for as long as something uses them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};

/// Counted handles of equal values. `H` is a cheap handle, such as an `Arc` or `Bytes`, that
/// compares and hashes by content.
pub(crate) struct Interner<H> {
    entries: BTreeMap<u64, Vec<Entry<H>>>,
    /// Hashes of entries that nobody has counted as used yet.
    fresh: Vec<u64>,
    seed: RandomState,
}

struct Entry<H> {
    handle: H,
    uses: u32,
}

impl<H: Hash + Eq + Clone> Interner<H> {
    /// An empty interner.
    pub(crate) fn new() -> Self {
        Interner {
            entries: BTreeMap::new(),
            fresh: Vec::new(),
            seed: RandomState::new(),
        }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.entries.values().map(Vec::len).sum()
    }

    /// The one handle of all values equal to this one. Not counted: see [`Interner::retain`].
    pub(crate) fn share(&mut self, value: H) -> H {
        let hash = self.seed.hash_one(&value);
        let row = self.entries.entry(hash).or_default();
        if let Some(known) = row.iter().find(|known| known.handle == value) {
            return known.handle.clone();
        }
        row.push(Entry {
            handle: value.clone(),
            uses: 0,
        });
        self.fresh.push(hash);
        value
    }

    /// Counts one use.
    pub(crate) fn retain(&mut self, value: &H) {
        let hash = self.seed.hash_one(value);
        let row = self.entries.entry(hash).or_default();
        match row.iter_mut().find(|known| known.handle == *value) {
            Some(known) => known.uses += 1,
            None => row.push(Entry {
                handle: value.clone(),
                uses: 1,
            }),
        }
    }

    /// Takes one use back; the last one forgets the value.
    pub(crate) fn release(&mut self, value: &H) {
        let hash = self.seed.hash_one(value);
        if let Some(row) = self.entries.get_mut(&hash)
            && let Some(known) = row.iter_mut().find(|known| known.handle == *value)
        {
            known.uses = known.uses.saturating_sub(1);
            self.fresh.push(hash);
        }
    }

    /// Forgets what was shared but never retained. Called at the end of each batch.
    pub(crate) fn settle(&mut self) {
        for hash in std::mem::take(&mut self.fresh) {
            if let Some(row) = self.entries.get_mut(&hash) {
                row.retain(|known| known.uses > 0);
                if row.is_empty() {
                    self.entries.remove(&hash);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Interner;

    #[test]
    fn equal_values_share_one_handle_until_the_last_use_ends() {
        let mut interner = Interner::new();
        let first: Arc<str> = interner.share("a".into());
        let second = interner.share("a".into());
        assert!(Arc::ptr_eq(&first, &second));
        interner.retain(&first);
        interner.retain(&second);
        interner.release(&first);
        interner.settle();
        assert!(Arc::ptr_eq(&interner.share("a".into()), &second));
        interner.release(&second);
        interner.settle();
        assert_eq!(interner.len(), 0);
    }

    #[test]
    fn what_nobody_retained_is_forgotten() {
        let mut interner = Interner::<Arc<str>>::new();
        interner.share("a".into());
        interner.settle();
        assert_eq!(interner.len(), 0);
    }
}
