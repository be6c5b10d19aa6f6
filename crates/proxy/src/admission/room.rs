//! The room that a worker has for connections, and which of them make room for others.
//!
//! A connection is silent until a whole ClientHello, or a whole head, has arrived; only then it
//! takes one of the places. Where there is none, a connection gives up its own that waits for its
//! next request, or whose handshake is under way: of the client's source that has most of either,
//! the one that has waited longest. Who serves a request, a stream or a WebSocket keeps it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::fifo::{Fifo, FifoSlots};
use super::silent::Silent;
use super::sources::SourceLines;
use crate::limits::{Limits, Reached};
use crate::net::deadline::{self, Deadline};
use crate::telemetry::count::{Count, Counts};

/// How many idle connections are looked at for one of the same domain, and how many handshakes for
/// one for which something is held.
const LOOKED_AT: usize = 8;

/// So many handshakes of one source may be under way, as a browser begins them, without going for
/// others that ask.
const HANDSHAKES_FEW: usize = 8;

/// The connections of one worker.
pub struct ConnectionRoom {
    connections_max: usize,
    silent_max: usize,
    spare_max: usize,
    silent_bytes_max: usize,
    counts: Arc<Counts>,
    /// The places taken.
    taken: Cell<usize>,
    /// Whether nobody new could be heard when last somebody looked.
    is_full: Cell<bool>,
    silent: RefCell<Silent>,
    seats: RefCell<Seats>,
    /// The connections that wait for a place, at most as many as may be silent.
    asking: RefCell<VecDeque<Asking>>,
}

/// A connection that waits for a place, and its source.
type Asking = (u64, oneshot::Sender<Seat>);

#[derive(Default)]
struct Seats {
    places: FifoSlots<Rest>,
    /// The idle one unused longest first.
    line: Fifo,
    /// The same by the sources of their clients. Those that are used are members, too.
    idle: SourceLines,
    /// The connections whose handshake is under way, by their sources.
    shaking: SourceLines,
}

/// The state of a place.
#[derive(Clone, Copy, Default)]
struct Rest {
    domain: u64,
    deadline: u32,
    /// The bytes that are held for the connection.
    bytes: u32,
    /// Its place among those of its source.
    member: u32,
    /// The same while its handshake is under way.
    handshake: u32,
    seat_use: SeatUse,
    is_evicted: bool,
}

/// The use that a connection makes of its place.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum SeatUse {
    /// It is served.
    #[default]
    Work,
    /// It waits for its next request.
    Idle,
    /// Its handshake is under way.
    Handshake,
}

/// A connection that has not said enough yet.
pub struct Hush {
    room: Rc<ConnectionRoom>,
    index: u32,
    deadline: Deadline,
}

/// One of the places for connections.
pub struct Seat {
    room: Rc<ConnectionRoom>,
    index: u32,
    /// The source of its client.
    source: u64,
}

impl ConnectionRoom {
    /// A room that nobody is in.
    pub fn new(limits: &Limits, counts: Arc<Counts>) -> Self {
        ConnectionRoom {
            connections_max: limits.connections_max,
            silent_max: limits.silent_max,
            spare_max: limits.spare_max,
            silent_bytes_max: limits.silent_bytes_max,
            counts,
            taken: Cell::new(0),
            is_full: Cell::new(false),
            silent: RefCell::default(),
            seats: RefCell::default(),
            asking: RefCell::default(),
        }
    }

    /// The places taken.
    pub fn taken(&self) -> usize {
        self.taken.get()
    }

    /// The places taken but for those of connections whose handshake is under way.
    pub fn served(&self) -> usize {
        let shaking = self.seats.borrow().shaking.count();
        self.taken().saturating_sub(shaking)
    }

    /// Whether nine tenths of the places are taken.
    pub fn is_nearly_full(&self) -> bool {
        self.taken.get() >= self.connections_max - self.connections_max / 10
    }

    /// Whether somebody new may be heard: there is room for him, or a silent connection to go.
    pub fn has_room(&self) -> bool {
        let mut asking = self.asking.borrow_mut();
        let max = self.silent_limit().0;
        if asking.len() >= max {
            asking.retain(|(_, asking)| !asking.is_closed());
        }
        let has_room = asking.len() < max;
        if !has_room && !self.is_full.replace(!has_room) {
            self.counts.add_reached(Reached::Connections);
        }
        self.is_full.set(!has_room);
        has_room
    }

    /// A connection that has said nothing yet; where there is no room, another has to go.
    pub fn enter(self: &Rc<Self>, source: u64) -> Hush {
        let (max, limit) = self.silent_limit();
        let asking = self.asking.borrow().len();
        while self.silent.borrow().count() + asking >= max && self.evict_silent(limit) {}
        let deadline = Deadline::new();
        Hush {
            index: self.silent.borrow_mut().enter(source, deadline.number()),
            room: self.clone(),
            deadline,
        }
    }

    /// How many may be silent or wait for a place, and the limit that says so.
    fn silent_limit(&self) -> (usize, Reached) {
        let left = self.connections_max.saturating_sub(self.taken.get());
        match self.silent_max <= left {
            true => (self.silent_max, Reached::Silent),
            false => (
                left.max(self.spare_max.min(self.silent_max)),
                Reached::Connections,
            ),
        }
    }

