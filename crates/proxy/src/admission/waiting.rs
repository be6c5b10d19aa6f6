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
//! A request that waits for its endpoint holds a place as well, and that is nobody's fault. It
//! gives way only to another of the same domain, where its client's source holds most of the
//! domain's places: so one client does not have all of them for as long as an endpoint takes.
//!
//! Answers of the proxy itself hold no place among requests. Those that are not read stand in a
//! line of their own, and go for memory alone.

use std::cell::RefCell;

use super::fifo::{Fifo, FifoSlots};
use super::spaces::{NOBODY, Spots};
use crate::net::deadline::{self, now_ticks};

/// How many lines there are.
pub(crate) const LINES: usize = 256;

/// The line of answers of the proxy itself, behind those of requests.
const ANSWERS: u16 = LINES as u16;

/// The first line of requests that wait for their endpoints, by namespaces. They go for memory
/// only for what their own namespace holds.
const ENDPOINTS: u16 = ANSWERS + 1;

/// The first line of requests whose answer has begun and does not go on, by namespaces. They do
/// not go for memory.
const BEGUN: u16 = ENDPOINTS + LINES as u16;

/// All lines.
const ALL: usize = 3 * LINES + 1;

/// How many of a line are looked at for one of a namespace.
const LOOK_MAX: usize = 16;

/// How many of a line are looked at for one of the source that holds most of a domain.
const SOURCE_LOOK_MAX: usize = 1_024;

/// How long a request waits before it may have to go, in ticks: more than a second.
pub(crate) const TICKS_MIN: u32 = 11;

/// The bytes that make a request count as one that has just begun to wait.
const PROGRESS_BYTES: u32 = 1 << 10;

/// The most that go at once for memory.
const GO_MAX: u32 = 4_096;

/// No place.
const NONE: u32 = u32::MAX;

thread_local! {
    static LINE: RefCell<Lines> = RefCell::new(Lines::new());
}

/// The event that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientWait {
    /// More of the body.
    Body,
    /// That the answer is read.
    Read,
    /// Anything of its endpoint.
    Endpoint,
    /// More of an answer, of which nothing is kept.
    More,
}

/// The place of a request among those that wait for their clients, while it does.
pub struct Standing {
    place: u32,
    line: u16,
    /// The place of its namespace among those for which something is held.
    space: u16,
    /// The places of its domain, and of its client's source in that.
    domain: Spots,
    source: Spots,
}

struct Lines {
    places: FifoSlots<WaitingRequest>,
    /// The one that has waited longest first: requests, answers, and those that wait for endpoints.
    lines: [Fifo; ALL],
    /// How many wait for clients, and how many with those that wait for endpoints.
    count: u32,
    all: u32,
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
    space: u16,
    domain: Spots,
    source: Spots,
    waits: ClientWait,
    is_evicted: bool,
}

impl Standing {
    /// A request that does not wait, of a line, and of the namespace at a place.
    pub const fn new(line: u16, space: u16) -> Self {
        Standing {
            place: NONE,
            line,
            space,
            domain: NOBODY,
            source: NOBODY,
        }
    }

    /// The same of a domain, and of a source of clients in it.
    pub fn of(mut self, domain: Spots, source: Spots) -> Self {
        self.domain = domain;
        self.source = source;
        self
    }

    /// An answer of the proxy itself that does not wait.
    pub const fn of_answer(space: u16) -> Self {
        Standing::new(ANSWERS, space)
    }

    /// It waits for its client or its endpoint, has come so far in bytes, and goes when its
    /// deadline passes. It keeps its place for as long as it does not get on.
    pub fn wait(&mut self, waits: ClientWait, progress: u64, deadline: u32) {
        let place = WaitingRequest {
            since: now_ticks(),
            // What is compared are differences.
            mark: progress as u32,
            deadline,
            line: match waits {
                ClientWait::Endpoint => of_space(ENDPOINTS, self.space),
                ClientWait::More => of_space(BEGUN, self.space),
                ClientWait::Body | ClientWait::Read => self.line,
            },
            space: self.space,
            domain: self.domain,
            source: self.source,
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
        Standing::new(0, 0)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.leave();
    }
}

impl WaitingRequest {
    fn has_waited(&self) -> bool {
        now_ticks().saturating_sub(self.since) >= TICKS_MIN
    }
}

impl Lines {
    fn new() -> Self {
        Lines {
            places: FifoSlots::default(),
            lines: [Fifo::default(); ALL],
            count: 0,
            all: 0,
        }
    }

