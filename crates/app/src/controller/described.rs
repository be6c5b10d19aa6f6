//! Our part of the statuses of objects of Gateway API, and what is told of objects that are served.
//!
//! Translation states what holds wherever proxies run. Here are added the addresses of Gateways,
//! and whether an object is live: whether all ready proxies serve it as it is.

mod address;
mod portrait;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use myriad_api::gateway::status::{GatewayStatus, ParentStatus, State, Status};
use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_source::kubernetes::events::Events;
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::status::described::{
    Describe, DescribedSettings, DescribedStatuses, DescribedWriter, Description,
};
use myriad_source::kubernetes::status::ours::{OwnEntry, OwnForm, OwnStatus, StatusOwner};
use myriad_source::kubernetes::status::{Address, StatusCounters};
use myriad_source::kubernetes::{Client, second_time};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use self::portrait::{CONDITIONS, LiveWord};
use super::annotations::LiveAnnotations;
use super::deployments::Installations;
use super::obstacle::Obstacle;
use super::peers::{AwaitedObject, GRACE, Peers};
use crate::dedicated::{DEDICATED_OF_NAMESPACE_MAX, namespace_of_view};
use crate::live::{Live, ProxyGroup, Served};
use crate::stated::{StatedChange, StatedStatuses, is_accepted};

/// How long a status is held back that has changed, since what follows comes in a moment: above all
/// that the object is live.
const COALESCE: Duration = Duration::from_millis(250);

/// Objects that are looked at and, if need be, written per second.
const WRITES_PER_SECOND: f64 = 50.0;

/// The most objects that wait for that.
const WAITING_MAX: usize = 200_000;

/// The kinds that show a status of ours, in the order in which they are looked at by who begins to
/// lead: few that matter to many go first.
const KINDS: [ObjectKind; 9] = [
    ObjectKind::GatewayClass,
    ObjectKind::Gateway,
    ObjectKind::ListenerSet,
    ObjectKind::BackendTlsPolicy,
    ObjectKind::HttpRoute,
    ObjectKind::GrpcRoute,
    ObjectKind::TlsRoute,
    ObjectKind::TcpRoute,
    ObjectKind::UdpRoute,
];

/// The addresses of the proxies of all; none before they have been looked up.
pub(super) type SharedAddresses = watch::Receiver<Option<Arc<[Address]>>>;

/// Describes statuses as they are known here.
#[derive(Clone)]
pub(super) struct Described {
    pub stated: StatedStatuses,
    pub live: Live,
    pub peers: Peers,
    /// The addresses of the shared proxies; absent where no Service of theirs is published.
    pub shared: Option<SharedAddresses>,
    /// The proxies of single Gateways; absent where none are made.
    pub installed: Option<Installations>,
}

/// Takes what there is to say of objects. Cheap to clone.
#[derive(Clone)]
pub(super) struct ObjectWord {
    statuses: DescribedStatuses,
    leads: Claim,
    installed: Option<Installations>,
    /// Wakes whoever reads all statuses.
    review: Arc<Notify>,
    /// The term that was seen last, and when it began.
    term: Arc<Mutex<(u64, Option<Instant>)>>,
}

/// The parts of the process that it needs.
pub(super) struct ObjectParts {
    pub client: Client,
    pub leads: Claim,
    pub described: Described,
    /// The name of this controller in classes and entries, and the field manager.
    pub controller: Box<str>,
    pub manager: Box<str>,
    pub events: Events,
    /// Where Ingresses are told to be annotated; none where they are not.
    pub annotations: Option<LiveAnnotations>,
    pub counters: StatusCounters,
}

impl Describe for Described {
    fn describe(&self, key: &ObjectKey) -> Description {
        self.peers.let_go(key);
        let Some(status) = self.stated.get(key) else {
            return Description::Nothing;
        };
        let form = match &status.state {
            State::Class(class) => {
                let features = class.supported_features.iter();
                let features: Value = features.map(|name| json!({ "name": name })).collect();
                OwnForm::Whole {
                    conditions: portrait::conditions(&class.conditions),
                    fields: vec![("supportedFeatures", features)],
                    sections: None,
                }
            }
            State::Gateway(gateway) => match self.gateway(&status, gateway) {
                Some(form) => form,
                None => return Description::Later,
            },
            State::ListenerSet(set) => {
                let mut conditions = portrait::conditions(&set.conditions);
                let word = self.word(&status, None, is_accepted(&set.conditions));
                conditions.push(portrait::live(&word, clock::since_epoch()));
                OwnForm::Whole {
                    conditions,
                    fields: Vec::new(),
                    sections: Some(portrait::sections(&set.listeners)),
                }
            }
            State::Route(route) => {
                let parents = route.parents.iter().enumerate();
                let entry = |(at, parent): (usize, &ParentStatus)| self.parent(&status, at, parent);
                OwnForm::Listed(parents.map(entry).collect())
            }
            State::Policy(policy) => {
                let entries = policy.ancestors.iter().map(|it| OwnEntry {
                    subject: portrait::reference(&it.parent),
                    conditions: portrait::conditions(&it.conditions),
                });
                OwnForm::Listed(entries.collect())
            }
        };
        let generation = status.generation;
        Description::Shown(OwnStatus { generation, form })
    }
}

