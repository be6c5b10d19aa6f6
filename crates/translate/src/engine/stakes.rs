//! Seats, and who claims them: of the claims to a seat the smallest has it, and how many there are
//! is a count that is kept.
//!
//! A unit that reads who has a seat runs again when somebody else does, and one that reads the
//! count when that is another. Nobody ever walks the claims, so that a seat may have very many. Who
//! asks whether a claim is among the first ones runs again only where there are about so many.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::unit::UnitId;
use crate::store::{Fact, FactHasher};

/// How many claims a seat has at least where it matters which of them are among the first.
pub(crate) const CROWD_MIN: usize = 64;

/// A claim of a unit to a seat.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stake {
    /// The seat, by the hash of a fact that stands for it.
    pub seat: u64,
    /// The claim.
    pub claim: StakeClaim,
}

/// A claim to a seat. The smallest has it: that of the lowest order, and then the oldest. Several
/// units may make the same, which is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StakeClaim {
    /// The class, of which lower ones go first.
    pub order: u8,
    /// When the object was created that makes it.
    pub created: i64,
    /// The text by which it is known among all claims to the seat.
    pub id: Arc<str>,
    /// The wish that goes with it, for whoever reads who has the seat.
    pub value: u32,
}

/// A fact about a seat that units read.
#[derive(Hash)]
pub(crate) enum SeatFact {
    /// The claim that has it.
    First(u64),
    /// How many claims there are.
    Count(u64),
    /// Which claims there are.
    All(u64),
    /// The same, where there are very many.
    Crowd(u64),
}

impl Fact for SeatFact {
    const FAMILY: u8 = 12;
}

/// The claims of all units.
#[derive(Default)]
pub struct Stakes {
    by_unit: HashMap<UnitId, Box<[Stake]>>,
    /// The claims to each seat, and how many units make each.
    seats: HashMap<u64, BTreeMap<StakeClaim, u32>>,
}

/// The difference at a seat after the claims of a unit have changed.
#[derive(Debug, PartialEq, Eq)]
struct SeatChange {
    seat: u64,
    is_first: bool,
    is_count: bool,
    is_other: bool,
    is_crowd: bool,
}

impl Stakes {
    /// The claim that has a seat.
    pub(super) fn first(&self, seat: u64) -> Option<&StakeClaim> {
        let (first, _) = self.seats.get(&seat)?.first_key_value()?;
        Some(first)
    }

    /// How many claims to a seat there are.
    pub(super) fn count(&self, seat: u64) -> usize {
        self.seats.get(&seat).map_or(0, BTreeMap::len)
    }

    /// The claims to a seat, in their order.
    pub(super) fn all(&self, seat: u64) -> impl Iterator<Item = &StakeClaim> {
        self.seats.get(&seat).into_iter().flat_map(BTreeMap::keys)
    }

    /// The claims of a unit to a seat, in their order.
    pub(super) fn of_unit(&self, unit: UnitId, seat: u64) -> &[Stake] {
        let all = self.by_unit.get(&unit).map(|all| &**all);
        let all = all.unwrap_or_default();
        let from = all.partition_point(|it| it.seat < seat);
        let to = all.partition_point(|it| it.seat <= seat);
        all.get(from..to).unwrap_or_default()
    }

    /// Whether a claim is, or would be, among so many first ones to a seat.
    pub(super) fn is_within(&self, seat: u64, claim: &StakeClaim, max: usize) -> bool {
        let last = max.checked_sub(1);
        last.is_some_and(|last| self.all(seat).nth(last).is_none_or(|last| claim <= last))
    }

    /// Replaces the claims of a unit, and returns the facts that differ.
    pub(super) fn state(
        &mut self,
        hasher: &FactHasher,
        unit: UnitId,
        stakes: Vec<Stake>,
    ) -> Vec<u64> {
        let changes = self.replace(unit, stakes).into_iter();
        let facts = changes.flat_map(|change| {
            let first = change.is_first.then_some(SeatFact::First(change.seat));
            let count = change.is_count.then_some(SeatFact::Count(change.seat));
            let all = change.is_other.then_some(SeatFact::All(change.seat));
            let crowd = change.is_crowd.then_some(SeatFact::Crowd(change.seat));
            [first, count, all, crowd].into_iter().flatten()
        });
        facts.map(|fact| hasher.fact(fact)).collect()
    }

    /// Replaces the claims of a unit, and returns what is other then.
    fn replace(&mut self, unit: UnitId, mut stakes: Vec<Stake>) -> Vec<SeatChange> {
        stakes.sort_unstable();
        stakes.dedup();
        let former = self.by_unit.remove(&unit).unwrap_or_default();
        let is_in = |all: &[Stake], stake: &Stake| all.binary_search(stake).is_ok();
        let mut before: BTreeMap<u64, (Option<StakeClaim>, usize, bool)> = BTreeMap::new();
        for stake in former.iter().filter(|stake| !is_in(&stakes, stake)) {
            let state = (
                self.first(stake.seat).cloned(),
                self.count(stake.seat),
                false,
            );
            let is_gone = self.withdraw(stake);
            before.entry(stake.seat).or_insert(state).2 |= is_gone;
        }
        for stake in stakes.iter().filter(|stake| !is_in(&former, stake)) {
            let state = (
                self.first(stake.seat).cloned(),
                self.count(stake.seat),
                false,
            );
            let claims = self.seats.entry(stake.seat).or_default();
            let uses = claims.entry(stake.claim.clone()).or_default();
            *uses += 1;
            let is_new = *uses == 1;
            before.entry(stake.seat).or_insert(state).2 |= is_new;
        }
        if !stakes.is_empty() {
            self.by_unit.insert(unit, stakes.into());
        }
        let changes = before.into_iter();
        let changes = changes.map(|(seat, (first, count, is_other))| SeatChange {
            seat,
            is_first: first.as_ref() != self.first(seat),
            is_count: count != self.count(seat),
            is_other,
            is_crowd: is_other && count.max(self.count(seat)) >= CROWD_MIN,
        });
        changes.collect()
    }

