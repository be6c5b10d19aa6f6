//! The work that hash tables and regexes are to each proxy. Nobody here does it, so it is counted
//! and not measured.

use std::time::Duration;

use myriad_translate::Outcome;

/// The processor time of a slot of a hash table: a point of a ring is hashed and sorted, and for a
/// place of a Maglev table up to twenty are looked at.
const SLOT_COST: Duration = Duration::from_nanos(100);

/// The processor time of a step of compiling a regex: an instruction is visited.
const STEP_COST: Duration = Duration::from_nanos(3);

/// The processor time that an outcome takes each proxy at most to fill its tables and to compile
/// its regexes anew.
pub(super) fn cost(outcome: &Outcome) -> Duration {
    let times = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let of_slots = SLOT_COST.saturating_mul(times(outcome.work.table_slots));
    let of_steps = STEP_COST.saturating_mul(times(outcome.work.regex_steps));
    of_slots.saturating_add(of_steps)
}