    fn enter(&mut self, place: WaitingRequest) -> u32 {
        let index = self.places.take(place);
        self.push(place.line, index);
        index
    }

    /// Moves a request to the end of its line, if it has got on, or waits in another.
    fn renew(&mut self, index: u32, place: WaitingRequest) {
        let Some(known) = self.places.get_mut(index) else {
            return;
        };
        if known.is_evicted {
            return;
        }
        known.waits = place.waits;
        let line = std::mem::replace(&mut known.line, place.line);
        if place.mark.wrapping_sub(known.mark) >= PROGRESS_BYTES {
            *known = place;
        } else if line == place.line {
            return;
        }
        self.unlink(line, index);
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
        if let Some(of_line) = self.lines.get_mut(usize::from(line)) {
            self.places.push(of_line, index);
            self.all += u32::from(line < BEGUN);
        }
        self.count += u32::from(line < ENDPOINTS);
    }

    fn unlink(&mut self, line: u16, index: u32) {
        if let Some(of_line) = self.lines.get_mut(usize::from(line)) {
            self.places.unlink(of_line, index);
            self.all -= u32::from(line < BEGUN);
        }
        self.count -= u32::from(line < ENDPOINTS);
    }

    /// The first of a line, if it has waited for long enough.
    fn first(&self, line: &Fifo) -> Option<u32> {
        let first = line.first()?;
        self.places.get(first)?.has_waited().then_some(first)
    }

    /// The one of a namespace that has waited longest, if that is for long enough.
    fn first_of(&self, space: u16) -> Option<u32> {
        let mut longest: Option<(u32, u32)> = None;
        for line in self.lines.iter().take(usize::from(BEGUN)) {
            let all = std::iter::successors(line.first(), |index| self.places.behind(*index));
            let places = all.filter_map(|index| Some((self.places.get(index)?, index)));
            let mut own = places
                .take(LOOK_MAX)
                .filter(|(place, _)| place.space == space);
            if let Some((place, index)) = own.next()
                && place.has_waited()
                && longest.is_none_or(|(since, _)| place.since < since)
            {
                longest = Some((place.since, index));
            }
        }
        longest.map(|(_, index)| index)
    }

    /// The first of the longest of so many lines that has more than so many, if it has waited for
    /// long enough.
    fn first_of_longest(&self, lines: usize, more_than: usize) -> Option<u32> {
        let lines = self.lines.iter().take(lines);
        let lines = lines.filter(|line| line.count() as usize > more_than);
        let waiting = lines.filter_map(|line| Some((line.count(), self.first(line)?)));
        waiting.max_by_key(|(count, _)| *count).map(|(_, it)| it)
    }

