//! The state of one batch.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_model::Delta;

use super::Work;
use super::reader::Open;
use super::stamp::{MAIN_SLOT, Slot, Stamp};
use super::unit::{Unit, UnitId};

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
    /// Whether all is done at once, however much it is.
    pub is_whole: bool,
    /// Whether its time has run out.
    pub is_late: bool,
    /// Ingresses that claim a host.
    pub served: Vec<Arc<str>>,
    /// Ingresses that are there and claim none any more.
    pub unserved: Vec<Arc<str>>,
    /// Objects that went beyond a bound of their namespace, and were within before.
    pub left_out: BTreeSet<ObjectKey>,
    /// The counts of work so far.
    pub work: Work,
    /// The values that units read last and may read again.
    pub opened: Open,
}

/// A unit to look at.
pub(super) struct Pending {
    /// Its number.
    pub id: UnitId,
    /// Whether it runs for all views.
    pub must_run: bool,
    /// The views that may see other things of it, where it need not run for the others.
    pub slots: Stamp,
}

impl Run {
    /// The changes so far in a view.
    pub(super) fn delta_of(&mut self, slot: Slot) -> &mut Delta {
        match slot {
            MAIN_SLOT => &mut self.delta,
            _ => self.others.entry(slot).or_default(),
        }
    }

    /// Marks a unit, which must run or only lost somebody who needed it.
    pub(super) fn add(&mut self, unit: Unit, id: UnitId, must_run: bool) {
        self.pend(unit, id).must_run |= must_run;
    }

    /// Marks a unit of which a view may see other things than before.
    pub(super) fn add_view(&mut self, unit: Unit, id: UnitId, slot: Slot) {
        self.pend(unit, id).slots.insert(slot);
    }

    fn pend(&mut self, unit: Unit, id: UnitId) -> &mut Pending {
        let slots = Stamp::EMPTY;
        let must_run = false;
        let pending = Pending {
            id,
            must_run,
            slots,
        };
        self.pending.entry(unit).or_insert(pending)
    }
}
