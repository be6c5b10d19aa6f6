//! The work that hash tables are to each proxy. Nobody here does it, so it is counted and not
//! measured.

use std::time::Duration;

use myriad_translate::Outcome;

/// The processor time of a slot of a hash table: a point of a ring is hashed and sorted, and for a
/// place of a Maglev table up to twenty are looked at.
const SLOT_COST: Duration = Duration::from_nanos(100);

/// The processor time that an outcome takes each proxy to fill its tables anew.
pub(super) fn cost(outcome: &Outcome) -> Duration {
    let slots = u32::try_from(outcome.work.table_slots).unwrap_or(u32::MAX);
    SLOT_COST.saturating_mul(slots)
}
