//! The state of one batch.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_model::{Delta, Host};

use super::Work;
use super::claimed::Claimed;
use super::ports::PortClaim;
use super::reader::Open;
use super::stamp::{MAIN_SLOT, Slot, Stamp};
use super::unit::{Unit, UnitId};

/// The most units of objects that are not put off in one batch since a host has another owner.
const HURRIED_MAX: usize = 256;

/// The steps of regexes beyond which units wait, some 50 ms of each proxy, which takes no other
/// commit meanwhile.
const REGEX_STEPS_MAX: u64 = 1 << 24;

/// The state of one batch while it runs.
#[derive(Default)]
pub(super) struct Run {
    /// Units to look at, in the order in which they run: whether they must run, are looked at
    /// for some views, or only lost somebody who needed them.
    pub pending: BTreeMap<Unit, Pending>,
    /// The changes so far in the main view.
    pub delta: Delta,
    /// The same for the others.
    pub others: BTreeMap<Slot, Delta>,
    /// New views, of which others are told even where nothing is seen in them.
    pub came: BTreeSet<Slot>,
    /// The names of views that went.
    pub gone: BTreeSet<Arc<str>>,
    /// How many units were woken by objects of other namespaces.
    pub woken: usize,
    /// Whether it is the first one, of all objects that are seen when the engine starts.
    pub is_first: bool,
    /// Whether all is done at once, however much it is.
    pub is_whole: bool,
    /// Whether its time has run out.
    pub is_late: bool,
    /// Whether what is marked must not wait, where it is of an object and would.
    pub hurries: bool,
    /// How many units were marked so.
    pub hurried: usize,
    /// Ingresses that claim a host.
    pub served: Vec<Arc<str>>,
    /// Ingresses that are there and claim none any more.
    pub unserved: Vec<Arc<str>>,
    /// Objects that went beyond a bound of their namespace, and were within before.
    pub left_out: BTreeSet<ObjectKey>,
    /// Objects that claim hosts and were not there before, or only as others of their names.
    pub newcomers: BTreeSet<ObjectKey>,
    /// The claims that objects make otherwise by an edit, until it is seen where that is.
    pub moved: BTreeMap<ObjectKey, BTreeSet<Claimed>>,
    /// The needs of claimants that differ from those before.
    pub needs: NeedsMoved,
    /// The claims to hosts that others let in, as they were before, by their seats.
    pub entered: BTreeMap<u64, EnteredBefore>,
    /// The claims that had numbers of TCP, or of UDP, at gateways before objects came to them or
    /// left them.
    pub port_owners: BTreeMap<(Slot, u16, bool), Option<PortClaim>>,
    /// The namespaces that claimed a host before, two of them at most, as far as it was asked.
    pub claiming: BTreeMap<Host, Vec<Box<str>>>,
    /// The counts of work so far.
    pub work: Work,
    /// The values that units read last and may read again.
    pub opened: Open,
}

/// Since when each namespace has a host by a claim that it lets in.
pub(super) type Had = BTreeMap<Box<str>, i64>;

/// The claims to a host that others let in, as they were before a batch.
pub(super) struct EnteredBefore {
    /// The host.
    pub host: Host,
    /// The oldest of each namespace.
    pub namespaces: Had,
    /// The oldest of each unit whose claims differ since. The number of one that is gone may be
    /// another's in the same batch.
    pub units: BTreeMap<Unit, Had>,
}

/// The needs of claimants that differ from those before a batch, by what is needed. Units are known
/// by themselves: the number of one that is gone may be another's in the same batch.
#[derive(Default)]
pub(super) struct NeedsMoved {
    gained: BTreeMap<Unit, BTreeSet<Unit>>,
    lost: BTreeMap<Unit, BTreeSet<Unit>>,
}

/// A unit to look at.
pub(super) struct Pending {
    /// Its number.
    pub id: UnitId,
    /// Whether it runs for all views.
    pub must_run: bool,
    /// Whether it must not wait, though there is no time any more.
    pub hurries: bool,
    /// Whether it was woken alone: by what it read, and neither by its own object nor by what
    /// needs it.
    pub is_woken: bool,
    /// The views that may see other things of it, where it need not run for the others.
    pub slots: Stamp,
}

impl NeedsMoved {
    /// Notes that a claimant needs something now that it did not.
    pub(super) fn gain(&mut self, need: &Unit, needer: &Unit) {
        if !take(&mut self.lost, need, needer) {
            let gained = self.gained.entry(need.clone()).or_default();
            gained.insert(needer.clone());
        }
    }

    /// Notes that a claimant does not need something any more.
    pub(super) fn lose(&mut self, need: &Unit, needer: &Unit) {
        if !take(&mut self.gained, need, needer) {
            let lost = self.lost.entry(need.clone()).or_default();
            lost.insert(needer.clone());
        }
    }

    /// Whether a claimant that needs something did not before.
    pub(super) fn is_new(&self, need: &Unit, needer: &Unit) -> bool {
        let gained = self.gained.get(need);
        gained.is_some_and(|gained| gained.contains(needer))
    }

    /// The claimants that needed something before and do not any more.
    pub(super) fn gone(&self, need: &Unit) -> impl Iterator<Item = &Unit> {
        self.lost.get(need).into_iter().flatten()
    }
}

/// Takes a claimant out of those of a need, and returns whether it was there.
fn take(moved: &mut BTreeMap<Unit, BTreeSet<Unit>>, need: &Unit, needer: &Unit) -> bool {
    let needers = moved.get_mut(need);
    needers.is_some_and(|needers| needers.remove(needer))
}

impl Run {
    /// Whether what has changed takes proxies so much to compile that the rest of it waits, whether
    /// there is time here or not.
    pub(super) fn is_laden(&self) -> bool {
        !self.is_whole && self.work.regex_steps >= REGEX_STEPS_MAX
    }

    /// The changes so far in a view.
    pub(super) fn delta_of(&mut self, slot: Slot) -> &mut Delta {
        match slot {
            MAIN_SLOT => &mut self.delta,
            _ => self.others.entry(slot).or_default(),
        }
    }

    /// Marks a unit, which must run or only lost somebody who needed it.
    pub(super) fn add(&mut self, unit: Unit, id: UnitId, must_run: bool) {
        self.pend(unit, id, false).must_run |= must_run;
    }

    /// Marks a unit that read what is other now.
    pub(super) fn add_woken(&mut self, unit: Unit, id: UnitId) {
        self.pend(unit, id, true).must_run = true;
    }

    /// Marks a unit that has waited: it runs now, however late it is.
    pub(super) fn add_postponed(&mut self, unit: Unit, id: UnitId) {
        let pending = self.pend(unit, id, false);
        (pending.must_run, pending.hurries) = (true, true);
    }

    /// Marks a unit of which a view may see other things than before.
    pub(super) fn add_view(&mut self, unit: Unit, id: UnitId, slot: Slot) {
        self.pend(unit, id, false).slots.insert(slot);
    }

    fn pend(&mut self, unit: Unit, id: UnitId, is_woken: bool) -> &mut Pending {
        let would_wait = unit.kind().may_wait && unit.own_kind().is_some();
        let hurries = self.hurries && would_wait && self.hurried < HURRIED_MAX;
        let pending = Pending {
            id,
            must_run: false,
            hurries: false,
            is_woken,
            slots: Stamp::EMPTY,
        };
        let pending = self.pending.entry(unit).or_insert(pending);
        self.hurried += usize::from(hurries && !pending.hurries);
        pending.hurries |= hurries;
        pending.is_woken &= is_woken;
        pending
    }
}
