//! The writer: turns what a unit produced into what changed.

use std::collections::BTreeMap;

use crate::{Change, Delta, Key, Name, Position, Resource, SealedArc, Sealer, Snapshot};

/// Holds the newest snapshot and is the only one who makes the next. Comparison is by version:
/// an output that is equal to the one before moves nothing further.
///
/// Where there are several views, each has a snapshot. They share what is the same in them.
pub struct Writer {
    sealer: Sealer,
    /// The snapshot of the main view, whose place is 0. Its moment is that of all.
    snapshot: Snapshot,
    /// The snapshots of the other views, by their places, at no moment.
    others: BTreeMap<u32, Snapshot>,
}

impl Writer {
    /// A writer with an empty snapshot.
    pub fn new(sealer: Sealer) -> Self {
        Writer {
            sealer,
            snapshot: Snapshot::new(),
            others: BTreeMap::new(),
        }
    }

    /// Begins an empty snapshot at a place, unless there is one.
    pub fn add_view(&mut self, place: u32) {
        if place != 0 {
            self.others.entry(place).or_default();
        }
    }

    /// Forgets the snapshot at a place; never that of the main view.
    pub fn remove_view(&mut self, place: u32) {
        self.others.remove(&place);
    }

    /// The newest snapshot at a place.
    pub fn snapshot_at(&self, place: u32) -> Option<Snapshot> {
        let snapshot = self.at(place)?.clone();
        Some(snapshot.as_of(self.snapshot.moment()))
    }

    /// The resources at a place.
    fn at(&self, place: u32) -> Option<&Snapshot> {
        match place {
            0 => Some(&self.snapshot),
            _ => self.others.get(&place),
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

    /// Moves the position of the newest snapshots, however many there are.
    pub fn set_position(&mut self, position: Position) {
        let moment = self.snapshot.moment().moved_to(position);
        self.snapshot.set_moment(moment);
    }

    /// Notes in all snapshots that what goes next was missing; see [`Snapshot::inferences`].
    pub fn note_inference(&mut self) {
        let moment = self.snapshot.moment().inferring();
        self.snapshot.set_moment(moment);
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
            remove_all(&self.sealer, &mut self.snapshot, gone, delta);
        } else {
            let kept: std::collections::HashSet<(crate::Kind, &Name)> = outputs
                .iter()
                .map(|(name, out)| (out.value.kind(), name))
                .collect();
            let gone = former
                .iter()
                .filter(|key| !kept.contains(&(key.kind, &key.name)));
            remove_all(&self.sealer, &mut self.snapshot, gone, delta);
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

    /// Seals an output for several views, at these places: the one that any of them has already,
    /// where it is equal.
    pub fn seal(
        &mut self,
        name: Name,
        resource: Resource,
        places: impl IntoIterator<Item = u32>,
    ) -> SealedArc {
        let sealed = self.sealer.seal(name, resource);
        for place in places {
            let snapshot = self.at(place);
            let known = snapshot.and_then(|it| it.get(sealed.slot(), sealed.key()));
            if let Some(known) = known.filter(|it| it.version() == sealed.version()) {
                return known.clone();
            }
        }
        SealedArc::new(sealed)
    }

    /// The resources with these keys that the snapshot at a place has.
    pub fn outputs_at(&self, place: u32, keys: &[Key]) -> Vec<SealedArc> {
        let Some(snapshot) = self.at(place) else {
            return Vec::new();
        };
        let found = keys.iter();
        let found = found.filter_map(|key| snapshot.get(self.sealer.slot(key), key));
        found.cloned().collect()
    }

    /// Like [`Writer::replace`] in the snapshot at one place, with outputs that are sealed.
    pub fn replace_at<'a>(
        &mut self,
        place: u32,
        former: &[Key],
        outputs: &[SealedArc],
        delta: &'a mut Delta,
    ) -> &'a [Change] {
        let snapshot = match place {
            0 => Some(&mut self.snapshot),
            _ => self.others.get_mut(&place),
        };
        let Some(snapshot) = snapshot else {
            return delta.close();
        };
        let kept: std::collections::HashSet<&Key> = outputs.iter().map(|it| it.key()).collect();
        let gone = former.iter().filter(|key| !kept.contains(key));
        remove_all(&self.sealer, snapshot, gone, delta);
        for sealed in outputs {
            let old = snapshot.get(sealed.slot(), sealed.key()).cloned();
            let same = old.as_ref().map(|old| old.version()) == Some(sealed.version());
            if !same {
                let change = Change {
                    key: old.as_ref().unwrap_or(sealed).key().clone(),
                    old,
                    new: Some(sealed.clone()),
                };
                snapshot.apply(&change);
                delta.push(change);
            }
        }
        delta.close()
    }
}

fn remove_all<'a>(
    sealer: &Sealer,
    snapshot: &mut Snapshot,
    keys: impl Iterator<Item = &'a Key>,
    delta: &mut Delta,
) {
    for key in keys {
        let slot = sealer.slot(key);
        let Some(old) = snapshot.get(slot, key).cloned() else {
            continue;
        };
        let change = Change {
            key: key.clone(),
            old: Some(old),
            new: None,
        };
        snapshot.apply(&change);
        delta.push(change);
    }
}

#[cfg(test)]
mod tests;
