//! Work that is done one at a time, in turns of the addresses that ask for it: one that asks for
//! much is waited for by others for no more than the work that is under way and one of each other
//! address.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The turns of all addresses. Cheap to clone.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    is_taken: bool,
    /// The addresses that wait, the next one first.
    order: VecDeque<IpAddr>,
    waiting: BTreeMap<IpAddr, VecDeque<oneshot::Sender<Turn>>>,
}

/// A turn, until it is dropped.
pub struct Turn(Turns);

impl Turns {
    /// Waits for a turn of this address. How many wait is for the caller to bound.
    pub async fn take(&self, address: IpAddr) -> Option<Turn> {
        let waits = {
            let mut lines = self.lock();
            if !lines.is_taken {
                lines.is_taken = true;
                return Some(Turn(self.clone()));
            }
            let (sender, waits) = oneshot::channel();
            let line = lines.waiting.entry(address).or_default();
            let is_first = line.is_empty();
            line.push_back(sender);
            if is_first {
                lines.order.push_back(address);
            }
            waits
        };
        waits.await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// The next that waits; the address then goes behind all others.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let address = self.order.pop_front()?;
        let line = self.waiting.get_mut(&address)?;
        let next = line.pop_front();
        if line.is_empty() {
            self.waiting.remove(&address);
        } else {
            self.order.push_back(address);
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut lines = self.0.lock();
            let next = lines.next();
            lines.is_taken = next.is_some();
            next
        };
        if let Some(next) = next {
            // Where nobody waits for it any more, it is dropped here, and goes to the one behind.
            drop(next.send(Turn(self.0.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::{Arc, Mutex};

    use myriad_base::task;

    use super::Turns;

    #[tokio::test]
    async fn an_address_with_much_work_is_waited_for_once() {
        let turns = Turns::default();
        let address = |number: u8| IpAddr::from([192, 0, 2, number]);
        let first = turns.take(address(1)).await.unwrap();
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in [1, 1, 1, 1, 2, 3, 2] {
            let (turns, done) = (turns.clone(), done.clone());
            tasks.push(task::spawn("test work", async move {
                let turn = turns.take(address(number)).await;
                done.lock().unwrap().push(number);
                drop(turn);
            }));
            // It waits before the next one comes.
            tokio::task::yield_now().await;
        }
        // Who has left is passed over.
        tasks.remove(0).abort();
        tokio::task::yield_now().await;
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*done.lock().unwrap(), [2, 3, 1, 2, 1, 1]);
        assert!(!turns.lock().is_taken);
        assert!(turns.lock().waiting.is_empty());
    }
}
