//! The words that go back to people: the address of an Ingress in its status, and findings as
//! Events. One replica leads and writes; all of them know what there is to write.

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::drain::Drain;
use myriad_base::metrics::Metrics;
use myriad_base::{clock, task};
use myriad_source::kubernetes::events::{self, Events, Recorder};
use myriad_source::kubernetes::lease::{self, Claim, Elector, Term};
use myriad_source::kubernetes::status::{self, Address, StatusCounters, Statuses, Writer};
use myriad_source::kubernetes::{CallError, Client};
use myriad_translate::FindingsChange;
use tokio::sync::{mpsc, watch};

use crate::control::Event;
use crate::process::random_key;
use crate::settings::Controller;

/// The Lease that the leader holds.
const LEASE_NAME: &str = "myriad";

/// How long others wait for a leader that is silent.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Events written per second: they cost etcd as much as objects do.
const EVENTS_PER_SECOND: f64 = 10.0;

/// Findings that are remembered in order to count instead of repeating them.
const EVENTS_REMEMBERED_MAX: usize = 10_000;

/// How often the address of the proxies is looked up.
const ADDRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Takes what there is to say.
#[derive(Clone)]
pub(super) struct Word {
    statuses: Statuses,
    events: Events,
    /// The addresses; none before they have been looked up.
    addresses: watch::Receiver<Option<Arc<[Address]>>>,
    leads: Claim,
    /// The name of this process among all that may lead.
    identity: String,
}

impl Word {
    /// Takes part in the election, and writes while this process leads. A new term and a new
    /// address put [`Event::Restate`] into the inbox.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(super) fn start(
        client: &Client,
        settings: &Controller,
        inbox: &mpsc::Sender<Event>,
        metrics: &Metrics,
        drain: &Drain,
    ) -> anyhow::Result<Word> {
        let random = random_key()?;
        let suffix = u64::from_be_bytes(std::array::from_fn(|at| random[at]));
        let instance = crate::process::host_name();
        let identity = format!("{instance}-{suffix:016x}");
        let elector = Elector::new(
            client.clone(),
            lease::LeaseSettings {
                namespace: settings.namespace.clone(),
                name: LEASE_NAME.to_owned(),
                identity: identity.clone(),
                duration: LEASE_DURATION,
            },
        );
        let claim = elector.claim();
        let limits = status::StatusSettings {
            manager: manager(settings),
            ..status::StatusSettings::default()
        };
        let (writer, statuses) = Writer::new(client.clone(), claim.clone(), limits);
        statuses.counters().register(metrics);
        let (recorder, events) = Recorder::new(
            client.clone(),
            claim.clone(),
            events::EventSettings {
                controller: "myriad.dev/controller".to_owned(),
                instance,
                writes_per_second: EVENTS_PER_SECOND,
                remembered_max: EVENTS_REMEMBERED_MAX,
            },
        );
        let help = "Events written, counting those that only count on";
        metrics.register("kubernetes_events_written", help, events.written().clone());
        let leads = claim.clone();
        let (found, addresses) = watch::channel(None);
        let drained = drain.holder();
        drop(task::spawn("election", async move {
            elector.run(drained.signalled()).await;
        }));
        drop(task::spawn("statuses", writer.run()));
        drop(task::spawn("events", recorder.run()));
        drop(task::spawn("terms", restate(claim.terms(), inbox.clone())));
        let (forgetful, told) = (statuses.clone(), inbox.clone());
        drop(task::spawn("forgotten statuses", async move {
            loop {
                forgetful.overflowed().await;
                if told.send(Event::Restate).await.is_err() {
                    return;
                }
            }
        }));
        if let Some((namespace, name)) = settings.publish_service.clone() {
            let look = look_up(client.clone(), namespace, name, found, inbox.clone());
            drop(task::spawn("addresses", look));
        }
        Ok(Word {
            statuses,
            events,
            addresses,
            leads,
            identity,
        })
    }

    /// The name of this process among all that may lead.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// The Events, for who tells of other things than findings.
    pub(super) fn events(&self) -> Events {
        self.events.clone()
    }

    /// The addresses of the proxies; none before they have been looked up.
    pub(super) fn addresses(&self) -> watch::Receiver<Option<Arc<[Address]>>> {
        self.addresses.clone()
    }

    /// The work done on statuses so far.
    pub(super) fn counters(&self) -> StatusCounters {
        self.statuses.counters().clone()
    }

    /// Whether this process leads.
    pub(super) fn leads(&self) -> Claim {
        self.leads.clone()
    }

    /// Records findings that are new.
    pub(super) fn tell(&self, findings: &FindingsChange) {
        for finding in &findings.added {
            self.events.record(finding);
        }
    }

    /// Says where Ingresses are served. Until that has been looked up there is nothing to say;
    /// if it is nowhere, what was said before is taken back.
    pub(super) fn state<'a>(&self, served: impl IntoIterator<Item = &'a Arc<str>>) {
        let Some(addresses) = self.addresses.borrow().clone() else {
            return;
        };
        // Who begins to lead reviews everything.
        if !self.leads.holds(clock::now()) {
            return;
        }
        for id in served {
            let key = ObjectKey::from_id(ObjectKind::Ingress, id.clone());
            self.statuses.set(key, addresses.clone());
        }
    }

    /// Lets all statuses be compared with what is served now, and what differs be written.
    pub(super) fn review<'a>(&self, served: impl IntoIterator<Item = &'a Arc<str>>) {
        let Some(addresses) = self.addresses.borrow().clone() else {
            return;
        };
        if self.leads.holds(clock::now()) {
            self.statuses.review(served.into_iter().cloned(), addresses);
        }
    }

    /// Takes back what was said of Ingresses that are not served any more.
    pub(super) fn take_back(&self, unserved: &[Arc<str>]) {
        if !self.leads.holds(clock::now()) {
            return;
        }
        for id in unserved {
            let key = ObjectKey::from_id(ObjectKind::Ingress, id.clone());
            self.statuses.set(key, Arc::default());
        }
    }
}

/// The field manager of this installation. One is in a namespace, as its Lease is.
pub(super) fn manager(settings: &Controller) -> Box<str> {
    format!("{}-{}", status::FIELD_MANAGER, settings.namespace).into()
}

/// Asks for everything anew whenever this process begins to lead.
async fn restate(mut terms: watch::Receiver<Term>, inbox: mpsc::Sender<Event>) {
    let mut known = 0;
    loop {
        let began = terms.wait_for(|term| term.number > known).await;
        let Ok(number) = began.map(|term| term.number) else {
            return;
        };
        known = number;
        tracing::info!(term = known, "this controller leads");
        if inbox.send(Event::Restate).await.is_err() {
            return;
        }
    }
}

/// Follows the address under which the proxies' Service is reached.
async fn look_up(
    client: Client,
    namespace: String,
    name: String,
    found: watch::Sender<Option<Arc<[Address]>>>,
    inbox: mpsc::Sender<Event>,
) {
    loop {
        match client.load_balancer(&namespace, &name).await {
            Ok(mut addresses) => {
                addresses.sort();
                let is_new = found.send_if_modified(|known| {
                    let is_new = known.as_deref() != Some(&*addresses);
                    *known = Some(addresses.into());
                    is_new
                });
                if is_new && inbox.send(Event::Restate).await.is_err() {
                    return;
                }
            }
            Err(CallError::NotFound) => {}
            Err(error) => tracing::warn!(%error, "--publish-service cannot be read"),
        }
        tokio::time::sleep(ADDRESS_INTERVAL).await;
    }
}
