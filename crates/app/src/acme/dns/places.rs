//! The places at servers of DNS, which bear few connections, and at webhooks: one that is slow
//! holds up no other. Namespaces take turns at each, and the last places are kept for those that
//! hold none, so that one with very many records to set holds up nobody else.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use tokio::sync::oneshot;

/// The most updates at a time at one server, and requests at one webhook.
const CHANGES_MAX: usize = 16;

/// The places of these that are kept for namespaces which hold none.
const KEPT: usize = CHANGES_MAX / 8;

/// The places at all servers and webhooks.
#[derive(Default)]
pub(super) struct Places(RefCell<HashMap<Box<str>, Rc<Line>>>);

/// A place, for as long as something is changed.
pub(super) struct Place {
    line: Rc<Line>,
    namespace: Rc<str>,
}

/// The line at one server.
#[derive(Default)]
struct Line(RefCell<State>);

#[derive(Default)]
struct State {
    taken: usize,
    /// The places that each namespace holds.
    held: HashMap<Rc<str>, usize>,
    /// The namespaces that wait: as many as there are steps at a time at most.
    waiting: HashMap<Rc<str>, Queue>,
    last: u64,
}

/// The waits of a namespace, as they came.
struct Queue {
    turn: u64,
    waits: BTreeMap<u64, oneshot::Sender<Place>>,
}

/// A wait, which is over once this is dropped.
struct Wait {
    line: Rc<Line>,
    namespace: Rc<str>,
    number: u64,
}

impl Places {
    /// A place at a server for something of a namespace, as soon as it has its turn. Dropping the
    /// future ends the wait.
    pub(super) async fn come(&self, server: &str, namespace: &str) -> Option<Place> {
        let line = self.line(server);
        let (sender, receiver) = oneshot::channel();
        let namespace: Rc<str> = namespace.into();
        let number = line.0.borrow_mut().push(namespace.clone(), sender);
        line.grant();
        let _wait = Wait {
            line,
            namespace,
            number,
        };
        receiver.await.ok()
    }

    fn line(&self, server: &str) -> Rc<Line> {
        let mut lines = self.0.borrow_mut();
        if let Some(line) = lines.get(server) {
            return line.clone();
        }
        // Those that nobody uses, once for as many as there are.
        if lines.len().is_power_of_two() {
            lines.retain(|_, line| Rc::strong_count(line) > 1);
        }
        let line = Rc::<Line>::default();
        lines.insert(server.into(), line.clone());
        line
    }
}

impl Line {
    /// Gives out the places that there are.
    fn grant(self: &Rc<Self>) {
        loop {
            let next = self.0.borrow_mut().next();
            let Some((namespace, sender)) = next else {
                return;
            };
            let line = self.clone();
            // Whoever does not wait any more gives it back.
            drop(sender.send(Place { line, namespace }));
        }
    }
}

impl State {
    fn push(&mut self, namespace: Rc<str>, sender: oneshot::Sender<Place>) -> u64 {
        self.last += 1;
        let queue = self.waiting.entry(namespace).or_insert_with(|| Queue {
            turn: self.last,
            waits: BTreeMap::new(),
        });
        queue.waits.insert(self.last, sender);
        self.last
    }

    /// The next one that there is a place for, which it has from now on: of the namespace that
    /// holds the fewest, and among equals of the one whose turn was the longest ago.
    fn next(&mut self) -> Option<(Rc<str>, oneshot::Sender<Place>)> {
        let turns = self.waiting.iter();
        let turns = turns.map(|(namespace, queue)| (self.held(namespace), queue.turn, namespace));
        let admitted = turns.filter(|(held, ..)| self.admits(*held));
        let namespace = admitted.min().map(|(.., namespace)| namespace.clone())?;
        let queue = self.waiting.get_mut(&namespace)?;
        let (_, sender) = queue.waits.pop_first()?;
        self.last += 1;
        queue.turn = self.last;
        if queue.waits.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.taken += 1;
        *self.held.entry(namespace.clone()).or_default() += 1;
        Some((namespace, sender))
    }

    fn held(&self, namespace: &str) -> usize {
        self.held.get(namespace).copied().unwrap_or_default()
    }

    /// Whether there is a place for a namespace that holds so many.
    fn admits(&self, held: usize) -> bool {
        let kept = if held == 0 { 0 } else { KEPT };
        self.taken + kept < CHANGES_MAX
    }

    fn give_back(&mut self, namespace: &str) {
        self.taken -= 1;
        if let Some(held) = self.held.get_mut(namespace) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(namespace);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.line.0.borrow_mut().give_back(&self.namespace);
        self.line.grant();
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.line.0.borrow_mut();
        if let Some(queue) = state.waiting.get_mut(&self.namespace) {
            queue.waits.remove(&self.number);
            if queue.waits.is_empty() {
                state.waiting.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;

    use super::{CHANGES_MAX, KEPT, Place, Places};

    /// The place that there is at once, if there is one.
    async fn at_once(wait: impl Future<Output = Option<Place>>) -> Option<Place> {
        tokio::select! {
            biased;
            place = wait => place,
            () = ready(()) => None,
        }
    }

    #[tokio::test]
    async fn a_namespace_with_very_many_changes_leaves_places_to_others_and_takes_turns() {
        let places = Places::default();
        let mut many = Vec::new();
        while let Some(place) = at_once(places.come("dns", "many")).await {
            many.push(place);
        }
        assert_eq!(many.len(), CHANGES_MAX - KEPT);
        let mut next = pin!(places.come("dns", "many"));
        assert!(at_once(next.as_mut()).await.is_none());
        // Others need not wait, there and elsewhere.
        let new = at_once(places.come("dns", "new")).await.expect("a place");
        assert!(at_once(places.come("other", "many")).await.is_some());
        let mut again = pin!(places.come("dns", "new"));
        assert!(at_once(again.as_mut()).await.is_none());
        // What becomes free is for the one that holds fewer, though it came later.
        many.truncate(many.len() - KEPT);
        let again = at_once(again).await.expect("a place");
        assert!(at_once(next.as_mut()).await.is_none());
        drop((new, again));
        let next = at_once(next).await.expect("a place");
        // Nothing is remembered of those that neither wait nor hold a place.
        drop((many, next));
        let line = places.line("dns");
        let state = line.0.borrow();
        assert!(state.held.is_empty() && state.waiting.is_empty());
        assert_eq!(state.taken, 0);
    }

    #[tokio::test]
    async fn whoever_waits_no_more_takes_no_place_and_servers_without_any_are_forgotten() {
        let places = Places::default();
        let mut held = Vec::new();
        while let Some(place) = at_once(places.come("dns", "a")).await {
            held.push(place);
        }
        {
            let mut granted = pin!(places.come("dns", "a"));
            assert!(at_once(granted.as_mut()).await.is_none());
            // It has been given one, of which it never hears.
            held.clear();
            assert_eq!(places.line("dns").0.borrow().taken, 1);
        }
        assert_eq!(places.line("dns").0.borrow().taken, 0);
        for number in 0..100 {
            let place = places.come(&format!("s{number}"), "a").await;
            assert!(place.is_some());
        }
        assert!(places.0.borrow().len() <= 64);
    }
}
