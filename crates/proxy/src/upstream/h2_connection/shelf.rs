//! The connections of one worker to one endpoint. Those that have room for a request come before
//! all others, and those without streams are counted, as streams begin and end and the endpoint
//! changes its mind: so whoever wants a stream looks at one connection, however many there are.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Weak;

use super::line::Line;
use super::{H2Connection, H2Stream};
use crate::balance::Endpoint;
use crate::upstream::idle::Idle;

/// The most connections of one worker to one endpoint. Beyond, requests wait for a stream of one
/// of them. It is more than all requests of a worker need of most endpoints: where there is no
/// room, a share of them ends, so that nobody waits behind streams that are held for nothing.
const CONNECTIONS_MAX: usize = 1_024;

/// The connections that are looked at for the least busy one, where all are full.
const LOOKS: usize = 8;

/// The connections to one endpoint.
pub(super) struct Shelf {
    /// Gone when no table and no request knows the endpoint any more.
    pub(super) target: Weak<Endpoint>,
    /// The requests that wait while one of them opens a connection.
    pub(super) line: Line,
    connections: RefCell<Connections>,
}

#[derive(Default)]
struct Connections {
    /// All of them; each knows its place.
    all: Vec<Rc<H2Connection>>,
    /// The first so many have room.
    roomy: usize,
    streamless: usize,
    /// The place of the first that is looked at next for the least busy one.
    next: usize,
    /// How many were looked at.
    #[cfg(test)]
    looks: usize,
}

impl Shelf {
    /// A shelf without connections.
    pub(super) fn new(target: Weak<Endpoint>) -> Self {
        Shelf {
            target,
            line: Line::default(),
            connections: RefCell::default(),
        }
    }

    /// Adds a connection.
    pub(super) fn add(&self, connection: Rc<H2Connection>) {
        self.connections.borrow_mut().add(connection);
    }

    /// A stream on a connection that is there. Where all are full and no more may be opened, one on
    /// one that is less busy than others, which the request waits for.
    pub(super) fn find(&self) -> Option<H2Stream> {
        loop {
            let first = self.connections.borrow_mut().first_with_room();
            let Some(connection) = first else {
                let is_full = self.len() >= CONNECTIONS_MAX;
                return is_full.then(|| self.least_busy()).flatten();
            };
            if connection.is_open() {
                return Some(connection.stream(true));
            }
            self.remove(&connection);
        }
    }

    /// A stream that has to be waited for, where no more connections may be opened.
    pub(super) fn least_busy(&self) -> Option<H2Stream> {
        loop {
            let found = self.connections.borrow_mut().least_busy();
            let connection = found?;
            if connection.is_open() {
                return Some(connection.stream(true));
            }
            self.remove(&connection);
        }
    }

    /// Takes note of a connection whose streams have changed, or those that its endpoint offers.
    /// One that carries nothing and never will goes.
    pub(super) fn note(&self, connection: &H2Connection) {
        let gone = self.connections.borrow_mut().note(connection);
        drop(gone);
    }

    /// Drops the connections that do not stay.
    pub(super) fn retain(&self, stays: impl FnMut(&H2Connection) -> bool) {
        let gone = self.connections.borrow_mut().retain(stays);
        drop(gone);
    }

    /// How many connections there are on which the endpoint takes no stream.
    pub(super) fn streamless(&self) -> usize {
        self.connections.borrow().streamless
    }

    /// How many connections there are.
    pub(super) fn len(&self) -> usize {
        self.connections.borrow().all.len()
    }

    /// Appends those that carry nothing.
    pub(super) fn list_idle(&self, to: &mut Vec<Idle>) {
        let connections = self.connections.borrow();
        to.extend(connections.all.iter().filter_map(|it| it.idle.get()));
    }

    /// How many connections were looked at for streams.
    #[cfg(test)]
    pub(super) fn looks(&self) -> usize {
        self.connections.borrow().looks
    }

    fn remove(&self, connection: &H2Connection) {
        let gone = self.connections.borrow_mut().remove(connection);
        drop(gone);
    }
}

impl Connections {
    fn add(&mut self, connection: Rc<H2Connection>) {
        connection.place.set(Some(self.all.len()));
        self.all.push(connection.clone());
        self.note(&connection);
    }

    fn first_with_room(&mut self) -> Option<Rc<H2Connection>> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        self.all.get(..self.roomy)?.first().cloned()
    }

    /// The least busy of a few, which are others each time.
    fn least_busy(&mut self) -> Option<Rc<H2Connection>> {
        let count = self.all.len();
        #[cfg(test)]
        {
            self.looks += LOOKS.min(count);
        }
        let places = (0..LOOKS.min(count)).map(|step| (self.next + step) % count);
        let looked = places.filter_map(|place| self.all.get(place));
        let found = looked.min_by_key(|it| it.state.active.get()).cloned();
        self.next = (self.next + LOOKS) % count.max(1);
        found
    }

    fn note(&mut self, connection: &H2Connection) -> Option<Rc<H2Connection>> {
        let place = connection.place.get()?;
        if connection.is_spent() {
            return self.remove(connection);
        }
        self.count(connection, connection.is_streamless());
        match (place < self.roomy, connection.has_room()) {
            (false, true) => {
                self.swap(place, self.roomy);
                self.roomy += 1;
            }
            (true, false) => {
                self.roomy -= 1;
                self.swap(place, self.roomy);
            }
            (true, true) | (false, false) => {}
        }
        None
    }

    fn remove(&mut self, connection: &H2Connection) -> Option<Rc<H2Connection>> {
        let mut place = connection.place.get()?;
        self.count(connection, false);
        if place < self.roomy {
            self.roomy -= 1;
            self.swap(place, self.roomy);
            place = self.roomy;
        }
        self.swap(place, self.all.len().saturating_sub(1));
        let gone = self.all.pop()?;
        gone.place.set(None);
        Some(gone)
    }

    /// Takes out those that do not stay, from the last on: whoever takes a place was asked before.
    fn retain(&mut self, mut stays: impl FnMut(&H2Connection) -> bool) -> Vec<Rc<H2Connection>> {
        let mut gone = Vec::new();
        for place in (0..self.all.len()).rev() {
            let asked = self.all.get(place).cloned();
            if let Some(connection) = asked.filter(|it| !stays(it)) {
                gone.extend(self.remove(&connection));
            }
        }
        gone
    }

    fn count(&mut self, connection: &H2Connection, is_streamless: bool) {
        match (
            connection.counts_streamless.replace(is_streamless),
            is_streamless,
        ) {
            (false, true) => self.streamless += 1,
            (true, false) => self.streamless -= 1,
            (true, true) | (false, false) => {}
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.all.swap(one, other);
        for place in [one, other] {
            if let Some(connection) = self.all.get(place) {
                connection.place.set(Some(place));
            }
        }
    }
}

#[cfg(test)]
mod tests;
