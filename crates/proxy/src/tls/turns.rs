//! The order of handshakes: namespaces take turns and in each of them its domains, a few handshakes
//! in each turn of the worker's loop, so that a flood of them delays neither the handshakes of
//! others nor requests.
//!
//! A handshake costs one signature, on the worker's own core, and a slot until its client has
//! answered. While fewer come than a turn of the loop has room for, and there are slots, nobody
//! waits.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use tokio::sync::{Notify, oneshot};

use crate::admission::share::{HeldShare, Owner, Shares};

/// The handshakes in one turn of the loop.
const PER_TURN: usize = 8;

/// How many domains that wait are looked at for one that may have another slot.
const LOOKED_AT: usize = 64;

/// The handshakes of one worker that wait for their turn. They are at most as many as there may
/// be connections.
#[derive(Default)]
pub struct HandshakeTurns {
    /// How many may still go on in this turn.
    left: Cell<usize>,
    waiting: RefCell<Waiting>,
    begun: Notify,
}

/// One handshake under way; its slot is given back when dropped.
pub struct HandshakeTurn<'a> {
    _slot: HeldShare,
    _freed: Freed<'a>,
}

/// Says so when a slot may be free.
struct Freed<'a>(&'a HandshakeTurns);

#[derive(Default)]
struct Waiting {
    /// The namespaces with handshakes that wait, in the order of their turns.
    order: VecDeque<u64>,
    namespaces: HashMap<u64, Namespace>,
}

/// The handshakes of one namespace that wait.
#[derive(Default)]
struct Namespace {
    /// Its domains, in the order of their turns.
    order: VecDeque<u64>,
    domains: HashMap<u64, VecDeque<oneshot::Sender<HeldShare>>>,
}

impl HandshakeTurns {
    /// A line in which nobody waits.
    pub fn new() -> Self {
        HandshakeTurns {
            left: Cell::new(PER_TURN),
            ..HandshakeTurns::default()
        }
    }

