//! The order in which answers of endpoints are read: those of one namespace that are there at once
//! take turns with all else that the worker has to do.
//!
//! Tasks that are ready go in the order in which they became so, so that thousands of answers which
//! are held back, and then let go at once, would be read, and written to their clients, before
//! anybody else is served. What is read of a namespace's answers is counted, and beyond a bound its
//! further ones wait until others have had their turn: then all counts begin anew. Whoever has less
//! than that ready at a time waits for nobody.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use myriad_base::task;
use tokio::sync::oneshot;

use super::spaces::{PLACES, spots};

/// The cost of a namespace's answers, in bytes of heads, beyond which further ones wait. It is
/// about three milliseconds.
const TURN_COST: usize = 256 << 10;

/// The cost of an answer whose head has no bytes.
const ANSWER_COST: usize = 2 << 10;

/// So many bytes that are read of a connection with many requests cost as much as one of a head:
/// most of them are bodies.
const BYTES_PER_COST: usize = 4;

/// The most answers of a namespace that are called at once. Those go back to the head of its line
/// that find too much spent already.
const CALLED_MAX: usize = 32;

/// The most namespaces of which answers are called at once.
const SPACES_MAX: usize = 4;

/// The cost of answers in a round, and which that was.
type Spent = Cell<(u32, u32)>;

/// The answers of one worker that wait for their turn. They are at most as many as there are
/// requests, and connections to endpoints.
pub struct AnswerTurns {
    /// Its number tells what was spent in it from what was before.
    round: Cell<u32>,
    /// Two places for each namespace; what it has spent is the lower of the two.
    spent: [Box<[Spent]>; 2],
    waiting: RefCell<Waiting>,
    /// Whether a task gives turns.
    is_driven: Cell<bool>,
}

#[derive(Default)]
struct Waiting {
    /// The namespaces with answers that wait, in the order of their turns.
    order: VecDeque<u64>,
    namespaces: HashMap<u64, VecDeque<oneshot::Sender<()>>>,
}

/// The place in line of an answer, where it waits.
#[derive(Default)]
pub struct AnswerWait(Option<oneshot::Receiver<()>>);

impl Default for AnswerTurns {
    fn default() -> Self {
        let row = || vec![Cell::new((0, 0)); PLACES].into_boxed_slice();
        AnswerTurns {
            round: Cell::new(0),
            spent: [row(), row()],
            waiting: RefCell::default(),
            is_driven: Cell::new(false),
        }
    }
}

impl AnswerTurns {
    /// Ready once an answer of a namespace may be read.
    pub fn poll_turn(
        self: &Rc<Self>,
        namespace: u64,
        wait: &mut AnswerWait,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let was_called = match &mut wait.0 {
            None => false,
            Some(called) => {
                // It is told nothing but when.
                let _ = ready!(Pin::new(called).poll(context));
                wait.0 = None;
                true
            }
        };
        if self.has_room(namespace) && (was_called || !self.has_line(namespace)) {
            return Poll::Ready(());
        }
        let (sender, called) = oneshot::channel();
        let mut waiting = self.waiting.borrow_mut();
        waiting.push(namespace, sender, was_called);
        drop(waiting);
        self.drive();
        let called = wait.0.insert(called);
        Pin::new(called).poll(context).map(|_| ())
    }

    /// Takes note of a head that was read.
    pub fn spend_head(&self, namespace: u64, bytes: usize) {
        self.spend(namespace, bytes.saturating_add(ANSWER_COST));
    }

    /// Takes note of what was read of a connection with many requests: bytes, and those that the
    /// fields of heads in them count for.
    pub fn spend_frames(&self, namespace: u64, bytes: usize, fields: usize) {
        self.spend(namespace, fields.saturating_add(bytes / BYTES_PER_COST));
    }

    fn spend(&self, namespace: u64, cost: usize) {
        let round = self.round.get();
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        for (row, spot) in self.spent.iter().zip(spots(namespace)) {
            if let Some(place) = row.get(usize::from(spot)) {
                let spent = spent_in(round, place);
                place.set((round, spent.saturating_add(cost)));
            }
        }
    }

