//! Findings as Kubernetes Events (`events.k8s.io/v1`), so that `kubectl describe` shows them.
//!
//! Equal findings are one Event whose series counts. What is remembered and what waits is
//! bounded, namespaces take turns, and requests have a budget: an Event that is lost is still in
//! the console.

mod log;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Method;
use myriad_api::{Finding, Severity};
use myriad_base::backoff::random_seed;
use myriad_base::clock;
use myriad_base::metrics::Counter;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use self::log::{Due, Log};
use super::backoff::backoff;
use super::budget::Budget;
use super::client::{CallError, Client};
use super::lease::Claim;
use super::moment::micro_time;
use super::path;

/// The longest `note` that the API takes, in bytes.
const NOTE_BYTES_MAX: usize = 1_024;

/// `action`: what was done when it was found.
const ACTION: &str = "Translate";

/// Limits of the recorder.
#[derive(Clone, Debug)]
pub struct EventSettings {
    /// `reportingController`, a domain with a path, such as `myriad.dev/controller`.
    pub controller: String,
    /// `reportingInstance`: which process.
    pub instance: String,
    /// Events that are written per second.
    pub writes_per_second: f64,
    /// The most findings that are remembered in order to count them; of the namespace with most
    /// the one that was not seen for longest is forgotten first.
    pub remembered_max: usize,
}

/// Takes findings. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
}

/// Writes the findings that were taken.
pub struct Recorder {
    client: Client,
    claim: Claim,
    settings: EventSettings,
    shared: Arc<Shared>,
}

struct Shared {
    log: Mutex<Log>,
    wake: Notify,
    written: Counter,
}

impl Events {
    /// Records a finding about an object of the cluster; others have no place for an Event.
    pub fn record(&self, finding: &Finding) {
        self.shared.lock().record(finding, clock::since_epoch());
        self.shared.wake.notify_one();
    }

    /// Events that were written, counting those that only count on.
    pub fn written(&self) -> &Counter {
        &self.shared.written
    }
}

impl Recorder {
    /// A recorder that writes from [`Recorder::run`] on, and only while `claim` holds.
    pub fn new(client: Client, claim: Claim, settings: EventSettings) -> (Recorder, Events) {
        let shared = Arc::new(Shared {
            log: Mutex::new(Log::new(settings.remembered_max)),
            wake: Notify::new(),
            written: Counter::default(),
        });
        let recorder = Recorder {
            client,
            claim,
            settings,
            shared: shared.clone(),
        };
        (recorder, Events { shared })
    }

    /// Writes for ever. What is found while another process leads waits, within the bounds, for
    /// the end of its term; what that one told already has the same name and is not told again.
    pub async fn run(self) {
        let mut budget = Budget::new(self.settings.writes_per_second, clock::now());
        let mut backoff = backoff(random_seed());
        loop {
            if !self.shared.lock().has_due() {
                self.shared.wake.notified().await;
                continue;
            }
            if let Err(wait) = budget.take(clock::now()) {
                tokio::time::sleep(wait).await;
                continue;
            }
            let Some(due) = self.shared.lock().pop() else {
                continue;
            };
            if !self.claim.holds(clock::now()) {
                self.shared.lock().put_back(&due);
                self.claim.acquired().await;
                continue;
            }
            match self.write(&due).await {
                Ok(()) => {
                    self.shared.written.inc();
                    backoff.reset();
                }
                // The object is gone, and so is the reason to tell.
                Err(CallError::NotFound) => {}
                Err(error @ (CallError::Lost(_) | CallError::Busy { .. })) => {
                    self.shared.lock().put_back(&due);
                    let wait = backoff.fail().max(error.retry_after());
                    tokio::time::sleep(wait).await;
                }
                Err(error) => {
                    tracing::warn!(object = %due.object, %error, "an Event cannot be written");
                }
            }
        }
    }

    async fn write(&self, due: &Due) -> Result<(), CallError> {
        let namespace = match due.object.namespace() {
            "" => "default",
            namespace => namespace,
        };
        let namespace = path::escape(namespace);
        let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        if due.count > 1 {
            let patch = json!({"series": {
                "count": due.count,
                "lastObservedTime": micro_time(due.last_seen),
            }});
            let body = (
                "application/merge-patch+json",
                patch.to_string().into_bytes(),
            );
            let event = format!("{events}/{}", path::escape(&due.name()));
            match self.client.call(Method::PATCH, &event, Some(body)).await {
                // Events live for an hour; then the count starts anew.
                Err(CallError::NotFound) => {}
                done => return done.map(drop),
            }
        }
        let event = self.describe(due, self.read_uid(due).await?);
        let body = ("application/json", event.to_string().into_bytes());
        match self.client.call(Method::POST, &events, Some(body)).await {
            // A leader before us told the same.
            Err(CallError::Conflict) => Ok(()),
            done => done.map(drop),
        }
    }

    /// The UID of the object, by which `kubectl describe` finds its Events.
    async fn read_uid(&self, due: &Due) -> Result<Option<Box<str>>, CallError> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            uid: Box<str>,
        }
        let key = &due.object;
        let collection = self.client.collection(key.kind, Some(key.namespace()));
        let object = format!("{collection}/{}", path::escape(key.name()));
        match self.client.call(Method::GET, &object, None).await {
            Ok(body) => {
                let object = serde_json::from_slice::<Object>(&body).ok();
                Ok(object.map(|object| object.metadata.uid))
            }
            Err(CallError::Forbidden(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn describe(&self, due: &Due, uid: Option<Box<str>>) -> Value {
        let key = &due.object;
        let (event_type, reason) = match due.severity {
            Severity::Error => ("Warning", "NotInEffect"),
            Severity::Warning => ("Warning", "Doubtful"),
            Severity::Info => ("Normal", "Noted"),
        };
        let namespace = match key.namespace() {
            "" => "default",
            namespace => namespace,
        };
        let mut regarding = json!({
            "apiVersion": key.kind.api_version(),
            "kind": key.kind.as_str(),
            "name": key.name(),
            "uid": uid,
        });
        if !key.namespace().is_empty() {
            regarding["namespace"] = key.namespace().into();
        }
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": due.name(), "namespace": namespace},
            "eventTime": micro_time(due.last_seen),
            "reportingController": self.settings.controller,
            "reportingInstance": self.settings.instance,
            "action": ACTION,
            "reason": reason,
            "type": event_type,
            "note": shorten(&due.note),
            "regarding": regarding,
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSettings {
    /// The defaults for a process of this name.
    pub fn new(instance: impl Into<String>) -> Self {
        EventSettings {
            controller: "myriad.dev/controller".to_owned(),
            instance: instance.into(),
            writes_per_second: 10.0,
            remembered_max: 4_096,
        }
    }
}

/// The beginning of a text that the API takes.
fn shorten(text: &str) -> &str {
    text.get(..text.floor_char_boundary(NOTE_BYTES_MAX))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{NOTE_BYTES_MAX, shorten};

    #[test]
    fn notes_are_cut_between_characters() {
        assert_eq!(shorten("short"), "short");
        let long = "ä".repeat(600) + "b";
        assert_eq!(shorten(&long).len(), NOTE_BYTES_MAX);
        let odd = format!("b{}", "ä".repeat(600));
        assert_eq!(shorten(&odd).len(), NOTE_BYTES_MAX - 1);
    }
}