impl Described {
    /// The status of a Gateway; none while its addresses are not known.
    fn gateway(&self, status: &Status, gateway: &GatewayStatus) -> Option<OwnForm> {
        let (there, obstacle) = match &gateway.deployment {
            None => (self.shared_addresses()?, None),
            Some(_) => self.own_addresses(status.object.id())?,
        };
        let (shown, unassigned) = address::assign(&gateway.addresses, &there);
        let obstacle = obstacle.or(unassigned);
        let mut conditions = portrait::hindered(&gateway.conditions, obstacle.as_ref());
        let word = self.word(status, None, is_accepted(&gateway.conditions));
        conditions.push(portrait::live(&word, clock::since_epoch()));
        let installed = self
            .installed
            .as_ref()
            .filter(|_| gateway.deployment.is_some());
        let installation = installed.and_then(|it| it.get(status.object.id()));
        conditions.extend(installation.and_then(|it| portrait::refused(&it.refused)));
        Some(OwnForm::Whole {
            conditions,
            fields: vec![
                ("addresses", address::field(&shown)),
                (
                    "attachedListenerSets",
                    gateway.attached_listener_sets.into(),
                ),
            ],
            sections: Some(portrait::sections(&gateway.listeners)),
        })
    }

    fn shared_addresses(&self) -> Option<Arc<[Address]>> {
        match &self.shared {
            Some(addresses) => addresses.borrow().clone(),
            None => Some(Arc::default()),
        }
    }

    /// The addresses of a Gateway with proxies of its own, and why there are none.
    fn own_addresses(&self, id: &Arc<str>) -> Option<(Arc<[Address]>, Option<Obstacle>)> {
        let Some(installed) = &self.installed else {
            let message = "proxies of its own are not made here: see gatewayApi.deployments of \
                           the chart";
            return Some((Arc::default(), Some(Obstacle::new("NoResources", message))));
        };
        if !self.stated.has_view(id) {
            let message = format!(
                "there is no room for its proxies: a namespace has {DEDICATED_OF_NAMESPACE_MAX} \
                 Gateways with proxies of their own at most"
            );
            return Some((Arc::default(), Some(Obstacle::new("NoResources", message))));
        }
        let installation = installed.get(id)?;
        Some((installation.addresses.into(), installation.obstacle))
    }

    fn parent(&self, status: &Status, at: usize, parent: &ParentStatus) -> OwnEntry {
        let mut conditions = portrait::conditions(&parent.conditions);
        let word = self.word(status, Some(at), is_accepted(&parent.conditions));
        conditions.push(portrait::live(&word, clock::since_epoch()));
        OwnEntry {
            subject: portrait::reference(&parent.parent),
            conditions,
        }
    }

    /// Whether an object is served, of a route at one of its parents.
    fn word(&self, status: &Status, parent: Option<usize>, is_accepted: bool) -> LiveWord {
        if !is_accepted {
            return LiveWord::Refused;
        }
        let groups = self.stated.groups(status);
        let group = groups.get(parent.unwrap_or(0)).cloned().flatten();
        let Some(group) = group else {
            return LiveWord::Stated(Served::Nowhere);
        };
        if let Some(refusal) = self.live.refusal_of(&status.object) {
            return LiveWord::Rejected(refusal);
        }
        LiveWord::Stated(self.served(&status.object, &group))
    }

    /// How it is with an object at the proxies of a group, whichever replica they follow.
    fn served(&self, key: &ObjectKey, group: &ProxyGroup) -> Served {
        let here = self.live.served(key, group);
        let beside = match group {
            ProxyGroup::Own(view) => namespace_of_view(view),
            ProxyGroup::Shared | ProxyGroup::Beside(_) => None,
        };
        let namespaces = [key.namespace(), beside.unwrap_or(key.namespace())];
        let read = self.stated.read_of(key);
        let object = AwaitedObject {
            key,
            namespaces: &namespaces,
            read: read.as_ref(),
        };
        let (others, is_lacked) = self.peers.served(&object, group);
        let served = match here {
            Served::Nowhere if others == 0 => {
                self.peers.await_first(key);
                Served::Nowhere
            }
            Served::Nowhere if !is_lacked => Served::Everywhere { proxies: others },
            Served::Nowhere => Served::Partly { proxies: others },
            Served::Everywhere { proxies } if !is_lacked => Served::Everywhere {
                proxies: proxies + others,
            },
            Served::Everywhere { proxies } | Served::Partly { proxies } => Served::Partly {
                proxies: proxies + others,
            },
        };
        if matches!(served, Served::Everywhere { .. }) {
            self.stated.forget_read(key);
        }
        served
    }
}

