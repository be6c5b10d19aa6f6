//! The order in which answers of endpoints are read: those of one namespace that are there at once
//! take turns with all else that the worker has to do.
//!
//! Tasks that are ready go in the order in which they became so, so that thousands of answers which
//! are held back, and then let go at once, would be read, and written to their clients, before
//! anybody else is served. What is read of a namespace's answers is counted, and beyond a bound its
//! further ones wait until others have had their turn: then all counts begin anew, whether or not
//! anybody waits. Whoever has less than that ready at a time waits for nobody, or for one round.
//!
//! Bodies of HTTP/1 and the bytes of streams are not counted, but for chunks that are so small that
//! their framing is the work. They cost a fraction of what heads do, a turn passes on no more of
//! each than the runtime lets a task read, and what is kept of them is counted as held.

use std::rc::Rc;
use std::task::{Context, Poll};

use super::rounds::{RoundRule, RoundWait, Rounds, Spender};

/// The cost of a namespace's answers, in bytes of heads, beyond which further ones wait. It is
/// about three milliseconds.
const TURN_COST: u32 = 256 << 10;

/// The cost of an answer whose head has no bytes.
const ANSWER_COST: usize = 2 << 10;

/// So many bytes that are read of a connection with many requests cost as much as one of a head:
/// most of them are bodies.
const BYTES_PER_COST: usize = 4;

/// The cost of a field that is read of a head of HTTP/2, of which one byte may stand for one.
const FIELD_COST: usize = 16;

/// The cost of a frame, however short it is: the library takes each of them by itself, and answers
/// some.
const FRAME_COST: usize = 256;

/// The most namespaces of which answers are called at once.
const SPACES_MAX: usize = 4;

/// The rounds in which answers are read.
const RULE: RoundRule = RoundRule {
    task: "answers",
    turn: TURN_COST,
    all: u32::MAX,
    few: None,
    called_max: 32,
    called_min: 32,
    lines_max: SPACES_MAX,
};

/// The answers of one worker that wait for their turn. They are at most as many as there are
/// requests, and connections to endpoints.
pub struct AnswerTurns {
    rounds: Rc<Rounds>,
}

/// The parts of what was read of a connection with many requests.
#[derive(Clone, Copy, Default)]
pub(crate) struct FramesRead {
    /// The bytes of all frames.
    pub(crate) bytes: usize,
    /// The frames that have begun.
    pub(crate) frames: usize,
    /// The fields of heads in them.
    pub(crate) fields: usize,
}

/// The place in line of an answer, where it waits.
#[derive(Default)]
pub struct AnswerWait(RoundWait);

impl Default for AnswerTurns {
    fn default() -> Self {
        AnswerTurns {
            rounds: Rounds::new(RULE),
        }
    }
}

impl AnswerTurns {
    /// Ready once an answer of a namespace may be read.
    pub fn poll_turn(
        &self,
        namespace: u64,
        wait: &mut AnswerWait,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        self.rounds
            .poll_turn(spender(namespace), &mut wait.0, context)
    }

    /// Takes note of a head that was read.
    pub fn spend_head(&self, namespace: u64, bytes: usize) {
        self.spend(namespace, bytes.saturating_add(ANSWER_COST));
    }

    /// Takes note of what was read of a connection with many requests.
    pub(crate) fn spend_frames(&self, namespace: u64, read: FramesRead) {
        self.spend(namespace, read.cost(BYTES_PER_COST));
    }

    /// Takes note of the framing of a body in very small chunks.
    pub fn spend_framing(&self, namespace: u64, bytes: usize) {
        self.spend(namespace, bytes / BYTES_PER_COST);
    }

    /// Takes note of a head that came on such a connection, unpacked. Reading it was paid for: what
    /// that has cost at most, had nothing been packed, is left out.
    pub fn spend_unpacked(&self, namespace: u64, bytes: usize, fields: usize) {
        let read = FramesRead {
            bytes,
            frames: 1,
            fields,
        };
        let paid = read.cost(BYTES_PER_COST);
        self.spend_head(namespace, bytes.saturating_sub(paid));
    }

    fn spend(&self, namespace: u64, cost: usize) {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        self.rounds.spend(namespace, cost);
    }
}

