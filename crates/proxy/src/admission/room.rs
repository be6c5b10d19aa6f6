//! The room that a worker has for connections, and which of them make room for others.
//!
//! A connection is silent until a whole ClientHello, or a whole head, has arrived; only then it
//! takes one of the places. Where there is none, the connection that has waited longest for its
//! next request gives up its own. Who serves a request, a stream or a WebSocket keeps it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::fifo::{Fifo, FifoSlots};
use super::silent::Silent;
use crate::limits::{Limits, Reached};
use crate::net::deadline::{self, Deadline};
use crate::telemetry::count::{Count, Counts};

/// How many idle connections are looked at for one of the same domain.
const LOOKED_AT: usize = 8;

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
    idle: RefCell<Idle>,
    /// The connections that wait for a place, at most as many as may be silent.
    asking: RefCell<VecDeque<oneshot::Sender<Seat>>>,
}

#[derive(Default)]
struct Idle {
    places: FifoSlots<Rest>,
    /// The one unused longest first.
    line: Fifo,
}

/// The state of a place.
#[derive(Clone, Copy, Default)]
struct Rest {
    domain: u64,
    deadline: u32,
    /// The bytes that are held for the connection.
    bytes: u32,
    is_idle: bool,
    is_evicted: bool,
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
            idle: RefCell::default(),
            asking: RefCell::default(),
        }
    }

    /// The places taken.
    pub fn taken(&self) -> usize {
        self.taken.get()
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
            asking.retain(|asking| !asking.is_closed());
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

    /// A place, once there is one: an idle connection gives up its own.
    pub async fn seat(self: &Rc<Self>) -> Seat {
        if self.taken.get() < self.connections_max || self.evict_idle() {
            return self.sit();
        }
        let (sender, seat) = oneshot::channel();
        self.asking.borrow_mut().push_back(sender);
        // The room lives for as long as anybody asks.
        match seat.await {
            Ok(seat) => seat,
            Err(_) => self.sit(),
        }
    }

    /// Lets an idle connection of a domain go, where it is among those unused longest, so that
    /// another of the same domain may come.
    pub fn exchange(&self, domain: u64) -> bool {
        let idle = self.idle.borrow();
        let next = |index: &u32| idle.places.behind(*index);
        let oldest = std::iter::successors(idle.line.first(), next).take(LOOKED_AT);
        let is_same =
            |index: &u32| matches!(idle.places.get(*index), Some(rest) if rest.domain == domain);
        let found = oldest.into_iter().find(is_same);
        drop(idle);
        found.is_some_and(|index| self.evict(index))
    }

    /// Lets idle connections go until so many bytes less are held, those unused longest first. One
    /// that nothing is held for stays.
    pub fn relieve(self: &Rc<Self>, bytes: usize) {
        let mut missing = bytes;
        let mut leaving = Vec::new();
        let idle = self.idle.borrow();
        let next = |index: &u32| idle.places.behind(*index);
        for index in std::iter::successors(idle.line.first(), next) {
            if missing == 0 {
                break;
            }
            let held = idle.places.get(index).map_or(0, |rest| rest.bytes);
            if held > 0 {
                missing = missing.saturating_sub(held as usize);
                leaving.push(index);
            }
        }
        drop(idle);
        if leaving.is_empty() {
            return;
        }
        for index in leaving {
            self.evict(index);
        }
        self.hand_out();
    }

    fn sit(self: &Rc<Self>) -> Seat {
        self.taken.set(self.taken.get() + 1);
        Seat {
            index: self.idle.borrow_mut().places.take(Rest::default()),
            room: self.clone(),
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

    fn evict_idle(&self) -> bool {
        let first = self.idle.borrow().line.first();
        let is_evicted = first.is_some_and(|index| self.evict(index));
        if is_evicted {
            self.counts.add_reached(Reached::Connections);
        }
        is_evicted
    }

    fn evict(&self, index: u32) -> bool {
        let mut idle = self.idle.borrow_mut();
        let Idle { places, line } = &mut *idle;
        places.unlink(line, index);
        if let Some(rest) = places.get_mut(index) {
            rest.is_idle = false;
            rest.is_evicted = true;
            deadline::expire(rest.deadline);
        }
        self.counts.add(Count::EvictedIdle);
        self.taken.set(self.taken.get() - 1);
        true
    }

    /// Gives free places to those that ask for one.
    fn hand_out(self: &Rc<Self>) {
        loop {
            let Some(asking) = self.asking.borrow_mut().pop_front() else {
                return;
            };
            if asking.is_closed() {
                continue;
            }
            if self.taken.get() >= self.connections_max && !self.evict_idle() {
                return self.asking.borrow_mut().push_front(asking);
            }
            // It waits still: nothing has run since it was seen to.
            let _ = asking.send(self.sit());
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

impl Seat {
    /// The deadline that passes at once where the connection has to go.
    pub fn watch(&self, deadline: &Deadline) {
        if let Some(rest) = self.room.idle.borrow_mut().places.get_mut(self.index) {
            rest.deadline = deadline.number();
        }
    }

    /// The connection waits for its next request, and may have to go. Where it does so already it
    /// counts as used again.
    pub fn rest(&self) {
        let mut idle = self.room.idle.borrow_mut();
        let Idle { places, line } = &mut *idle;
        let Some(rest) = places.get_mut(self.index) else {
            return;
        };
        if rest.is_evicted {
            return;
        }
        if std::mem::replace(&mut rest.is_idle, true) {
            places.unlink(line, self.index);
        }
        places.push(line, self.index);
        drop(idle);
        self.room.hand_out();
    }

    /// So many bytes are held for the connection, which it gives back where it goes.
    pub fn keep(&self, bytes: usize) {
        if let Some(rest) = self.room.idle.borrow_mut().places.get_mut(self.index) {
            rest.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// The connection serves a request, and stays.
    pub fn work(&self) {
        let mut idle = self.room.idle.borrow_mut();
        let Idle { places, line } = &mut *idle;
        if let Some(rest) = places.get_mut(self.index)
            && std::mem::replace(&mut rest.is_idle, false)
        {
            places.unlink(line, self.index);
        }
    }

    /// Whether it has to make room.
    pub fn is_evicted(&self) -> bool {
        let rest = self.room.idle.borrow().places.get(self.index);
        rest.is_some_and(|rest| rest.is_evicted)
    }

    /// The connection is one of a domain's.
    pub fn belong_to(&self, domain: u64) {
        if let Some(rest) = self.room.idle.borrow_mut().places.get_mut(self.index) {
            rest.domain = domain;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.work();
        let is_evicted = self.is_evicted();
        self.room.idle.borrow_mut().places.give_back(self.index);
        if !is_evicted {
            self.room.taken.set(self.room.taken.get() - 1);
            self.room.hand_out();
        }
    }
}

#[cfg(test)]
mod tests;