impl ObjectWord {
    /// Writes statuses from now on, while this process leads, and tells of Ingresses that are
    /// served.
    pub(super) fn start(parts: ObjectParts) -> ObjectWord {
        let ObjectParts {
            client,
            leads,
            described,
            controller,
            manager,
            events,
            annotations,
            counters,
        } = parts;
        let settings = DescribedSettings {
            owner: StatusOwner {
                controller: controller.into(),
                manager,
                conditions: CONDITIONS,
            },
            kinds: KINDS.into(),
            writes_per_second: WRITES_PER_SECOND,
            waiting_max: WAITING_MAX,
        };
        let describe = Arc::new(described.clone());
        let (writer, statuses) =
            DescribedWriter::new(client, leads.clone(), describe, settings, counters);
        drop(task::spawn("described statuses", writer.run()));
        let word = ObjectWord {
            statuses,
            leads,
            installed: described.installed.clone(),
            review: Arc::default(),
            term: Arc::default(),
        };
        let teller = Teller {
            word: word.clone(),
            described,
            events,
            annotations,
        };
        drop(task::spawn("served objects", teller.tell()));
        drop(task::spawn("reviews", word.clone().review_for_ever()));
        word
    }

    /// The writer of statuses, for who learns something that they show.
    pub(super) fn statuses(&self) -> DescribedStatuses {
        self.statuses.clone()
    }

    /// Says that the statuses of objects have changed.
    pub(super) fn state(&self, changed: &[StatedChange]) {
        let now = clock::now();
        let Some(begin) = self.begin(now) else {
            return;
        };
        for change in changed {
            let wait = match change.is_gone {
                true => Duration::ZERO,
                false => COALESCE,
            };
            self.statuses
                .look(change.key.clone(), begin.max(now + wait));
            if change.is_dedicated
                && let Some(installed) = &self.installed
            {
                installed.note(change.key.id());
            }
        }
    }

    /// Lets all statuses be compared with what they shall be.
    pub(super) fn review(&self) {
        if self.leads.holds(clock::now()) {
            self.review.notify_one();
        }
    }

    /// From when on this process says what is served; none while it does not lead. One who has
    /// just begun waits for what other replicas say of their proxies.
    fn begin(&self, now: Instant) -> Option<Instant> {
        if !self.leads.holds(now) {
            return None;
        }
        let number = self.leads.number();
        let mut term = self.term.lock().unwrap_or_else(PoisonError::into_inner);
        if term.0 != number {
            *term = (number, Some(now + GRACE));
        }
        Some(term.1.unwrap_or(now))
    }

    async fn review_for_ever(self) {
        loop {
            tokio::select! {
                () = self.review.notified() => {}
                () = self.statuses.overflowed() => {}
            }
            let Some(begin) = self.begin(clock::now()) else {
                continue;
            };
            tokio::time::sleep_until(begin).await;
            self.statuses.review();
        }
    }
}

/// Tells of objects that proxies serve from now on.
struct Teller {
    word: ObjectWord,
    described: Described,
    events: Events,
    annotations: Option<LiveAnnotations>,
}

impl Teller {
    async fn tell(self) {
        loop {
            let served = tokio::select! {
                served = self.described.live.next_served() => served,
                due = self.described.peers.next_due() => due,
            };
            let now = clock::now();
            let begin = self.word.begin(now);
            for key in served {
                match (begin, key.kind) {
                    (Some(_), ObjectKind::Ingress) => self.tell_of_ingress(&key),
                    (Some(begin), _) => self.word.statuses.look(key, begin.max(now)),
                    (None, _) => self.let_go(&key),
                }
            }
        }
    }

    /// Another replica tells.
    fn let_go(&self, key: &ObjectKey) {
        self.described.stated.forget_read(key);
        drop(self.described.stated.take_ingress(key));
    }

    /// Ingresses have no conditions.
    fn tell_of_ingress(&self, key: &ObjectKey) {
        let served = self.described.served(key, &ProxyGroup::Shared);
        let Served::Everywhere { .. } = served else {
            return;
        };
        let Some(ingress) = self.described.stated.take_ingress(key) else {
            return;
        };
        // Equal words are one Event that counts.
        let remedy = "every ready proxy serves it as it is now";
        let finding = Finding::new(Severity::Info, key, "", "is live", remedy);
        self.events.record(&finding);
        if let Some(annotations) = &self.annotations {
            annotations.note(ingress, second_time(clock::since_epoch()));
        }
    }
}

#[cfg(test)]
mod tests;
