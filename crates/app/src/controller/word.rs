//! The words that go back to people: the address of an Ingress in its status, and findings as
//! Events. One replica leads and writes; all of them know what there is to write.

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::drain::Drain;
use myriad_base::metrics::Metrics;
use myriad_base::{clock, task};
use myriad_source::kubernetes::Client;
use myriad_source::kubernetes::events::{self, Events, Recorder};
use myriad_source::kubernetes::lease::{self, Claim, Elector, Term};
use myriad_source::kubernetes::status::{self, StatusCounters, Statuses, Writer};
use myriad_translate::FindingsChange;
use tokio::sync::{mpsc, watch};

use super::published::{AddressKeeper, Published};
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

/// Takes what there is to say.
#[derive(Clone)]
pub(super) struct Word {
    statuses: Statuses,
    events: Events,
    /// The addresses of the proxies.
    addresses: watch::Receiver<Published>,
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
        let (published, addresses) = watch::channel(Published::default());
        let drained = drain.holder();
        drop(task::spawn("election", async move {
            elector.run(drained.signalled()).await;
        }));
        drop(task::spawn("statuses", writer.run()));
        drop(task::spawn("events", recorder.run()));
        drop(task::spawn("terms", restate(claim.terms(), inbox.clone())));
        let forgotten = restate_forgotten(statuses.clone(), inbox.clone());
        drop(task::spawn("forgotten statuses", forgotten));
        if let Some(service) = settings.publish_service.clone() {
            let keeper = AddressKeeper {
                client: client.clone(),
                service,
                published,
                inbox: inbox.clone(),
            };
            drop(task::spawn("addresses", keeper.keep()));
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

    /// The addresses of the proxies.
    pub(super) fn addresses(&self) -> watch::Receiver<Published> {
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

    /// Says where Ingresses are served. Until that has been looked up, and while there is no
    /// Service, there is nothing to say; if it is nowhere, what was said before is taken back.
    pub(super) fn state<'a>(&self, served: impl IntoIterator<Item = &'a Arc<str>>) {
        let Some(addresses) = self.addresses.borrow().addresses() else {
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
        let Some(addresses) = self.addresses.borrow().addresses() else {
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

/// Tells the control loop to state everything once more whenever statuses were forgotten.
async fn restate_forgotten(statuses: Statuses, inbox: mpsc::Sender<Event>) {
    loop {
        statuses.overflowed().await;
        if inbox.send(Event::Restate).await.is_err() {
            return;
        }
    }
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
