//! The queue of changes to translate: cut so that no namespace waits for all of another.
//!
//! An object has one place in the queue, that of its oldest change, and its newest change waits
//! there: whoever changes a thousand objects ten times each makes others wait for a thousand
//! changes at most, and for no more than their share in each cut.

use std::collections::{HashMap, VecDeque};

use myriad_api::{Batch, Change, ObjectKey, ObjectKind};
use myriad_base::clock::Instant;

/// The most objects that wait. A batch that has begun to be taken in is taken in whole, so the
/// queue may exceed it by one batch of a source.
pub const QUEUE_CHANGES_MAX: usize = 32_768;

/// How much is translated at once.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The most changes in one cut.
    pub cut_changes_max: usize,
    /// The most changes in one cut that are of one namespace.
    pub namespace_changes_max: usize,
}

impl Shares {
    /// For a source with many tenants, who must not wait for each other: at some 50 µs a change
    /// nobody waits longer for a cut than half of the 100 ms that a change may take.
    pub const FAIR: Shares = Shares {
        cut_changes_max: 1_024,
        namespace_changes_max: 256,
    };

    /// For a source whose batches shall take effect as they are, as far as a limit allows.
    pub const WHOLE: Shares = Shares {
        cut_changes_max: 16_384,
        namespace_changes_max: 16_384,
    };
}

/// Changes that wait.
pub struct Queue {
    shares: Shares,
    waiting: HashMap<ObjectKey, Waiting>,
    /// The objects of each namespace that wait, in the order of their oldest change.
    namespaces: HashMap<Box<str>, VecDeque<ObjectKey>>,
    /// Namespaces that have something waiting, in the order in which it is their turn.
    turns: VecDeque<Box<str>>,
    /// Batches of which something waits, the oldest first.
    marks: VecDeque<Mark>,
    /// The number of the first of `marks`.
    first_mark: u64,
}

struct Waiting {
    change: Change,
    /// The batch of the oldest change that this one stands for.
    mark: u64,
}

/// One batch that was taken in.
struct Mark {
    waiting: usize,
    since: Instant,
    positions: Vec<(ObjectKind, u64)>,
}

/// The changes that are translated at once.
#[derive(Debug)]
pub struct Cut {
    /// The changes, one per object.
    pub changes: Vec<Change>,
    /// How far the sources are contained once these changes are applied: nothing of what came
    /// up to there waits any more.
    pub positions: Vec<(ObjectKind, u64)>,
    /// When the oldest of the changes came; now, if there are none.
    pub since: Instant,
}

impl Queue {
    /// An empty queue.
    pub fn new(shares: Shares) -> Queue {
        Queue {
            shares,
            waiting: HashMap::new(),
            namespaces: HashMap::new(),
            turns: VecDeque::new(),
            marks: VecDeque::new(),
            first_mark: 0,
        }
    }

    /// Whether nothing waits, not even a position.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether no further batch should be taken in.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= QUEUE_CHANGES_MAX || self.marks.len() >= QUEUE_CHANGES_MAX
    }

    /// Takes in the changes and positions of a batch.
    pub fn push(&mut self, batch: Batch, now: Instant) {
        let mark = self.first_mark + self.marks.len() as u64;
        let mut waiting = 0;
        for change in batch.changes {
            if let Some(known) = self.waiting.get_mut(change.key()) {
                known.change = change;
                continue;
            }
            let key = change.key().clone();
            waiting += 1;
            if let Some(queue) = self.namespaces.get_mut(key.namespace()) {
                queue.push_back(key.clone());
            } else {
                let namespace: Box<str> = key.namespace().into();
                self.turns.push_back(namespace.clone());
                self.namespaces
                    .insert(namespace, VecDeque::from([key.clone()]));
            }
            self.waiting.insert(key, Waiting { change, mark });
        }
        self.marks.push_back(Mark {
            waiting,
            since: now,
            positions: batch.positions,
        });
    }

    /// The next changes to translate: of each namespace in turn at most its share.
    pub fn cut(&mut self, now: Instant) -> Cut {
        let mut cut = Cut {
            changes: Vec::new(),
            positions: Vec::new(),
            since: now,
        };
        for _ in 0..self.turns.len() {
            let room = self.shares.cut_changes_max - cut.changes.len();
            if room == 0 {
                break;
            }
            let Some(namespace) = self.turns.pop_front() else {
                break;
            };
            self.take(&namespace, room, &mut cut);
            if self.namespaces.contains_key(&namespace) {
                self.turns.push_back(namespace);
            }
        }
        while self.marks.front().is_some_and(|mark| mark.waiting == 0) {
            cut.positions.extend(
                self.marks
                    .pop_front()
                    .into_iter()
                    .flat_map(|it| it.positions),
            );
            self.first_mark += 1;
        }
        cut
    }

    /// Moves at most `room` changes of a namespace, and at most its share, into a cut.
    fn take(&mut self, namespace: &str, room: usize, cut: &mut Cut) {
        let Some(queue) = self.namespaces.get_mut(namespace) else {
            return;
        };
        let count = queue.len().min(room).min(self.shares.namespace_changes_max);
        for key in queue.drain(..count) {
            let Some(Waiting { change, mark }) = self.waiting.remove(&key) else {
                continue;
            };
            let place = usize::try_from(mark - self.first_mark).unwrap_or(usize::MAX);
            if let Some(mark) = self.marks.get_mut(place) {
                mark.waiting -= 1;
                cut.since = cut.since.min(mark.since);
            }
            cut.changes.push(change);
        }
        if queue.is_empty() {
            self.namespaces.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests;
