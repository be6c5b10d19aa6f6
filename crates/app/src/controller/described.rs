//! Our part of the statuses of objects of Gateway API, and what is told of objects that are served.
//!
//! Translation states what holds wherever proxies run. Here are added the addresses of Gateways,
//! and whether an object is live: whether all ready proxies serve it as it is.

mod address;
mod portrait;

use std::sync::atomic::{AtomicBool, Ordering};
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
use super::published::Published;
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

/// How long an object waits whose status somebody else has edited. Longer than [`GRACE`], so that
/// who has just begun to lead does not take the words of a former leader for edits.
const MEND_AFTER: Duration = Duration::from_secs(5);

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

/// Describes statuses as they are known here.
#[derive(Clone)]
pub(super) struct Described {
    pub stated: StatedStatuses,
    pub live: Live,
    pub peers: Peers,
    /// The addresses of the shared proxies; absent where no Service of theirs is published.
    pub shared: Option<watch::Receiver<Published>>,
    /// The proxies of single Gateways; absent where none are made.
    pub installed: Option<Installations>,
    /// Whether the first list is complete: before, what is not stated may be ours all the same.
    pub is_live: Arc<AtomicBool>,
}

/// Whether it is noted what an object waits for that is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It is, and what it waited for before is forgotten.
    Noted,
    /// Nothing changes by it.
    Silent,
}

/// The addresses of a Gateway.
struct Whereabouts {
    /// All that there are; none where those that it shows stay.
    there: Option<Arc<[Address]>>,
    /// Why it has none, or shows those of before.
    obstacle: Option<Obstacle>,
}

/// Takes what there is to say of objects. Cheap to clone.
#[derive(Clone)]
pub(super) struct ObjectWord {
    statuses: DescribedStatuses,
    leads: Claim,
    installed: Option<Installations>,
    /// Whether the first list is complete.
    is_live: Arc<AtomicBool>,
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
        self.portray(key, Look::Noted)
    }

    fn peek(&self, key: &ObjectKey) -> Description {
        self.portray(key, Look::Silent)
    }
}

