//! Addresses in `status.loadBalancer` of Ingresses, conditions of our own kinds, and our part of
//! the statuses of Gateway API, written by the one who leads.
//!
//! Each write of an address is a server-side apply by a field manager of this installation, so that
//! others in the cluster keep what is theirs, and carries the resourceVersion it was computed from;
//! when somebody else was faster the object is read again. Waiting writes are bounded, namespaces
//! take turns, the newest of each is served first, and requests have a budget. Who begins to lead
//! reads what there is, and writes what is wrong.

mod condition;
pub mod described;
pub(super) mod edits;
pub mod ours;
mod queue;
mod review;
mod schedule;
mod work;

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Counter, Metrics};
use serde::Deserialize;
use serde_json::json;

pub use self::condition::Condition;
use self::queue::Queue;
use self::review::Review;
use self::work::{Shared, StatusWork, Waiting, Written, work};
use super::client::{CallError, Client};
use super::core::Failure;
use super::lease::Claim;
use super::path;

/// The owner of the fields that are written (`metadata.managedFields`).
pub const FIELD_MANAGER: &str = "myriad";

/// How often an object is read again because somebody else wrote it meanwhile.
const ATTEMPTS_MAX: u32 = 5;

/// Limits of the writer.
#[derive(Clone, Debug)]
pub struct StatusSettings {
    /// Objects that are looked at and, if need be, written per second.
    pub writes_per_second: f64,
    /// The field manager that owns what is written: of this installation and no other, since what
    /// it owns where nothing is served is taken back.
    pub manager: Box<str>,
    /// The most objects that wait; beyond it the oldest of the namespace that has most is
    /// forgotten, and counted.
    pub waiting_max: usize,
}

/// The address where traffic for an Ingress arrives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// `ip`.
    Ip(IpAddr),
    /// `hostname`.
    Hostname(Box<str>),
}

/// How much was done. Cheap to clone; clones count together.
#[derive(Clone, Default)]
pub struct StatusCounters {
    /// Statuses that were written.
    pub written: Counter,
    /// Statuses that were right already.
    pub unchanged: Counter,
    /// Writes that somebody else's write came before.
    pub conflicts: Counter,
    /// Objects that were forgotten because too many waited.
    pub dropped: Counter,
    /// Statuses that were read in lists, by who begins to lead.
    pub reviewed: Counter,
    /// Statuses that were written again, since somebody else had edited our part of them.
    pub mended: Counter,
}

/// Takes what is to be written. Cheap to clone.
#[derive(Clone)]
pub struct Statuses {
    shared: Arc<Shared<State>>,
}

/// Writes what was taken.
pub struct Writer {
    client: Client,
    settings: StatusSettings,
    shared: Arc<Shared<State>>,
}

struct State {
    queue: Queue<Arc<[Address]>>,
    review: Option<Review>,
}

impl Statuses {
    /// The Ingress shall show these addresses; a newer wish for it replaces an older one. No
    /// address means that it is not served any more: what we have written goes, and what others
    /// have written since stays.
    pub fn set(&self, ingress: ObjectKey, addresses: Arc<[Address]>) {
        if ingress.kind != ObjectKind::Ingress {
            return;
        }
        let mut state = self.shared.lock();
        if let Some(review) = &mut state.review {
            review.note(&ingress, &addresses);
        }
        let has_forgotten = state.queue.push(ingress, addresses);
        drop(state);
        self.shared.note_forgotten(has_forgotten);
        self.shared.wake.notify_one();
    }

    /// These Ingresses are served at these addresses, and no others are. What the API server has
    /// is compared with that, and what differs is written: to be called by who begins to lead, and
    /// after [`Statuses::overflowed`].
    pub fn review(&self, served: impl IntoIterator<Item = Arc<str>>, addresses: Arc<[Address]>) {
        let review = Review::new(served.into_iter().collect(), addresses);
        self.shared.lock().review = Some(review);
        self.shared.wake.notify_one();
    }

    /// Waits until something was forgotten because too many waited.
    pub async fn overflowed(&self) {
        self.shared.overflow.notified().await;
    }