    fn has_room(&self, namespace: u64) -> bool {
        let round = self.round.get();
        let places = self.spent.iter().zip(spots(namespace));
        let places = places.filter_map(|(row, spot)| row.get(usize::from(spot)));
        let spent = places.map(|place| spent_in(round, place)).min();
        (spent.unwrap_or(0) as usize) < TURN_COST
    }

    fn has_line(&self, namespace: u64) -> bool {
        let waiting = self.waiting.borrow();
        !waiting.order.is_empty() && waiting.namespaces.contains_key(&namespace)
    }

    /// Has turns given for as long as anybody waits.
    fn drive(self: &Rc<Self>) {
        if self.is_driven.replace(true) {
            return;
        }
        let turns = self.clone();
        task::spawn_local("answers", async move {
            loop {
                // All else that is ready goes first.
                tokio::task::yield_now().await;
                if !turns.begin_round() {
                    break;
                }
            }
            turns.is_driven.set(false);
        });
    }

    /// Begins a round, and calls those whose turn it is; false where nobody waits.
    fn begin_round(&self) -> bool {
        self.round.set(self.round.get().wrapping_add(1));
        let mut waiting = self.waiting.borrow_mut();
        let spaces = waiting.order.len().min(SPACES_MAX);
        for _ in 0..spaces {
            waiting.call();
        }
        spaces > 0
    }
}

/// The sum that was spent at a place in a round.
fn spent_in(round: u32, place: &Cell<(u32, u32)>) -> u32 {
    match place.get() {
        (of, spent) if of == round => spent,
        _ => 0,
    }
}

impl Waiting {
    fn push(&mut self, namespace: u64, sender: oneshot::Sender<()>, is_first: bool) {
        let line = self.namespaces.entry(namespace).or_default();
        if line.is_empty() {
            self.order.push_back(namespace);
        }
        match is_first {
            true => line.push_front(sender),
            false => line.push_back(sender),
        }
    }