    /// A place for a client of a source, once there is one: another connection gives up its own.
    pub async fn seat(self: &Rc<Self>, source: u64) -> Seat {
        if self.taken.get() < self.connections_max || self.evict_for_place() {
            return self.sit(source);
        }
        let (sender, seat) = oneshot::channel();
        self.asking.borrow_mut().push_back((source, sender));
        // The room lives for as long as anybody asks.
        match seat.await {
            Ok(seat) => seat,
            Err(_) => self.sit(source),
        }
    }

    /// Lets an idle connection of a domain go, where it is among those unused longest, so that
    /// another of the same domain may come.
    pub fn exchange(&self, domain: u64) -> bool {
        let found = self.idle_of(domain);
        found.is_some_and(|index| self.evict(index, Count::EvictedIdle))
    }

    /// Whether a connection would go so.
    pub fn may_exchange(&self, domain: u64) -> bool {
        self.idle_of(domain).is_some()
    }

    fn idle_of(&self, domain: u64) -> Option<u32> {
        let seats = self.seats.borrow();
        let next = |index: &u32| seats.places.behind(*index);
        let mut oldest = std::iter::successors(seats.line.first(), next).take(LOOKED_AT);
        let is_same =
            |index: &u32| matches!(seats.places.get(*index), Some(rest) if rest.domain == domain);
        oldest.find(is_same)
    }

    /// Lets a connection go whose handshake is under way and for which something is held, so that
    /// this may be so for another: of the source that has most of them the oldest, and those before
    /// it.
    pub fn exchange_handshake(self: &Rc<Self>) -> bool {
        let mut is_exchanged = false;
        for _ in 0..LOOKED_AT {
            let seats = self.seats.borrow();
            let Some(index) = seats.shaking.first() else {
                break;
            };
            is_exchanged = seats.places.get(index).is_some_and(|rest| rest.bytes > 0);
            drop(seats);
            self.evict(index, Count::EvictedHandshake);
            if is_exchanged {
                break;
            }
        }
        self.hand_out();
        is_exchanged
    }

    /// Lets idle connections go until so many bytes less are held, those unused longest first. One
    /// that nothing is held for stays.
    pub fn relieve(self: &Rc<Self>, bytes: usize) {
        let mut missing = bytes;
        let mut leaving = Vec::new();
        let seats = self.seats.borrow();
        let next = |index: &u32| seats.places.behind(*index);
        for index in std::iter::successors(seats.line.first(), next) {
            if missing == 0 {
                break;
            }
            let held = seats.places.get(index).map_or(0, |rest| rest.bytes);
            if held > 0 {
                missing = missing.saturating_sub(held as usize);
                leaving.push(index);
            }
        }
        drop(seats);
        if leaving.is_empty() {
            return;
        }
        for index in leaving {
            self.evict(index, Count::EvictedIdle);
        }
        self.hand_out();
    }

    fn sit(self: &Rc<Self>, source: u64) -> Seat {
        self.taken.set(self.taken.get() + 1);
        Seat {
            index: self.seats.borrow_mut().take(source),
            room: self.clone(),
            source,
        }
    }

    fn evict_silent(&self, limit: Reached) -> bool {
        let is_evicted = self.silent.borrow_mut().evict();
        if is_evicted {
            self.counts.add_reached(limit);
            self.counts.add(Count::EvictedSilent);
        }
        is_evicted
    }

    /// Lets a connection go so that another has its place: an idle one, or one whose handshake is
    /// under way where these have half of the places, or a source has more of them than any has
    /// that are idle.
    fn evict_for_place(&self) -> bool {
        let seats = self.seats.borrow();
        let (idle, shaking) = (&seats.idle, &seats.shaking);
        let is_crowd = shaking.count() > self.connections_max / 2
            || shaking.most() > idle.most().max(HANDSHAKES_FEW);
        let (first, count) = match is_crowd {
            true => (shaking.first(), Count::EvictedHandshake),
            false => (idle.first(), Count::EvictedIdle),
        };
        drop(seats);
        let is_evicted = first.is_some_and(|index| self.evict(index, count));
        if is_evicted {
            self.counts.add_reached(Reached::Connections);
        }
        is_evicted
    }

    fn evict(&self, index: u32, count: Count) -> bool {
        let mut seats = self.seats.borrow_mut();
        seats.work(index);
        if let Some(rest) = seats.places.get_mut(index) {
            rest.is_evicted = true;
            deadline::expire(rest.deadline);
        }
        self.counts.add(count);
        self.taken.set(self.taken.get() - 1);
        true
    }

    /// Gives free places to those that ask for one.
    fn hand_out(self: &Rc<Self>) {
        loop {
            let Some((source, asking)) = self.asking.borrow_mut().pop_front() else {
                return;
            };
            if asking.is_closed() {
                continue;
            }
            if self.taken.get() >= self.connections_max && !self.evict_for_place() {
                return self.asking.borrow_mut().push_front((source, asking));
            }
            // It waits still: nothing has run since it was seen to.
            let _ = asking.send(self.sit(source));
        }
    }
}

