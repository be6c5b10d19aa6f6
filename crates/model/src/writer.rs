//! The writer: turns what a unit produced into what changed.

use crate::{Change, Delta, Key, Name, Position, Resource, SealedArc, Sealer, Snapshot};

/// Holds the newest snapshot and is the only one who makes the next. Comparison is by version:
/// an output that is equal to the one before moves nothing further.
pub struct Writer {
    sealer: Sealer,
    snapshot: Snapshot,
}

impl Writer {
    /// A writer with an empty snapshot.
    pub fn new(sealer: Sealer) -> Self {
        Writer {
            sealer,
            snapshot: Snapshot::new(),
        }
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// How many bytes were encoded so far, in order to be hashed or sent.
    pub fn bytes_encoded(&self) -> u64 {
        self.sealer.bytes_encoded()
    }

    /// Moves the position of the newest snapshot.
    pub fn set_position(&mut self, position: Position) {
        self.snapshot.set_position(position);
    }

    /// Replaces the outputs of one unit: `former` are the keys it had, `outputs` what it has
    /// now. What differs is added to `delta` as one group and returned; an equal output is no
    /// change.
    ///
    /// A key belongs to one unit. If two claim it, the later one has it and the former loses it
    /// when the later one drops it, so translation must not let that happen.
    pub fn replace<'a>(
        &mut self,
        former: &[Key],
        outputs: Vec<(Name, Resource)>,
        delta: &'a mut Delta,
    ) -> &'a [Change] {
        let is_kept = |key: &Key| {
            outputs
                .iter()
                .any(|(name, out)| *name == key.name && out.value.kind() == key.kind)
        };
        // A unit has few outputs, or its cost is theirs anyway; but a host of 10,000 routes
        // must not be compared pair by pair.
        if former.len() * outputs.len() <= 256 {
            let gone = former.iter().filter(|key| !is_kept(key));
            self.remove_all(gone, delta);
        } else {
            let kept: std::collections::HashSet<(crate::Kind, &Name)> = outputs
                .iter()
                .map(|(name, out)| (out.value.kind(), name))
                .collect();
            let gone = former
                .iter()
                .filter(|key| !kept.contains(&(key.kind, &key.name)));
            self.remove_all(gone, delta);
        }
        for (name, resource) in outputs {
            let sealed = self.sealer.seal(name, resource);
            let old = self.snapshot.get(sealed.slot(), sealed.key()).cloned();
            if old
                .as_ref()
                .is_some_and(|old| old.version() == sealed.version())
            {
                continue;
            }
            // An unchanged name stays the one allocation that others already share.
            let key = old
                .as_ref()
                .map_or_else(|| sealed.key().clone(), |old| old.key().clone());
            let change = Change {
                key,
                old,
                new: Some(SealedArc::new(sealed)),
            };
            self.snapshot.apply(&change);
            delta.push(change);
        }
        delta.close()
    }

    fn remove_all<'a>(&mut self, keys: impl Iterator<Item = &'a Key>, delta: &mut Delta) {
        for key in keys {
            let slot = self.sealer.slot(key);
            let Some(old) = self.snapshot.get(slot, key).cloned() else {
                continue;
            };
            let change = Change {
                key: key.clone(),
                old: Some(old),
                new: None,
            };
            self.snapshot.apply(&change);
            delta.push(change);
        }
    }
}

#[cfg(test)]
mod tests;