impl Described {
    /// The status of an object.
    fn portray(&self, key: &ObjectKey, look: Look) -> Description {
        // Asked first: what is stated by then is all that there is.
        let is_live = self.is_live.load(Ordering::Acquire);
        let Some(status) = self.stated.get(key) else {
            return match is_live {
                true => Description::Nothing,
                false => Description::Later,
            };
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
            State::Gateway(gateway) => match self.gateway(&status, gateway, look) {
                Some(form) => form,
                None => return Description::Later,
            },
            State::ListenerSet(set) => {
                let mut conditions = portrait::conditions(&set.conditions);
                let word = self.word((&status, None), is_accepted(&set.conditions), look);
                conditions.push(portrait::live(&word, clock::since_epoch()));
                OwnForm::Whole {
                    conditions,
                    fields: Vec::new(),
                    sections: Some(portrait::sections(&set.listeners)),
                }
            }
            State::Route(route) => {
                let parents = route.parents.iter().enumerate();
                let entries = parents.map(|parent| self.parent(&status, parent, look));
                OwnForm::Listed(entries.collect())
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

    /// The status of a Gateway; none while its addresses are not known.
    fn gateway(&self, status: &Status, gateway: &GatewayStatus, look: Look) -> Option<OwnForm> {
        let Whereabouts { there, obstacle } = match &gateway.deployment {
            None => self.shared_addresses()?,
            Some(_) => self.own_addresses(status.object.id())?,
        };
        let assigned = there.map(|there| address::assign(&gateway.addresses, &there));
        let (shown, unassigned) = assigned.unzip();
        let obstacle = obstacle.or(unassigned.flatten());
        let mut conditions = portrait::hindered(&gateway.conditions, obstacle.as_ref());
        let word = self.word((status, None), is_accepted(&gateway.conditions), look);
        conditions.push(portrait::live(&word, clock::since_epoch()));
        let installed = self
            .installed
            .as_ref()
            .filter(|_| gateway.deployment.is_some());
        let installation = installed.and_then(|it| it.get(status.object.id()));
        conditions.extend(installation.and_then(|it| portrait::refused(&it.refused)));
        let attached: Value = gateway.attached_listener_sets.into();
        let mut fields = vec![("attachedListenerSets", attached)];
        fields.extend(shown.map(|shown| ("addresses", address::field(&shown))));
        Some(OwnForm::Whole {
            conditions,
            fields,
            sections: Some(portrait::sections(&gateway.listeners)),
        })
    }

    /// The addresses of the proxies of all; none while they are not known.
    fn shared_addresses(&self) -> Option<Whereabouts> {
        let Some(published) = &self.shared else {
            return Some(Whereabouts::found(Arc::default()));
        };
        match &*published.borrow() {
            Published::Unknown => None,
            Published::Missing => {
                let message = "the Service that --publish-service names does not exist: create \
                               it, or name the Service of the proxies";
                Some(Whereabouts {
                    there: None,
                    obstacle: Some(Obstacle::new("AddressNotAssigned", message)),
                })
            }
            Published::Found(addresses) => Some(Whereabouts::found(addresses.clone())),
        }
    }

    /// The addresses of a Gateway with proxies of its own; none while they are not known.
    fn own_addresses(&self, id: &Arc<str>) -> Option<Whereabouts> {
        let Some(installed) = &self.installed else {
            let message = "proxies of its own are not made here: see gatewayApi.deployments of \
                           the chart";
            return Some(Whereabouts::nowhere(message));
        };
        if !self.stated.has_view(id) {
            let message = format!(
                "there is no room for its proxies: a namespace has {DEDICATED_OF_NAMESPACE_MAX} \
                 Gateways with proxies of their own at most"
            );
            return Some(Whereabouts::nowhere(message));
        }
        let installation = installed.get(id)?;
        Some(Whereabouts {
            there: Some(installation.addresses.into()),
            obstacle: installation.obstacle,
        })
    }

    fn parent(
        &self,
        status: &Status,
        (at, parent): (usize, &ParentStatus),
        look: Look,
    ) -> OwnEntry {
        let mut conditions = portrait::conditions(&parent.conditions);
        let is_accepted = is_accepted(&parent.conditions);
        let word = self.word((status, Some(at)), is_accepted, look);
        conditions.push(portrait::live(&word, clock::since_epoch()));
        OwnEntry {
            subject: portrait::reference(&parent.parent),
            conditions,
        }
    }

    /// Whether an object is served, of a route at one of its parents.
    fn word(
        &self,
        (status, parent): (&Status, Option<usize>),
        is_accepted: bool,
        look: Look,
    ) -> LiveWord {
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
        LiveWord::Stated(self.served(&status.object, &group, look))
    }

    /// How it is with an object at the proxies of a group, whichever replica they follow.
    fn served(&self, key: &ObjectKey, group: &ProxyGroup, look: Look) -> Served {
        let here = match look {
            Look::Noted => self.live.served(key, group),
            Look::Silent => self.live.peek(key, group),
        };
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
        let (others, is_lacked) = match look {
            Look::Noted => self.peers.served(&object, group),
            Look::Silent => self.peers.peek(&object, group),
        };
        let served = match here {
            Served::Nowhere if others == 0 => {
                if look == Look::Noted {
                    self.peers.await_first(key);
                }
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
        if look == Look::Noted && matches!(served, Served::Everywhere { .. }) {
            self.stated.forget_read(key);
        }
        served
    }
}

impl Whereabouts {
    /// Addresses that were found.
    fn found(there: Arc<[Address]>) -> Self {
        Whereabouts {
            there: Some(there),
            obstacle: None,
        }
    }

    /// No proxies of its own, for a reason.
    fn nowhere(message: impl Into<String>) -> Self {
        Whereabouts {
            there: Some(Arc::default()),
            obstacle: Some(Obstacle::new("NoResources", message)),
        }
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
            mend_after: MEND_AFTER,
        };
        let describe = Arc::new(described.clone());
        let (writer, statuses) =
            DescribedWriter::new(client, leads.clone(), describe, settings, counters);
        drop(task::spawn("described statuses", writer.run()));
        let word = ObjectWord {
            statuses,
            leads,
            installed: described.installed.clone(),
            is_live: described.is_live.clone(),
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

    /// The first list is complete and stated, so that what is not stated is not ours.
    pub(super) fn go_live(&self) {
        self.is_live.store(true, Ordering::Release);
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

    /// Another replica tells. What still waits here may come to be told by this one.
    fn let_go(&self, key: &ObjectKey) {
        if self.described.live.awaits(key) {
            return;
        }
        self.described.stated.forget_read(key);
        drop(self.described.stated.take_ingress(key));
    }

    /// Ingresses have no conditions.
    fn tell_of_ingress(&self, key: &ObjectKey) {
        let served = self.described.served(key, &ProxyGroup::Shared, Look::Noted);
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
