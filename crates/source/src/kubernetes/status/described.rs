//! Statuses that are ours in part, of kinds whose objects several controllers may write: they are
//! described when they are written, so that what waits is only which objects to look at.
//!
//! Each write is computed from what the object shows ([`super::ours`]), and rests on the version
//! that was read. Namespaces take turns, the newest of each goes first, and requests have a budget.
//! A controller that begins to lead looks at all objects in lists, and writes what is wrong. Our
//! part of a status is written again where somebody else edits it ([`mending`]).

mod mending;
mod rounds;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};
use serde_json::{Value, json};

use self::mending::{Mender, Mends};
use self::rounds::{Page, Rounds};
use super::super::client::{CallError, Client};
use super::super::core::Failure;
use super::super::lease::Claim;
use super::super::moment::second_time;
use super::super::path;
use super::ours::{OwnStatus, StatusOwner, difference};
use super::schedule::Schedule;
use super::work::{Shared, StatusWork, Waiting, Written, work};
use super::{ATTEMPTS_MAX, StatusCounters};

/// Says what the status of an object shall be.
pub trait Describe: Send + Sync {
    /// The part of the status that is ours, as it shall be now. The object is looked at, so that
    /// it may be noted what it waits for.
    fn describe(&self, key: &ObjectKey) -> Description;

    /// The same for a comparison, on the threads of watches: nothing is noted.
    fn peek(&self, key: &ObjectKey) -> Description;
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
    /// How long an object waits of whose status somebody else has edited our part: twice as long
    /// each time that it is edited again soon after it was written.
    pub mend_after: Duration,
}

/// Takes which objects to look at. Cheap to clone.
#[derive(Clone)]
pub struct DescribedStatuses {
    shared: Arc<Shared<State>>,
}

/// Writes the statuses of the objects that it is told to look at.
pub struct DescribedWriter {
    client: Client,
    settings: DescribedSettings,
    describe: Arc<dyn Describe>,
    shared: Arc<Shared<State>>,
}

/// The objects to look at, and what is known of them.
pub(in crate::kubernetes::status) struct State {
    schedule: Schedule,
    /// The objects of which others have edited our part.
    mends: Mends,
    /// The lists that are still to be read, by who begins to lead.
    rounds: Option<Rounds>,
    /// Whether there was a review since this process began to lead: before, what there is to say
    /// may not be known, so that nothing that is shown is taken for an edit.
    is_open: bool,
}

impl DescribedStatuses {
    /// The status of an object may have to be another by this time.
    pub fn look(&self, key: ObjectKey, at: Instant) {
        let has_forgotten = self.shared.lock().schedule.look(key, at, clock::now());
        self.shared.note_forgotten(has_forgotten);
        self.shared.wake.notify_one();
    }

    /// All objects are to be compared with what they shall show: to be called by who begins to
    /// lead, once all that there is to say is known, and after [`DescribedStatuses::overflowed`].
    /// From the first review on, edits of others are seen.
    pub fn review(&self) {
        let mut state = self.shared.lock();
        state.rounds = Some(Rounds::default());
        state.is_open = true;
        drop(state);
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
    /// counts among `counters`, and looks at objects that watches of the client show.
    pub fn new(
        client: Client,
        claim: Claim,
        describe: Arc<dyn Describe>,
        settings: DescribedSettings,
        counters: StatusCounters,
    ) -> (DescribedWriter, DescribedStatuses) {
        let state = State {
            schedule: Schedule::new(settings.waiting_max),
            mends: Mends::new(settings.mend_after),
            rounds: None,
            is_open: false,
        };
        let shared = Arc::new(Shared::new(state, claim, counters));
        let mender = Mender {
            owner: settings.owner.clone(),
            describe: describe.clone(),
            shared: shared.clone(),
        };
        let edits = client.edits();
        edits.show_to(move |key, json| mender.look(key, json));
        let writer = DescribedWriter {
            client,
            settings,
            describe,
            shared: shared.clone(),
        };
        (writer, DescribedStatuses { shared })
    }

    /// Writes for ever. When leadership is lost, what waits is forgotten: the next leader knows
    /// better.
    pub async fn run(self) {
        work(&self, self.settings.writes_per_second).await;
    }
}

impl StatusWork for DescribedWriter {
    type Page = Page;
    type State = State;

    fn shared(&self) -> &Shared<State> {
        &self.shared
    }

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

    async fn read_page(&self, page: Page) -> Result<(), Failure> {
        let read = self.look_through(page).await;
        read.inspect_err(|failure| tracing::warn!(?failure, "statuses cannot be read"))
    }

    async fn write(&self, key: &ObjectKey, _is_edited: &bool) -> Result<Written, CallError> {
        let namespace = Some(key.namespace()).filter(|it| !it.is_empty());
        let collection = self.client.collection(key.kind, namespace);
        let object = format!("{collection}/{}", path::escape(key.name()));
        for _ in 0..ATTEMPTS_MAX {
            if !self.shared.claim.holds(clock::now()) {
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
            if !self.shared.claim.holds(clock::now()) {
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

    fn note_written(&self, key: ObjectKey, is_edited: bool) {
        if is_edited {
            self.shared.counters.mended.inc();
        }
        let now = clock::now();
        self.shared.lock().schedule.note_written(key, now);
    }
}

impl DescribedWriter {
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

impl Waiting for State {
    /// Whether somebody else has edited our part of the object's status.
    type Wish = bool;

    fn pop(&mut self) -> Option<(ObjectKey, bool)> {
        let key = self.schedule.pop()?;
        let is_edited = self.mends.take(&key);
        Some((key, is_edited))
    }

    fn next_wake(&self) -> Option<Instant> {
        self.schedule.next_wake()
    }

    fn rest(&mut self, key: ObjectKey, _is_edited: bool, now: Instant) {
        self.schedule.rest(key, now);
    }

    fn put_back(&mut self, key: ObjectKey, _is_edited: bool) {
        self.schedule.put_back(key);
    }

    fn forget(&mut self) {
        self.schedule.clear();
        self.mends.clear();
        self.rounds = None;
        self.is_open = false;
    }
}
