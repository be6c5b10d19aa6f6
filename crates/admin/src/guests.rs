//! The connections of an admin address: where all places are taken, the one that has been idle
//! or stuck longest goes for a newcomer.

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
    /// One more connection.
    pub(crate) fn enter(self: &Arc<Self>) -> Visit {
        let guest = Arc::new(Guest {
            step: AtomicU64::new(self.step()),
            gone: CancellationToken::new(),
        });
        self.lock().push(guest.clone());
        Visit {
            guests: self.clone(),
            guest,
        }
    }

    /// Ends the connection that has done nothing for longest; false where each is being answered.
    pub(crate) fn evict(&self) -> bool {
        let mut all = self.lock();
        let steps = all.iter().map(|guest| guest.step.load(Ordering::Relaxed));
        let oldest = steps.enumerate().filter(|(_, step)| *step != BUSY);
        let Some((index, _)) = oldest.min_by_key(|(_, step)| *step) else {
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
    use std::sync::Arc;

    use super::Guests;

    #[test]
    fn the_one_that_did_nothing_for_longest_goes_and_none_that_is_answered() {
        let guests = Arc::new(Guests::default());
        let visits = [(); 4].map(|()| guests.enter());
        let [first, second, third, fourth] = &visits;
        first.rest();
        second.work();
        assert!(guests.evict());
        let gone = || visits.each_ref().map(|it| it.guest.gone.is_cancelled());
        assert_eq!(gone(), [false, false, true, false]);
        third.rest();
        fourth.work();
        assert!(guests.evict());
        assert_eq!(gone(), [true, false, true, false]);
        assert!(!guests.evict(), "the others are answered");
        fourth.rest();
        assert!(guests.evict());
        assert_eq!(gone(), [true, false, true, true]);
        drop(visits);
        assert!(guests.lock().is_empty());
    }
}
