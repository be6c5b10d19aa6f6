//! The order in which passwords are verified: namespaces take turns, and none of them has more than
//! half of the threads, so that slow hashes of one tenant hold up its own users. Of one namespace
//! the sources with the fewest wrong passwords go first, and among these all alike, so that who
//! guesses holds up others who guess.
//!
//! Waiting requests have places. Where all are taken a newcomer gets that of another who has had
//! more than its share; it never gets one that is served already.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::limits;

/// The most that are verified or wait for it, and of these the most of one namespace.
const PLACES_MAX: usize = 128;
const OWN_MAX: usize = limits::namespace_max(PLACES_MAX);

/// The most of one source for one namespace.
const SOURCE_MAX: usize = OWN_MAX / 2;

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
    /// The number of the next one that waits.
    next_number: u64,
}

#[derive(Default)]
struct Namespace {
    /// The sources of those that are being served.
    running: Vec<u64>,
    /// The waiting requests, the oldest first.
    waiting: VecDeque<Waiting>,
    /// The round that is being served.
    round: u64,
}

struct Waiting {
    number: u64,
    source: u64,
    /// How many wrong passwords its source has shown.
    wrong: u32,
    /// The round in which it is served among equals: each source has one in each.
    round: u64,
    sender: oneshot::Sender<CheckTurn>,
}

/// A place in the line of a namespace; it is free again once dropped.
pub(super) struct CheckWait {
    turns: &'static CheckTurns,
    namespace: u64,
    number: u64,
    receiver: oneshot::Receiver<CheckTurn>,
}

/// A turn to verify a password; it is the next one's once dropped.
pub(super) struct CheckTurn {
    turns: &'static CheckTurns,
    namespace: u64,
    source: u64,
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
                next_number: 0,
            }),
        }
    }

    /// Joins the line of a namespace, for a source that has shown so many wrong passwords. None
    /// where all places are taken by those who have no less right to them.
    pub(super) fn join(
        &'static self,
        namespace: u64,
        source: u64,
        wrong: u32,
    ) -> Option<CheckWait> {
        let (sender, receiver) = oneshot::channel();
        let (number, displaced) = self.state().push(namespace, source, wrong, sender)?;
        // Nobody is woken, by an end of waiting or a turn, while the lines are looked at.
        drop(displaced);
        self.give();
        Some(CheckWait {
            turns: self,
            namespace,
            number,
            receiver,
        })
    }

    /// Takes note that a source has shown so many wrong passwords.
    pub(super) fn note_wrong(&self, namespace: u64, source: u64, wrong: u32) {
        let mut state = self.state();
        let Some(namespace) = state.namespaces.get_mut(&namespace) else {
            return;
        };
        let waiting = namespace.waiting.iter_mut();
        for waiting in waiting.filter(|it| it.source == source) {
            waiting.wrong = wrong;
        }
    }

    /// Gives all turns that there are.
    fn give(&'static self) {
        loop {
            let next = self.state().next(self.own_max);
            let Some((namespace, waiting)) = next else {
                return;
            };
            // Of one that has just given up, the turn comes back by being dropped.
            drop(waiting.sender.send(CheckTurn {
                turns: self,
                namespace,
                source: waiting.source,
            }));
        }
    }

    /// Held for no longer than a look at the lines takes.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds one to the line of a namespace: its number, and another whose place it has taken.
    fn push(
        &mut self,
        id: u64,
        source: u64,
        wrong: u32,
        sender: oneshot::Sender<CheckTurn>,
    ) -> Option<(u64, Option<Waiting>)> {
        let own = self.namespaces.get(&id);
        if own.is_some_and(|own| own.places_of(source) >= SOURCE_MAX) {
            return None;
        }
        let is_own_full = own.is_some_and(|own| own.places() >= OWN_MAX);
        let mut displaced = None;
        if is_own_full || self.places() >= PLACES_MAX {
            let longest = self.longer(id).filter(|_| !is_own_full);
            let (from, at) = longest.or_else(|| self.worse(id, source, wrong))?;
            displaced = Some(self.take(from, at)?);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        let namespace = self.namespaces.entry(id).or_default();
        if namespace.waiting.is_empty() {
            self.order.push_back(id);
        }
        let round = namespace.round + namespace.places_of(source) as u64;
        namespace.waiting.push_back(Waiting {
            number,
            source,
            wrong,
            round,
            sender,
        });
        Some((number, displaced))
    }

    /// The last one of the namespace that most wait for, if these are more than wait for another
    /// together with one that joins them.
    fn longer(&self, id: u64) -> Option<(u64, usize)> {
        let own = self.namespaces.get(&id).map_or(0, |own| own.waiting.len());
        let lines = self.namespaces.iter();
        let (longest, namespace) = lines.max_by_key(|(_, it)| it.waiting.len())?;
        (namespace.waiting.len() > own + 1).then_some((*longest, namespace.last()?))
    }

    /// The last one of a namespace, if its source has shown more wrong passwords than another, or
    /// as many and has more places than that would have.
    fn worse(&self, id: u64, source: u64, wrong: u32) -> Option<(u64, usize)> {
        let own = self.namespaces.get(&id)?;
        let at = own.last()?;
        let last = own.waiting.get(at)?;
        let newcomer = (wrong, own.places_of(source) + 1);
        ((last.wrong, own.places_of(last.source)) > newcomer).then_some((id, at))
    }

    /// The next one whose turn it is.
    fn next(&mut self, own_max: usize) -> Option<(u64, Waiting)> {
        if self.left == 0 {
            return None;
        }
        let namespaces = &self.namespaces;
        let may_run = |id: &u64| {
            namespaces
                .get(id)
                .is_some_and(|it| it.running.len() < own_max)
        };
        let id = self.order.iter().copied().find(may_run)?;
        let at = self.namespaces.get(&id)?.first()?;
        let waiting = self.take(id, at)?;
        self.left -= 1;
        let namespace = self.namespaces.entry(id).or_default();
        namespace.running.push(waiting.source);
        namespace.round = namespace.round.max(waiting.round);
        if !namespace.waiting.is_empty() {
            self.order.retain(|it| *it != id);
            self.order.push_back(id);
        }
        Some((id, waiting))
    }

    /// Takes one out of the line of a namespace.
    fn take(&mut self, id: u64, at: usize) -> Option<Waiting> {
        let namespace = self.namespaces.get_mut(&id)?;
        let waiting = namespace.waiting.remove(at)?;
        if namespace.waiting.is_empty() {
            self.order.retain(|it| *it != id);
        }
        self.forget(id);
        Some(waiting)
    }

    /// Takes one out of the line of a namespace that may be there no longer.
    fn leave(&mut self, id: u64, number: u64) -> Option<Waiting> {
        let mut waiting = self.namespaces.get(&id)?.waiting.iter();
        let at = waiting.position(|it| it.number == number)?;
        self.take(id, at)
    }

    fn end(&mut self, id: u64, source: u64) {
        self.left += 1;
        if let Some(namespace) = self.namespaces.get_mut(&id) {
            let at = namespace.running.iter().position(|it| *it == source);
            if let Some(at) = at {
                namespace.running.swap_remove(at);
            }
        }
        self.forget(id);
    }

    /// Forgets a namespace of which there is none.
    fn forget(&mut self, id: u64) {
        if self.namespaces.get(&id).is_some_and(|it| it.places() == 0) {
            self.namespaces.remove(&id);
        }
    }

    /// How many wait or are served; there are no more namespaces than these.
    fn places(&self) -> usize {
        self.namespaces.values().map(Namespace::places).sum()
    }
}

