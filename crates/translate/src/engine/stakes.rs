//! Seats, and who claims them: of the claims to a seat the smallest has it, and how many there are
//! is a count that is kept.
//!
//! A unit that reads who has a seat runs again when somebody else does, and one that reads the
//! count when that is another. Nobody ever walks the claims, so that a seat may have very many. Who
//! asks whether a claim is among the first ones runs again only where there are about so many.
//!
//! There are very many seats, nearly all of which have one claim, and most units make a few claims
//! to many seats. So all claims lie in one tree, and a unit's equal ones are one in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
pub struct Stakes {
    by_unit: HashMap<UnitId, Box<[KeptStake]>>,
    /// How many units make each claim. Those to a seat lie together, in their order.
    claims: BTreeMap<KeptStake, u32>,
    /// How many claims there are to each seat that has several.
    crowds: BTreeMap<u64, usize>,
    /// The least of all claims: those to a seat begin there.
    least: Arc<StakeClaim>,
}

/// A claim of a unit to a seat, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct KeptStake {
    seat: u64,
    claim: Arc<StakeClaim>,
}

/// A tenant may have a million of them.
const _: () = assert!(size_of::<KeptStake>() <= 16);

/// The difference at a seat after the claims of a unit have changed.
#[derive(Debug, PartialEq, Eq)]
struct SeatChange {
    seat: u64,
    is_first: bool,
    is_count: bool,
    is_other: bool,
    is_crowd: bool,
}

impl Default for Stakes {
    fn default() -> Self {
        let least = StakeClaim {
            order: 0,
            created: i64::MIN,
            id: Arc::default(),
            value: 0,
        };
        Stakes {
            by_unit: HashMap::new(),
            claims: BTreeMap::new(),
            crowds: BTreeMap::new(),
            least: Arc::new(least),
        }
    }
}

impl Stakes {
    /// The claim that has a seat.
    pub(super) fn first(&self, seat: u64) -> Option<&StakeClaim> {
        self.all(seat).next()
    }

    /// How many claims to a seat there are.
    pub(super) fn count(&self, seat: u64) -> usize {
        let crowd = self.crowds.get(&seat).copied();
        crowd.unwrap_or_else(|| usize::from(self.first(seat).is_some()))
    }

    /// The claims to a seat, in their order.
    pub(super) fn all(&self, seat: u64) -> impl Iterator<Item = &StakeClaim> {
        let from = KeptStake {
            seat,
            claim: self.least.clone(),
        };
        let claims = self.claims.range(from..).map(|(stake, _)| stake);
        let claims = claims.take_while(move |stake| stake.seat == seat);
        claims.map(|stake| &*stake.claim)
    }

    /// The claims of a unit to a seat, in their order.
    pub(super) fn of_unit(&self, unit: UnitId, seat: u64) -> impl Iterator<Item = &StakeClaim> {
        let all = self.by_unit.get(&unit).map(|all| &**all);
        let all = all.unwrap_or_default();
        let from = all.partition_point(|it| it.seat < seat);
        let to = all.partition_point(|it| it.seat <= seat);
        let own = all.get(from..to).unwrap_or_default();
        own.iter().map(|stake| &*stake.claim)
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
        let stakes = shared(stakes, &former);
        let is_in = |all: &[KeptStake], stake: &KeptStake| all.binary_search(stake).is_ok();
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
            let is_new = self.add(stake);
            before.entry(stake.seat).or_insert(state).2 |= is_new;
        }
        if !stakes.is_empty() {
            self.by_unit.insert(unit, stakes);
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

    /// Adds a claim, and says whether nobody made it before.
    fn add(&mut self, stake: &KeptStake) -> bool {
        if let Some(uses) = self.claims.get_mut(stake) {
            *uses += 1;
            return false;
        }
        let count = self.count(stake.seat) + 1;
        if count > 1 {
            self.crowds.insert(stake.seat, count);
        }
        self.claims.insert(stake.clone(), 1);
        true
    }

    /// Takes a claim back, and says whether nobody makes it any more.
    fn withdraw(&mut self, stake: &KeptStake) -> bool {
        let Some(uses) = self.claims.get_mut(stake) else {
            return false;
        };
        *uses -= 1;
        if *uses > 0 {
            return false;
        }
        self.claims.remove(stake);
        if let Some(count) = self.crowds.get_mut(&stake.seat) {
            *count -= 1;
            if *count < 2 {
                self.crowds.remove(&stake.seat);
            }
        }
        true
    }
}

/// The claims of a unit as they are kept: equal ones are one, with those that it had before.
fn shared(stakes: Vec<Stake>, former: &[KeptStake]) -> Box<[KeptStake]> {
    let former = former.iter().map(|stake| stake.claim.clone());
    let mut known: BTreeSet<Arc<StakeClaim>> = former.collect();
    let stakes = stakes.into_iter().map(|Stake { seat, claim }| {
        let same = known.get(&claim).cloned();
        let claim = same.unwrap_or_else(|| {
            let claim = Arc::new(claim);
            known.insert(claim.clone());
            claim
        });
        KeptStake { seat, claim }
    });
    stakes.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        assert!(stakes.claims.is_empty() && stakes.by_unit.is_empty());
    }

