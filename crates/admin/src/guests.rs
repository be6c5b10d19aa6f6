//! The connections of an admin address: where all places are taken, the one that has been idle
//! or stuck longest goes for a newcomer, of the address that has most of them if the newcomer's has
//! fewer.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// The step of a connection whose question is being answered, which does not go.
const BUSY: u64 = u64::MAX;

/// All connections.
#[derive(Default)]
pub(crate) struct Guests {
    all: Mutex<Vec<Arc<Guest>>>,
    /// Counts what connections have done: their order needs no clock.
    steps: AtomicU64,
}

struct Guest {
    address: IpAddr,
    /// The number of the last thing that it did.
    step: AtomicU64,
    gone: CancellationToken,
}

/// One connection, for as long as it is served.
pub(crate) struct Visit {
    guests: Arc<Guests>,
    guest: Arc<Guest>,
}

impl Guests {
    /// Adds a connection from an address.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Visit {
        let guest = Arc::new(Guest {
            address,
            step: AtomicU64::new(self.step()),
            gone: CancellationToken::new(),
        });
        self.lock().push(guest.clone());
        Visit {
            guests: self.clone(),
            guest,
        }
    }

    /// Ends the connection that has done nothing for longest, for one from an address; false where
    /// each is being answered. Of an address that would have more even then, one goes that is being
    /// answered as well.
    pub(crate) fn evict(&self, newcomer: IpAddr) -> bool {
        let mut all = self.lock();
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for guest in all.iter() {
            *counts.entry(guest.address).or_default() += 1;
        }
        let own = counts.get(&newcomer).copied().unwrap_or_default();
        let largest = counts.iter().max_by_key(|(_, count)| **count);
        let largest = largest.filter(|(_, count)| **count > own + 1);
        let largest = largest.map(|(address, _)| *address);
        let steps = all.iter().map(|guest| {
            let step = guest.step.load(Ordering::Relaxed);
            let may_go = largest.map_or(step != BUSY, |largest| guest.address == largest);
            (step, may_go)
        });
        let oldest = steps.enumerate().filter(|(_, (_, may_go))| *may_go);
        let Some((index, _)) = oldest.min_by_key(|(_, (step, _))| *step) else {
            return false;
        };
        all.swap_remove(index).gone.cancel();
        true
    }

    fn step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Guest>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit {
    /// The address that it comes from.
    pub(crate) fn address(&self) -> IpAddr {
        self.guest.address
    }

    /// Its question is being answered.
    pub(crate) fn work(&self) {
        self.guest.step.store(BUSY, Ordering::Relaxed);
    }

    /// It has yet to read its answer, or to ask.
    pub(crate) fn rest(&self) {
        let step = self.guests.step();
        self.guest.step.store(step, Ordering::Relaxed);
    }

    /// Waits until it has to go.
    pub(crate) async fn evicted(&self) {
        self.guest.gone.cancelled().await;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut all = self.guests.lock();
        all.retain(|guest| !Arc::ptr_eq(guest, &self.guest));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::Guests;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn who_has_most_loses_one_to_who_has_fewer_even_while_it_is_answered() {
        let guests = Arc::new(Guests::default());
        let honest = guests.enter(OTHER);
        let flood = [(); 3].map(|()| guests.enter(ONE));
        flood.iter().for_each(super::Visit::work);
        let gone = || flood.each_ref().map(|it| it.guest.gone.is_cancelled());
        assert!(guests.evict(OTHER));
        assert_eq!(gone().iter().filter(|is_gone| **is_gone).count(), 1);
        assert!(!honest.guest.gone.is_cancelled());
        // It would have as many by then: of all, one that is idle goes.
        assert!(guests.evict(OTHER));
        assert!(honest.guest.gone.is_cancelled());
    }

    #[test]
    fn the_one_that_did_nothing_for_longest_goes_and_none_that_is_answered() {
        let guests = Arc::new(Guests::default());
        let visits = [(); 4].map(|()| guests.enter(ONE));
        let [first, second, third, fourth] = &visits;
        first.rest();
        second.work();
        assert!(guests.evict(ONE));
        let gone = || visits.each_ref().map(|it| it.guest.gone.is_cancelled());
        assert_eq!(gone(), [false, false, true, false]);
        third.rest();
        fourth.work();
        assert!(guests.evict(ONE));
        assert_eq!(gone(), [true, false, true, false]);
        assert!(!guests.evict(ONE), "the others are answered");
        fourth.rest();
        assert!(guests.evict(ONE));
        assert_eq!(gone(), [true, false, true, true]);
        drop(visits);
        assert!(guests.lock().is_empty());
    }
}