impl Hush {
    /// When it has to go at the latest; passes at once where it has to make room.
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Moves it to another source, where it comes from somewhere else than it seemed to.
    pub fn come_from(&mut self, source: u64) {
        if !self.is_evicted() {
            let mut silent = self.room.silent.borrow_mut();
            silent.leave(self.index);
            self.index = silent.enter(source, self.deadline.number());
        }
    }

    /// Whether it has to make room.
    pub fn is_evicted(&self) -> bool {
        self.room.silent.borrow().is_evicted(self.index)
    }

    /// Counts so many bytes as what holds its words so far; where all of them hold too many,
    /// others have to go, or it has itself.
    pub fn hold(&self, bytes: usize) {
        let room = &self.room;
        room.silent.borrow_mut().hold(self.index, bytes);
        while room.silent.borrow().bytes() > room.silent_bytes_max {
            if !room.evict_silent(Reached::SilentBytes) {
                return;
            }
        }
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        self.room.silent.borrow_mut().leave(self.index);
    }
}

impl Seats {
    /// A place for a connection of a source, which is served.
    fn take(&mut self, source: u64) -> u32 {
        let index = self.places.take(Rest::default());
        let member = self.idle.join(source, index);
        if let Some(rest) = self.places.get_mut(index) {
            rest.member = member;
        }
        index
    }

    /// Gives back a place.
    fn give_back(&mut self, index: u32) {
        self.work(index);
        if let Some(rest) = self.places.get(index) {
            self.idle.leave(rest.member);
        }
        self.places.give_back(index);
    }

    /// The connection of a place is served from now on.
    fn work(&mut self, index: u32) {
        let Some(rest) = self.places.get_mut(index) else {
            return;
        };
        let before = std::mem::take(&mut rest.seat_use);
        let (member, handshake) = (rest.member, rest.handshake);
        match before {
            SeatUse::Work => {}
            SeatUse::Idle => {
                self.places.unlink(&mut self.line, index);
                self.idle.unlink(member);
            }
            SeatUse::Handshake => {
                self.shaking.unlink(handshake);
                self.shaking.leave(handshake);
            }
        }
    }

    /// The connection of a place waits for its next request from now on; false where it has to go
    /// already.
    fn rest(&mut self, index: u32) -> bool {
        self.work(index);
        let Some(rest) = self.places.get_mut(index).filter(|it| !it.is_evicted) else {
            return false;
        };
        rest.seat_use = SeatUse::Idle;
        let member = rest.member;
        self.places.push(&mut self.line, index);
        self.idle.push(member);
        true
    }

    /// The handshake of the connection of a place is under way from now on.
    fn shake(&mut self, index: u32, source: u64) {
        self.work(index);
        let Some(rest) = self.places.get_mut(index).filter(|it| !it.is_evicted) else {
            return;
        };
        rest.seat_use = SeatUse::Handshake;
        rest.handshake = self.shaking.join(source, index);
        self.shaking.push(rest.handshake);
    }
}

impl Seat {
    /// The deadline that passes at once where the connection has to go.
    pub fn watch(&self, deadline: &Deadline) {
        if let Some(rest) = self.room.seats.borrow_mut().places.get_mut(self.index) {
            rest.deadline = deadline.number();
        }
    }

    /// The connection waits for its next request, and may have to go. Where it does so already it
    /// counts as used again.
    pub fn rest(&self) {
        let rests = self.room.seats.borrow_mut().rest(self.index);
        if rests {
            self.room.hand_out();
        }
    }

    /// Its handshake is under way, and it may have to go.
    pub fn shake(&self) {
        self.room.seats.borrow_mut().shake(self.index, self.source);
    }

    /// So many bytes are held for the connection, which it gives back where it goes.
    pub fn keep(&self, bytes: usize) {
        if let Some(rest) = self.room.seats.borrow_mut().places.get_mut(self.index) {
            rest.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// The connection serves a request, or its handshake is over, and it stays.
    pub fn work(&self) {
        self.room.seats.borrow_mut().work(self.index);
    }

    /// Whether its handshake is under way.
    pub fn is_shaking(&self) -> bool {
        let rest = self.room.seats.borrow().places.get(self.index);
        rest.is_some_and(|rest| rest.seat_use == SeatUse::Handshake)
    }

    /// Whether it has to make room.
    pub fn is_evicted(&self) -> bool {
        let rest = self.room.seats.borrow().places.get(self.index);
        rest.is_some_and(|rest| rest.is_evicted)
    }

    /// The connection is one of a domain's.
    pub fn belong_to(&self, domain: u64) {
        if let Some(rest) = self.room.seats.borrow_mut().places.get_mut(self.index) {
            rest.domain = domain;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let is_evicted = self.is_evicted();
        self.room.seats.borrow_mut().give_back(self.index);
        if !is_evicted {
            self.room.taken.set(self.room.taken.get() - 1);
            self.room.hand_out();
        }
    }
}

#[cfg(test)]
mod tests;
