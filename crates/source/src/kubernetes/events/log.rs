//! The findings that were told, so that equal ones are counted instead of repeated.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, Severity, one_line};

use crate::kubernetes::item;
use crate::kubernetes::turns::Turns;

/// How long an Event that only counts on waits for the next write.
const SERIES_INTERVAL: Duration = Duration::from_secs(300);

/// An Event that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The object that it is about.
    pub(super) object: ObjectKey,
    /// A hash of object and text.
    id: u64,
    /// How bad it is.
    pub(super) severity: Severity,
    /// The text.
    pub(super) note: String,
    /// How often it was found.
    pub(super) count: u32,
    /// When it was found last, since the Unix epoch.
    pub(super) last_seen: Duration,
}

struct Known {
    due: Due,
    /// When the Event was written last.
    written: Option<Duration>,
    /// Its place among those of its namespace that are due.
    place: Option<u64>,
    /// Rank by the time it was seen.
    rank: u64,
}

/// Events that were told, and those to be told.
pub(super) struct Log {
    known: HashMap<u64, Known>,
    /// Identities by namespace and rank; the lowest was not seen for longest.
    order: BTreeMap<(Box<str>, u64), u64>,
    /// How many are known of each namespace.
    sizes: Turns,
    /// Identities that are due, each once, by namespace and place.
    due: BTreeMap<(Box<str>, u64), u64>,
    turns: Turns,
    ranks: u64,
    remembered_max: usize,
}

impl Due {
    /// The name of the Event: equal for equal findings of every process.
    pub(super) fn name(&self) -> String {
        // A name has at most 253 characters, of which the hash takes 17.
        let name: String = self.object.name().chars().take(230).collect();
        format!("{}.{:016x}", name.trim_end_matches(['.', '-']), self.id)
    }
}

impl Log {
    /// An empty log.
    pub(super) fn new(remembered_max: usize) -> Self {
        Log {
            known: HashMap::new(),
            order: BTreeMap::new(),
            sizes: Turns::default(),
            due: BTreeMap::new(),
            turns: Turns::default(),
            ranks: 0,
            remembered_max: remembered_max.max(1),
        }
    }

    /// Something was found at `now`, since the Unix epoch.
    pub(super) fn record(&mut self, finding: &Finding, now: Duration) {
        let Some(object) = &finding.object else {
            return;
        };
        let note = note(finding);
        let text = format!("{object}\n{:?}\n{note}", finding.severity);
        let id = item::first_bytes(&blake3::hash(text.as_bytes()));
        self.ranks += 1;
        let (rank, namespace) = (self.ranks, object.namespace());
        let known = self.known.entry(id).or_insert_with(|| Known {
            due: Due {
                object: object.clone(),
                id,
                severity: finding.severity,
                note,
                count: 0,
                last_seen: now,
            },
            written: None,
            place: None,
            rank,
        });
        let former = (namespace.into(), std::mem::replace(&mut known.rank, rank));
        if self.order.remove(&former).is_none() {
            self.sizes.add(namespace);
        }
        self.order.insert((namespace.into(), rank), id);
        known.due.count = known.due.count.saturating_add(1);
        known.due.last_seen = now;
        let rests = known
            .written
            .is_some_and(|at| now.saturating_sub(at) < SERIES_INTERVAL);
        if !rests && known.place.is_none() {
            known.place = Some(rank);
            self.due.insert((namespace.into(), rank), id);
            self.turns.add(namespace);
        }
        self.forget_oldest();
    }

    /// Whether anything is to be written.
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The Event that waits for longest in the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Due> {
        let namespace = self.turns.next()?;
        let mut waiting = self.due.range((namespace, 0)..);
        let place = waiting.next().map(|(place, _)| place.clone())?;
        let id = self.due.remove(&place)?;
        self.turns.remove(&place.0);
        let known = self.known.get_mut(&id)?;
        known.place = None;
        known.written = Some(known.due.last_seen);
        Some(known.due.clone())
    }

    /// An Event that could not be written waits behind the others of its namespace.
    pub(super) fn put_back(&mut self, due: &Due) {
        let Some(known) = self.known.get_mut(&due.id) else {
            return;
        };
        if known.place.is_none() {
            self.ranks += 1;
            known.written = None;
            known.place = Some(self.ranks);
            let namespace = due.object.namespace();
            self.due.insert((namespace.into(), self.ranks), due.id);
            self.turns.add(namespace);
        }
    }