impl FramesRead {
    /// The cost where so many bytes cost as much as one of a head.
    pub(crate) fn cost(self, bytes_per_cost: usize) -> usize {
        let bytes = self.bytes / bytes_per_cost.max(1);
        let frames = self.frames.saturating_mul(FRAME_COST);
        let fields = self.fields.saturating_mul(FIELD_COST);
        bytes.saturating_add(frames).saturating_add(fields)
    }
}

/// A namespace as it spends: its answers wait in one line, whosever they are.
fn spender(namespace: u64) -> Spender {
    Spender {
        id: namespace,
        part: 0,
        is_costly: true,
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
        ANSWER_COST, AnswerTurns, AnswerWait, FIELD_COST, FRAME_COST, FramesRead, SPACES_MAX,
        TURN_COST, spender,
    };

    /// The answers of a namespace that are ready at once.
    const MANY: usize = 300;

    /// The bytes of the head of each.
    const HEAD_BYTES: usize = 60 << 10;

    /// How many of them one turn has room for: with the last it is spent.
    const FIT: usize = TURN_COST as usize / (HEAD_BYTES + ANSWER_COST) + 1;

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
        assert!(turns.rounds.is_empty());
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
            turns.spend_head(1, TURN_COST as usize);
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
            assert!(turns.rounds.is_empty());
        };
        LocalSet::new().run_until(story).await;
    }

    fn has_room(turns: &AnswerTurns) -> bool {
        turns.rounds.admits(spender(1), true)
    }

    fn read_of(bytes: usize, frames: usize, fields: usize) -> FramesRead {
        FramesRead {
            bytes,
            frames,
            fields,
        }
    }

    #[test]
    fn frames_of_one_byte_are_no_more_than_a_few_milliseconds_together() {
        let turns = AnswerTurns::default();
        let mut count = 0;
        while has_room(&turns) {
            turns.spend_frames(1, read_of(10, 1, 0));
            count += 1;
        }
        assert!((1_000..=1_024).contains(&count), "{count}");
    }

    #[test]
    fn framing_costs_a_quarter_of_heads() {
        let turns = AnswerTurns::default();
        turns.spend_framing(1, TURN_COST as usize);
        assert!(has_room(&turns));
        turns.spend_framing(1, 3 * TURN_COST as usize);
        assert!(!has_room(&turns));
    }

    #[test]
    fn small_answers_are_no_more_than_a_few_milliseconds_together() {
        let turns = AnswerTurns::default();
        let mut count = 0;
        while has_room(&turns) {
            turns.spend_head(1, 200);
            count += 1;
        }
        assert!((100..=130).contains(&count), "{count}");
        // What one connection brings costs less, since bodies are passed on as they are.
        let turns = AnswerTurns::default();
        turns.spend_frames(1, read_of(TURN_COST as usize, 16, 0));
        assert!(has_room(&turns));
        turns.spend_frames(1, read_of(0, 0, TURN_COST as usize / FIELD_COST));
        assert!(!has_room(&turns));
    }

    /// Reading it, and passing it on, were each paid for as the whole.
    #[test]
    fn a_head_of_http2_is_paid_for_once() {
        let spent = |turns: &AnswerTurns| turns.rounds.spent_by(1);
        for (bytes, fields) in [(60 << 10, 40), (200, 10), (100, 20), (0, 0)] {
            let [alone, unpacked] = [(); 2].map(|()| AnswerTurns::default());
            alone.spend_head(1, bytes);
            // As it comes from an endpoint that packs nothing.
            let whole = read_of(bytes, 1, fields);
            unpacked.spend_frames(1, whole);
            unpacked.spend_unpacked(1, bytes, fields);
            let paid = ANSWER_COST + FRAME_COST + bytes / 4 + 16 * fields;
            let most = spent(&alone).max(paid as u32);
            assert_eq!(spent(&unpacked), most, "{bytes} {fields}");
            // One that is packed as far as it goes costs a quarter less at most.
            let packed = AnswerTurns::default();
            packed.spend_frames(1, read_of(fields, 1, fields));
            packed.spend_unpacked(1, bytes, fields);
            assert!(spent(&packed) >= spent(&alone) * 3 / 4, "{bytes}");
        }
    }
}
