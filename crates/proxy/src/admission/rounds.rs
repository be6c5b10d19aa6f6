//! Turns in rounds of the worker's loop: the cost of what each has done is counted, and beyond a
//! bound its further work waits until all else that is ready has had its turn.
//!
//! Then all counts begin anew, whether or not anybody waits. So whoever has less than that ready at
//! a time waits for nobody, or for one round; and where nobody else has anything to do, rounds
//! follow one another at once. Where very many wait, each has the less in a round.
//!
//! There is no entry for each of those who spend: each has a place in two rows of sums by its hash,
//! and the lower of the two is what it has spent at most.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use foldhash::quality::RandomState;
use myriad_base::task;
use tokio::sync::{Notify, oneshot};

use super::spaces::{PLACES, spots};

/// How many turns one may spend in a round whose work has not been costly.
const FRESH_TURNS: u32 = 2;

/// The bounds of rounds.
#[derive(Clone, Copy)]
pub(super) struct RoundRule {
    /// The name of the task that begins them.
    pub task: &'static str,
    /// The cost of one in a round beyond which its further work waits.
    pub turn: u32,
    /// The cost of all together beyond which costly work waits, whosever it is.
    pub all: u32,
    /// The cost of one below which its work passes even once all together have spent so much, or
    /// where a share of that for each who waits is less. None where neither is of any effect on
    /// work that was not costly.
    pub few: Option<u32>,
    /// The most of one that are called at once. Those go back to the head of its line that find
    /// too much spent already.
    pub called_max: usize,
    /// The connections of one line that are called at once, where many have one.
    pub called_min: usize,
    /// The most of whom some are called at once, where `called_max` of each are.
    pub lines_max: usize,
}

/// The cost of one's work in a round, and which that was.
type Spent = Cell<(u32, u32)>;

/// The rounds of one worker in one thing, and those who wait for the next one.
pub(super) struct Rounds {
    rule: RoundRule,
    /// Its number tells what was spent in it from what was before.
    round: Cell<u32>,
    /// Two places for each; what it has spent is the lower of the two.
    spent: [Box<[Spent]>; 2],
    /// The cost of all together in this round.
    all: Cell<u32>,
    waiting: RefCell<Waiting>,
    /// Whether a task begins rounds. It lasts as long as the worker.
    is_driven: Cell<bool>,
    /// Whether a turn was spent in this round, or somebody was called.
    is_used: Cell<bool>,
    used: Notify,
}

/// The one whose work is to be done, by its hash.
#[derive(Clone, Copy)]
pub(super) struct Spender {
    /// The hash that it is known by.
    pub id: u64,
    /// The part of its line that it waits in. Parts take turns.
    pub part: u64,
    /// Whether its work has been costly. Otherwise it waits only for what has cost twice as much,
    /// or less where others wait: see [`RoundRule::few`].
    pub is_costly: bool,
}

/// The place in a line of one who waits.
#[derive(Default)]
pub(super) struct RoundWait(Option<oneshot::Receiver<()>>);

/// Calls one who waits.
type Call = oneshot::Sender<()>;

#[derive(Default)]
struct Waiting {
    /// The owners of lines, each once, in the order of their turns.
    order: VecDeque<u64>,
    /// The owners of calls that were for nothing, or nearly so, since all together had spent too
    /// much. They come first.
    again: VecDeque<u64>,
    lines: HashMap<u64, Line, RandomState>,
}

/// The line of one.
#[derive(Default)]
struct Line {
    /// The calls that were for nothing, since too much was spent, with their parts. They come
    /// first.
    late: VecDeque<(u64, Call)>,
    /// The parts, in the order of their turns.
    order: VecDeque<u64>,
    parts: HashMap<u64, VecDeque<Call>, RandomState>,
}

