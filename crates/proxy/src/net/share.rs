//! Fair shares: how much of something each domain of a worker holds, and who gets no more of it.
//!
//! There is no entry per domain. Two rows of numbers are kept, and a domain has a place in each by
//! its hash; the lower of its two numbers is what it holds at most. So taking and giving back cost
//! four additions, nothing is allocated, and whoever comes with ever new names fills no table.
//! While there is room nobody is refused anything; the last fifth is for those who have little.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use myriad_model::Host;

use super::hash::hash;
use super::limits::Limits;
use super::pressure::{Pressure, Step};

/// The places in a row; a power of two.
const PLACES: usize = 2_048;

/// Tells hashes of domains from those of other tables.
const SHARE_CLASS: u8 = 0x5a;

/// What a domain may always hold while anything is left.
const FLOOR: usize = 4;

/// What the domains of a worker hold of one thing.
pub struct Shares {
    max: usize,
    pressure: Arc<Pressure>,
    rows: [Box<[Cell<u32>]>; 2],
    /// What all of them hold.
    held: Cell<usize>,
    /// Places of the first row that are taken: about as many domains hold something.
    active: Cell<usize>,
}

/// One that a domain holds; given back when dropped.
pub struct Held {
    shares: Rc<Shares>,
    places: [u16; 2],
}

/// All shares of a worker.
pub struct Fairness {
    /// TLS handshakes under way.
    pub handshakes: Rc<Shares>,
    /// Connections whose domain is known.
    pub connections: Rc<Shares>,
    /// Requests on their way to an endpoint.
    pub requests: Rc<Shares>,
    /// How little memory is left.
    pub pressure: Arc<Pressure>,
}

impl Fairness {
    /// Nobody holds anything.
    pub fn new(limits: &Limits, pressure: &Arc<Pressure>) -> Self {
        let of = |max| Rc::new(Shares::new(max, pressure.clone()));
        Fairness {
            handshakes: of(limits.handshakes_max),
            connections: of(limits.connections_max),
            requests: of(limits.requests_max),
            pressure: pressure.clone(),
        }
    }
}

/// The hash that a domain has here.
pub fn hash_of(host: &Host) -> u64 {
    hash(SHARE_CLASS, host.as_str())
}

impl Fairness {
    /// One connection of a domain, of all that the worker has; it is one of them already.
    pub fn take_connection(&self, domain: u64, all: usize) -> Option<Held> {
        let beside = all.saturating_sub(self.connections.held() + 1);
        self.connections.take(domain, beside)
    }

    /// Whether connections shall end with the request they are in.
    pub fn ends_idle(&self) -> bool {
        self.pressure.step() >= Step::EndIdle
    }
}

impl Shares {
    /// Nobody holds anything of what there is at most so much of.
    pub fn new(max: usize, pressure: Arc<Pressure>) -> Self {
        let row = || vec![Cell::new(0); PLACES].into_boxed_slice();
        Shares {
            max,
            pressure,
            rows: [row(), row()],
            held: Cell::new(0),
            active: Cell::new(0),
        }
    }

    /// One more for the domain of a hash; none where others need what is left. `beside` are those
    /// that no domain holds yet.
    pub fn take(self: &Rc<Self>, hash: u64, beside: usize) -> Option<Held> {
        let places = places(hash);
        let own = self.own(places);
        if !self.admits(own, self.held.get() + beside) {
            return None;
        }
        self.change(places, |number| number + 1);
        self.held.set(self.held.get() + 1);
        if self.first(places) == 1 {
            self.active.set(self.active.get() + 1);
        }
        Some(Held {
            shares: self.clone(),
            places,
        })
    }

