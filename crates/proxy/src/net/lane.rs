//! A lane of few places, for which the questions of a namespace wait, or the connections to an
//! endpoint, called questions here as well: how many are asked at a time, and whose is next.
//!
//! Places are given in turns: each client has a line of its own, by its address, and so has each
//! name that was answered before. Whoever asks for names without end waits for itself, and where
//! too many wait, the longest line loses its youngest question. A question that has no answer
//! after a short time leaves its place to the next and goes on in one of a few others; where none
//! of those is free it is given up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;
use tokio::sync::oneshot;

/// The questions of the namespaces that share a lane.
pub(crate) struct Lane {
    bounds: LaneBounds,
    state: Mutex<State>,
}

/// The most questions of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneBounds {
    /// Questions that are being asked and may be answered soon.
    pub(crate) quick: usize,
    /// Questions that are being asked and were not answered in a short time.
    pub(crate) slow: usize,
    /// Questions that wait to be asked.
    pub(crate) waiting: usize,
}

#[derive(Default)]
struct State {
    quick: usize,
    slow: usize,
    waiting: usize,
    /// The questions that wait, by who asks; no line is empty.
    lines: HashMap<u64, Line, RandomState>,
    /// The keys of the lines, each once, in the order of their turns.
    turns: VecDeque<u64>,
}

/// The questions of one that asks, the oldest first.
type Line = VecDeque<oneshot::Sender<Turn>>;

/// A question's turn to be asked, given to the next when dropped.
pub(crate) struct Turn {
    /// The lane; none where nobody has waited for the place.
    lane: Option<Arc<Lane>>,
    is_slow: bool,
}

impl Lane {
    /// A lane without questions.
    pub(crate) fn new(bounds: LaneBounds) -> Self {
        Lane {
            bounds,
            state: Mutex::default(),
        }
    }