impl Rounds {
    /// Rounds in which nobody has spent anything.
    pub(super) fn new(rule: RoundRule) -> Rc<Self> {
        let row = || vec![Cell::new((0, 0)); PLACES].into_boxed_slice();
        Rc::new(Rounds {
            rule,
            round: Cell::new(0),
            spent: [row(), row()],
            all: Cell::new(0),
            waiting: RefCell::default(),
            is_driven: Cell::new(false),
            is_used: Cell::new(false),
            used: Notify::new(),
        })
    }

    /// Whether nobody has spent a turn in this round, and nobody waits.
    pub(super) fn is_calm(&self) -> bool {
        !self.is_used.get()
    }

    /// Ready once the work of one may be done.
    pub(super) fn poll_turn(
        self: &Rc<Self>,
        spender: Spender,
        wait: &mut RoundWait,
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
        if self.admits(spender, was_called) {
            return Poll::Ready(());
        }
        let (sender, called) = oneshot::channel();
        // With half a turn it has had its own: it would have two of them otherwise.
        let turn = self.rule.turn.min(self.fresh_max());
        let is_first = was_called && self.spent_by(spender.id) < turn / 2;
        let mut waiting = self.waiting.borrow_mut();
        waiting.push(spender, sender, was_called);
        if is_first && !waiting.again.contains(&spender.id) {
            waiting.again.push_back(spender.id);
        }
        drop(waiting);
        self.note_use();
        let called = wait.0.insert(called);
        Pin::new(called).poll(context).map(|_| ())
    }

    /// Whether the work of one may be done now, before that of any who wait in its part of the line
    /// unless it was called.
    pub(super) fn admits(&self, spender: Spender, was_called: bool) -> bool {
        self.has_room(spender) && (was_called || !self.has_line(spender))
    }

    /// Takes note of what one's work has cost.
    pub(super) fn spend(&self, id: u64, cost: u32) {
        let round = self.round.get();
        for (row, spot) in self.spent.iter().zip(spots(id)) {
            if let Some(place) = row.get(usize::from(spot)) {
                let spent = spent_in(round, place);
                place.set((round, spent.saturating_add(cost)));
            }
        }
        self.all.set(self.all.get().saturating_add(cost));
        // Most work is done where there is much more room, and wakes nobody.
        if self.is_full() || self.spent_by(id) >= self.rule.turn {
            self.note_use();
        }
    }

    /// Whether all together have spent so much that work waits for that.
    pub(super) fn is_full(&self) -> bool {
        self.all.get() >= self.rule.all
    }

    /// The cost of one's work in this round, at most.
    pub(super) fn spent_by(&self, id: u64) -> u32 {
        let round = self.round.get();
        let places = self.spent.iter().zip(spots(id));
        let places = places.filter_map(|(row, spot)| row.get(usize::from(spot)));
        let spent = places.map(|place| spent_in(round, place)).min();
        spent.unwrap_or(0)
    }

    /// Whether nobody waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().lines.is_empty()
    }

    fn has_room(&self, spender: Spender) -> bool {
        let spent = self.spent_by(spender.id);
        match spender.is_costly {
            true => spent < self.rule.turn && !self.is_full(),
            false => spent < self.fresh_max(),
        }
    }

    /// As much as one may spend whose work has not been costly.
    fn fresh_max(&self) -> u32 {
        let max = self.rule.turn.saturating_mul(FRESH_TURNS);
        match self.rule.few {
            None => max,
            Some(few) if self.is_full() => few,
            Some(few) => {
                let lines = self.waiting.borrow().lines.len().max(1);
                let share = u32::try_from(lines).map_or(0, |lines| self.rule.all / lines);
                share.max(few).min(max)
            }
        }
    }

    fn has_line(&self, spender: Spender) -> bool {
        let waiting = self.waiting.borrow();
        let line = match waiting.lines.is_empty() {
            true => None,
            false => waiting.lines.get(&spender.id),
        };
        line.is_some_and(|line| line.has(spender.part))
    }

    /// Notes that a turn was spent, or that somebody waits: either lasts until others have had
    /// theirs.
    fn note_use(&self) {
        if !self.is_used.replace(true) {
            self.used.notify_one();
        }
    }

    /// Has a round begun whenever somebody has spent its turn, or waits.
    fn drive(self: &Rc<Self>) {
        if self.is_driven.replace(true) {
            return;
        }
        let rounds = self.clone();
        task::spawn_local(self.rule.task, async move {
            loop {
                rounds.used.notified().await;
                // All else that is ready goes first.
                tokio::task::yield_now().await;
                rounds.begin();
            }
        });
    }

    /// Begins a round, and calls those whose turn it is. Another follows where anybody is.
    fn begin(&self) {
        self.is_used.set(false);
        self.round.set(self.round.get().wrapping_add(1));
        self.all.set(0);
        let mut waiting = self.waiting.borrow_mut();
        let has_lines = !waiting.order.is_empty();
        waiting.call(&self.rule);
        if has_lines {
            self.note_use();
        }
    }
}