    /// How many Ingresses wait.
    pub fn waiting(&self) -> usize {
        let state = self.shared.lock();
        state.queue.len() + state.queue.resting()
    }

    /// The work done so far.
    pub fn counters(&self) -> &StatusCounters {
        &self.shared.counters
    }
}

impl Writer {
    /// A writer that writes from [`Writer::run`] on, and only while `claim` holds.
    pub fn new(client: Client, claim: Claim, settings: StatusSettings) -> (Writer, Statuses) {
        let state = State {
            queue: Queue::new(settings.waiting_max),
            review: None,
        };
        let shared = Arc::new(Shared::new(state, claim, StatusCounters::default()));
        let writer = Writer {
            client,
            settings,
            shared: shared.clone(),
        };
        (writer, Statuses { shared })
    }

    /// Writes for ever. When leadership is lost, what waits is forgotten: the next leader knows
    /// better. Who begins a term ([`Claim::terms`]) calls [`Statuses::review`].
    pub async fn run(self) {
        work(&self, self.settings.writes_per_second).await;
    }
}

impl StatusWork for Writer {
    type Page = review::Page;
    type State = State;

    fn shared(&self) -> &Shared<State> {
        &self.shared
    }

    fn next(&self) -> (usize, Option<review::Page>) {
        let mut state = self.shared.lock();
        state.queue.wake(clock::now());
        let waiting = state.queue.len();
        let has_room = waiting <= self.settings.waiting_max / 2;
        let review = state.review.as_ref().filter(|_| has_room);
        (waiting, review.map(Review::page))
    }

    async fn read_page(&self, page: review::Page) -> Result<(), Failure> {
        let manager = &self.settings.manager;
        let read = review::read(&self.client, &self.shared, manager, page).await;
        read.inspect_err(|failure| {
            tracing::warn!(?failure, "the statuses of Ingresses cannot be read");
        })
    }