impl Namespace {
    fn places(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    fn places_of(&self, source: u64) -> usize {
        let running = self.running.iter().filter(|it| **it == source);
        let waiting = self.waiting.iter().filter(|it| it.source == source);
        running.count() + waiting.count()
    }

    /// The first one in the order of turns.
    fn first(&self) -> Option<usize> {
        let waiting = self.waiting.iter().enumerate();
        let first = waiting.min_by_key(|(_, it)| (it.wrong, it.round));
        first.map(|(at, _)| at)
    }

    /// The youngest one of the source that has the least right to its places.
    fn last(&self) -> Option<usize> {
        let waiting = self.waiting.iter().enumerate();
        let last = waiting.max_by_key(|(at, it)| (it.wrong, self.places_of(it.source), *at));
        last.map(|(at, _)| at)
    }
}

impl CheckWait {
    /// The turn, once it has come; none where another has got the place.
    pub(super) async fn turn(mut self) -> Option<CheckTurn> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for CheckWait {
    fn drop(&mut self) {
        let gone = self.turns.state().leave(self.namespace, self.number);
        drop(gone);
    }
}

impl Drop for CheckTurn {
    fn drop(&mut self) {
        self.turns.state().end(self.namespace, self.source);
        self.turns.give();
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckTurn, CheckTurns, CheckWait, OWN_MAX, PLACES_MAX, SOURCE_MAX};

    fn turns(number: usize) -> &'static CheckTurns {
        Box::leak(Box::new(CheckTurns::new(number)))
    }

    /// Places in the line of a namespace, as far as there are so many, each of another source.
    fn join(turns: &'static CheckTurns, namespace: u64, count: u64) -> Vec<CheckWait> {
        let waiting = (0..count).map(|source| turns.join(namespace, source, 0));
        waiting.flatten().collect()
    }

    fn begun(waiting: &mut [CheckWait]) -> Vec<CheckTurn> {
        let begun = waiting.iter_mut().map(|it| it.receiver.try_recv().ok());
        begun.flatten().collect()
    }