/// The sum that was spent at a place in a round.
fn spent_in(round: u32, place: &Spent) -> u32 {
    match place.get() {
        (of, spent) if of == round => spent,
        _ => 0,
    }
}

impl Waiting {
    fn push(&mut self, spender: Spender, call: Call, was_called: bool) {
        let (order, id) = (&mut self.order, spender.id);
        let line = self.lines.entry(id).or_insert_with(|| {
            order.push_back(id);
            Line::default()
        });
        match was_called {
            true => line.late.push_back((spender.part, call)),
            false => line.push(spender.part, call),
        }
    }

    /// Calls the first ones of those whose turn it is: the fewer of each, the more of them wait.
    fn call(&mut self, rule: &RoundRule) {
        let all = rule.called_max * rule.lines_max;
        let called_max = all / self.order.len().max(1);
        let called_max = called_max.max(rule.called_min).min(rule.called_max);
        let lines_max = all / called_max.max(1);
        let mut lines = 0;
        while let Some(id) = self.again.pop_front() {
            lines += usize::from(self.call_of(id, called_max));
        }
        for _ in 0..self.order.len() {
            if lines >= lines_max {
                return;
            }
            let Some(id) = self.order.pop_front() else {
                return;
            };
            lines += usize::from(self.call_of(id, called_max));
            match self.lines.get(&id).is_some_and(|line| !line.is_empty()) {
                true => self.order.push_back(id),
                false => {
                    self.lines.remove(&id);
                }
            }
        }
    }

    /// Calls the first ones of a line; whether there were any.
    fn call_of(&mut self, id: u64, called_max: usize) -> bool {
        let Some(line) = self.lines.get_mut(&id) else {
            return false;
        };
        let mut called = 0;
        while called < called_max
            && let Some(call) = line.pop()
        {
            // Whoever has gone meanwhile takes no turn.
            called += usize::from(call.send(()).is_ok());
        }
        called > 0
    }
}

impl Line {
    fn push(&mut self, part: u64, call: Call) {
        let calls = self.parts.entry(part).or_default();
        if calls.is_empty() {
            self.order.push_back(part);
        }
        calls.push_back(call);
    }

    /// The next one: of those who were called before, or else of the part whose turn it is.
    fn pop(&mut self) -> Option<Call> {
        if let Some((_, call)) = self.late.pop_front() {
            return Some(call);
        }
        let part = self.order.pop_front()?;
        let calls = self.parts.get_mut(&part)?;
        let call = calls.pop_front();
        match calls.is_empty() {
            true => {
                self.parts.remove(&part);
            }
            false => self.order.push_back(part),
        }
        call
    }

    fn has(&self, part: u64) -> bool {
        self.parts.contains_key(&part) || self.late.iter().any(|(of, _)| *of == part)
    }