    /// Calls the first ones of the namespace whose turn it is.
    fn call(&mut self) {
        let Some(namespace) = self.order.pop_front() else {
            return;
        };
        let Some(line) = self.namespaces.get_mut(&namespace) else {
            return;
        };
        let mut called = 0;
        while called < CALLED_MAX
            && let Some(sender) = line.pop_front()
        {
            // Whoever has gone meanwhile takes no turn.
            called += usize::from(sender.send(()).is_ok());
        }
        if line.is_empty() {
            self.namespaces.remove(&namespace);
        } else {
            self.order.push_back(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use myriad_base::task;
    use tokio::task::{LocalSet, yield_now};

    use super::{ANSWER_COST, AnswerTurns, AnswerWait, SPACES_MAX, TURN_COST};

    /// The answers of a namespace that are ready at once.
    const MANY: usize = 300;

    /// The bytes of the head of each.
    const HEAD_BYTES: usize = 60 << 10;

    /// How many of them one turn has room for: with the last it is spent.
    const FIT: usize = TURN_COST / (HEAD_BYTES + ANSWER_COST) + 1;

    /// Reads an answer of a namespace, and says so.
    async fn read(turns: Rc<AnswerTurns>, namespace: u64, told: Rc<RefCell<Vec<u64>>>) {
        let mut wait = AnswerWait::default();
        poll_fn(|context| turns.poll_turn(namespace, &mut wait, context)).await;
        turns.spend_head(namespace, HEAD_BYTES);
        told.borrow_mut().push(namespace);
    }

    /// The namespaces of answers in the order in which they are read, and 0 for each turn of
    /// whoever else has something to do all the time.
    async fn order_of(namespaces: Vec<u64>) -> Vec<u64> {
        let told: Rc<RefCell<Vec<u64>>> = Rc::default();
        let turns = Rc::<AnswerTurns>::default();
        let (log, of) = (told.clone(), turns.clone());
        let running = async move {
            let is_over = Rc::new(Cell::new(false));
            let (beside, ended) = (log.clone(), is_over.clone());
            let other = task::spawn_local("other", async move {
                while !ended.get() {
                    beside.borrow_mut().push(0);
                    yield_now().await;
                }
            });
            let all = namespaces.into_iter().map(|namespace| {
                task::spawn_local("answer", read(of.clone(), namespace, log.clone()))
            });
            for one in all.collect::<Vec<_>>() {
                one.await.unwrap().unwrap();
            }
            is_over.set(true);
            other.await.unwrap().unwrap();
            // Whoever gives turns ends with the last who waits.
            while of.is_driven.get() {
                yield_now().await;
            }
        };
        LocalSet::new().run_until(running).await;
        assert!(turns.waiting.borrow().namespaces.is_empty());
        told.take()
    }

    /// The most answers between two turns of the other.
    fn most_between(order: &[u64]) -> usize {
        let parts = order.split(|it| *it == 0);
        parts.map(<[u64]>::len).max().unwrap_or(0)
    }

    #[tokio::test]
    async fn answers_of_one_namespace_that_come_at_once_leave_others_their_turns() {
        let order = order_of(vec![1; MANY]).await;
        assert_eq!(order.iter().filter(|it| **it == 1).count(), MANY);
        let most = most_between(&order);
        // The loop itself looks after others at any number of tasks.
        assert!(most <= 2 * FIT, "{most}");
        assert!(most >= FIT, "{most}");
    }

    #[tokio::test]
    async fn an_answer_of_another_namespace_waits_for_nobody() {
        let mut all = vec![1; MANY];
        all.push(2);
        let order = order_of(all).await;
        let answers: Vec<u64> = order.into_iter().filter(|it| *it != 0).collect();
        let place = answers.iter().position(|it| *it == 2).unwrap();
        // Meanwhile turns may have passed, since a few tasks are looked at before sockets are.
        assert!(place <= MANY / 4, "{place}");
    }

    #[tokio::test]
    async fn many_namespaces_wait_for_a_few_at_a_time() {
        let all = (1..=20).flat_map(|namespace| [namespace; 20]);
        let order = order_of(all.collect()).await;
        assert_eq!(order.iter().filter(|it| **it != 0).count(), 400);
        let parts = order.split(|it| *it == 0).map(<[u64]>::len);
        let parts: Vec<usize> = parts.filter(|count| *count > 0).collect();
        // What was ready first had a turn of its own; behind that four have one.
        let most = parts.iter().rev().take(2).max().unwrap();
        assert!(*most <= 2 * SPACES_MAX * FIT, "{parts:?}");
    }

    #[tokio::test]
    async fn whoever_gave_up_takes_no_turn() {
        let story = async {
            let turns = Rc::<AnswerTurns>::default();
            turns.spend_head(1, TURN_COST);
            let mut context = Context::from_waker(Waker::noop());
            let mut gone = AnswerWait::default();
            let polled = turns.poll_turn(1, &mut gone, &mut context);
            assert!(polled.is_pending());
            // Another namespace has spent nothing.
            let mut other = AnswerWait::default();
            assert!(turns.poll_turn(2, &mut other, &mut context).is_ready());
            drop(gone);
            let told = Rc::default();
            read(turns.clone(), 1, told).await;
            assert!(turns.waiting.borrow().namespaces.is_empty());
        };
        LocalSet::new().run_until(story).await;
    }

    #[test]
    fn small_answers_are_no_more_than_a_few_milliseconds_together() {
        let turns = AnswerTurns::default();
        let mut count = 0;
        while turns.has_room(1) {
            turns.spend_head(1, 200);
            count += 1;
        }
        assert!((100..=130).contains(&count), "{count}");
        // What one connection brings costs less, since bodies are passed on as they are.
        let turns = AnswerTurns::default();
        turns.spend_frames(1, TURN_COST, 0);
        assert!(turns.has_room(1));
        turns.spend_frames(1, 0, TURN_COST);
        assert!(!turns.has_room(1));
    }
}