    #[test]
    fn a_namespace_has_half_of_the_turns_and_others_go_at_once() {
        let turns = turns(4);
        let mut evil = join(turns, 1, 20);
        let running = begun(&mut evil);
        assert_eq!(running.len(), 2);
        let shop = begun(&mut join(turns, 2, 1));
        assert_eq!(shop.len(), 1);
        drop(running);
        assert_eq!(begun(&mut evil).len(), 2);
    }

    #[test]
    fn with_one_turn_namespaces_take_turns() {
        let turns = turns(1);
        let mut evil = join(turns, 1, 20);
        let first = begun(&mut evil);
        assert_eq!(first.len(), 1);
        let mut shop = join(turns, 2, 1);
        drop(first);
        let second = begun(&mut evil);
        assert_eq!(second.len(), 1, "it waited before");
        drop(second);
        let third = begun(&mut shop);
        assert_eq!(third.len(), 1);
        drop((third, evil));
        let last = begun(&mut join(turns, 3, 1));
        assert_eq!(last.len(), 1);
        drop(last);
        assert!(turns.state().namespaces.is_empty());
        assert!(turns.state().order.is_empty());
    }

    #[test]
    fn who_gave_up_takes_no_turn_and_no_room() {
        let turns = turns(1);
        let first = begun(&mut join(turns, 1, 1));
        for _ in 0..1_000 {
            drop(join(turns, 1, 1));
        }
        assert!(turns.state().namespaces[&1].waiting.is_empty());
        assert!(turns.state().order.is_empty());
        let mut late = join(turns, 1, 1);
        drop(first);
        assert_eq!(begun(&mut late).len(), 1);
        assert_eq!(turns.state().left, 1);
    }

    #[test]
    fn places_are_bounded_and_namespaces_share_them() {
        let turns = turns(1);
        let first = join(turns, 1, PLACES_MAX as u64);
        assert_eq!(first.len(), OWN_MAX);
        let others: Vec<_> = (2..200).flat_map(|id| join(turns, id, 1)).collect();
        // Those of the first go to the others, until it has no more than these.
        assert_eq!(turns.state().places(), PLACES_MAX);
        assert!(turns.state().namespaces[&1].places() <= 2);
        assert!(turns.join(300, 1, 0).is_none(), "all have one");
        drop((first, others));
        assert_eq!(turns.state().left, 1);
        assert!(turns.state().namespaces.is_empty());
    }

    #[test]
    fn one_source_has_half_of_a_namespace_and_less_where_others_come() {
        let turns = turns(1);
        let flood = |source| -> Vec<_> {
            let waiting = (0..PLACES_MAX).map(|_| turns.join(1, source, 0));
            waiting.flatten().collect()
        };
        let floods = [flood(7), flood(8)];
        assert_eq!(floods.each_ref().map(Vec::len), [SOURCE_MAX; 2]);
        // A third one gets as many as will be left to either.
        let third = flood(9);
        let of = |source| turns.state().namespaces[&1].places_of(source);
        assert_eq!(of(7) + of(8) + of(9), OWN_MAX);
        assert!(
            [7, 8, 9]
                .into_iter()
                .all(|source| of(source) >= OWN_MAX / 3)
        );
        drop((floods, third));
        assert!(turns.state().namespaces.is_empty());
    }

    #[test]
    fn sources_that_wait_go_in_turn_whoever_has_more() {
        let turns = turns(1);
        let running = begun(&mut join(turns, 1, 1));
        let mut flood: Vec<_> = (0..10).filter_map(|_| turns.join(1, 7, 0)).collect();
        let mut late = [turns.join(1, 8, 0).unwrap()];
        drop(running);
        let first = begun(&mut flood);
        assert_eq!((first.len(), begun(&mut late).len()), (1, 0));
        drop(first);
        assert_eq!(begun(&mut late).len(), 1);
    }

    #[test]
    fn who_was_wrong_gives_up_its_place_and_goes_last() {
        let turns = turns(1);
        let running = begun(&mut join(turns, 1, 1));
        let mut guesses: Vec<_> = (1..100).filter_map(|it| turns.join(1, it, 0)).collect();
        assert_eq!(guesses.len(), OWN_MAX - 1);
        assert!(turns.join(1, 200, 0).is_none(), "all are alike");
        for source in 1..100 {
            turns.note_wrong(1, source, 1 + u32::from(source == 5));
        }
        // One that was wrong itself takes that of who was more often, and no other.
        let mut wrong = [turns.join(1, 201, 1).unwrap()];
        assert!(turns.state().namespaces[&1].places_of(5) == 0);
        assert!(turns.join(1, 202, 1).is_none());
        let mut right = [turns.join(1, 200, 0).unwrap()];
        assert_eq!(turns.state().namespaces[&1].places(), OWN_MAX);
        assert_eq!(
            turns.state().namespaces[&1].places_of(201),
            0,
            "the youngest"
        );
        assert!(wrong[0].receiver.try_recv().is_err());
        drop(running);
        assert_eq!(begun(&mut right).len(), 1, "it goes first");
        assert_eq!(begun(&mut guesses).len(), 1);
    }
}