    /// Forgets what was not seen for longest, of the namespace of which most is known.
    fn forget_oldest(&mut self) {
        while self.known.len() > self.remembered_max
            && let Some(namespace) = self.sizes.largest().map(Box::<str>::from)
            && let Some((place, id)) = self.order.range((namespace, 0)..).next()
        {
            let (place, id) = (place.clone(), *id);
            self.order.remove(&place);
            self.sizes.remove(&place.0);
            let known = self.known.remove(&id);
            if let Some(waits) = known.and_then(|known| known.place) {
                self.turns.remove(&place.0);
                self.due.remove(&(place.0, waits));
            }
        }
    }
}

/// Field, message and remedy, as one line.
fn note(finding: &Finding) -> String {
    let mut note = String::new();
    if !finding.field.is_empty() {
        note.push_str(&finding.field);
        note.push_str(": ");
    }
    note.push_str(&finding.message);
    note.push_str("; ");
    note.push_str(&finding.remedy);
    one_line(&note)
}

#[cfg(test)]
mod tests {
    use super::{Log, SERIES_INTERVAL};
    use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
    use std::time::Duration;

    fn finding(name: &str, message: &str) -> Finding {
        of("n", name, message)
    }

    fn of(namespace: &str, name: &str, message: &str) -> Finding {
        let key = ObjectKey::new(ObjectKind::Ingress, namespace, name);
        Finding::new(Severity::Error, &key, "spec", message, "correct it")
    }

    #[test]
    fn equal_findings_are_one_event_that_counts() {
        let mut log = Log::new(10);
        let mut now = Duration::from_secs(1_000);
        log.record(&finding("a", "wrong"), now);
        log.record(&finding("a", "wrong"), now);
        log.record(&finding("a", "other"), now);
        let first = log.pop().expect("due");
        assert_eq!((first.count, &*first.note), (2, "spec: wrong; correct it"));
        assert_ne!(log.pop().expect("due").name(), first.name());
        assert!(log.pop().is_none());

        now += SERIES_INTERVAL / 2;
        log.record(&finding("a", "wrong"), now);
        assert!(!log.has_due(), "it was told a moment ago");
        now += SERIES_INTERVAL;
        log.record(&finding("a", "wrong"), now);
        let again = log.pop().expect("due");
        assert_eq!((again.count, again.name()), (4, first.name()));
    }

    #[test]
    fn what_was_not_written_is_due_again_and_once() {
        let mut log = Log::new(10);
        log.record(&finding("a", "wrong"), Duration::from_secs(9));
        let due = log.pop().expect("due");
        log.put_back(&due);
        log.record(&finding("a", "wrong"), Duration::from_secs(9));
        assert_eq!(log.pop().expect("due").count, 2);
        assert!(log.pop().is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut log = Log::new(2);
        for name in ["a", "b", "a", "c"] {
            log.record(&finding(name, "wrong"), Duration::from_secs(9));
        }
        assert_eq!(log.known.len(), 2);
        assert_eq!(log.order.len(), 2);
        let mut names = Vec::new();
        while let Some(due) = log.pop() {
            names.push(due.object.name().to_owned());
        }
        assert_eq!(names, ["a", "c"]);
        assert!(log.due.is_empty());
    }

    #[test]
    fn a_namespace_with_a_thousand_findings_delays_another_by_one_event() {
        let mut log = Log::new(1_001);
        let now = Duration::from_secs(9);
        log.record(&of("quiet", "first", "wrong"), now);
        for number in 0..1_000 {
            log.record(&of("loud", &number.to_string(), "wrong"), now);
        }
        log.record(&of("quiet", "second", "wrong"), now);
        // What is forgotten is of the namespace of which most is known.
        assert_eq!(log.known.len(), 1_001);
        let mut names = Vec::new();
        while let Some(due) = log.pop() {
            names.push(due.object.name().to_owned());
        }
        assert_eq!(names.len(), 1_001);
        assert_eq!(names[..5], ["1", "first", "2", "second", "3"]);
        assert!(log.due.is_empty());
        let due = log.known.values().next().map(|known| known.due.clone());
        let due = due.expect("all are known");
        log.put_back(&due);
        assert_eq!(log.pop(), Some(due));
    }

    #[test]
    fn long_names_leave_room_for_the_hash() {
        let mut log = Log::new(2);
        log.record(&finding(&"x".repeat(253), "wrong"), Duration::ZERO);
        assert!(log.pop().expect("due").name().len() <= 253);
    }
}
