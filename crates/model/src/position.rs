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
