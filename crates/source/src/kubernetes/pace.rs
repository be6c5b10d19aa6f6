//! Turns at being read: a namespace whose large objects change all the time waits, and nobody waits
//! for it.
//!
//! Reading an object of a megabyte takes some 10 ms of the one thread that reads all watches. So a
//! namespace that had a large line read waits for several times as long as that took. Meanwhile its
//! large lines are set aside, of each object the newest one, which is all that anybody needs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::Instant;

/// Lines below this are read at once: some 0.5 ms.
pub(super) const LARGE_BYTES: usize = 64 << 10;

/// How many times the time of a reading a namespace waits after it: a fifth is its part.
const WAIT_FACTOR: u32 = 4;

/// The longest wait of a namespace.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The most bytes that are set aside. Beyond them lines are read at once.
const ASIDE_BYTES_MAX: usize = 64 << 20;

/// The most namespaces whose waits are remembered.
const NAMESPACES_MAX: usize = 1_024;

/// The name and the version of an object in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// `namespace/name`.
    pub(super) id: Arc<str>,
    /// `metadata.resourceVersion`.
    pub(super) version: u64,
}

/// The waits of the namespaces of one watch.
#[derive(Default)]
pub(super) struct Pace {
    /// Until when namespaces wait.
    waits: HashMap<Box<str>, Instant>,
    /// Lines that were set aside, by the order in which their objects were first.
    aside: BTreeMap<u64, Aside>,
    places: HashMap<Arc<str>, u64>,
    next_place: u64,
    bytes: usize,
}

struct Aside {
    label: Label,
    line: Bytes,
}

impl Pace {
    /// Sets a large line aside, if its namespace has to wait; otherwise gives it back.
    pub(super) fn admit(&mut self, label: &Label, line: Bytes, now: Instant) -> Option<Bytes> {
        let place = self.forget(&label.id);
        let is_waiting = self
            .waits
            .get(namespace(&label.id))
            .is_some_and(|until| *until > now);
        if !is_waiting || self.bytes.saturating_add(line.len()) > ASIDE_BYTES_MAX {
            return Some(line);
        }
        let place = place.unwrap_or(self.next_place);
        self.next_place += 1;
        self.bytes += line.len();
        self.places.insert(label.id.clone(), place);
        // A slice of a larger buffer would keep all of it.
        let (label, line) = (label.clone(), Bytes::copy_from_slice(&line));
        self.aside.insert(place, Aside { label, line });
        None
    }

    /// Forgets what was set aside of an object, since something newer is known; returns its place.
    pub(super) fn forget(&mut self, id: &str) -> Option<u64> {
        let place = self.places.remove(id)?;
        let aside = self.aside.remove(&place)?;
        self.bytes -= aside.line.len();
        Some(place)
    }

    /// Forgets all that was set aside.
    pub(super) fn clear(&mut self) {
        self.aside.clear();
        self.places.clear();
        self.bytes = 0;
    }

    /// Whether nothing is set aside.
    pub(super) fn is_empty(&self) -> bool {
        self.aside.is_empty()
    }

    /// The first line whose namespace waits no longer, with the object in it.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(Label, Bytes)> {
        let is_due = |it: &Aside| self.until(&it.label.id).is_none_or(|until| until <= now);
        let (place, _) = self.aside.iter().find(|(_, it)| is_due(it))?;
        let aside = self.aside.remove(&{ *place })?;
        self.places.remove(&aside.label.id);
        self.bytes -= aside.line.len();
        Some((aside.label, aside.line))
    }

    /// When [`Pace::take_due`] has something next; none where nothing is set aside.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let untils = self.aside.values().map(|it| self.until(&it.label.id));
        untils.min().flatten()
    }

    /// Lets a namespace wait for what reading took.
    pub(super) fn charge(&mut self, id: &str, took: Duration, now: Instant) {
        let wait = took.saturating_mul(WAIT_FACTOR).min(WAIT_MAX);
        if self.waits.len() >= NAMESPACES_MAX {
            self.waits.retain(|_, until| *until > now);
        }
        if self.waits.len() < NAMESPACES_MAX || self.waits.contains_key(namespace(id)) {
            self.waits.insert(namespace(id).into(), now + wait);
        }
    }

    /// The version up to which everything was read, if without what is set aside it is this one.
    pub(super) fn read_up_to(&self, version: u64) -> u64 {
        let oldest = self.aside.values().map(|it| it.label.version).min();
        oldest.map_or(version, |oldest| version.min(oldest.saturating_sub(1)))
    }

    fn until(&self, id: &str) -> Option<Instant> {
        self.waits.get(namespace(id)).copied()
    }
}

/// The namespace of a `namespace/name`.
fn namespace(id: &str) -> &str {
    id.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use myriad_base::clock;

    use super::{ASIDE_BYTES_MAX, Label, NAMESPACES_MAX, Pace, WAIT_MAX};

    const TOOK: Duration = Duration::from_millis(10);

    fn label(id: &str, version: u64) -> Label {
        let id = id.into();
        Label { id, version }
    }

    fn line(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn a_namespace_waits_for_four_times_what_reading_took_and_others_do_not() {
        let (mut pace, now) = (Pace::default(), clock::now());
        assert!(pace.admit(&label("evil/a", 1), line("1"), now).is_some());
        pace.charge("evil/a", TOOK, now);
        assert_eq!(pace.admit(&label("evil/b", 2), line("2"), now), None);
        assert!(pace.admit(&label("good/a", 3), line("3"), now).is_some());
        assert_eq!(pace.deadline(), Some(now + 4 * TOOK));
        assert_eq!(pace.take_due(now), None);
        let due = pace.take_due(now + 4 * TOOK);
        assert_eq!(due, Some((label("evil/b", 2), line("2"))));
        assert!(pace.is_empty() && pace.deadline().is_none());
    }

    #[test]
    fn of_an_object_the_newest_line_waits_at_the_place_of_the_first() {
        let (mut pace, now) = (Pace::default(), clock::now());
        pace.charge("evil/a", TOOK, now);
        for (id, version) in [("evil/a", 1), ("evil/b", 2), ("evil/a", 3)] {
            assert_eq!(pace.admit(&label(id, version), line("x"), now), None);
        }
        assert_eq!(pace.read_up_to(9), 1);
        let later = now + 4 * TOOK;
        assert_eq!(pace.take_due(later).unwrap().0, label("evil/a", 3));
        // One after the other, since each is charged for.
        pace.charge("evil/a", TOOK, later);
        assert_eq!(pace.take_due(later), None);
        assert_eq!(pace.forget("evil/b"), Some(1));
        assert_eq!(pace.read_up_to(9), 9);
        assert_eq!(pace.bytes, 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut pace, now) = (Pace::default(), clock::now());
        pace.charge("evil/a", Duration::from_secs(3_600), now);
        assert_eq!(pace.until("evil/a"), Some(now + WAIT_MAX));
        let large = Bytes::from(vec![b'x'; ASIDE_BYTES_MAX]);
        assert_eq!(pace.admit(&label("evil/a", 1), large.clone(), now), None);
        assert!(pace.admit(&label("evil/b", 2), line("x"), now).is_some());
        // The newest line of the same object takes the place of its former one.
        assert_eq!(pace.admit(&label("evil/a", 3), large, now), None);
        pace.clear();
        for number in 0..2 * NAMESPACES_MAX {
            pace.charge(&format!("n{number}/a"), TOOK, now);
        }
        assert_eq!(pace.waits.len(), NAMESPACES_MAX);
        pace.charge("evil/a", TOOK, now + WAIT_MAX);
        assert_eq!(pace.waits.len(), 1);
    }
}