    fn is_empty(&self) -> bool {
        self.late.is_empty() && self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use myriad_base::task;
    use tokio::task::{LocalSet, yield_now};

    use super::{RoundRule, RoundWait, Rounds, Spender};

    const RULE: RoundRule = RoundRule {
        task: "rounds",
        turn: 100,
        all: 400,
        few: None,
        called_max: 4,
        called_min: 4,
        lines_max: 8,
    };

    /// One that is known by its number, and waits in a part of its line.
    fn costly(id: u64, part: u64) -> Spender {
        Spender {
            id,
            part,
            is_costly: true,
        }
    }

    fn fresh(id: u64) -> Spender {
        Spender {
            is_costly: false,
            ..costly(id, 0)
        }
    }

    /// Waits for a turn, spends so much, and says so.
    async fn work(rounds: Rc<Rounds>, one: Spender, cost: u32, told: Rc<RefCell<Vec<Spender>>>) {
        let mut wait = RoundWait::default();
        poll_fn(|context| rounds.poll_turn(one, &mut wait, context)).await;
        rounds.spend(one.id, cost);
        told.borrow_mut().push(one);
    }

    /// The order in which all work who could at once, where each spends so much.
    async fn order_of(all: Vec<Spender>, cost: u32) -> Vec<Spender> {
        let told: Rc<RefCell<Vec<Spender>>> = Rc::default();
        let rounds = Rounds::new(RULE);
        let (log, of) = (told.clone(), rounds.clone());
        let running = async move {
            let works = all.into_iter();
            let works = works
                .map(|one| task::spawn_local("work", work(of.clone(), one, cost, log.clone())));
            for one in works.collect::<Vec<_>>() {
                one.await.unwrap().unwrap();
            }
            // What was called for nothing leaves its line one round later.
            for _ in 0..4 {
                yield_now().await;
            }
        };
        LocalSet::new().run_until(running).await;
        assert!(rounds.is_empty());
        told.take()
    }

    /// The places of those for whom something holds.
    fn places(order: &[Spender], is_it: impl Fn(&Spender) -> bool) -> Vec<usize> {
        let all = order.iter().enumerate();
        let own = all.filter(|one| is_it(one.1));
        own.map(|(at, _)| at).collect()
    }

    /// The task that begins rounds was woken for each head, and each read of HTTP/2.
    #[tokio::test]
    async fn one_with_room_left_wakes_nobody() {
        let story = async {
            let rounds = Rounds::new(RULE);
            work(rounds.clone(), costly(1, 0), 0, Rc::default()).await;
            for id in 1..=3 {
                rounds.spend(id, 50);
                yield_now().await;
            }
            assert!(rounds.is_calm());
            assert_eq!(rounds.round.get(), 0);
            rounds.spend(1, 50);
            assert!(!rounds.is_calm());
            for _ in 0..4 {
                yield_now().await;
            }
            assert!(rounds.is_calm());
            assert_eq!(rounds.round.get(), 1);
        };
        LocalSet::new().run_until(story).await;
    }

    /// It counted until somebody waited, however long ago that was.
    #[tokio::test]
    async fn what_was_spent_counts_until_others_have_had_their_turn() {
        let story = async {
            let rounds = Rounds::new(RULE);
            work(rounds.clone(), costly(1, 0), 100, Rc::default()).await;
            assert!(!rounds.admits(costly(1, 0), true));
            for _ in 0..4 {
                yield_now().await;
            }
            assert!(rounds.admits(costly(1, 0), true));
        };
        LocalSet::new().run_until(story).await;
    }

    #[test]
    fn one_whose_work_was_not_costly_waits_only_for_twice_as_much() {
        let rounds = Rounds::new(RULE);
        rounds.spend(1, 199);
        assert!(!rounds.admits(costly(1, 0), false));
        assert!(rounds.admits(fresh(1), false));
        rounds.spend(1, 1);
        assert!(!rounds.admits(fresh(1), false));
        assert!(rounds.admits(fresh(2), false) && rounds.admits(costly(2, 0), false));
    }

    /// A thousand sources, each with less than its turn, would make a long round together.
    #[test]
    fn costly_work_waits_once_all_together_have_spent_much() {
        let rounds = Rounds::new(RULE);
        for id in 1..=8 {
            assert!(rounds.admits(costly(9, 0), false));
            rounds.spend(id, 50);
        }
        assert!(!rounds.admits(costly(9, 0), false));
        assert!(rounds.admits(fresh(9), false));
        assert!(!rounds.is_calm());
    }

    /// Requests that cost no more than any were a long round where each of very many had its turn.
    #[tokio::test]
    async fn a_little_work_passes_and_more_has_a_share_where_many_wait() {
        let rule = RoundRule {
            few: Some(8),
            called_min: 1,
            ..RULE
        };
        let story = async {
            let rounds = Rounds::new(rule);
            rounds.spend(1, 150);
            rounds.spend(2, 7);
            assert!(rounds.admits(fresh(1), false));
            rounds.spend(3, 250);
            assert!(!rounds.admits(fresh(1), false) && !rounds.admits(costly(4, 0), false));
            assert!(rounds.admits(fresh(2), false) && rounds.admits(fresh(4), false));
            rounds.spend(2, 1);
            assert!(!rounds.admits(fresh(2), false));
            let all = (0..4).flat_map(|_| (10..42).map(|id| (id, RoundWait::default())));
            let mut all: Vec<_> = all.collect();
            (10..42).for_each(|id| rounds.spend(id, 8));
            let mut context = Context::from_waker(Waker::noop());
            let mut wait = |all: &mut Vec<(u64, RoundWait)>| {
                all.retain_mut(|(id, wait)| {
                    let polled = rounds.poll_turn(fresh(*id), wait, &mut context);
                    polled.is_pending()
                });
                all.len()
            };
            assert_eq!(wait(&mut all), 4 * 32);
            rounds.begin();
            // One of each, in place of four of eight of them.
            assert_eq!(wait(&mut all), 3 * 32);
            assert!((10..42).all(|id| all.iter().filter(|one| one.0 == id).count() == 3));
            // What all together may spend is shared by all who wait.
            rounds.spend(5, 11);
            assert!(rounds.admits(fresh(5), false));
            rounds.spend(5, 1);
            assert!(!rounds.admits(fresh(5), false));
        };
        LocalSet::new().run_until(story).await;
    }

    #[tokio::test]
    async fn parts_of_a_line_take_turns_however_many_wait_in_one() {
        let many = std::iter::repeat_n(costly(1, 1), 100);
        let order = order_of(many.chain([costly(1, 2), costly(1, 2)]).collect(), 100).await;
        assert_eq!(order.len(), 102);
        let of_second = places(&order, |it| it.part == 2);
        assert!(of_second[0] <= 3 && of_second[1] <= 5, "{of_second:?}");
    }

    #[tokio::test]
    async fn another_waits_for_nobody() {
        let many = std::iter::repeat_n(costly(1, 1), 100);
        let order = order_of(many.chain([costly(2, 0)]).collect(), 50).await;
        let place = places(&order, |it| it.id == 2)[0];
        assert!(place <= 10, "{place}");
    }

    /// A line that was called beyond what all may spend lost its turn, and again each time.
    #[tokio::test]
    async fn a_line_that_was_called_for_nothing_comes_first_in_the_next_round() {
        // Eight lines are called at once, and all together may spend what five of them do.
        let rounds = (0..4).flat_map(|_| (1..=24).map(|id| costly(id, 0)));
        let order = order_of(rounds.collect(), 80).await;
        assert_eq!(order.len(), 4 * 24);
        for id in 1..=24 {
            let own = places(&order, |it| it.id == id);
            assert!(own[0] < 2 * 24, "{id}: {own:?}");
        }
    }

    #[tokio::test]
    async fn whoever_gave_up_takes_no_turn() {
        let story = async {
            let rounds = Rounds::new(RULE);
            rounds.spend(1, 100);
            let mut context = Context::from_waker(Waker::noop());
            let mut gone = RoundWait::default();
            let polled = rounds.poll_turn(costly(1, 0), &mut gone, &mut context);
            assert!(polled.is_pending());
            drop(gone);
            work(rounds.clone(), costly(1, 0), 0, Rc::default()).await;
            assert!(rounds.is_empty());
        };
        LocalSet::new().run_until(story).await;
    }
}
