//! The batches of which something waits: how far the sources are contained.

use std::collections::BTreeMap;

use myriad_api::ObjectKind;
use myriad_base::clock::Instant;

/// Up to which revision of its source each kind is contained.
pub(super) type Positions = Vec<(ObjectKind, u64)>;

/// The most batches that are told apart.
const MARKS_MAX: usize = 32_768;

/// Batches of which something waits, in the order in which they came. One of which nothing waits
/// any more is a part of the one before it, and so is each beyond [`MARKS_MAX`].
#[derive(Default)]
pub(super) struct Marks {
    marks: BTreeMap<u64, Mark>,
    /// The number of the next batch.
    next: u64,
}

/// One batch that was taken in.
struct Mark {
    waiting: usize,
    since: Instant,
    positions: Positions,
}

impl Marks {
    /// Whether there is nothing to claim, now or later.
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    /// The number of the batch that is added next.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// Adds a batch of which so many changes wait.
    pub(super) fn add(&mut self, waiting: usize, since: Instant, positions: Positions) {
        let number = self.next;
        self.next += 1;
        if (waiting == 0 || self.marks.len() >= MARKS_MAX)
            && let Some(mut last) = self.marks.last_entry()
        {
            let last = last.get_mut();
            last.waiting += waiting;
            advance(&mut last.positions, positions);
            return;
        }
        let mark = Mark {
            waiting,
            since,
            positions,
        };
        self.marks.insert(number, mark);
    }

    /// Notes that a change of a batch does not wait any more. Returns when the batch came.
    pub(super) fn leave(&mut self, number: u64) -> Option<Instant> {
        let (number, mark) = self.marks.range_mut(..=number).next_back()?;
        let number = *number;
        mark.waiting = mark.waiting.saturating_sub(1);
        let (since, is_done) = (mark.since, mark.waiting == 0);
        let first = self.marks.first_key_value().map(|(first, _)| *first);
        if is_done
            && first != Some(number)
            && let Some(done) = self.marks.remove(&number)
            && let Some((_, before)) = self.marks.range_mut(..number).next_back()
        {
            advance(&mut before.positions, done.positions);
        }
        Some(since)
    }

    /// Whether nothing of the oldest batch waits.
    pub(super) fn is_claimable(&self) -> bool {
        let first = self.marks.first_key_value();
        first.is_some_and(|(_, mark)| mark.waiting == 0)
    }

    /// The positions up to which nothing waits. They are forgotten.
    pub(super) fn claim(&mut self) -> Positions {
        let mut claimed = Vec::new();
        while self.is_claimable()
            && let Some((_, mark)) = self.marks.pop_first()
        {
            claimed.extend(mark.positions);
        }
        claimed
    }
}

fn advance(positions: &mut Positions, later: Positions) {
    for (kind, revision) in later {
        match positions.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, known)) => *known = revision.max(*known),
            None => positions.push((kind, revision)),
        }
    }
}