    /// What all domains hold.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    fn admits(&self, own: usize, all: usize) -> bool {
        let step = self.pressure.step();
        if all >= self.max || step >= Step::ShedAll {
            return false;
        }
        let active = self.active.get() + usize::from(own == 0);
        if step >= Step::ShedLargest {
            // Twice the mean is what makes a domain one of the largest.
            return own < FLOOR.max(2 * self.held.get() / active.max(1));
        }
        // One share more than there are domains, so that a new one finds room.
        all < self.max - self.max / 5 || own < FLOOR.max(self.max / (active + 1))
    }

    fn own(&self, places: [u16; 2]) -> usize {
        let held = self.rows.iter().zip(places);
        let held = held.map(|(row, place)| row.get(usize::from(place)).map_or(0, Cell::get));
        held.min().unwrap_or(0) as usize
    }

    fn first(&self, [place, _]: [u16; 2]) -> u32 {
        let [row, _] = &self.rows;
        row.get(usize::from(place)).map_or(0, Cell::get)
    }

    fn change(&self, places: [u16; 2], by: impl Fn(u32) -> u32) {
        for (row, place) in self.rows.iter().zip(places) {
            if let Some(number) = row.get(usize::from(place)) {
                number.set(by(number.get()));
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let shares = &self.shares;
        shares.change(self.places, |number| number.saturating_sub(1));
        shares.held.set(shares.held.get().saturating_sub(1));
        if shares.first(self.places) == 0 {
            shares.active.set(shares.active.get().saturating_sub(1));
        }
    }
}

fn places(hash: u64) -> [u16; 2] {
    let within = |bits: u64| (bits as usize % PLACES) as u16;
    [within(hash), within(hash >> 32)]
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;

    use super::{FLOOR, Held, Shares};
    use crate::net::hash::hash;
    use crate::net::pressure::Pressure;

    fn shares(max: usize) -> (Rc<Shares>, Arc<Pressure>) {
        let pressure = Arc::new(Pressure::new(Some(100)));
        (Rc::new(Shares::new(max, pressure.clone())), pressure)
    }

    fn fill(shares: &Rc<Shares>, name: &str) -> Vec<Held> {
        std::iter::from_fn(|| shares.take(hash(0, name), 0)).collect()
    }

    #[test]
    fn one_domain_leaves_a_fifth_to_others_and_they_share_it_fairly() {
        let (shares, _) = shares(1_000);
        let flood = fill(&shares, "flood");
        assert_eq!(flood.len(), 800);
        let other = fill(&shares, "other");
        assert_eq!((other.len(), shares.held()), (200, 1_000));
        drop(flood);
        drop(other);
        assert_eq!((shares.held(), shares.active.get()), (0, 0));
    }

    #[test]
    fn a_thousand_quiet_domains_are_not_refused_while_one_floods() {
        let (shares, _) = shares(10_000);
        let mut quiet: Vec<Held> = Vec::new();
        let flood = fill(&shares, "flood");
        for number in 0..500 {
            for _ in 0..2 {
                let taken = shares.take(hash(0, &format!("quiet {number}")), 0);
                quiet.push(taken.expect("it has little"));
            }
            assert!(shares.take(hash(0, "flood"), 0).is_none());
        }
        assert_eq!((flood.len(), quiet.len()), (8_000, 1_000));
    }

    #[test]
    fn under_pressure_the_largest_get_no_more_and_then_nobody() {
        let (shares, pressure) = shares(1_000);
        let mut held: Vec<Held> = (0..40)
            .filter_map(|_| shares.take(hash(0, "a"), 0))
            .collect();
        held.extend((0..4).filter_map(|_| shares.take(hash(0, "b"), 0)));
        held.extend((0..4).filter_map(|_| shares.take(hash(0, "c"), 0)));
        assert_eq!(held.len(), 48);
        pressure.look(91);
        assert!(shares.take(hash(0, "a"), 0).is_none());
        assert!(shares.take(hash(0, "b"), 0).is_some());
        pressure.look(96);
        assert!(shares.take(hash(0, "b"), 0).is_none());
        pressure.look(50);
        assert!(shares.take(hash(0, "a"), 0).is_some());
    }

    #[test]
    fn what_no_domain_holds_counts_too_and_nothing_is_beyond_the_limit() {
        let (shares, _) = shares(100);
        assert!(shares.take(hash(0, "a"), 100).is_none());
        let held: Vec<Held> = (0..FLOOR)
            .filter_map(|_| shares.take(hash(0, "a"), 90))
            .collect();
        assert_eq!(held.len(), FLOOR);
    }
}
