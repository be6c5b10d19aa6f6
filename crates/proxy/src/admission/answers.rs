//! The order in which answers of endpoints are read: those of one namespace that are there at once
//! take turns with all else that the worker has to do.
//!
//! Tasks that are ready go in the order in which they became so, so that thousands of answers which
//! are held back, and then let go at once, would be read, and written to their clients, before
//! anybody else is served. What is read of a namespace's answers is counted, and beyond a bound its
//! further ones wait until others have had their turn: then all counts begin anew, whether or not
//! anybody waits. Whoever has less than that ready at a time waits for nobody, or for one round.
//!
//! Bodies of HTTP/1 and the bytes of streams are not counted. They cost a fraction of what heads
//! do, a turn passes on no more of each than the runtime lets a task read, and what is kept of them
//! is counted as held.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use myriad_base::task;
use tokio::sync::{Notify, oneshot};

use super::spaces::{PLACES, spots};

/// The cost of a namespace's answers, in bytes of heads, beyond which further ones wait. It is
/// about three milliseconds.
const TURN_COST: usize = 256 << 10;

/// The cost of an answer whose head has no bytes.
const ANSWER_COST: usize = 2 << 10;

/// So many bytes that are read of a connection with many requests cost as much as one of a head:
/// most of them are bodies.
const BYTES_PER_COST: usize = 4;

/// The cost of a field that is read of a head of HTTP/2, of which one byte may stand for one.
pub(crate) const FIELD_COST: usize = 16;

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
    /// Whether a task gives turns. It lasts as long as the worker.
    is_driven: Cell<bool>,
    /// Whether a turn was spent in this round, or somebody was called.
    is_used: Cell<bool>,
    used: Notify,
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
            is_used: Cell::new(false),
            used: Notify::new(),
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
        self.drive();
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
        self.note_use();
        let called = wait.0.insert(called);
        Pin::new(called).poll(context).map(|_| ())
    }

    /// Takes note of a head that was read.
    pub fn spend_head(&self, namespace: u64, bytes: usize) {
        self.spend(namespace, bytes.saturating_add(ANSWER_COST));
    }

    /// Takes note of what was read of a connection with many requests: bytes, and the fields of
    /// heads in them.
    pub fn spend_frames(&self, namespace: u64, bytes: usize, fields: usize) {
        let fields = fields.saturating_mul(FIELD_COST);
        self.spend(namespace, fields.saturating_add(bytes / BYTES_PER_COST));
    }

    /// Takes note of a head that came on such a connection, unpacked. Reading it was paid for: what
    /// that has cost at most, had nothing been packed, is left out.
    pub fn spend_unpacked(&self, namespace: u64, bytes: usize, fields: usize) {
        let paid = fields.saturating_mul(FIELD_COST);
        let paid = paid.saturating_add(bytes / BYTES_PER_COST);
        self.spend_head(namespace, bytes.saturating_sub(paid));
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
        // Most answers come where there is room for many more, and wake nobody.
        if !self.has_room(namespace) {
            self.note_use();
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

    /// Notes that a turn was spent, or that somebody waits: either lasts until others have had
    /// theirs.
    fn note_use(&self) {
        if !self.is_used.replace(true) {
            self.used.notify_one();
        }
    }

    /// Has a round begun whenever a namespace has spent its turn, or somebody waits.
    fn drive(self: &Rc<Self>) {
        if self.is_driven.replace(true) {
            return;
        }
        let turns = self.clone();
        task::spawn_local("answers", async move {
            loop {
                turns.used.notified().await;
                // All else that is ready goes first.
                tokio::task::yield_now().await;
                turns.begin_round();
            }
        });
    }

    /// Begins a round, and calls those whose turn it is. Another follows where anybody is.
    fn begin_round(&self) {
        self.is_used.set(false);
        self.round.set(self.round.get().wrapping_add(1));
        let mut waiting = self.waiting.borrow_mut();
        let spaces = waiting.order.len().min(SPACES_MAX);
        for _ in 0..spaces {
            waiting.call();
        }
        if spaces > 0 {
            self.note_use();
        }
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

    use super::{
        ANSWER_COST, AnswerTurns, AnswerWait, FIELD_COST, SPACES_MAX, TURN_COST, spent_in, spots,
    };

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
        turns.spend_frames(1, 0, TURN_COST / FIELD_COST);
        assert!(!turns.has_room(1));
    }

    /// The bytes that a namespace has spent.
    fn spent(turns: &AnswerTurns, namespace: u64) -> u32 {
        let spots = turns.spent.iter().zip(spots(namespace));
        let spent = spots.map(|(row, spot)| spent_in(turns.round.get(), &row[usize::from(spot)]));
        spent.min().unwrap()
    }

    /// Reading it, and passing it on, were each paid for as the whole.
    #[test]
    fn a_head_of_http2_is_paid_for_once() {
        for (bytes, fields) in [(60 << 10, 40), (200, 10), (100, 20), (0, 0)] {
            let [alone, unpacked] = [(); 2].map(|()| AnswerTurns::default());
            alone.spend_head(1, bytes);
            // As it comes from an endpoint that packs nothing.
            unpacked.spend_frames(1, bytes, fields);
            unpacked.spend_unpacked(1, bytes, fields);
            let most = spent(&alone, 1).max((ANSWER_COST + bytes / 4 + 16 * fields) as u32);
            assert_eq!(spent(&unpacked, 1), most, "{bytes} {fields}");
            // One that is packed as far as it goes costs a quarter less at most.
            let packed = AnswerTurns::default();
            packed.spend_frames(1, fields, fields);
            packed.spend_unpacked(1, bytes, fields);
            assert!(spent(&packed, 1) >= spent(&alone, 1) * 3 / 4, "{bytes}");
        }
    }

    /// The task that begins rounds was woken for each head, and each read of HTTP/2.
    #[tokio::test]
    async fn a_namespace_with_room_left_wakes_nobody() {
        let story = async {
            let turns = Rc::<AnswerTurns>::default();
            read(turns.clone(), 1, Rc::default()).await;
            let rounds = || turns.round.get();
            for namespace in 1..=3 {
                turns.spend_head(namespace, TURN_COST / 4);
                turns.spend_frames(namespace, TURN_COST / 4, 1);
                yield_now().await;
            }
            assert!(!turns.is_used.get());
            assert_eq!(rounds(), 0);
            turns.spend_head(1, TURN_COST);
            assert!(turns.is_used.get());
            for _ in 0..4 {
                yield_now().await;
            }
            assert_eq!((rounds(), turns.is_used.get()), (1, false));
        };
        LocalSet::new().run_until(story).await;
    }

    /// Bytes that were spent counted until somebody waited, however long ago that was.
    #[tokio::test]
    async fn what_was_spent_counts_until_others_have_had_their_turn() {
        let story = async {
            let turns = Rc::<AnswerTurns>::default();
            read(turns.clone(), 1, Rc::default()).await;
            turns.spend_head(1, TURN_COST);
            assert!(!turns.has_room(1));
            for _ in 0..4 {
                yield_now().await;
            }
            assert!(turns.has_room(1));
        };
        LocalSet::new().run_until(story).await;
    }
}
