//! The order in which passwords are verified: namespaces take turns, and none of them has more than
//! half of the threads, so that slow hashes of one tenant hold up its own users.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The turns of a process.
pub(super) struct CheckTurns {
    /// The most of one namespace at a time.
    own_max: usize,
    state: Mutex<State>,
}

struct State {
    /// How many more may be verified now.
    left: usize,
    /// The namespaces that wait, each once, in the order of their turns.
    order: VecDeque<u64>,
    /// The turns that wait or are being served, by namespace.
    namespaces: HashMap<u64, Namespace>,
}

#[derive(Default)]
struct Namespace {
    running: usize,
    waiting: VecDeque<oneshot::Sender<CheckTurn>>,
}

/// A turn to verify a password; it is the next one's once dropped.
pub(super) struct CheckTurn {
    turns: &'static CheckTurns,
    namespace: u64,
}

impl CheckTurns {
    /// Turns of which so many are served at a time.
    pub(super) fn new(turns: usize) -> Self {
        CheckTurns {
            own_max: (turns / 2).max(1),
            state: Mutex::new(State {
                left: turns,
                order: VecDeque::new(),
                namespaces: HashMap::new(),
            }),
        }
    }

    /// Joins the line of a namespace, in which no more than `most` wait.
    pub(super) fn join(&'static self, namespace: u64, most: usize) -> oneshot::Receiver<CheckTurn> {
        let (sender, turn) = oneshot::channel();
        self.state().push(namespace, sender, most);
        self.give();
        turn
    }

    /// Gives all turns that there are.
    fn give(&'static self) {
        loop {
            let next = self.state().next(self.own_max);
            let Some((namespace, sender)) = next else {
                return;
            };
            // Of one that has just given up, the turn comes back by being dropped.
            drop(sender.send(CheckTurn {
                turns: self,
                namespace,
            }));
        }
    }

    /// Held for no longer than a look at the lines takes.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, id: u64, sender: oneshot::Sender<CheckTurn>, most: usize) {
        let namespace = self.namespaces.entry(id).or_default();
        if namespace.waiting.is_empty() {
            self.order.push_back(id);
        }
        if namespace.waiting.len() >= most {
            namespace.waiting.retain(|waiting| !waiting.is_closed());
        }
        namespace.waiting.push_back(sender);
    }

    /// The next one whose turn it is.
    fn next(&mut self, own_max: usize) -> Option<(u64, oneshot::Sender<CheckTurn>)> {
        if self.left == 0 {
            return None;
        }
        for _ in 0..self.order.len() {
            let id = self.order.pop_front()?;
            let Some(namespace) = self.namespaces.get_mut(&id) else {
                continue;
            };
            while namespace
                .waiting
                .front()
                .is_some_and(oneshot::Sender::is_closed)
            {
                namespace.waiting.pop_front();
            }
            let mut found = None;
            if namespace.running < own_max {
                found = namespace.waiting.pop_front();
            }
            namespace.running += usize::from(found.is_some());
            if !namespace.waiting.is_empty() {
                self.order.push_back(id);
            } else if namespace.running == 0 {
                self.namespaces.remove(&id);
            }
            if let Some(sender) = found {
                self.left -= 1;
                return Some((id, sender));
            }
        }
        None
    }

    fn end(&mut self, id: u64) {
        self.left += 1;
        if let Some(namespace) = self.namespaces.get_mut(&id) {
            namespace.running = namespace.running.saturating_sub(1);
            if namespace.running == 0 && namespace.waiting.is_empty() {
                self.namespaces.remove(&id);
            }
        }
    }
}

impl Drop for CheckTurn {
    fn drop(&mut self) {
        self.turns.state().end(self.namespace);
        self.turns.give();
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckTurn, CheckTurns};

    type Waiting = tokio::sync::oneshot::Receiver<CheckTurn>;

    fn turns(number: usize) -> &'static CheckTurns {
        Box::leak(Box::new(CheckTurns::new(number)))
    }

    fn begun(waiting: &mut [Waiting]) -> Vec<CheckTurn> {
        let begun = waiting.iter_mut().map(|it| it.try_recv().ok());
        begun.flatten().collect()
    }

    #[test]
    fn a_namespace_has_half_of_the_turns_and_others_go_at_once() {
        let turns = turns(4);
        let mut evil: Vec<_> = (0..20).map(|_| turns.join(1, 32)).collect();
        let running = begun(&mut evil);
        assert_eq!(running.len(), 2);
        let shop = begun(&mut [turns.join(2, 32)]);
        assert_eq!(shop.len(), 1);
        drop(running);
        assert_eq!(begun(&mut evil).len(), 2);
    }

    #[test]
    fn with_one_turn_namespaces_take_turns() {
        let turns = turns(1);
        let mut evil: Vec<_> = (0..20).map(|_| turns.join(1, 32)).collect();
        let first = begun(&mut evil);
        assert_eq!(first.len(), 1);
        let mut shop = [turns.join(2, 32)];
        drop(first);
        let second = begun(&mut evil);
        assert_eq!(second.len(), 1, "it waited before");
        drop(second);
        let third = begun(&mut shop);
        assert_eq!(third.len(), 1);
        drop((third, evil));
        let last = begun(&mut [turns.join(3, 32)]);
        assert_eq!(last.len(), 1);
        drop(last);
        assert!(turns.state().namespaces.is_empty());
        assert!(turns.state().order.is_empty());
    }

    #[test]
    fn who_gave_up_takes_no_turn_and_no_room() {
        let turns = turns(1);
        let first = begun(&mut [turns.join(1, 32)]);
        for _ in 0..1_000 {
            drop(turns.join(1, 32));
        }
        assert!(turns.state().namespaces[&1].waiting.len() <= 33);
        let mut late = [turns.join(1, 32)];
        drop(first);
        assert_eq!(begun(&mut late).len(), 1);
        assert_eq!(turns.state().left, 1);
    }
}
