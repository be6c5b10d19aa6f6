//! The proxies that ask the control loop which view they see, and tell it which one they follow.
//!
//! Their questions have some places of its inbox, of which each namespace has a few, and a place is
//! free once its question was worked off, whether or not somebody waits for the answer. So those
//! who ask without end, or ask and go, wait for each other, and the inbox has room for changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::event::{Event, INBOX_EVENTS_MAX, InboxPermits};

/// The most events of the inbox that are questions of proxies.
const QUESTIONS_MAX: usize = INBOX_EVENTS_MAX / 2;

/// The most of them that are of Pods of one namespace.
const NAMESPACE_QUESTIONS_MAX: usize = 8;

/// How many namespaces may be known before those are looked for of which nobody asks.
const NAMESPACES_MIN: usize = 64;

/// The way of proxies to the control loop. Cheap to clone; clones are one way.
#[derive(Clone)]
pub struct Callers {
    inbox: mpsc::Sender<Event>,
    /// The places of all.
    places: Arc<Semaphore>,
    own: Arc<Mutex<OwnPlaces>>,
    followers: Followers,
}

/// The places of namespaces.
#[derive(Default)]
struct OwnPlaces {
    namespaces: BTreeMap<Box<str>, Arc<Semaphore>>,
    /// How many there may be before those are looked for of which nobody asks.
    namespaces_max: usize,
}

/// The numbers by which the followers of views are more or fewer than the control loop knows. There
/// are no more views here than proxies were told since it last looked, however often these come and
/// go.
#[derive(Clone, Default)]
pub(super) struct Followers(Arc<Mutex<BTreeMap<Arc<str>, i64>>>);

impl Callers {
    /// The way to the control loop that has this inbox.
    pub fn new(inbox: mpsc::Sender<Event>) -> Callers {
        Callers {
            inbox,
            places: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            own: Arc::default(),
            followers: Followers::default(),
        }
    }

    /// The inbox, and the way to it for proxies.
    pub fn with_inbox() -> (mpsc::Sender<Event>, Callers, mpsc::Receiver<Event>) {
        let (inbox, events) = mpsc::channel(INBOX_EVENTS_MAX);
        let callers = Callers::new(inbox.clone());
        (inbox, callers, events)
    }

    /// The inbox, for what is no proxy's.
    pub fn inbox(&self) -> mpsc::Sender<Event> {
        self.inbox.clone()
    }

    /// The view of the proxy of a Pod, once it has all that it shall; none where the Pod has none.
    pub async fn ask(&self, namespace: &str, pod: &str) -> Option<Arc<str>> {
        let places = self.places(namespace).await;
        let (answer, answered) = oneshot::channel();
        let asked = Event::Asked(format!("{namespace}/{pod}"), answer, places);
        // A control loop that has ended answers nobody.
        let _ = self.inbox.send(asked).await;
        answered.await.ok().flatten()
    }

    /// Notes that a proxy follows a view, or does not any more.
    pub fn follow(&self, view: Arc<str>, is_there: bool) {
        let change = if is_there { 1 } else { -1 };
        *self.followers.lock().entry(view).or_default() += change;
    }

    /// The proxies that follow views, for the control loop.
    pub(super) fn followers(&self) -> Followers {
        self.followers.clone()
    }

    /// Waits for a place of a namespace, and then for one of all: nobody waits there for more than
    /// the few of each other namespace.
    async fn places(&self, namespace: &str) -> InboxPermits {
        let own = self.own_places(namespace);
        // Nobody closes them.
        let own = own.acquire_owned().await.ok();
        let shared = self.places.clone().acquire_owned().await.ok();
        [own, shared]
    }

    fn own_places(&self, namespace: &str) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = own.namespaces.get(namespace) {
            return known.clone();
        }
        if own.namespaces.len() >= own.namespaces_max.max(NAMESPACES_MIN) {
            own.namespaces.retain(|_, it| Arc::strong_count(it) > 1);
            own.namespaces_max = 2 * own.namespaces.len();
        }
        let places = Arc::new(Semaphore::new(NAMESPACE_QUESTIONS_MAX));
        own.namespaces.insert(namespace.into(), places.clone());
        places
    }
}

