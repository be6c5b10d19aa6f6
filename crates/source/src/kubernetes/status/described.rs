//! Statuses that are ours in part, of kinds whose objects several controllers may write: they are
//! described when they are written, so that what waits is only which objects to look at.
//!
//! Each write is computed from what the object shows ([`super::ours`]), and rests on the version
//! that was read. Namespaces take turns, the newest of each goes first, and requests have a budget.
//! Who begins to lead looks at all objects in lists, and writes what is wrong.

mod rounds;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::backoff::random_seed;
use myriad_base::clock::{self, Instant};
use serde_json::{Value, json};
use tokio::sync::Notify;

use self::rounds::{Page, Rounds};
use super::super::backoff::backoff;
use super::super::budget::Budget;
use super::super::client::{CallError, Client};
use super::super::core::Failure;
use super::super::lease::Claim;
use super::super::moment::second_time;
use super::super::path;
use super::ours::{OwnStatus, StatusOwner, difference};
use super::schedule::Schedule;
use super::{ATTEMPTS_MAX, StatusCounters, Written};

/// Says what the status of an object shall be.
pub trait Describe: Send + Sync {
    /// The part of the status that is ours, as it shall be now.
    fn describe(&self, key: &ObjectKey) -> Description;
}

/// The part of a status that is ours.
#[derive(Clone, Debug, PartialEq)]
pub enum Description {
    /// This.
    Shown(OwnStatus),
    /// Nothing, so that what we have written goes.
    Nothing,
    /// Not known yet: it stays as it is, and the object will be looked at again.
    Later,
}

/// Limits of the writer, and who writes.
#[derive(Clone, Debug)]
pub struct DescribedSettings {
    /// The owner of our part.
    pub owner: StatusOwner,
    /// The kinds whose objects are looked at by who begins to lead.
    pub kinds: Vec<ObjectKind>,
    /// Objects that are looked at and, if need be, written per second.
    pub writes_per_second: f64,
    /// The most objects that wait; beyond it the oldest of the namespace that has most is
    /// forgotten, and counted.
    pub waiting_max: usize,
}

/// Takes which objects to look at. Cheap to clone.
#[derive(Clone)]
pub struct DescribedStatuses {
    shared: Arc<Shared>,
}

/// Writes the statuses of the objects that it is told to look at.
pub struct DescribedWriter {
    client: Client,
    claim: Claim,
    settings: DescribedSettings,
    describe: Arc<dyn Describe>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    wake: Notify,
    /// Wakes whoever has to begin a review, since something was forgotten.
    overflow: Notify,
    counters: StatusCounters,
}

struct State {
    schedule: Schedule,
    /// The lists that are still to be read, by who begins to lead.
    rounds: Option<Rounds>,
}

impl DescribedStatuses {
    /// The status of an object may have to be another by this time.
    pub fn look(&self, key: ObjectKey, at: Instant) {
        let has_forgotten = self.shared.lock().schedule.look(key, at, clock::now());
        self.shared.note_forgotten(has_forgotten);
        self.shared.wake.notify_one();
    }

    /// All objects are to be compared with what they shall show: to be called by who begins to
    /// lead, and after [`DescribedStatuses::overflowed`].
    pub fn review(&self) {
        self.shared.lock().rounds = Some(Rounds::default());
        self.shared.wake.notify_one();
    }

    /// Waits until something was forgotten because too many waited.
    pub async fn overflowed(&self) {
        self.shared.overflow.notified().await;
    }

    /// How many objects are to be looked at, and whether lists are read.
    pub fn waiting(&self) -> (usize, bool) {
        let state = self.shared.lock();
        (state.schedule.len(), state.rounds.is_some())
    }
}