    /// Takes a claim back, and says whether nobody makes it any more.
    fn withdraw(&mut self, stake: &Stake) -> bool {
        let Some(claims) = self.seats.get_mut(&stake.seat) else {
            return false;
        };
        let Some(uses) = claims.get_mut(&stake.claim) else {
            return false;
        };
        *uses -= 1;
        if *uses > 0 {
            return false;
        }
        claims.remove(&stake.claim);
        if claims.is_empty() {
            self.seats.remove(&stake.seat);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{CROWD_MIN, SeatChange, Stake, StakeClaim, Stakes};

    fn stake(seat: u64, order: u8, created: i64) -> Stake {
        let id = format!("{order}/{created}").into();
        let claim = StakeClaim {
            order,
            created,
            id,
            value: 0,
        };
        Stake { seat, claim }
    }

    fn changes(found: Vec<SeatChange>) -> Vec<(u64, bool, bool)> {
        let found = found.iter();
        found
            .map(|it| (it.seat, it.is_first, it.is_count))
            .collect()
    }

    #[test]
    fn a_claim_of_two_units_is_one_until_both_take_it_back() {
        let mut stakes = Stakes::default();
        stakes.replace(1, vec![stake(7, 0, 5)]);
        assert_eq!(
            changes(stakes.replace(2, vec![stake(7, 0, 5)])),
            [(7, false, false)]
        );
        assert_eq!((stakes.count(7), stakes.all(7).count()), (1, 1));
        assert_eq!(changes(stakes.replace(1, Vec::new())), [(7, false, false)]);
        // Another one in its place leaves the count.
        let moved = stakes.replace(2, vec![stake(7, 0, 6)]);
        assert!(moved.iter().all(|it| it.is_other));
        assert_eq!(changes(moved), [(7, true, false)]);
    }

    #[test]
    fn who_is_among_the_first_is_told_anew_where_there_are_many() {
        let mut stakes = Stakes::default();
        let claims: Vec<Stake> = (1..=100).map(|created| stake(7, 0, created)).collect();
        let (few, all) = (&claims[..CROWD_MIN - 2], &claims[..]);
        let is_crowd = |found: Vec<SeatChange>| found.iter().any(|it| it.is_crowd);
        assert!(!is_crowd(stakes.replace(1, few.to_vec())));
        assert!(!is_crowd(stakes.replace(2, vec![stake(7, 0, 0)])));
        assert!(stakes.is_within(7, &claims[99].claim, CROWD_MIN));
        assert!(is_crowd(stakes.replace(1, all.to_vec())));
        let within = all.iter();
        let within = within.filter(|it| stakes.is_within(7, &it.claim, CROWD_MIN));
        assert_eq!(within.count(), CROWD_MIN - 1);
        assert!(!stakes.is_within(7, &claims[0].claim, 0));
        assert!(is_crowd(stakes.replace(1, few.to_vec())));
        assert!(stakes.is_within(7, &claims[99].claim, CROWD_MIN));
    }

    #[test]
    fn the_smallest_claim_has_a_seat_and_all_of_them_are_counted() {
        let mut stakes = Stakes::default();
        let came = stakes.replace(1, vec![stake(7, 1, 5), stake(8, 1, 5)]);
        assert_eq!(changes(came), [(7, true, true), (8, true, true)]);
        // One that is younger changes the count alone, however often it is made.
        let came = stakes.replace(2, vec![stake(7, 1, 6), stake(7, 1, 6)]);
        assert_eq!(changes(came), [(7, false, true)]);
        assert!(stakes.replace(2, vec![stake(7, 1, 6)]).is_empty());
        // A lower order goes before whoever is older.
        let came = stakes.replace(3, vec![stake(7, 0, 9)]);
        assert_eq!(changes(came), [(7, true, true)]);
        assert_eq!(stakes.first(7).map(|it| it.created), Some(9));
        assert_eq!(stakes.count(7), 3);
        let went = stakes.replace(1, Vec::new());
        assert_eq!(changes(went), [(7, false, true), (8, true, true)]);
        assert_eq!(changes(stakes.replace(3, Vec::new())), [(7, true, true)]);
        assert_eq!(changes(stakes.replace(2, Vec::new())), [(7, true, true)]);
        assert_eq!((stakes.first(7), stakes.count(8)), (None, 0));
        assert!(stakes.seats.is_empty() && stakes.by_unit.is_empty());
    }
}