    /// The one of a domain that waits for its endpoint, by its namespace, and whose source holds
    /// most, if that is more than so much. Of those of one source it is the first.
    fn first_of_source(
        &self,
        space: u16,
        domain: Spots,
        more_than: usize,
        held: impl Fn(Spots) -> usize,
    ) -> Option<u32> {
        let mut most = (more_than, None);
        for line in [ENDPOINTS, BEGUN].map(|first| of_space(first, space)) {
            let line = self.lines.get(usize::from(line))?;
            let all = std::iter::successors(line.first(), |index| self.places.behind(*index));
            for index in all.take(SOURCE_LOOK_MAX) {
                let place = self.places.get(index)?;
                if place.domain == domain && place.has_waited() {
                    let held = held(place.source);
                    if held > most.0 {
                        most = (held, Some(index));
                    }
                }
            }
        }
        most.1
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
pub(crate) fn give_way(line: u16, held: usize) -> Option<ClientWait> {
    evict(|lines| {
        let own = lines.lines.get(usize::from(line))?;
        let others = || lines.first_of_longest(LINES, held);
        lines.first(own).or_else(others)
    })
}

/// Lets a request that waits for its endpoint go, for another of the same domain, in a namespace:
/// of the source for which most is held, if that is more than so much. Says what it waited for.
pub(crate) fn give_way_of_source(
    space: u16,
    domain: Spots,
    more_than: usize,
    held: impl Fn(Spots) -> usize,
) -> Option<ClientWait> {
    evict(|lines| lines.first_of_source(space, domain, more_than, held))
}

/// Lets a request, or an answer, go for the memory that it holds. Says what it waited for.
pub(crate) fn give_way_for_memory() -> Option<ClientWait> {
    evict(|lines| lines.first_of_longest(LINES + 1, 0))
}

/// Lets a request, or an answer, of the namespace at a place go for the memory that it holds,
/// whatever it waits for. Says what that was.
pub(crate) fn give_way_of(space: u16) -> Option<ClientWait> {
    evict(|lines| lines.first_of(space))
}

/// Lets one of so many of those go that wait, and at least one, for the memory that they hold: of
/// the namespace at a place alone, where there is one. Says what each of them waited for.
pub(crate) fn give_way_in_part(one_of: u32, space: Option<u16>, mut tell: impl FnMut(ClientWait)) {
    let count = LINE.with_borrow(|lines| match space {
        Some(_) => lines.all,
        None => lines.count,
    });
    for _ in 0..count.div_ceil(one_of.max(1)).min(GO_MAX) {
        let Some(waits) = space.map_or_else(give_way_for_memory, give_way_of) else {
            return;
        };
        tell(waits);
    }
}

/// The line of a namespace among those that begin with this one.
const fn of_space(first: u16, space: u16) -> u16 {
    first + space % LINES as u16
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
        give_way_in_part, give_way_of,
    };
    use crate::net::deadline::{Deadline, tick};

    fn waiting(line: u16, deadline: &Deadline) -> Standing {
        let mut standing = Standing::new(line, line);
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
        let mut answer = Standing::of_answer(0);
        answer.wait(ClientWait::Read, 0, deadline.number());
        pass();
        assert_eq!(give_way(1, 0), None);
        assert!(!answer.is_evicted());
        assert_eq!(give_way_for_memory(), Some(ClientWait::Read));
        assert!(answer.is_evicted());
        assert_eq!(give_way_for_memory(), None);
    }

    #[test]
    fn who_waits_for_an_endpoint_goes_for_what_its_own_namespace_holds_alone() {
        let deadline = Deadline::new();
        let mut all = [5, 5, 6].map(|space| Standing::new(1, space));
        for standing in &mut all {
            standing.wait(ClientWait::Endpoint, 0, deadline.number());
        }
        assert_eq!(give_way_of(5), None);
        pass();
        assert_eq!((give_way(1, 0), give_way_for_memory()), (None, None));
        // It waits on, for something else.
        all[0].wait(ClientWait::Body, 0, deadline.number());
        assert_eq!(give_way_of(5), Some(ClientWait::Body));
        assert_eq!(give_way_of(5), Some(ClientWait::Endpoint));
        assert_eq!(give_way_of(5), None);
        let evicted = all.each_ref().map(Standing::is_evicted);
        assert_eq!(evicted, [true, true, false]);
        drop(all);
        assert_eq!(give_way_of(6), None);
    }

    #[test]
    fn for_memory_a_part_goes_of_those_that_wait_and_no_others() {
        let deadline = Deadline::new();
        let mut all = Vec::from_iter((0..8).map(|line| waiting(line, &deadline)));
        pass();
        let mut gone = 0;
        give_way_in_part(4, None, |_| gone += 1);
        assert_eq!(gone, 2);
        all.retain(|standing| !standing.is_evicted());
        assert_eq!(all.len(), 6);
        all.iter_mut().for_each(Standing::leave);
        give_way_in_part(1, None, |_| gone += 1);
        assert_eq!(gone, 2);
    }
}
