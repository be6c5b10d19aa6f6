//! The requests of a worker that wait for their own client, and which of them give way to others.
//!
//! A request whose body does not come, or whose answer is not read, holds a place among requests,
//! and memory, for as long as its client likes. While there is enough of both it may. Where there
//! is not, the one goes that has waited longest without getting on, first of the domain that
//! wants the place, and else of those that have most who wait so.
//!
//! Each thread has the requests of its worker in lines, one for every so many domains by their
//! hashes, so that coming, getting on and going cost a few stores, and nothing is allocated but
//! a place in the table.
//!
//! Answers of the proxy itself hold no place among requests. Those that are not read stand in a
//! line of their own, and go for memory alone.

use std::cell::RefCell;

use super::fifo::{Fifo, FifoSlots};
use crate::net::deadline::{self, now_ticks};

/// How many lines there are.
pub const LINES: usize = 256;

/// The line of answers of the proxy itself, behind those of requests.
const ANSWERS: u16 = LINES as u16;

/// How long a request waits before it may have to go, in ticks: more than a second.
pub const TICKS_MIN: u32 = 11;

/// The bytes that make a request count as one that has just begun to wait.
const PROGRESS_BYTES: u32 = 1 << 10;

/// The most that go at once for memory.
const GO_MAX: u32 = 4_096;

/// No place.
const NONE: u32 = u32::MAX;

thread_local! {
    static LINE: RefCell<Lines> = RefCell::new(Lines::new());
}

/// The event of its client that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientWait {
    /// More of the body.
    Body,
    /// That the answer is read.
    Read,
}

/// The place of a request among those that wait for their clients, while it does.
pub struct Standing {
    place: u32,
    line: u16,
}

struct Lines {
    places: FifoSlots<WaitingRequest>,
    /// The one that has waited longest first; the last line is that of answers.
    lines: [Fifo; LINES + 1],
    count: u32,
}

/// The state of a request that waits.
#[derive(Clone, Copy)]
struct WaitingRequest {
    /// The tick since which it has not got on.
    since: u32,
    /// The low bits of how far it had come then.
    mark: u32,
    deadline: u32,
    line: u16,
    waits: ClientWait,
    is_evicted: bool,
}

impl Standing {
    /// A request that does not wait, of a line.
    pub const fn new(line: u16) -> Self {
        Standing { place: NONE, line }
    }

    /// An answer of the proxy itself that does not wait.
    pub const fn of_answer() -> Self {
        Standing::new(ANSWERS)
    }

    /// It waits for its client, has come so far in bytes, and goes when its deadline passes. It
    /// keeps its place for as long as it does not get on.
    pub fn wait(&mut self, waits: ClientWait, progress: u64, deadline: u32) {
        let place = WaitingRequest {
            since: now_ticks(),
            // What is compared are differences.
            mark: progress as u32,
            deadline,
            line: self.line,
            waits,
            is_evicted: false,
        };
        LINE.with_borrow_mut(|lines| match self.place {
            NONE => self.place = lines.enter(place),
            index => lines.renew(index, place),
        });
    }

    /// Takes it out of the line: it waits for its client no longer.
    pub fn leave(&mut self) {
        if self.place == NONE {
            return;
        }
        let place = std::mem::replace(&mut self.place, NONE);
        // At the end of its thread the lines may be gone already.
        let _ = LINE.try_with(|lines| lines.borrow_mut().leave(place));
    }

    /// Whether it has to make room.
    pub fn is_evicted(&self) -> bool {
        self.place != NONE
            && LINE.with_borrow(|lines| {
                let place = lines.places.get(self.place);
                place.is_some_and(|place| place.is_evicted)
            })
    }
}