    /// A place for a question of one that asks, which comes at once or in its turn, or not at all
    /// where the question gives way to another. None where too many wait and nobody has more of
    /// them.
    pub(crate) fn enter(self: &Arc<Self>, asker: u64) -> Option<oneshot::Receiver<Turn>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.quick < self.bounds.quick {
            state.quick += 1;
            drop(state);
            // Whoever waits for it is here.
            let _ = sender.send(Turn::new(self));
            return Some(receiver);
        }
        if state.waiting >= self.bounds.waiting {
            state.forget_gone();
        }
        if state.waiting >= self.bounds.waiting && !state.give_way(asker) {
            return None;
        }
        state.push(asker, sender);
        Some(receiver)
    }

    /// Gives a place to the next in turn, or back.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let Some(next) = state.take_next() else {
                state.quick -= 1;
                return;
            };
            // Places are dropped without the lock, which their drop takes.
            drop(state);
            match next.send(Turn::new(self)) {
                Ok(()) => return,
                Err(mut place) => place.lane = None,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, asker: u64, question: oneshot::Sender<Turn>) {
        let line = self.lines.entry(asker).or_default();
        if line.is_empty() {
            self.turns.push_back(asker);
        }
        line.push_back(question);
        self.waiting += 1;
    }

    /// The oldest question of whose turn it is that somebody still waits for.
    fn take_next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(asker) = self.turns.pop_front() {
            let Some(line) = self.lines.get_mut(&asker) else {
                continue;
            };
            let mut next = None;
            while next.is_none()
                && let Some(question) = line.pop_front()
            {
                self.waiting -= 1;
                next = Some(question).filter(|question| !question.is_closed());
            }
            match line.is_empty() {
                true => {
                    self.lines.remove(&asker);
                }
                false => self.turns.push_back(asker),
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Takes out the questions that nobody waits for any more.
    fn forget_gone(&mut self) {
        self.lines.retain(|_, line| {
            line.retain(|question| !question.is_closed());
            !line.is_empty()
        });
        let lines = &self.lines;
        self.turns.retain(|asker| lines.contains_key(asker));
        self.waiting = lines.values().map(VecDeque::len).sum();
    }

    /// Ends the youngest question of the longest line for one more of another, unless that one
    /// would be as long. Whether there is room.
    fn give_way(&mut self, asker: u64) -> bool {
        let own = self.lines.get(&asker).map_or(0, VecDeque::len);
        let longest = self.lines.values_mut().max_by_key(|line| line.len());
        let Some(longest) = longest.filter(|line| line.len() > own + 1) else {
            return false;
        };
        longest.pop_back();
        self.waiting -= 1;
        true
    }
}

impl Turn {
    fn new(lane: &Arc<Lane>) -> Self {
        Turn {
            lane: Some(lane.clone()),
            is_slow: false,
        }
    }

    /// Leaves the place to the next question for one of those that are slow. Whether there was one.
    pub(crate) fn step_aside(&mut self) -> bool {
        let Some(lane) = &self.lane else {
            return false;
        };
        let mut state = lane.state();
        if state.slow >= lane.bounds.slow {
            return false;
        }
        state.slow += 1;
        drop(state);
        self.is_slow = true;
        lane.pass_on();
        true
    }

    /// Whether it is one of those that the next questions of the lane wait for, while of so many
    /// that are being asked some are of another lane.
    pub(crate) fn is_beside_others(&self, asked: usize) -> bool {
        let Some(lane) = self.lane.as_ref().filter(|_| !self.is_slow) else {
            return false;
        };
        let state = lane.state();
        asked > state.quick + state.slow
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(lane) = self.lane.take() else {
            return;
        };
        if self.is_slow {
            lane.state().slow -= 1;
        } else {
            lane.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot::Receiver;

    use super::{Lane, LaneBounds, Turn};

    fn lane(quick: usize, slow: usize, waiting: usize) -> Arc<Lane> {
        Arc::new(Lane::new(LaneBounds {
            quick,
            slow,
            waiting,
        }))
    }

    /// The questions among these that have a place now, by their numbers.
    fn placed(questions: &mut [Option<Receiver<Turn>>]) -> Vec<(usize, Turn)> {
        let places = questions.iter_mut().enumerate().filter_map(|(at, it)| {
            let place = it.as_mut()?.try_recv().ok()?;
            Some((at, place))
        });
        places.collect()
    }

    #[test]
    fn whoever_asks_without_end_waits_for_itself() {
        let lane = lane(1, 0, 100);
        let mut questions: Vec<_> = (0..50).map(|_| lane.enter(1)).collect();
        questions.push(lane.enter(2));
        let mut order = Vec::new();
        // Each place is dropped, and goes to the next.
        while let Some((at, _place)) = placed(&mut questions).pop() {
            order.push(at);
        }
        assert_eq!(order.len(), 51);
        // One has the place, one more has its turn, and then the other client.
        assert_eq!(order.get(..4), Some(&[0, 1, 50, 2][..]));
    }

    #[test]
    fn where_too_many_wait_the_longest_line_loses_its_youngest() {
        let lane = lane(1, 0, 4);
        let mut questions: Vec<_> = (0..5).map(|_| lane.enter(1)).collect();
        assert!(lane.enter(1).is_none(), "its own line is the longest");
        questions.push(lane.enter(2));
        questions.push(lane.enter(2));
        assert!(lane.enter(2).is_none(), "its line would be the longest");
        let mut order = Vec::new();
        while let Some((at, _place)) = placed(&mut questions).pop() {
            order.push(at);
        }
        assert_eq!(order, [0, 1, 5, 2, 6]);
        let state = lane.state();
        assert_eq!((state.quick, state.waiting), (0, 0));
        assert!(state.lines.is_empty() && state.turns.is_empty());
    }

    #[test]
    fn questions_that_nobody_waits_for_keep_no_place() {
        let lane = lane(1, 0, 3);
        let first = lane.enter(1);
        let gone: Vec<_> = (2..5).map(|asker| lane.enter(asker)).collect();
        assert!(lane.enter(5).is_none());
        drop(gone);
        let mut questions = [lane.enter(5)];
        drop(first);
        assert_eq!(placed(&mut questions).len(), 1);
        let state = lane.state();
        assert_eq!((state.quick, state.waiting), (0, 0));
    }

    #[test]
    fn a_place_is_kept_only_where_there_are_questions_of_others() {
        let lane = lane(2, 1, 10);
        let mut questions: Vec<_> = (0..3).map(|asker| lane.enter(asker)).collect();
        let mut places = placed(&mut questions);
        assert_eq!(places.len(), 2);
        assert!(places.iter().all(|(_, it)| !it.is_beside_others(2)));
        assert!(places.iter().all(|(_, it)| it.is_beside_others(3)));
        // Nobody waits for the place of one that has stepped aside.
        let (_, mut aside) = places.pop().unwrap();
        assert!(aside.step_aside() && !aside.is_beside_others(9));
    }

    #[test]
    fn a_question_without_an_answer_steps_aside_while_there_are_places_for_such() {
        let lane = lane(1, 1, 10);
        let mut questions: Vec<_> = (0..3).map(|asker| lane.enter(asker)).collect();
        let (_, mut first) = placed(&mut questions).pop().unwrap();
        assert!(first.step_aside());
        let (at, mut second) = placed(&mut questions).pop().unwrap();
        assert_eq!(at, 1);
        assert!(!second.step_aside(), "the first has the place");
        drop(second);
        let (at, mut third) = placed(&mut questions).pop().unwrap();
        assert_eq!(at, 2);
        drop(first);
        assert!(third.step_aside());
        let state = lane.state();
        assert_eq!((state.quick, state.slow), (0, 1));
        drop(state);
        drop(third);
        assert_eq!(lane.state().slow, 0);
    }
}