impl DescribedWriter {
    /// A writer that writes from [`DescribedWriter::run`] on, and only while `claim` holds. It
    /// counts among `counters`.
    pub fn new(
        client: Client,
        claim: Claim,
        describe: Arc<dyn Describe>,
        settings: DescribedSettings,
        counters: StatusCounters,
    ) -> (DescribedWriter, DescribedStatuses) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                schedule: Schedule::new(settings.waiting_max),
                rounds: None,
            }),
            wake: Notify::new(),
            overflow: Notify::new(),
            counters,
        });
        let writer = DescribedWriter {
            client,
            claim,
            settings,
            describe,
            shared: shared.clone(),
        };
        (writer, DescribedStatuses { shared })
    }

    /// Writes for ever. When leadership is lost, what waits is forgotten: the next leader knows
    /// better.
    pub async fn run(self) {
        let mut budget = Budget::new(self.settings.writes_per_second, clock::now());
        let mut backoff = backoff(random_seed());
        let mut is_page_turn = true;
        loop {
            let (waiting, page) = self.next();
            if waiting == 0 && page.is_none() {
                self.wait().await;
                continue;
            }
            if let Err(wait) = budget.take(clock::now()) {
                tokio::time::sleep(wait).await;
                continue;
            }
            // Pages and writes take turns, so that a change does not wait for all pages.
            let page = page.filter(|_| is_page_turn || waiting == 0);
            is_page_turn = page.is_none();
            let wait = match page {
                Some(page) => self.read_page(page).await,
                None => self.write_next().await,
            };
            match wait {
                None => backoff.reset(),
                Some(wait) => tokio::time::sleep(backoff.fail().max(wait)).await,
            }
        }
    }

    /// Waits for an object to look at.
    async fn wait(&self) {
        let next = self.shared.lock().schedule.next_wake();
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shared.wake.notified() => {}
            () = due => {}
        }
    }

    /// How many objects are to be looked at now, and the page to read next, if there is room for
    /// what it may show.
    fn next(&self) -> (usize, Option<Page>) {
        let mut state = self.shared.lock();
        let has_forgotten = state.schedule.wake(clock::now());
        let waiting = state.schedule.ready();
        let has_room = state.schedule.len() <= self.settings.waiting_max / 2;
        let rounds = state.rounds.as_ref().filter(|_| has_room);
        let page = rounds.map(Rounds::page);
        drop(state);
        self.shared.note_forgotten(has_forgotten);
        (waiting, page)
    }

    /// Reads a page of a review. Returns how long to wait at least, if it failed.
    async fn read_page(&self, page: Page) -> Option<Duration> {
        if !self.claim.holds(clock::now()) {
            self.shared.lock().forget();
            return None;
        }
        let failure = self.look_through(page).await.err()?;
        tracing::warn!(?failure, "statuses cannot be read");
        match failure {
            Failure::Busy { after, .. } => Some(after),
            _ => Some(Duration::ZERO),
        }
    }

    /// Looks at the object whose turn it is. Returns how long to wait at least, if it failed.
    async fn write_next(&self) -> Option<Duration> {
        // Taken after the wait, so that the newest is the newest.
        let key = self.shared.lock().schedule.pop()?;
        let counters = &self.shared.counters;
        match self.write(&key).await {
            Ok(Written::Changed) => {
                counters.written.inc();
                let now = clock::now();
                self.shared.lock().schedule.note_written(key, now);
            }
            Ok(Written::Unchanged) => drop(counters.unchanged.inc()),
            Ok(Written::NotOurs) => self.shared.lock().forget(),
            // It is gone, or its kind is.
            Err(CallError::NotFound) => {}
            Err(error @ (CallError::Forbidden(_) | CallError::Rejected(_))) => {
                tracing::warn!(object = %key, %error, "the status cannot be written");
            }
            // Somebody writes this object time and again, which is nothing to others.
            Err(CallError::Conflict) => {
                let now = clock::now();
                self.shared.lock().schedule.rest(key, now);
            }
            Err(error @ (CallError::Lost(_) | CallError::Busy { .. })) => {
                self.shared.lock().schedule.put_back(key);
                return Some(error.retry_after());
            }
        }
        None
    }

    async fn write(&self, key: &ObjectKey) -> Result<Written, CallError> {
        let namespace = Some(key.namespace()).filter(|it| !it.is_empty());
        let collection = self.client.collection(key.kind, namespace);
        let object = format!("{collection}/{}", path::escape(key.name()));
        for _ in 0..ATTEMPTS_MAX {
            if !self.claim.holds(clock::now()) {
                return Ok(Written::NotOurs);
            }
            let wanted = match self.describe.describe(key) {
                Description::Shown(wanted) => Some(wanted),
                Description::Nothing => None,
                Description::Later => return Ok(Written::Unchanged),
            };
            let read = self.client.call(Method::GET, &object, None).await?;
            let read: Value = serde_json::from_slice(&read)
                .map_err(|_| CallError::Lost("the answer is not what the API promises".into()))?;
            let Some(status) = self.difference(key.kind, &read, wanted.as_ref()) else {
                return Ok(Written::Unchanged);
            };
            // Reading took time: ask again, directly before the write.
            if !self.claim.holds(clock::now()) {
                return Ok(Written::NotOurs);
            }
            let patch = json!({
                "metadata": {"resourceVersion": read["metadata"]["resourceVersion"]},
                "status": status,
            });
            let manager = &self.settings.owner.manager;
            let target = format!("{object}/status?fieldManager={}", path::escape(manager));
            let body = patch.to_string().into_bytes();
            let body = Some(("application/merge-patch+json", body));
            match self.client.call(Method::PATCH, &target, body).await {
                Ok(_) => return Ok(Written::Changed),
                Err(CallError::Conflict) => drop(self.shared.counters.conflicts.inc()),
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }

    /// The patch that makes the status of an object what it shall be.
    fn difference(
        &self,
        kind: ObjectKind,
        read: &Value,
        wanted: Option<&OwnStatus>,
    ) -> Option<Value> {
        let moment = second_time(clock::since_epoch());
        difference(kind, read, wanted, (&self.settings.owner, &moment))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_forgotten(&self, has_forgotten: bool) {
        if has_forgotten {
            self.counters.dropped.inc();
            self.overflow.notify_one();
        }
    }
}

impl State {
    /// Another one leads.
    fn forget(&mut self) {
        self.schedule.clear();
        self.rounds = None;
    }
}