impl Default for Standing {
    fn default() -> Self {
        Standing::new(0)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Lines {
    fn new() -> Self {
        Lines {
            places: FifoSlots::default(),
            lines: [Fifo::default(); LINES + 1],
            count: 0,
        }
    }

    fn enter(&mut self, place: WaitingRequest) -> u32 {
        let index = self.places.take(place);
        self.push(place.line, index);
        index
    }

    /// Moves a request to the end of its line, if it has got on.
    fn renew(&mut self, index: u32, place: WaitingRequest) {
        let Some(known) = self.places.get_mut(index) else {
            return;
        };
        if known.is_evicted {
            return;
        }
        known.waits = place.waits;
        if place.mark.wrapping_sub(known.mark) < PROGRESS_BYTES {
            return;
        }
        *known = place;
        self.unlink(place.line, index);
        self.push(place.line, index);
    }

    fn leave(&mut self, index: u32) {
        if let Some(place) = self.places.get(index)
            && !place.is_evicted
        {
            self.unlink(place.line, index);
        }
        self.places.give_back(index);
    }

    fn push(&mut self, line: u16, index: u32) {
        if let Some(line) = self.lines.get_mut(usize::from(line)) {
            self.places.push(line, index);
            self.count += 1;
        }
    }

    fn unlink(&mut self, line: u16, index: u32) {
        if let Some(line) = self.lines.get_mut(usize::from(line)) {
            self.places.unlink(line, index);
            self.count -= 1;
        }
    }

    /// The first of a line, if it has waited for long enough.
    fn first(&self, line: &Fifo) -> Option<u32> {
        let first = line.first()?;
        let place = self.places.get(first)?;
        let waited = now_ticks().saturating_sub(place.since);
        (waited >= TICKS_MIN).then_some(first)
    }

    /// The first of the longest of so many lines that has more than so many, if it has waited for
    /// long enough.
    fn first_of_longest(&self, lines: usize, more_than: usize) -> Option<u32> {
        let lines = self.lines.iter().take(lines);
        let lines = lines.filter(|line| line.count() as usize > more_than);
        let waiting = lines.filter_map(|line| Some((line.count(), self.first(line)?)));
        waiting.max_by_key(|(count, _)| *count).map(|(_, it)| it)
    }

    fn evict(&mut self, index: u32) -> Option<(u32, ClientWait)> {
        let place = self.places.get_mut(index)?;
        place.is_evicted = true;
        let place = *place;
        self.unlink(place.line, index);
        Some((place.deadline, place.waits))
    }
}

/// Lets a request go, for another of a domain in this line that has so many: one of the same line,
/// or one of those who have more that wait. Says what it waited for.
pub fn give_way(line: u16, held: usize) -> Option<ClientWait> {
    evict(|lines| {
        let own = lines.lines.get(usize::from(line))?;
        let others = || lines.first_of_longest(LINES, held);
        lines.first(own).or_else(others)
    })
}

/// Lets a request, or an answer, go for the memory that it holds. Says what it waited for.
pub fn give_way_for_memory() -> Option<ClientWait> {
    evict(|lines| lines.first_of_longest(LINES + 1, 0))
}

/// Lets one of so many of those go that wait, and at least one, for the memory that they hold.
/// Says what each of them waited for.
pub fn give_way_in_part(one_of: u32, mut tell: impl FnMut(ClientWait)) {
    let count = LINE.with_borrow(|lines| lines.count);
    for _ in 0..count.div_ceil(one_of.max(1)).min(GO_MAX) {
        let Some(waits) = give_way_for_memory() else {
            return;
        };
        tell(waits);
    }
}

fn evict(find: impl FnOnce(&Lines) -> Option<u32>) -> Option<ClientWait> {
    let (deadline, waits) = LINE.with_borrow_mut(|lines| {
        let index = find(lines)?;
        lines.evict(index)
    })?;
    deadline::expire(deadline);
    Some(waits)
}

#[cfg(test)]
mod tests {
    use super::{
        ClientWait, PROGRESS_BYTES, Standing, TICKS_MIN, give_way, give_way_for_memory,
        give_way_in_part,
    };
    use crate::net::deadline::{Deadline, tick};

    fn waiting(line: u16, deadline: &Deadline) -> Standing {
        let mut standing = Standing::new(line);
        standing.wait(ClientWait::Body, 0, deadline.number());
        standing
    }

    fn pass() {
        (0..TICKS_MIN).for_each(|_| tick());
    }

    #[test]
    fn who_has_waited_longest_of_its_domain_goes_first_and_nobody_at_once() {
        let deadline = Deadline::new();
        let other = waiting(2, &deadline);
        let [mut first, second] = [1, 1].map(|line| waiting(line, &deadline));
        assert_eq!(give_way(1, 0), None);
        pass();
        // A few bytes are no progress; the others are.
        first.wait(ClientWait::Read, 1, deadline.number());
        assert_eq!(give_way(1, 9), Some(ClientWait::Read));
        assert!(first.is_evicted() && !second.is_evicted());
        first.wait(
            ClientWait::Body,
            u64::from(PROGRESS_BYTES),
            deadline.number(),
        );
        assert!(first.is_evicted());
        assert_eq!(give_way(1, 9), Some(ClientWait::Body));
        assert_eq!(give_way(1, 9), None);
        assert!(second.is_evicted() && !other.is_evicted());
        drop((first, second));
        let mut again = waiting(1, &deadline);
        assert!(!again.is_evicted());
        pass();
        again.wait(
            ClientWait::Body,
            u64::from(PROGRESS_BYTES),
            deadline.number(),
        );
        assert_eq!(give_way(1, 9), None);
    }

    #[test]
    fn a_domain_with_less_takes_from_the_one_with_most_that_wait() {
        let deadline = Deadline::new();
        let many = [3, 3, 3, 4].map(|line| waiting(line, &deadline));
        pass();
        assert_eq!(give_way(5, 3), None);
        assert_eq!(give_way(5, 2), Some(ClientWait::Body));
        assert!(many[0].is_evicted());
        assert_eq!(give_way(5, 2), None);
    }

    #[test]
    fn answers_that_are_not_read_go_for_memory_and_never_for_a_place() {
        let deadline = Deadline::new();
        let mut answer = Standing::of_answer();
        answer.wait(ClientWait::Read, 0, deadline.number());
        pass();
        assert_eq!(give_way(1, 0), None);
        assert!(!answer.is_evicted());
        assert_eq!(give_way_for_memory(), Some(ClientWait::Read));
        assert!(answer.is_evicted());
        assert_eq!(give_way_for_memory(), None);
    }

    #[test]
    fn for_memory_a_part_goes_of_those_that_wait_and_no_others() {
        let deadline = Deadline::new();
        let mut all = Vec::from_iter((0..8).map(|line| waiting(line, &deadline)));
        pass();
        let mut gone = 0;
        give_way_in_part(4, |_| gone += 1);
        assert_eq!(gone, 2);
        all.retain(|standing| !standing.is_evicted());
        assert_eq!(all.len(), 6);
        all.iter_mut().for_each(Standing::leave);
        give_way_in_part(1, |_| gone += 1);
        assert_eq!(gone, 2);
    }
}
