//! Whose handshake is next: domains take turns, a few handshakes in each turn of the worker's
//! loop, so that a flood of them delays neither the handshakes of others nor requests.
//!
//! What a handshake costs is one signature, on the worker's own core. While fewer come than a turn
//! of the loop has room for, nobody waits.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

use tokio::sync::{Notify, oneshot};

/// The handshakes in one turn of the loop.
const PER_TURN: usize = 8;

/// The handshakes of one worker that wait for their turn. They are at most as many as there may
/// be handshakes.
#[derive(Default)]
pub struct Turns {
    /// How many may still go on in this turn.
    left: Cell<usize>,
    waiting: RefCell<Waiting>,
    begun: Notify,
}

#[derive(Default)]
struct Waiting {
    /// The domains with handshakes that wait, in the order of their turns.
    order: VecDeque<u64>,
    by_domain: HashMap<u64, VecDeque<oneshot::Sender<()>>>,
}

impl Turns {
    /// Nobody waits.
    pub fn new() -> Self {
        Turns {
            left: Cell::new(PER_TURN),
            ..Turns::default()
        }
    }

    /// Waits until it is the turn of the domain of a hash.
    pub async fn wait(&self, domain: u64) {
        let left = self.left.get();
        if left == PER_TURN || !self.is_anybody_waiting() {
            self.begun.notify_one();
        }
        if left > 0 && !self.is_anybody_waiting() {
            self.left.set(left - 1);
            return;
        }
        let (turn, its_turn) = oneshot::channel();
        self.waiting.borrow_mut().push(domain, turn);
        // Whoever drives the turns lives as long as the worker.
        let _ = its_turn.await;
    }

    /// Gives turns, for as long as the worker runs.
    pub async fn run(&self) {
        loop {
            self.begun.notified().await;
            loop {
                // All else that is ready goes first.
                tokio::task::yield_now().await;
                let mut left = PER_TURN;
                while left > 0 && self.waiting.borrow_mut().next() {
                    left -= 1;
                }
                self.left.set(left);
                if left > 0 {
                    break;
                }
            }
            self.left.set(PER_TURN);
        }
    }

    fn is_anybody_waiting(&self) -> bool {
        !self.waiting.borrow().order.is_empty()
    }
}

impl Waiting {
    fn push(&mut self, domain: u64, turn: oneshot::Sender<()>) {
        let queue = self.by_domain.entry(domain).or_default();
        if queue.is_empty() {
            self.order.push_back(domain);
        }
        queue.push_back(turn);
    }

    /// Gives the next turn; false if nobody waits.
    fn next(&mut self) -> bool {
        while let Some(domain) = self.order.pop_front() {
            let Some(queue) = self.by_domain.get_mut(&domain) else {
                continue;
            };
            let turn = queue.pop_front();
            if queue.is_empty() {
                self.by_domain.remove(&domain);
            } else {
                self.order.push_back(domain);
            }
            // Whoever does not wait any more takes no turn.
            if turn.is_some_and(|turn| turn.send(()).is_ok()) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use myriad_base::task;
    use tokio::task::LocalSet;

    use super::{PER_TURN, Turns};

    #[tokio::test]
    async fn domains_take_turns_however_many_handshakes_one_of_them_has() {
        let order: Rc<RefCell<Vec<u64>>> = Rc::default();
        let local = LocalSet::new();
        let turns = Rc::new(Turns::new());
        let told = order.clone();
        local
            .run_until(async move {
                let running = turns.clone();
                task::spawn_local("turns", async move { running.run().await });
                let mut all = Vec::new();
                for domain in std::iter::repeat_n(1, 200).chain([2, 3, 2]) {
                    let (turns, told) = (turns.clone(), told.clone());
                    all.push(task::spawn_local("handshake", async move {
                        turns.wait(domain).await;
                        told.borrow_mut().push(domain);
                    }));
                }
                for one in all {
                    one.await.unwrap();
                }
            })
            .await;
        let order = order.borrow();
        assert_eq!(order.len(), 203);
        // The first turn was full before the others came; then it is theirs as often as its.
        let place = |domain, number| {
            let mut places = order.iter().enumerate().filter(|(_, it)| **it == domain);
            places.nth(number).unwrap().0
        };
        assert!(place(2, 0) <= PER_TURN + 3, "{order:?}");
        assert!(place(3, 0) <= PER_TURN + 3, "{order:?}");
        assert!(place(2, 1) <= PER_TURN + 6, "{order:?}");
    }

    #[tokio::test]
    async fn nobody_waits_where_few_come_and_who_gave_up_takes_no_turn() {
        let turns = Rc::new(Turns::new());
        for _ in 0..PER_TURN {
            turns.wait(1).await;
        }
        let late = {
            let turns = turns.clone();
            async move { turns.wait(1).await }
        };
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(10), late).await;
        assert!(
            given_up.is_err(),
            "it is nobody's turn while nothing gives turns"
        );
        let local = LocalSet::new();
        local
            .run_until(async move {
                let running = turns.clone();
                task::spawn_local("turns", async move { running.run().await });
                for _ in 0..3 * PER_TURN {
                    turns.wait(2).await;
                }
            })
            .await;
    }
}
