//! One choice among the endpoints of one priority.

use std::time::Duration;

use myriad_model::Warmup;

use super::{Choice, Level, Source, Spread};
use crate::balance::part::Member;
use crate::balance::tables::{BalanceTable, TableKind};
use crate::balance::warmup;

/// How many times it is drawn anew before the next one in the row is taken.
const DRAWS_MAX: usize = 4;

/// One choice among the endpoints of one priority.
pub(super) struct Picking<'p, 'c> {
    pub level: &'p Level,
    /// The members, where they are the pool's own.
    pub members: &'p [Member],
    pub choice: &'c Choice<'c>,
    /// Set while somebody warms up.
    pub warmup: Option<&'p Warmup>,
    pub looks_for_out: bool,
    pub now: u64,
}

impl<'p> Picking<'p, '_> {
    /// The endpoint that is taken, by its index; none where none may be.
    pub(super) fn pick(&self, tried: Option<u64>) -> Option<usize> {
        match (&self.level.spread, self.choice.hash) {
            (Spread::LeastRequest, _) => self.less_busy(tried),
            (Spread::Hash(table), Some(hash)) => self.by_hash(table, hash, tried),
            (Spread::Drawn | Spread::Hash(_), _) => self.settle(tried),
        }
    }

    /// The endpoint that a hash leads to, unless that may not be taken.
    fn by_hash(&self, table: &BalanceTable, hash: u64, tried: Option<u64>) -> Option<usize> {
        let at_remainder = |count: usize| {
            let index = hash % count.max(1) as u64;
            self.next_from(index as usize, tried)
        };
        match table.kind() {
            Some(TableKind::Ring(ring)) => {
                let mut walk = ring.walk(hash);
                let found = walk.find(|index| self.may(*index, tried));
                found.or_else(|| at_remainder(self.level.len))
            }
            Some(TableKind::Maglev(maglev)) => {
                let found = maglev.walk(hash).find(|index| self.may(*index, tried));
                found.or_else(|| self.settle(tried))
            }
            Some(TableKind::Remainder(count)) => at_remainder(*count),
            // It is yet to be built: whoever had the hash before has it still.
            None => {
                let found = table.find_before(hash, |index| self.may(index, tried));
                found.or_else(|| at_remainder(self.level.len))
            }
        }
    }

    /// The index of an endpoint that is drawn by weight.
    fn draw(&self) -> usize {
        match &self.level.source {
            Source::Own(_, draw) => draw.take(self.choice.dice),
            Source::Parts(row) => row.take(self.choice.dice),
        }
    }

    /// The endpoint of an index, and what its weight is multiplied by.
    pub(super) fn member(&self, index: usize) -> Option<(&'p Member, f32)> {
        match &self.level.source {
            Source::Own(..) => self.members.get(index).map(|member| (member, 1.0)),
            Source::Parts(row) => row.member(index),
        }
    }

    /// The one of two drawn endpoints with fewer requests for its weight.
    fn less_busy(&self, tried: Option<u64>) -> Option<usize> {
        let first = self.settle(tried)?;
        let mut second = self.draw();
        if second == first {
            second = (second + 1) % self.level.len;
        }
        let second = self.next_from(second, tried)?;
        let is_less = self.load(second) < self.load(first);
        Some(if is_less { second } else { first })
    }

    /// The endpoint that is drawn, unless it may not be taken or is still cold; after a few, the
    /// next in the row that may be taken.
    fn settle(&self, tried: Option<u64>) -> Option<usize> {
        let mut index = self.draw();
        for _ in 0..DRAWS_MAX {
            if self.may(index, tried) && self.is_warm_enough(index) {
                return Some(index);
            }
            index = self.draw();
        }
        self.next_from(index, tried)
    }

    /// The endpoint of an index, or the next in the row that may be taken. Parts that are left out
    /// as a whole are passed over, since there may be very many.
    fn next_from(&self, index: usize, tried: Option<u64>) -> Option<usize> {
        let may = |index: &usize| self.may(*index, tried);
        match &self.level.source {
            Source::Parts(row) if self.looks_for_out => row.in_service(index, self.now).find(may),
            Source::Own(..) | Source::Parts(_) => {
                let count = self.level.len;
                let mut row = (0..count).map(|step| (index + step) % count);
                row.find(may)
            }
        }
    }

    fn may(&self, index: usize, tried: Option<u64>) -> bool {
        let Some((member, _)) = self.member(index) else {
            return false;
        };
        let is_out = self.looks_for_out && member.target.record.is_out(self.now);
        !is_out && Some(member.target.id) != tried
    }

    /// Whether a cold endpoint takes the request: by chance, in proportion to how warm it is.
    fn is_warm_enough(&self, index: usize) -> bool {
        let part = self.part(index);
        part >= 1.0 || self.choice.dice.roll_below(1_000_000) < (part * 1e6) as u64
    }

    fn part(&self, index: usize) -> f32 {
        match (self.warmup, self.member(index)) {
            (Some(warmup), Some((member, _))) => {
                let age = self.now.saturating_sub(member.target.born_ms);
                warmup::part(warmup, Duration::from_millis(age))
            }
            _ => 1.0,
        }
    }

    /// Requests in flight for each share, with the one that is about to come. A cold endpoint's
    /// share is smaller, but an idle one is as good as any: else it would never be drawn.
    fn load(&self, index: usize) -> f32 {
        let Some((member, scale)) = self.member(index) else {
            return f32::MAX;
        };
        let (active, weight) = (member.target.active() as f32, member.weight as f32 * scale);
        match self.warmup {
            Some(_) => active / (weight * self.part(index).max(1e-6)),
            None => (active + 1.0) / weight,
        }
    }
}