    async fn write(&self, key: &ObjectKey, wanted: &Arc<[Address]>) -> Result<Written, CallError> {
        let manager = &self.settings.manager;
        let collection = self.client.collection(key.kind, Some(key.namespace()));
        let object = format!("{collection}/{}", path::escape(key.name()));
        for _ in 0..ATTEMPTS_MAX {
            if !self.shared.claim.holds(clock::now()) {
                return Ok(Written::NotOurs);
            }
            let read = self.client.call(Method::GET, &object, None).await?;
            let current = parse(&read)?;
            if current.has(wanted) || (wanted.is_empty() && !current.is_of(manager)) {
                return Ok(Written::Unchanged);
            }
            let patch = patch(key, &current, wanted);
            let mut target = format!("{object}/status?fieldManager={manager}");
            // What is given up is not taken from somebody else.
            target.push_str(if wanted.is_empty() { "" } else { "&force=true" });
            // Reading took time: ask again, directly before the write.
            if !self.shared.claim.holds(clock::now()) {
                return Ok(Written::NotOurs);
            }
            let body = Some(("application/apply-patch+yaml", patch));
            match self.client.call(Method::PATCH, &target, body).await {
                Ok(_) => return Ok(Written::Changed),
                Err(CallError::Conflict) => {
                    self.shared.counters.conflicts.inc();
                }
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }
}

impl Waiting for State {
    /// The addresses that the object shall show.
    type Wish = Arc<[Address]>;

    /// The object that was wished for last in the namespace whose turn it is.
    fn pop(&mut self) -> Option<(ObjectKey, Arc<[Address]>)> {
        self.queue.pop()
    }

    fn next_wake(&self) -> Option<Instant> {
        self.queue.next_wake()
    }

    fn rest(&mut self, key: ObjectKey, addresses: Arc<[Address]>, now: Instant) {
        self.queue.rest(key, addresses, now);
    }

    fn put_back(&mut self, key: ObjectKey, addresses: Arc<[Address]>) {
        self.queue.put_back(key, addresses);
    }

    fn forget(&mut self) {
        self.queue.clear();
        self.review = None;
    }
}

impl StatusCounters {
    /// Shows the counters among the metrics of the process.
    pub fn register(&self, metrics: &Metrics) {
        let counters = [
            (
                "status_written",
                "Statuses that were written",
                &self.written,
            ),
            (
                "status_unchanged",
                "Statuses that were right already",
                &self.unchanged,
            ),
            (
                "status_conflicts",
                "Status writes that came too late",
                &self.conflicts,
            ),
            (
                "status_dropped",
                "Statuses forgotten because too many waited",
                &self.dropped,
            ),
            (
                "status_reviewed",
                "Statuses read by a controller that begins to lead",
                &self.reviewed,
            ),
            (
                "status_mended",
                "Statuses written again after somebody else had edited them",
                &self.mended,
            ),
        ];
        for (name, help, counter) in counters {
            metrics.register(name, help, counter.clone());
        }
    }
}

impl Default for StatusSettings {
    fn default() -> Self {
        StatusSettings {
            writes_per_second: 50.0,
            waiting_max: 100_000,
            manager: FIELD_MANAGER.into(),
        }
    }
}

/// The fields of an Ingress that are read before its status is written.
#[derive(Deserialize)]
struct Current {
    metadata: Metadata,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Box<str>,
    resource_version: Box<str>,
    #[serde(default)]
    managed_fields: Vec<Managed>,
}

/// An entry of `metadata.managedFields`: an owner of fields.
#[derive(Deserialize)]
struct Managed {
    #[serde(default)]
    manager: Box<str>,
    #[serde(default)]
    subresource: Box<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    load_balancer: Option<LoadBalancer>,
}

#[derive(Deserialize)]
struct LoadBalancer {
    #[serde(default)]
    ingress: Option<Vec<Shown>>,
}

#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    ip: Option<Box<str>>,
    #[serde(default)]
    hostname: Option<Box<str>>,
}

impl Current {
    /// Whether a field manager owns any of its status.
    fn is_of(&self, manager: &str) -> bool {
        let mut managed = self.metadata.managed_fields.iter();
        managed.any(|it| &*it.manager == manager && &*it.subresource == "status")
    }

    fn has(&self, wanted: &[Address]) -> bool {
        let balancer = self
            .status
            .as_ref()
            .and_then(|status| status.load_balancer.as_ref());
        let shown = balancer
            .and_then(|balancer| balancer.ingress.as_deref())
            .unwrap_or_default();
        shown.len() == wanted.len()
            && shown
                .iter()
                .zip(wanted)
                .all(|(shown, wanted)| match wanted {
                    Address::Ip(ip) => {
                        let text = shown.ip.as_deref().unwrap_or_default();
                        text.parse() == Ok(*ip) && shown.hostname.is_none()
                    }
                    Address::Hostname(name) => {
                        shown.hostname.as_ref() == Some(name) && shown.ip.is_none()
                    }
                })
    }
}

fn parse(body: &[u8]) -> Result<Current, CallError> {
    serde_json::from_slice(body)
        .map_err(|_| CallError::Lost("the answer is not what the API promises".to_owned()))
}

/// JSON is YAML, so this is a patch for server-side apply.
fn patch(key: &ObjectKey, current: &Current, wanted: &[Address]) -> Vec<u8> {
    let entry = |address: &Address| match address {
        Address::Ip(ip) => json!({"ip": ip}),
        Address::Hostname(name) => json!({"hostname": name}),
    };
    let entries: Vec<_> = wanted.iter().map(entry).collect();
    // A field that its owner does not apply any more goes, unless somebody else owns it too.
    let status = match entries.is_empty() {
        true => json!({}),
        false => json!({"loadBalancer": {"ingress": entries}}),
    };
    let patch = json!({
        "apiVersion": key.kind.api_version(),
        "kind": key.kind.as_str(),
        "metadata": {
            "name": key.name(),
            "namespace": key.namespace(),
            "uid": current.metadata.uid,
            "resourceVersion": current.metadata.resource_version,
        },
        "status": status,
    });
    patch.to_string().into_bytes()
}
