//! Certificates that wait for something of which there are few. Namespaces take turns, so that one
//! with very many certificates holds up nobody else, and one that waits alone has all but a few
//! places, which are kept for the next one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A certificate that waits, and the number of its wait.
pub(super) type Waiting = (Arc<str>, u64);

/// The namespace of a certificate. Those on demand have one together.
pub(super) fn namespace_of(id: &str) -> &str {
    id.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// Whether a namespace may have a turn, that holds so many places.
pub(super) type Admits<'a> = &'a dyn Fn(usize, &str) -> bool;

/// The places that a namespace holds, the number of its turn, and its name.
type Turn = (usize, u64, Arc<str>);

/// Certificates that wait, by their namespaces. The next one is of the namespace that holds the
/// fewest places, and among equals of the one whose turn was the longest ago. Each of them keeps
/// the order in which its own came.
#[derive(Debug, Default)]
struct Turns {
    queues: HashMap<Arc<str>, Queue>,
    /// The namespaces as their turns come.
    order: BTreeSet<Turn>,
    last: u64,
}

#[derive(Debug)]
struct Queue {
    /// The certificates by the numbers of their waits.
    waiting: BTreeMap<u64, Arc<str>>,
    held: usize,
    turn: u64,
}

impl Turns {
    fn push(&mut self, (id, number): Waiting, held: usize) {
        let namespace = namespace_of(&id);
        if let Some(queue) = self.queues.get_mut(namespace) {
            queue.waiting.insert(number, id);
            return;
        }
        let namespace: Arc<str> = namespace.into();
        self.last += 1;
        let queue = Queue {
            waiting: BTreeMap::from([(number, id)]),
            held,
            turn: self.last,
        };
        self.order.insert((held, queue.turn, namespace.clone()));
        self.queues.insert(namespace, queue);
    }

    /// Takes out one that does not wait any more.
    fn remove(&mut self, id: &str, number: u64) {
        let namespace = namespace_of(id);
        let Some(queue) = self.queues.get_mut(namespace) else {
            return;
        };
        queue.waiting.remove(&number);
        if queue.waiting.is_empty()
            && let Some((namespace, queue)) = self.queues.remove_entry(namespace)
        {
            self.order.remove(&(queue.held, queue.turn, namespace));
        }
    }

    /// The next turn: a walk over the namespaces before it that may have none.
    fn next(&self, admits: Admits<'_>) -> Option<&Turn> {
        let mut turns = self.order.iter();
        turns.find(|(held, _, namespace)| admits(*held, namespace))
    }

    fn pop(&mut self, admits: Admits<'_>) -> Option<Waiting> {
        let turn = self.next(admits)?.clone();
        self.order.remove(&turn);
        let (held, _, namespace) = turn;
        let queue = self.queues.get_mut(&namespace)?;
        let next = queue.waiting.pop_first().map(|(number, id)| (id, number));
        if queue.waiting.is_empty() {
            self.queues.remove(&namespace);
            return next;
        }
        self.last += 1;
        queue.turn = self.last;
        self.order.insert((held, queue.turn, namespace));
        next
    }

    /// A namespace holds so many places from now on.
    fn hold(&mut self, namespace: &str, held: usize) {
        let known = self.queues.get_key_value(namespace);
        let Some(name) = known.map(|(name, _)| name.clone()) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(namespace) {
            let before = (queue.held, queue.turn, name);
            self.order.remove(&before);
            queue.held = held;
            let (_, turn, name) = before;
            self.order.insert((held, turn, name));
        }
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

/// The certificates that wait for a place of one kind. Those that failed before have at most every
/// other turn where there are some that never did.
#[derive(Debug, Default)]
pub(super) struct Line {
    fresh: Turns,
    failed: Turns,
    /// Whether the last turn was that of one which never failed.
    was_fresh: bool,
}

impl Line {
    /// Lets a certificate wait, whose namespace holds so many places.
    pub(super) fn push(&mut self, waiting: Waiting, has_failed: bool, held: usize) {
        match has_failed {
            true => self.failed.push(waiting, held),
            false => self.fresh.push(waiting, held),
        }
    }

    /// Takes out a certificate that came with this number and does not wait any more.
    pub(super) fn remove(&mut self, id: &str, number: u64, has_failed: bool) {
        match has_failed {
            true => self.failed.remove(id, number),
            false => self.fresh.remove(id, number),
        }
    }

    /// The next one. One that failed before gets a place only where there are some to spare.
    pub(super) fn pop(&mut self, may_have_failed: bool, admits: Admits<'_>) -> Option<Waiting> {
        let can_fail = may_have_failed && self.failed.next(admits).is_some();
        let has_failed = can_fail && (self.was_fresh || self.fresh.next(admits).is_none());
        self.was_fresh = !has_failed;
        match has_failed {
            true => self.failed.pop(admits),
            false => self.fresh.pop(admits),
        }
    }

    pub(super) fn has_next(&self, may_have_failed: bool, admits: Admits<'_>) -> bool {
        let can_fail = || may_have_failed && self.failed.next(admits).is_some();
        self.fresh.next(admits).is_some() || can_fail()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.failed.is_empty()
    }

    fn hold(&mut self, namespace: &str, held: usize) {
        self.fresh.hold(namespace, held);
        self.failed.hold(namespace, held);
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let queues = self
            .fresh
            .queues
            .values()
            .chain(self.failed.queues.values());
        queues.map(|queue| queue.waiting.len()).sum()
    }
}

/// The part of places that is kept for namespaces which hold none, so that a newcomer waits for
/// nobody's answer: one in so many.
const KEPT_PART: usize = 8;

/// The places of one kind, half of which those may have that failed before: they wait longest for
/// an answer, and nobody else shall wait behind them. A place that becomes free is for the
/// namespace that holds the fewest, and the last ones are for those that hold none.
#[derive(Debug)]
pub(super) struct Places {
    line: Line,
    max: usize,
    taken: usize,
    taken_by_failed: usize,
    /// The places that each namespace holds.
    held: HashMap<Box<str>, usize>,
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Places {
            line: Line::default(),
            max: max.max(2),
            taken: 0,
            taken_by_failed: 0,
            held: HashMap::new(),
        }
    }

    /// Lets a certificate wait for a place.
    pub(super) fn push(&mut self, waiting: Waiting, has_failed: bool) {
        let held = self.held.get(namespace_of(&waiting.0));
        let held = held.copied().unwrap_or_default();
        self.line.push(waiting, has_failed, held);
    }

    /// Takes out a certificate that came with this number and does not wait any more.
    pub(super) fn remove(&mut self, id: &str, number: u64, has_failed: bool) {
        self.line.remove(id, number, has_failed);
    }

    pub(super) fn may_have_failed(&self) -> bool {
        self.taken_by_failed < self.max / 2
    }

    /// Whether there is a place for one of a namespace.
    pub(super) fn admits(&self, namespace: &str) -> bool {
        self.has_room() || !self.is_full() && !self.held.contains_key(namespace)
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken > 0
    }

    /// Whether any wait, with a place or without.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.line.is_empty()
    }

    pub(super) fn has_next(&self) -> bool {
        let has_room = self.has_room();
        let admits = |held: usize, _: &str| has_room || held == 0;
        !self.is_full() && self.line.has_next(self.may_have_failed(), &admits)
    }

    /// The next one that there is a place for.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let (has_room, may_have_failed) = (self.has_room(), self.may_have_failed());
        let admits = |held: usize, _: &str| has_room || held == 0;
        match self.is_full() {
            true => None,
            false => self.line.pop(may_have_failed, &admits),
        }
    }

    /// A certificate has a place from now on.
    pub(super) fn take(&mut self, id: &str, has_failed: bool) {
        self.taken += 1;
        self.taken_by_failed += usize::from(has_failed);
        let namespace = namespace_of(id);
        let held = match self.held.get_mut(namespace) {
            Some(held) => {
                *held += 1;
                *held
            }
            None => {
                self.held.insert(namespace.into(), 1);
                1
            }
        };
        self.line.hold(namespace, held);
    }

    /// A certificate has its place no more.
    pub(super) fn give_back(&mut self, id: &str, has_failed: bool) {
        self.taken = self.taken.saturating_sub(1);
        self.taken_by_failed = self.taken_by_failed.saturating_sub(usize::from(has_failed));
        let namespace = namespace_of(id);
        let Some(held) = self.held.get_mut(namespace) else {
            return;
        };
        *held = held.saturating_sub(1);
        let held = *held;
        if held == 0 {
            self.held.remove(namespace);
        }
        self.line.hold(namespace, held);
    }

    pub(super) fn is_full(&self) -> bool {
        self.taken >= self.max
    }

    /// Whether there is a place besides those that are kept.
    fn has_room(&self) -> bool {
        self.taken + self.max / KEPT_PART < self.max
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.line.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Places, namespace_of};

    fn push(places: &mut Places, namespace: &str, count: u64) {
        for number in 0..count {
            places.push((format!("{namespace}/{number}").into(), number), false);
        }
    }

    /// Gives out all places that there are, and returns whose they are.
    fn fill(places: &mut Places) -> Vec<String> {
        let mut given = Vec::new();
        while let Some((id, _)) = places.pop() {
            places.take(&id, false);
            given.push(namespace_of(&id).to_owned());
        }
        assert!(!places.has_next());
        given
    }

    fn all(_: usize, _: &str) -> bool {
        true
    }

    #[test]
    fn one_that_waits_alone_has_all_places_but_a_few_which_a_newcomer_gets_at_once() {
        let mut places = Places::new(8);
        push(&mut places, "many", 100);
        assert_eq!(fill(&mut places), ["many"; 7]);
        push(&mut places, "new", 1);
        assert_eq!(fill(&mut places), ["new"]);
        places.give_back("new/0", false);
        push(&mut places, "few", 100);
        assert_eq!(fill(&mut places), ["few"]);
        // What is free now is kept for the next one.
        places.give_back("many/0", false);
        assert!(fill(&mut places).is_empty());
        // It gives way to the other until that has as many.
        for _ in 0..2 {
            places.give_back("many/0", false);
            assert_eq!(fill(&mut places), ["few"]);
        }
        // From now on they take turns.
        let mut given = Vec::new();
        for namespace in ["many", "many", "few", "many"] {
            places.give_back(&format!("{namespace}/0"), false);
            given.extend(fill(&mut places));
        }
        assert_eq!(given, ["many", "few", "many", "few"]);
        // Nothing is remembered of those that neither wait nor hold a place.
        let mut holders: Vec<String> = ["many"; 3].map(str::to_owned).into();
        holders.extend(["few"; 4].map(str::to_owned));
        while let Some(holder) = holders.pop() {
            places.give_back(&format!("{holder}/0"), false);
            holders.extend(fill(&mut places));
        }
        assert!(places.held.is_empty() && !places.is_waited_for());
        assert!(places.line.fresh.queues.is_empty() && places.line.fresh.order.is_empty());
    }

    #[test]
    fn certificates_of_a_namespace_keep_their_order_and_namespaces_take_turns() {
        let mut line = Line::default();
        let ids = ["a/0", "a/1", "a/2", "b/0", "on-demand:x.example", "b/1"];
        for (number, id) in (0..).zip(ids) {
            line.push((id.into(), number), false, 0);
        }
        let order: Vec<String> = std::iter::from_fn(|| line.pop(true, &all))
            .map(|(id, _)| id.to_string())
            .collect();
        let turns = ["a/0", "b/0", "on-demand:x.example", "a/1", "b/1", "a/2"];
        assert_eq!(order, turns);
    }

    #[test]
    fn one_that_does_not_wait_any_more_is_not_there_and_the_others_are() {
        let mut line = Line::default();
        for (number, id) in (0..).zip(["a/0", "a/1", "a/2", "b/0", "c/0"]) {
            line.push((id.into(), number), id == "c/0", 0);
        }
        line.remove("a/1", 1, false);
        line.remove("b/0", 3, false);
        line.remove("c/0", 4, true);
        // Somebody else's number, or one that is over, takes nobody out.
        line.remove("a/2", 1, false);
        line.remove("b/0", 3, false);
        assert_eq!(line.len(), 2);
        let order: Vec<String> = std::iter::from_fn(|| line.pop(true, &all))
            .map(|(id, _)| id.to_string())
            .collect();
        assert_eq!(order, ["a/0", "a/2"]);
        assert!(line.is_empty() && line.fresh.order.is_empty() && line.failed.order.is_empty());
    }

    #[test]
    fn those_that_failed_have_every_other_turn_and_none_where_there_is_no_place_to_spare() {
        let mut line = Line::default();
        for number in 0..3 {
            line.push((format!("a/bad{number}").into(), number), true, 0);
            line.push((format!("a/{number}").into(), number), false, 0);
        }
        let mut next = |may| line.pop(may, &all).map(|(id, _)| id.to_string());
        let mut order = vec![next(true), next(true), next(false), next(false)];
        order.extend([next(false), next(true), next(true), next(true)]);
        let order: Vec<&str> = order
            .iter()
            .map(|it| it.as_deref().unwrap_or("-"))
            .collect();
        let expected = ["a/0", "a/bad0", "a/1", "a/2", "-", "a/bad1", "a/bad2", "-"];
        assert_eq!(order, expected);
    }
}
