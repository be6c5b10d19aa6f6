//! The place of a snapshot in the history of its sources.

/// Content has no order, so a snapshot also carries how far each source had been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Changes when the history starts anew, so that revisions no longer compare.
    pub epoch: u64,
    /// The highest revision contained, by source number; sorted by number.
    pub revisions: Vec<(u8, u64)>,
}

impl Position {
    /// The position of a single source that counts its batches.
    pub fn counter(epoch: u64, revision: u64) -> Self {
        Position {
            epoch,
            revisions: vec![(0, revision)],
        }
    }

    /// Notes that a source has been read up to a revision; an older one changes nothing.
    pub fn advance(&mut self, source: u8, revision: u64) {
        match self
            .revisions
            .binary_search_by_key(&source, |(known, _)| *known)
        {
            Ok(at) => self.revisions[at].1 = self.revisions[at].1.max(revision),
            Err(at) => self.revisions.insert(at, (source, revision)),
        }
    }

    /// Whether this position contains something that `other` does not. Positions of different
    /// epochs do not compare, and neither is ahead.
    pub fn is_ahead_of(&self, other: &Position) -> bool {
        self.epoch == other.epoch
            && self.revisions.iter().any(|(source, revision)| {
                let theirs = other.revisions.iter().find(|(known, _)| known == source);
                theirs.is_none_or(|(_, known)| revision > known)
            })
    }
}

/// How far a writer has come. It is the same for all its views, so that it is held once for all of
/// them and joined to what is read of one; see [`crate::Snapshot::as_of`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Counts the moments of the writer.
    number: u64,
    /// How far the sources had been read.
    pub(crate) position: Position,
    /// How often resources have gone because objects were missing; see
    /// [`crate::Snapshot::inferences`].
    pub(crate) inferences: u64,
}

impl Moment {
    /// The next moment, at a position.
    #[must_use]
    pub(crate) fn moved_to(&self, position: Position) -> Self {
        Moment {
            number: self.number + 1,
            position,
            inferences: self.inferences,
        }
    }

    /// The next moment, after which what goes was missing.
    #[must_use]
    pub(crate) fn inferring(&self) -> Self {
        Moment {
            number: self.number + 1,
            position: self.position.clone(),
            inferences: self.inferences + 1,
        }
    }

    /// Whether it is a later one of the same writer.
    pub(crate) fn is_after(&self, other: &Moment) -> bool {
        self.number > other.number
    }
}

#[cfg(test)]
mod tests {
    use super::Position;

    #[test]
    fn ahead_means_one_source_was_read_further_in_the_same_epoch() {
        let old = Position {
            epoch: 1,
            revisions: vec![(1, 10), (2, 20)],
        };
        let new = Position {
            epoch: 1,
            revisions: vec![(1, 10), (2, 21)],
        };
        let other = Position {
            epoch: 2,
            revisions: vec![(1, 99), (2, 99)],
        };
        assert!(new.is_ahead_of(&old));
        assert!(!old.is_ahead_of(&new));
        assert!(!other.is_ahead_of(&old));
    }
}
