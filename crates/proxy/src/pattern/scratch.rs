//! The scratch memory of a thread, which all of its patterns share.

use std::cell::RefCell;

use myriad_model::PathRewrite;

use super::{GROUPS, INSTRUCTIONS_MAX};

/// The most scratch memory of a thread in bytes, whatever it matches and however many patterns
/// there are.
pub const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// The longest text in bytes that is compared with hints.
const FOLDED_MAX: usize = 64 << 10;

/// The most patterns that are tried for one text; a budget is spent before.
const CANDIDATES_MAX: usize = 16 << 10;

/// The slots of a thread that follows groups.
pub(super) const SLOTS: usize = GROUPS * 2;

/// No place.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The memory of a simulation.
#[derive(Default)]
pub(super) struct Scratch {
    /// The states at the present place.
    pub now: States,
    /// The states at the next one.
    pub then: States,
    /// The states that are still to be followed.
    pub stack: Vec<Frame>,
}

/// A set of states, in the order of preference.
#[derive(Default)]
pub(super) struct States {
    order: Vec<u16>,
    places: Vec<u16>,
    /// [`SLOTS`] places of groups for each state, where groups are asked for.
    slots: Vec<u32>,
}

/// An entry of the stack.
#[derive(Clone, Copy)]
pub(super) enum Frame {
    /// A state.
    Go(u16),
    /// The former place in a slot, once what came behind it was followed.
    Restore(u8, u32),
}

/// The memory of the look through hints, before patterns are tried.
#[derive(Default)]
pub struct Candidates {
    /// The text, as hints are written.
    pub folded: String,
    /// The numbers of what is to be tried.
    pub numbers: Vec<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static CANDIDATES: RefCell<Candidates> = RefCell::default();
}

/// Lends the scratch memory, with room for states and, where asked, for their groups. None where
/// there is none.
pub(super) fn with<R>(
    states: usize,
    groups: bool,
    run: impl FnOnce(&mut Scratch) -> R,
) -> Option<R> {
    SCRATCH.with(|scratch| {
        let mut scratch = scratch.try_borrow_mut().ok()?;
        scratch.reserve(states, groups)?;
        Some(run(&mut scratch))
    })
}

/// Lends what candidates are gathered in: nothing so far, and the text as hints are written. None
/// where the text is too long.
pub fn with_candidates<R>(text: &str, run: impl FnOnce(&mut Candidates) -> R) -> Option<R> {
    // It is taken, so that patterns may be tried meanwhile.
    let mut candidates = CANDIDATES.take();
    let result = candidates.fold(text).map(|()| run(&mut candidates));
    CANDIDATES.replace(candidates);
    result
}

/// Whether a pattern of this many instructions can have its groups followed.
pub(super) fn has_room_for_groups(instructions: usize) -> bool {
    instructions <= PathRewrite::INSTRUCTIONS_MAX
}

impl Scratch {
    fn reserve(&mut self, states: usize, groups: bool) -> Option<()> {
        if states > INSTRUCTIONS_MAX || (groups && !has_room_for_groups(states)) {
            return None;
        }
        self.now.reserve(states, groups)?;
        self.then.reserve(states, groups)?;
        self.stack.clear();
        reserve(&mut self.stack, states + 1)
    }

    /// The memory that it takes in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        let of = |states: &States| {
            let ids = states.order.capacity() + states.places.capacity();
            ids * size_of::<u16>() + states.slots.capacity() * size_of::<u32>()
        };
        of(&self.now) + of(&self.then) + self.stack.capacity() * size_of::<Frame>()
    }
}

/// The scratch memory that this thread holds in bytes.
pub fn memory_usage() -> usize {
    let candidates = CANDIDATES.take();
    let gathered = candidates.folded.capacity() + candidates.numbers.capacity() * size_of::<u32>();
    CANDIDATES.replace(candidates);
    gathered + SCRATCH.with_borrow(Scratch::memory_usage)
}

impl Candidates {
    /// Adds one; false where there are too many.
    pub fn push(&mut self, number: u32) -> bool {
        let has_room = self.numbers.len() < CANDIDATES_MAX && self.numbers.try_reserve(1).is_ok();
        if has_room {
            self.numbers.push(number);
        }
        has_room
    }

    fn fold(&mut self, text: &str) -> Option<()> {
        self.numbers.clear();
        self.folded.clear();
        if text.len() > FOLDED_MAX {
            return None;
        }
        self.folded.try_reserve_exact(text.len()).ok()?;
        super::hint::fold(text, &mut self.folded);
        Some(())
    }
}

impl States {
    /// Forgets all states.
    pub(super) fn clear(&mut self) {
        self.order.clear();
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The state of a rank.
    pub(super) fn get(&self, rank: usize) -> Option<u16> {
        self.order.get(rank).copied()
    }

    /// Adds a state; false where it is there already.
    pub(super) fn insert(&mut self, state: u16) -> bool {
        let Some(place) = self.places.get_mut(usize::from(state)) else {
            return false;
        };
        if self.order.get(usize::from(*place)) == Some(&state) {
            return false;
        }
        *place = self.order.len() as u16;
        self.order.push(state);
        true
    }

    /// The places of groups of a state.
    pub(super) fn slots(&self, state: u16) -> &[u32] {
        let start = usize::from(state) * SLOTS;
        self.slots.get(start..start + SLOTS).unwrap_or_default()
    }

    /// Remembers the places of groups of a state.
    pub(super) fn remember(&mut self, state: u16, slots: &[u32; SLOTS]) {
        let start = usize::from(state) * SLOTS;
        if let Some(own) = self.slots.get_mut(start..start + SLOTS) {
            own.copy_from_slice(slots);
        }
    }

    fn reserve(&mut self, states: usize, groups: bool) -> Option<()> {
        self.clear();
        reserve(&mut self.order, states)?;
        grow(&mut self.places, states, 0)?;
        if groups {
            grow(&mut self.slots, states * SLOTS, NOWHERE)?;
        }
        Some(())
    }
}

/// Makes room for exactly so many, since what is doubled would not stay within bounds.
fn reserve<T>(list: &mut Vec<T>, count: usize) -> Option<()> {
    let more = count.saturating_sub(list.len());
    list.try_reserve_exact(more).ok()
}

fn grow<T: Clone>(list: &mut Vec<T>, count: usize, value: T) -> Option<()> {
    if list.len() < count {
        reserve(list, count)?;
        list.resize(count, value);
    }
    Some(())
}
