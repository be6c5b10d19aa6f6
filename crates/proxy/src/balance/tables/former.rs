//! The table before one that is yet to be built: it leads to those of its members that are members
//! still.

use std::sync::Arc;

use super::{BalanceTable, TableKind};

/// The place of a member that is gone.
const GONE: u32 = u32::MAX;

/// A table for the members of another one.
pub(super) struct FormerTable {
    table: Arc<BalanceTable>,
    /// The place of each of its members among the present ones.
    places: Box<[u32]>,
}

impl FormerTable {
    /// A table that is built, for members by their marks.
    pub(super) fn new(table: Arc<BalanceTable>, members: &[(u64, u32)]) -> Self {
        let marks = (0..GONE).zip(members).map(|(at, (mark, _))| (*mark, at));
        let mut marks: Vec<(u64, u32)> = marks.collect();
        marks.sort_unstable();
        let place = |(mark, _): &(u64, u32)| {
            let at = marks.partition_point(|(known, _)| known < mark);
            let found = marks.get(at).filter(|(known, _)| known == mark);
            found.map_or(GONE, |(_, place)| *place)
        };
        let places = table.parts.members.iter().map(place).collect();
        FormerTable { table, places }
    }

    /// The table itself.
    pub(super) fn table(&self) -> Arc<BalanceTable> {
        self.table.clone()
    }

    /// The first of the present members for a hash that may be taken.
    pub(super) fn find(&self, hash: u64, may: impl Fn(usize) -> bool) -> Option<usize> {
        let present = |member: usize| {
            let place = self.places.get(member).filter(|place| **place != GONE)?;
            let place = *place as usize;
            may(place).then_some(place)
        };
        match self.table.kind()? {
            TableKind::Ring(ring) => ring.walk(hash).find_map(present),
            TableKind::Maglev(maglev) => maglev.walk(hash).find_map(present),
            TableKind::Remainder(_) => None,
        }
    }
}
