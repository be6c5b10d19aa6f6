//! Election of a leader: a Lease (`coordination.k8s.io/v1`) that one of several processes holds.
//!
//! The holder renews it every third of its duration, and stops to claim it two thirds after the
//! last renewal was *sent*. Others take it when they have not seen it change for the whole
//! duration. Both count on their own monotonic clocks, so wall clocks may be wrong, and the
//! monotonic ones may differ by a third. Every write carries the resourceVersion it rests on.

mod core;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use myriad_base::clock::{self, Instant};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use self::core::{Core, Record, Step, Write};
use super::client::{CallError, Client};
use super::moment::micro_time;
use super::path::escape;

/// The Lease, and the holder that this process would be.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of this process: unique among all that ever hold the Lease, so not the host alone.
    pub identity: String,
    /// How long others wait for a holder that is silent; at least 3 s, whole seconds.
    pub duration: Duration,
}

/// Whether this process leads. Cheap to clone; all clones say the same.
#[derive(Clone, Debug)]
pub struct Claim {
    term: Arc<watch::Sender<Term>>,
}

/// One term of leadership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term {
    /// Counts the times that leadership was acquired; 0 before the first.
    pub number: u64,
    /// When the claim ends unless it is renewed; none while another one leads.
    until: Option<Instant>,
}

/// Takes part in the election.
pub struct Elector {
    client: Client,
    settings: LeaseSettings,
    core: Core,
    claim: Claim,
}

impl Claim {
    /// A claim of nobody.
    pub fn new() -> Self {
        Claim {
            term: Arc::new(watch::Sender::new(Term::default())),
        }
    }

    /// Whether this process leads now. To be asked directly before every write.
    pub fn holds(&self, now: Instant) -> bool {
        self.term.borrow().until.is_some_and(|until| now < until)
    }

    /// How many terms have begun; 0 before the first.
    pub fn number(&self) -> u64 {
        self.term.borrow().number
    }

    /// The terms: a new number says that everything is to be written by us from now on.
    pub fn terms(&self) -> watch::Receiver<Term> {
        self.term.subscribe()
    }

    /// Waits until this process leads.
    pub async fn acquired(&self) {
        let leads = |term: &Term| term.until.is_some_and(|until| clock::now() < until);
        // The sender is ours, so it lives as long as this wait.
        let _ = self.terms().wait_for(leads).await;
    }

    /// Waits until this process does not lead.
    pub async fn lost(&self) {
        let mut terms = self.terms();
        loop {
            let until = terms.borrow_and_update().until;
            let Some(until) = until.filter(|until| clock::now() < *until) else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                // The sender is ours, so it lives as long as this wait.
                _ = terms.changed() => {}
            }
        }
    }

    /// Sets until when it holds, as far as is known.
    pub(super) fn set(&self, until: Option<Instant>, now: Instant) {
        let did_hold = self.holds(now);
        self.term.send_if_modified(|term| {
            let is_changed = term.until != until;
            term.until = until;
            if until.is_some_and(|until| now < until) && !did_hold {
                term.number += 1;
            }
            is_changed
        });
    }
}

impl Default for Claim {
    fn default() -> Self {
        Claim::new()
    }
}

impl Elector {
    /// Takes part from [`Elector::run`] on.
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        let duration = settings.duration.max(Duration::from_secs(3));
        Elector {
            client,
            core: Core::new(settings.identity.clone(), duration),
            settings,
            claim: Claim::new(),
        }
    }

    /// The outcome of the election so far.
    pub fn claim(&self) -> Claim {
        self.claim.clone()
    }

    /// Takes part until `stop` is over, then gives the Lease back, so that nobody has to wait.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = self.step() => {}
            }
        }
        let now = clock::now();
        self.claim.set(None, now);
        if let Some(write) = self.core.release(now)
            && let Err(error) = self.write(&write).await
        {
            tracing::info!(%error, "the Lease was not given back and runs out");
        }
    }

    async fn step(&mut self) {
        match self.core.step(clock::now()) {
            Step::Wait(wait) => tokio::time::sleep(wait).await,
            Step::Read => {
                let read = self.read().await;
                if let Err(error) = &read {
                    tracing::debug!(%error, "the Lease cannot be read");
                }
                self.core.read(clock::now(), read.map_err(drop));
            }
            Step::Write(write) => {
                let sent_at = clock::now();
                let written = self.write(&write).await;
                if let Err(error) = &written {
                    tracing::debug!(%error, "the Lease cannot be written");
                }
                self.core.wrote(sent_at, clock::now(), written);
            }
        }
        let now = clock::now();
        self.claim.set(self.core.leads_until(), now);
    }

    async fn read(&self) -> Result<Option<Record>, CallError> {
        let path = format!("{}/{}", self.collection(), escape(&self.settings.name));
        match self.client.call(Method::GET, &path, None).await {
            Ok(body) => parse(&body).map(Some),
            Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, write: &Write) -> Result<Record, CallError> {
        let now = micro_time(clock::since_epoch());
        let mut spec = json!({
            "holderIdentity": write.holder,
            "leaseDurationSeconds": write.duration.as_secs(),
            "leaseTransitions": write.transitions,
            "renewTime": now,
        });
        if write.is_acquired {
            spec["acquireTime"] = now.into();
        }
        let collection = self.collection();
        let name = &self.settings.name;
        let answer = match &write.version {
            Some(version) => {
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
                let body = (
                    "application/merge-patch+json",
                    patch.to_string().into_bytes(),
                );
                let path = format!("{collection}/{}", escape(name));
                self.client.call(Method::PATCH, &path, Some(body)).await?
            }
            None => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": name, "namespace": self.settings.namespace},
                    "spec": spec,
                });
                let body = ("application/json", lease.to_string().into_bytes());
                self.client
                    .call(Method::POST, &collection, Some(body))
                    .await?
            }
        };
        parse(&answer)
    }

    fn collection(&self) -> String {
        let namespace = escape(&self.settings.namespace);
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }
}

fn parse(body: &[u8]) -> Result<Record, CallError> {
    #[derive(Deserialize)]
    struct Lease {
        metadata: Metadata,
        #[serde(default)]
        spec: Option<Spec>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: Box<str>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec {
        holder_identity: Option<Box<str>>,
        lease_duration_seconds: Option<u32>,
        lease_transitions: Option<u32>,
    }
    let lease: Lease = serde_json::from_slice(body)
        .map_err(|_| CallError::Lost("the answer is no Lease".to_owned()))?;
    let spec = lease.spec.unwrap_or_default();
    Ok(Record {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).into()),
        transitions: spec.lease_transitions.unwrap_or(0),
        version: lease.metadata.resource_version,
    })
}
