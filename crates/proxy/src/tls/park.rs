//! Handshakes that wait for a certificate which is obtained on demand. They wait before anything is
//! done for them, in places of their own, so that they hold no slot that others wait for.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

use super::demand::{Demand, DemandWait};
use crate::admission::networks::Neighbours;
use crate::limits::{Limits, Reached};
use crate::net::deadline::{self, Deadline};
use crate::telemetry::count::Counts;

/// The handshakes of one worker that wait for a certificate. Where there is no place for another,
/// the network and source that has most of them loses its oldest one.
pub struct ParkedHandshakes {
    /// The numbers of their deadlines.
    places: RefCell<Neighbours<u32>>,
    entered: Cell<u64>,
    places_max: usize,
    per_name_max: usize,
    timeout: Duration,
}

/// A place among those that wait; given back when dropped.
struct Parked<'a> {
    all: &'a ParkedHandshakes,
    number: u64,
    deadline: Deadline,
}

/// Why a handshake waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unparked {
    /// There is an answer, or nobody waits for one.
    Answered,
    /// It has waited for as long as it may, or lost its place to another.
    Over,
    /// Its client is gone.
    Gone,
}

impl ParkedHandshakes {
    /// Places in which no handshake waits yet.
    pub fn new(limits: &Limits) -> Self {
        ParkedHandshakes {
            places: RefCell::default(),
            entered: Cell::new(0),
            places_max: limits.parked_max,
            per_name_max: limits.parked_per_name_max,
            timeout: limits.park_timeout,
        }
    }

    /// Waits for the certificate of a name that the client of a source asks for, where one may be
    /// obtained.
    pub(super) async fn wait(
        &self,
        demand: &Demand,
        (name, source): (&str, u64),
        tcp: &TcpStream,
        counts: &Counts,
    ) -> Unparked {
        let Some(wanted) = demand.want(name, source, self.per_name_max) else {
            return Unparked::Over;
        };
        let parked = self.enter(source, counts);
        let ended = parked.until(&wanted, tcp).await;
        if ended != Unparked::Over {
            return ended;
        }
        if wanted.is_evicted() {
            counts.add_reached(Reached::ParkedPerName);
        } else if !parked.is_evicted() {
            counts.add_reached(Reached::ParkTimeout);
        }
        ended
    }

    /// Takes a place, which another has to give up where all are taken.
    fn enter(&self, source: u64, counts: &Counts) -> Parked<'_> {
        while self.places.borrow().count() >= self.places_max {
            let Some(evicted) = self.places.borrow_mut().evict() else {
                break;
            };
            deadline::expire(evicted);
            counts.add_reached(Reached::Parked);
        }
        let deadline = Deadline::new();
        deadline.set(self.timeout);
        let number = self.entered.get() + 1;
        self.entered.set(number);
        let mut places = self.places.borrow_mut();
        places.enter(number, source, deadline.number());
        drop(places);
        Parked {
            all: self,
            number,
            deadline,
        }
    }
}

impl Parked<'_> {
    fn is_evicted(&self) -> bool {
        !self.all.places.borrow().has(self.number)
    }

    async fn until(&self, wanted: &DemandWait, tcp: &TcpStream) -> Unparked {
        let mut over = pin!(wanted.over());
        // The end of what the client sends, whatever comes before it that nobody has read. There
        // is no urgent data, since no socket is told of it.
        let mut gone = pin!(tcp.ready(Interest::PRIORITY));
        poll_fn(|context| {
            if over.as_mut().poll(context).is_ready() {
                return Poll::Ready(match wanted.is_evicted() {
                    true => Unparked::Over,
                    false => Unparked::Answered,
                });
            }
            if self.is_evicted() || self.deadline.poll_passed(context).is_ready() {
                return Poll::Ready(Unparked::Over);
            }
            gone.as_mut().poll(context).map(|_| Unparked::Gone)
        })
        .await
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.all.places.borrow_mut().leave(self.number);
    }
}
