//! Connections of one kind in lines, one line for each source of clients: where one has to go, it
//! is the first of the source that has most of them.
//!
//! No source has a limit of its own, since whole offices share an address. Sources that have
//! equally many stand in a line as well, so that each operation costs a few stores; among them that
//! one goes first whose number has stayed for longest.

use std::collections::HashMap;

use foldhash::quality::RandomState;

use super::fifo::{Fifo, FifoSlots};

/// The connections of one kind by their sources. A source is forgotten with its last one.
#[derive(Default)]
pub(crate) struct SourceLines {
    members: FifoSlots<Member>,
    sources: FifoSlots<SourceLine>,
    known: HashMap<u64, u32, RandomState>,
    /// The sources by how many they have in line; those that have none stand nowhere.
    by_count: Vec<Fifo>,
    /// The most that one of them has in line.
    most: usize,
    count: usize,
}

/// A connection: its seat, and the place of its source.
#[derive(Clone, Copy)]
struct Member {
    seat: u32,
    source: u32,
}

#[derive(Clone, Copy)]
struct SourceLine {
    source: u64,
    /// Its connections, in line or not.
    members: u32,
    line: Fifo,
}

impl SourceLines {
    /// How many stand in line.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The most that one source has in line.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The seat of the one that has to go next.
    pub(crate) fn first(&self) -> Option<u32> {
        let source = self.by_count.get(self.most)?.first()?;
        let line = self.sources.get(source)?.line;
        Some(self.members.get(line.first()?)?.seat)
    }

    /// Adds the connection of a seat, which stands in no line yet.
    pub(crate) fn join(&mut self, source: u64, seat: u32) -> u32 {
        let sources = &mut self.sources;
        let place = *self.known.entry(source).or_insert_with(|| {
            sources.take(SourceLine {
                source,
                members: 0,
                line: Fifo::default(),
            })
        });
        if let Some(own) = self.sources.get_mut(place) {
            own.members += 1;
        }
        self.members.take(Member {
            seat,
            source: place,
        })
    }

    /// Takes out a connection that stands in no line.
    pub(crate) fn leave(&mut self, member: u32) {
        let Some(Member { source: place, .. }) = self.members.get(member) else {
            return;
        };
        self.members.give_back(member);
        let Some(own) = self.sources.get_mut(place) else {
            return;
        };
        own.members = own.members.saturating_sub(1);
        if own.members == 0 {
            self.known.remove(&own.source);
            self.sources.give_back(place);
        }
    }

    /// Puts a connection at the end of its source's line.
    pub(crate) fn push(&mut self, member: u32) {
        self.count += 1;
        self.change(member, |members, line| members.push(line, member));
    }

    /// Takes a connection out of the line that it stands in.
    pub(crate) fn unlink(&mut self, member: u32) {
        self.count = self.count.saturating_sub(1);
        self.change(member, |members, line| members.unlink(line, member));
    }

    fn change(&mut self, member: u32, change: impl FnOnce(&mut FifoSlots<Member>, &mut Fifo)) {
        let Some(Member { source: place, .. }) = self.members.get(member) else {
            return;
        };
        let Some(own) = self.sources.get_mut(place) else {
            return;
        };
        let before = own.line.count() as usize;
        change(&mut self.members, &mut own.line);
        let after = own.line.count() as usize;
        if before > 0
            && let Some(equals) = self.by_count.get_mut(before)
        {
            self.sources.unlink(equals, place);
        }
        if self.by_count.len() <= after {
            self.by_count.resize(after + 1, Fifo::default());
        }
        if after > 0
            && let Some(equals) = self.by_count.get_mut(after)
        {
            self.sources.push(equals, place);
        }
        self.most = self.most.max(after);
        // One step at most: whoever had most has one less.
        while self.most > 0 && self.has_none(self.most) {
            self.most -= 1;
        }
    }

    /// Whether no source has so many in line.
    fn has_none(&self, count: usize) -> bool {
        let equals = self.by_count.get(count);
        equals.is_none_or(|equals| equals.count() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::SourceLines;

    /// Connections of these sources, whose seats are their numbers.
    fn joined(lines: &mut SourceLines, sources: &[u64]) -> Vec<u32> {
        let seats = 0..sources.len() as u32;
        let all = sources.iter().zip(seats);
        all.map(|(source, seat)| lines.join(*source, seat))
            .collect()
    }

    /// The seats in the order in which they go.
    fn order(lines: &mut SourceLines, members: &[u32]) -> Vec<u32> {
        let mut gone = Vec::new();
        while let Some(seat) = lines.first() {
            lines.unlink(members[seat as usize]);
            gone.push(seat);
        }
        gone
    }

    #[test]
    fn the_source_that_has_most_in_line_loses_its_first() {
        let mut lines = SourceLines::default();
        let members = joined(&mut lines, &[1, 2, 2, 3, 2, 3]);
        members.iter().for_each(|member| lines.push(*member));
        assert_eq!((lines.count(), lines.most()), (6, 3));
        // Of the second and the third the one whose number has stayed longer, and in the end each
        // has one.
        assert_eq!(order(&mut lines, &members), [1, 3, 2, 0, 5, 4]);
        assert_eq!((lines.count(), lines.most()), (0, 0));
    }

    #[test]
    fn who_stands_in_no_line_counts_for_nothing() {
        let mut lines = SourceLines::default();
        let members = joined(&mut lines, &[1, 1, 1, 2, 2]);
        for member in [0, 3, 4] {
            lines.push(members[member]);
        }
        assert_eq!((lines.first(), lines.most()), (Some(3), 2));
        // It is used, and then unused again.
        lines.unlink(members[3]);
        assert_eq!((lines.first(), lines.most()), (Some(0), 1));
        lines.push(members[3]);
        assert_eq!((lines.first(), lines.most()), (Some(4), 2));
    }

    #[test]
    fn a_source_is_forgotten_with_its_last_connection_and_its_place_used_again() {
        let mut lines = SourceLines::default();
        let members = joined(&mut lines, &[1, 1]);
        lines.push(members[0]);
        lines.unlink(members[0]);
        lines.leave(members[0]);
        assert_eq!(lines.known.len(), 1);
        lines.leave(members[1]);
        assert!(lines.known.is_empty() && lines.first().is_none());
        let again = joined(&mut lines, &[2]);
        lines.push(again[0]);
        assert_eq!((lines.first(), lines.most()), (Some(0), 1));
    }
}