    #[test]
    fn a_seat_may_have_one_claim_and_several_and_one_again() {
        let mut stakes = Stakes::default();
        let created = |stakes: &Stakes, seat: u64| -> Vec<i64> {
            let all: Vec<i64> = stakes.all(seat).map(|it| it.created).collect();
            assert_eq!(stakes.count(seat), all.len());
            assert_eq!(
                stakes.first(seat).map(|it| it.created),
                all.first().copied()
            );
            all
        };
        // Seats beside it have claims of their own, also the least that there may be.
        stakes.replace(9, vec![stake(6, 255, i64::MAX), stake(8, 0, i64::MIN)]);
        for round in 0..3 {
            assert_eq!(created(&stakes, 7), [0_i64; 0], "{round}");
            stakes.replace(1, vec![stake(7, 0, 5)]);
            assert_eq!(created(&stakes, 7), [5]);
            stakes.replace(2, vec![stake(7, 0, 4), stake(7, 0, 6)]);
            stakes.replace(3, vec![stake(7, 0, 5), stake(7, 0, i64::MIN)]);
            assert_eq!(created(&stakes, 7), [i64::MIN, 4, 5, 6]);
            let of_two: Vec<i64> = stakes.of_unit(2, 7).map(|it| it.created).collect();
            assert_eq!(of_two, [4, 6]);
            assert_eq!(stakes.of_unit(2, 8).count(), 0);
            stakes.replace(2, Vec::new());
            stakes.replace(3, vec![stake(7, 0, 5)]);
            // Two units make the one that is left.
            assert_eq!(created(&stakes, 7), [5]);
            assert!(stakes.crowds.is_empty());
            stakes.replace(1, Vec::new());
            assert_eq!(created(&stakes, 7), [5]);
            stakes.replace(3, Vec::new());
        }
        assert_eq!(
            (created(&stakes, 6).len(), created(&stakes, 8).len()),
            (1, 1)
        );
        stakes.replace(9, Vec::new());
        assert!(stakes.claims.is_empty() && stakes.by_unit.is_empty());
    }

    #[test]
    fn a_claim_of_a_unit_to_many_seats_is_kept_once() {
        let mut stakes = Stakes::default();
        let all = |count: u64| (0..count).map(|seat| stake(seat, 0, 5)).collect::<Vec<_>>();
        stakes.replace(1, all(100));
        let claim = stakes.by_unit[&1][0].claim.clone();
        // The unit, the tree and this.
        assert_eq!(Arc::strong_count(&claim), 2 * 100 + 1);
        stakes.replace(1, all(120));
        assert_eq!(Arc::strong_count(&claim), 2 * 120 + 1);
        stakes.replace(1, all(3));
        assert_eq!(Arc::strong_count(&claim), 2 * 3 + 1);
    }
}
