//! Our part of a status after somebody else has edited it: it is written again, and the later the
//! more often that happens, so that a fight with another writer costs little.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use myriad_api::ObjectKey;
use myriad_base::clock::{self, Instant};
use serde_json::Value;

use super::super::super::moment::second_time;
use super::super::ours::{StatusOwner, difference};
use super::super::work::Shared;
use super::{Describe, Description, State};

/// The most edited objects that are remembered. Each of the others waits for as long as one that
/// is edited all the time.
const EDITED_MAX: usize = 10_000;

/// How many times as long as at first an object waits that is edited all the time.
const WAITS_MAX: u32 = 64;

/// Compares objects that watches show with what their status shall be.
pub(super) struct Mender {
    pub(super) owner: StatusOwner,
    pub(super) describe: Arc<dyn Describe>,
    pub(super) shared: Arc<Shared<State>>,
}

/// The objects that were edited, until they have been left alone for a while.
pub(super) struct Mends {
    mend_after: Duration,
    edits: HashMap<ObjectKey, Edit>,
    /// The same in the order in which they are forgotten.
    ends: BTreeSet<(Instant, ObjectKey)>,
}

struct Edit {
    /// How long it waited, or waits.
    wait: Duration,
    /// When it is forgotten.
    end: Instant,
    /// Whether it has still to be looked at.
    is_due: bool,
}

impl Mender {
    /// Lets an object be looked at, a while later, whose status is not what it shall be. Nothing is
    /// before the first review.
    pub(super) fn look(&self, key: &ObjectKey, json: &str) {
        let now = clock::now();
        if !self.shared.claim.holds(now) {
            return;
        }
        let state = self.shared.lock();
        // What waits to be written differs, and nobody has edited it.
        let is_of_interest = state.is_open && !state.schedule.has(key);
        drop(state);
        if !is_of_interest || !self.is_wrong(key, json) {
            return;
        }
        let mut state = self.shared.lock();
        let at = state.mends.note(key, now);
        let has_forgotten = state.schedule.look(key.clone(), at, now);
        drop(state);
        self.shared.note_forgotten(has_forgotten);
        self.shared.wake.notify_one();
    }

    fn is_wrong(&self, key: &ObjectKey, json: &str) -> bool {
        let wanted = match self.describe.peek(key) {
            Description::Shown(wanted) => Some(wanted),
            // One that is somebody else's alone costs a look for our names.
            Description::Nothing if !self.is_named_in(json) => return false,
            Description::Nothing => None,
            Description::Later => return false,
        };
        let Ok(read) = serde_json::from_str::<Value>(json) else {
            return false;
        };
        let moment = second_time(clock::since_epoch());
        difference(key.kind, &read, wanted.as_ref(), (&self.owner, &moment)).is_some()
    }

    fn is_named_in(&self, json: &str) -> bool {
        json.contains(&*self.owner.controller) || json.contains(&*self.owner.manager)
    }
}

impl Mends {
    /// A memory of nothing. An object that was edited waits for so long at first.
    pub(super) fn new(mend_after: Duration) -> Self {
        Mends {
            mend_after,
            edits: HashMap::new(),
            ends: BTreeSet::new(),
        }
    }

    /// Notes an object that was edited. Returns when it is to be looked at.
    pub(super) fn note(&mut self, key: &ObjectKey, now: Instant) -> Instant {
        self.forget_until(now);
        let longest = self.mend_after * WAITS_MAX;
        let known = self.edits.remove(key);
        if let Some(known) = &known {
            self.ends.remove(&(known.end, key.clone()));
        } else if self.edits.len() >= EDITED_MAX {
            return now + longest;
        }
        let wait = known.map_or(self.mend_after, |it| longest.min(it.wait * 2));
        let (at, end) = (now + wait, now + wait * 3);
        let edit = Edit {
            wait,
            end,
            is_due: true,
        };
        self.ends.insert((end, key.clone()));
        self.edits.insert(key.clone(), edit);
        at
    }

    /// An object is looked at. Returns whether it was edited since it last was.
    pub(super) fn take(&mut self, key: &ObjectKey) -> bool {
        let edit = self.edits.get_mut(key);
        edit.is_some_and(|it| std::mem::take(&mut it.is_due))
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.edits.clear();
        self.ends.clear();
    }

    /// Forgets those that have been left alone for twice as long as they had waited.
    fn forget_until(&mut self, now: Instant) {
        while self.ends.first().is_some_and(|(end, _)| *end <= now) {
            if let Some((_, key)) = self.ends.pop_first() {
                self.edits.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_base::clock;

    use super::{EDITED_MAX, Mends};

    const FIRST: Duration = Duration::from_secs(5);

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::HttpRoute, "n", name)
    }

    #[test]
    fn the_more_often_an_object_is_edited_the_later_it_is_written() {
        let (mut mends, mut now) = (Mends::new(FIRST), clock::now());
        let mut waits = Vec::new();
        for _ in 0..9 {
            let at = mends.note(&key("a"), now);
            waits.push((at - now).as_secs());
            assert!(mends.take(&key("a")) && !mends.take(&key("a")));
            now = at + Duration::from_millis(1);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
        assert_eq!(mends.note(&key("b"), now), now + FIRST);
        // One that was left alone is as any other.
        now += FIRST * 1_000;
        assert_eq!(mends.note(&key("a"), now), now + FIRST);
        assert_eq!((mends.edits.len(), mends.ends.len()), (1, 1));
        mends.clear();
        assert!(!mends.take(&key("a")) && mends.ends.is_empty());
    }

    #[test]
    fn of_too_many_that_are_edited_some_are_not_remembered_and_wait_longest() {
        let (mut mends, now) = (Mends::new(FIRST), clock::now());
        for number in 0..EDITED_MAX {
            mends.note(&key(&number.to_string()), now);
        }
        assert_eq!(mends.note(&key("beyond"), now), now + FIRST * 64);
        assert_eq!(
            (mends.edits.len(), mends.ends.len()),
            (EDITED_MAX, EDITED_MAX)
        );
        assert!(!mends.take(&key("beyond")));
        assert_eq!(mends.note(&key("0"), now), now + FIRST * 2);
    }
}
