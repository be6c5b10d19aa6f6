//! Certificates that wait for something of which there are few. Namespaces take turns, so that one
//! with very many certificates holds up nobody else, and one that waits alone has everything.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// A certificate that waits, and the number of its wait.
pub(super) type Waiting = (Arc<str>, u64);

/// The namespace of a certificate. Those on demand have one together.
pub(super) fn namespace_of(id: &str) -> &str {
    id.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// Certificates that wait, by their namespaces. The next one is of the namespace that holds the
/// fewest places, and among equals of the one whose turn was the longest ago. Each of them keeps
/// the order in which its own came.
#[derive(Debug, Default)]
struct Turns {
    queues: HashMap<Arc<str>, Queue>,
    /// The namespaces as their turns come: by the places that they hold, and by their turns.
    order: BTreeSet<(usize, u64, Arc<str>)>,
    last: u64,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Waiting>,
    held: usize,
    turn: u64,
}

impl Turns {
    fn push(&mut self, waiting: Waiting, held: usize) {
        let namespace = namespace_of(&waiting.0);
        if let Some(queue) = self.queues.get_mut(namespace) {
            queue.waiting.push_back(waiting);
            return;
        }
        let namespace: Arc<str> = namespace.into();
        self.last += 1;
        let queue = Queue {
            waiting: VecDeque::from([waiting]),
            held,
            turn: self.last,
        };
        self.order.insert((held, queue.turn, namespace.clone()));
        self.queues.insert(namespace, queue);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let (held, _, namespace) = self.order.pop_first()?;
        let queue = self.queues.get_mut(&namespace)?;
        let next = queue.waiting.pop_front();
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

    /// The next one. One that failed before gets a place only where there are some to spare.
    pub(super) fn pop(&mut self, may_have_failed: bool) -> Option<Waiting> {
        let can_fail = may_have_failed && !self.failed.is_empty();
        let has_failed = can_fail && (self.was_fresh || self.fresh.is_empty());
        self.was_fresh = !has_failed;
        match has_failed {
            true => self.failed.pop(),
            false => self.fresh.pop(),
        }
    }

    pub(super) fn has_next(&self, may_have_failed: bool) -> bool {
        !self.fresh.is_empty() || may_have_failed && !self.failed.is_empty()
    }

    fn hold(&mut self, namespace: &str, held: usize) {
        self.fresh.hold(namespace, held);
        self.failed.hold(namespace, held);
    }
}

/// The places of one kind, half of which those may have that failed before: they wait longest for
/// an answer, and nobody else shall wait behind them. A place that becomes free is for the
/// namespace that holds the fewest.
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

    pub(super) fn may_have_failed(&self) -> bool {
        self.taken_by_failed < self.max / 2
    }

    pub(super) fn is_full(&self) -> bool {
        self.taken >= self.max
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken > 0
    }

    /// Whether any wait, with a place or without.
    pub(super) fn is_waited_for(&self) -> bool {
        self.line.has_next(true)
    }

    pub(super) fn has_next(&self) -> bool {
        !self.is_full() && self.line.has_next(self.may_have_failed())
    }

    /// The next one that there is a place for.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        match self.is_full() {
            true => None,
            false => self.line.pop(self.may_have_failed()),
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
        given
    }

    #[test]
    fn one_that_waits_alone_has_all_places_and_gives_way_to_another_until_that_has_as_many() {
        let mut places = Places::new(8);
        push(&mut places, "many", 100);
        assert_eq!(fill(&mut places), ["many"; 8]);
        push(&mut places, "few", 100);
        for _ in 0..4 {
            places.give_back("many/0", false);
            assert_eq!(fill(&mut places), ["few"]);
        }
        // From now on they take turns.
        let mut given = Vec::new();
        for namespace in ["many", "few", "many", "few"] {
            places.give_back(&format!("{namespace}/0"), false);
            given.extend(fill(&mut places));
        }
        assert_eq!(given, ["many", "few", "many", "few"]);
        // Nothing is remembered of those that neither wait nor hold a place.
        let holders = ["many", "few"].repeat(4);
        let mut holders: Vec<String> = holders.into_iter().map(str::to_owned).collect();
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
        for id in ["a/0", "a/1", "a/2", "b/0", "on-demand:x.example", "b/1"] {
            line.push((id.into(), 0), false, 0);
        }
        let order: Vec<String> = std::iter::from_fn(|| line.pop(true))
            .map(|(id, _)| id.to_string())
            .collect();
        let turns = ["a/0", "b/0", "on-demand:x.example", "a/1", "b/1", "a/2"];
        assert_eq!(order, turns);
    }

    #[test]
    fn those_that_failed_have_every_other_turn_and_none_where_there_is_no_place_to_spare() {
        let mut line = Line::default();
        for number in 0..3 {
            line.push((format!("a/bad{number}").into(), 0), true, 0);
            line.push((format!("a/{number}").into(), 0), false, 0);
        }
        let mut next = |may| line.pop(may).map(|(id, _)| id.to_string());
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