    /// The turn of a domain's handshake, where nobody waits and there is a slot.
    pub fn begin(&self, owner: Owner, slots: &Rc<Shares>) -> Option<HandshakeTurn<'_>> {
        let left = self.left.get();
        if left == 0 || !self.waiting.borrow().order.is_empty() {
            return None;
        }
        let slot = slots.take(owner, 0)?;
        if left == PER_TURN {
            self.begun.notify_one();
        }
        self.left.set(left - 1);
        Some(self.turn(slot))
    }

    /// Waits until it is the turn of a domain.
    pub async fn wait(&self, owner: Owner) -> HandshakeTurn<'_> {
        // A slot that comes when nobody waits for it any more is free for the next.
        let _freed = Freed(self);
        let (sender, slot) = oneshot::channel();
        self.waiting.borrow_mut().push(owner, sender);
        self.begun.notify_one();
        match slot.await {
            Ok(slot) => self.turn(slot),
            // Whoever drives the turns lives as long as the worker.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives turns, for as long as the worker runs.
    pub async fn run(&self, slots: &Rc<Shares>) {
        loop {
            self.begun.notified().await;
            loop {
                // All else that is ready goes first.
                tokio::task::yield_now().await;
                let mut left = PER_TURN;
                while left > 0 && self.waiting.borrow_mut().next(slots) {
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

    fn turn(&self, slot: HeldShare) -> HandshakeTurn<'_> {
        HandshakeTurn {
            _slot: slot,
            _freed: Freed(self),
        }
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        if !self.0.waiting.borrow().order.is_empty() {
            self.0.begun.notify_one();
        }
    }
}

impl Waiting {
    fn push(&mut self, owner: Owner, turn: oneshot::Sender<HeldShare>) {
        let namespace = self.namespaces.entry(owner.namespace).or_default();
        if namespace.order.is_empty() {
            self.order.push_back(owner.namespace);
        }
        let queue = namespace.domains.entry(owner.domain).or_default();
        if queue.is_empty() {
            namespace.order.push_back(owner.domain);
        }
        queue.push_back(turn);
    }

    /// Gives the next turn; false if nobody waits who could have a slot.
    fn next(&mut self, slots: &Rc<Shares>) -> bool {
        let mut looked_at = 0;
        while looked_at < LOOKED_AT && !slots.is_used_up() {
            let Some(id) = self.order.pop_front() else {
                return false;
            };
            let Some(namespace) = self.namespaces.get_mut(&id) else {
                continue;
            };
            let given = namespace.next(id, slots);
            if namespace.order.is_empty() {
                self.namespaces.remove(&id);
            } else {
                self.order.push_back(id);
            }
            match given {
                Given::Turn => return true,
                Given::Share => looked_at += 1,
                Given::Nobody => {}
            }
        }
        false
    }
}

/// The result of a look for the next one.
enum Given {
    /// It was given its turn.
    Turn,
    /// Its domain has its share already.
    Share,
    /// It does not wait any more.
    Nobody,
}

impl Namespace {
    fn next(&mut self, namespace: u64, slots: &Rc<Shares>) -> Given {
        let Some(domain) = self.order.pop_front() else {
            return Given::Nobody;
        };
        let Some(queue) = self.domains.get_mut(&domain) else {
            return Given::Nobody;
        };
        while queue.front().is_some_and(oneshot::Sender::is_closed) {
            queue.pop_front();
        }
        let given = match queue.is_empty() {
            true => Given::Nobody,
            false => match slots.take(Owner { namespace, domain }, 0) {
                None => Given::Share,
                Some(slot) => {
                    let turn = queue.pop_front();
                    // Nothing has run since it was seen to wait.
                    let _ = turn.map(|turn| turn.send(slot));
                    Given::Turn
                }
            },
        };
        if queue.is_empty() {
            self.domains.remove(&domain);
        } else {
            self.order.push_back(domain);
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use myriad_base::task;
    use tokio::task::LocalSet;

    use super::{HandshakeTurns, PER_TURN};
    use crate::admission::share::{Owner, Shares};

    type Order = Vec<(u64, u64)>;

    /// The order in which handshakes of these namespaces and domains get their turn, where each
    /// ends as soon as it has begun.
    async fn order(handshakes: Vec<(u64, u64)>, slots: usize) -> Order {
        let order: Rc<RefCell<Order>> = Rc::default();
        let turns = Rc::new(HandshakeTurns::new());
        let slots = Rc::new(Shares::new(slots, std::sync::Arc::default()));
        let told = order.clone();
        let running = async move {
            let (driven, of) = (turns.clone(), slots.clone());
            task::spawn_local("turns", async move { driven.run(&of).await });
            let mut all = Vec::new();
            for (namespace, domain) in handshakes {
                let (turns, told, slots) = (turns.clone(), told.clone(), slots.clone());
                let owner = Owner { namespace, domain };
                all.push(task::spawn_local("handshake", async move {
                    let _turn = match turns.begin(owner, &slots) {
                        Some(turn) => turn,
                        None => turns.wait(owner).await,
                    };
                    told.borrow_mut().push((namespace, domain));
                    tokio::task::yield_now().await;
                }));
            }
            for one in all {
                one.await.unwrap();
            }
            assert_eq!(slots.held(), 0);
        };
        LocalSet::new().run_until(running).await;
        order.take()
    }

    fn place(order: &Order, wanted: (u64, u64), number: usize) -> usize {
        let mut places = order.iter().enumerate().filter(|(_, it)| **it == wanted);
        places.nth(number).unwrap().0
    }

    #[tokio::test]
    async fn domains_take_turns_however_many_handshakes_one_of_them_has() {
        let many = std::iter::repeat_n((1, 1), 200);
        let all = many.chain([(1, 2), (1, 3), (1, 2)]).collect();
        let order = order(all, 1_000).await;
        assert_eq!(order.len(), 203);
        // The first turn was full before the others came; then it is theirs as often as its.
        assert!(place(&order, (1, 2), 0) <= PER_TURN + 3, "{order:?}");
        assert!(place(&order, (1, 3), 0) <= PER_TURN + 3, "{order:?}");
        assert!(place(&order, (1, 2), 1) <= PER_TURN + 6, "{order:?}");
    }

    #[tokio::test]
    async fn namespaces_take_turns_however_many_domains_one_of_them_has() {
        let many = (0..200).map(|domain| (1, domain));
        let order = order(many.chain([(2, 9), (2, 9)]).collect(), 1_000).await;
        assert_eq!(order.len(), 202);
        assert!(place(&order, (2, 9), 0) <= PER_TURN + 2, "{order:?}");
        assert!(place(&order, (2, 9), 1) <= PER_TURN + 4, "{order:?}");
    }

    #[tokio::test]
    async fn with_few_slots_all_are_served_in_turn() {
        let many = std::iter::repeat_n((1, 1), 300);
        let order = order(many.chain([(2, 2)]).collect(), 5).await;
        assert_eq!(order.len(), 301);
        assert!(place(&order, (2, 2), 0) <= 10, "{order:?}");
    }

    #[tokio::test]
    async fn who_gave_up_takes_no_turn() {
        let owner = Owner::default();
        let slots = Rc::new(Shares::new(1, std::sync::Arc::default()));
        let turns = HandshakeTurns::new();
        let first = turns.begin(owner, &slots);
        let mut late = Box::pin(turns.wait(owner));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(late.as_mut().poll(&mut context).is_pending());
        drop((first, late));
        assert!(!turns.waiting.borrow_mut().next(&slots));
        assert_eq!(slots.held(), 0);
        assert!(turns.waiting.borrow().namespaces.is_empty());
    }
}