impl Followers {
    /// Takes out what the control loop does not know yet.
    pub(super) fn take(&self) -> BTreeMap<Arc<str>, i64> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::mpsc;

    use super::{Callers, Event, NAMESPACE_QUESTIONS_MAX, NAMESPACES_MIN, QUESTIONS_MAX};

    type Asking = Pin<Box<dyn Future<Output = Option<Arc<str>>>>>;

    /// A proxy of a namespace that has begun to ask.
    fn ask(callers: &Callers, namespace: &str) -> Asking {
        let (callers, namespace) = (callers.clone(), namespace.to_owned());
        let mut asking: Asking = Box::pin(async move { callers.ask(&namespace, "p").await });
        assert!(poll(&mut asking).is_pending());
        asking
    }

    fn poll(asking: &mut Asking) -> Poll<Option<Arc<str>>> {
        asking
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The namespaces of the questions in the inbox, which are worked off.
    fn work_off(events: &mut mpsc::Receiver<Event>) -> Vec<String> {
        let mut namespaces = Vec::new();
        while let Ok(event) = events.try_recv() {
            let Event::Asked(pod, _, _) = event else {
                panic!("a question");
            };
            namespaces.extend(
                pod.split_once('/')
                    .map(|(namespace, _)| namespace.to_owned()),
            );
        }
        namespaces
    }

    #[test]
    fn who_asks_and_goes_without_end_has_few_places_until_they_are_worked_off() {
        let (inbox, callers, mut events) = Callers::with_inbox();
        for _ in 0..10_000 {
            // As a stream that is reset: nobody waits for the answer.
            drop(ask(&callers, "flood"));
        }
        assert_eq!(events.len(), NAMESPACE_QUESTIONS_MAX);
        let other = ask(&callers, "other");
        assert_eq!(events.len(), NAMESPACE_QUESTIONS_MAX + 1);
        let mut many: Vec<Asking> = Vec::new();
        for number in 0..100 {
            many.push(ask(&callers, &format!("n{number}")));
        }
        assert_eq!(events.len(), QUESTIONS_MAX);
        // A change finds room, and nobody stands before it.
        assert!(inbox.try_send(Event::Restate).is_ok());
        let mut asked = Vec::new();
        while let Ok(event) = events.try_recv() {
            asked.push(event);
        }
        assert_eq!(asked.len(), QUESTIONS_MAX + 1);
        drop(asked);
        // The places are free for those who waited, and for the first.
        for asking in &mut many {
            let _ = poll(asking);
        }
        let next = work_off(&mut events);
        assert_eq!(next.len(), QUESTIONS_MAX, "{next:?}");
        assert!(next.iter().all(|namespace| namespace.starts_with('n')));
        drop((many, other));
        drop(ask(&callers, "flood"));
        assert_eq!(work_off(&mut events), ["flood"]);
    }

    #[test]
    fn namespaces_of_which_nobody_asks_are_forgotten() {
        let (_inbox, callers, mut events) = Callers::with_inbox();
        for number in 0..100 * NAMESPACES_MIN {
            drop(ask(&callers, &format!("n{number}")));
            work_off(&mut events);
        }
        let own = callers.own.lock().expect("not poisoned");
        assert!(own.namespaces.len() <= NAMESPACES_MIN);
    }

    #[test]
    fn proxies_that_come_and_go_without_end_are_one_entry_of_their_view() {
        let (_inbox, callers, mut events) = Callers::with_inbox();
        for _ in 0..10_000 {
            callers.follow("a".into(), true);
            callers.follow("a".into(), false);
        }
        callers.follow("b".into(), true);
        assert!(events.try_recv().is_err(), "they take no place");
        let known = callers.followers().take();
        let known: Vec<(&str, i64)> = known.iter().map(|(view, it)| (&**view, *it)).collect();
        assert_eq!(known, [("a", 0), ("b", 1)]);
        assert!(callers.followers().take().is_empty());
    }
}
