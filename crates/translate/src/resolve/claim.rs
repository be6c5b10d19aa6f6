//! Claims to hosts, whatever dialect makes them.

use std::sync::Arc;

use myriad_api::{Meta, ObjectKey, ObjectKind};
use myriad_model::{Host, host::Pattern};

use crate::engine::{Unit, namespace_of};

/// The entry of `--wildcard-sharing` and its annotation that stands for every namespace.
pub(crate) const EVERYBODY: &str = "*";

/// An object's claim to a host. The smallest wins: the oldest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Since when the object claims the host: its creation, or a later version of it.
    since: i64,
    /// Whether that is later than its creation.
    is_late: bool,
    created: i64,
    /// The object.
    pub key: ObjectKey,
}

impl Claim {
    /// The claim of an object to a host that it claims since its creation, or since a later time.
    /// [`Reader::claim`] knows which.
    pub fn new(meta: &Meta, late: Option<i64>) -> Self {
        let late = late.filter(|late| *late > meta.created);
        Claim {
            since: late.unwrap_or(meta.created),
            is_late: late.is_some(),
            created: meta.created,
            key: meta.key.clone(),
        }
    }

    /// The claim where the object has the host by another one, which it can claim no earlier than.
    pub fn by(self, other: &Claim) -> Self {
        self.no_earlier(other.since)
    }

    /// The claim where the object has the host since then at the earliest.
    pub fn no_earlier(mut self, since: i64) -> Self {
        if since > self.since {
            (self.since, self.is_late) = (since, true);
        }
        self
    }

    /// The claim of an object to hosts that it does not name, whose age says nothing.
    pub fn unnamed(key: ObjectKey) -> Self {
        Claim {
            since: 0,
            is_late: false,
            created: 0,
            key,
        }
    }

    /// The claim of a namespace to a host that it has proven to be its own, and that no object of
    /// it claims now.
    pub fn reserved(host: &Host, namespace: &str) -> Self {
        let id = format!("{namespace}/{host}");
        Claim::unnamed(ObjectKey::from_id(ObjectKind::HostProof, id.into())).proven()
    }

    /// The same of a namespace that has proven the host to be its own: older than any.
    pub fn proven(self) -> Self {
        Claim {
            since: i64::MIN,
            is_late: false,
            ..self
        }
    }

    /// Whether a namespace has the host by its proof alone.
    pub fn is_reserved(&self) -> bool {
        self.key.kind == ObjectKind::HostProof
    }

    /// Since when the host is claimed, in seconds since the epoch.
    pub fn since(&self) -> i64 {
        self.since
    }

    /// The age alone, by which claims are compared first.
    pub fn time(&self) -> (i64, bool, i64) {
        (self.since, self.is_late, self.created)
    }

    /// Whether it is older than another one.
    pub fn is_before(&self, other: &Claim) -> bool {
        self.age() < other.age()
    }

    /// The key by which claims are compared. An object that was created with a host has it before
    /// one that came to it in the same second.
    pub fn age(&self) -> (i64, bool, i64, (&str, &str), u8) {
        let kind = self.key.kind as u8;
        let name = (self.key.namespace(), self.key.name());
        (self.since, self.is_late, self.created, name, kind)
    }

    /// Whether objects of a namespace have the host.
    pub fn is_of(&self, namespace: &str) -> bool {
        self.key.namespace() == namespace
    }
}

/// The objects that claim a host, by `namespace/name`.
#[derive(Debug, Default)]
pub struct Claims {
    /// Ingresses.
    pub ingresses: Vec<Arc<str>>,
    /// Istio Gateways with a server for exactly this pattern.
    pub gateways: Vec<Arc<str>>,
    /// VirtualServices for exactly this pattern that are bound to a Gateway which covers it.
    pub services: Vec<Arc<str>>,
    /// Gateways of Gateway API and ListenerSets with a listener for exactly this pattern.
    pub entities: Vec<ObjectKey>,
    /// Routes of Gateway API for exactly this pattern that a listener for a broader one takes.
    pub routes: Vec<ObjectKey>,
}

impl Claims {
    /// The objects of units that need a host.
    pub fn of<'a>(units: impl Iterator<Item = &'a Unit>) -> Self {
        let mut claims = Claims::default();
        for (kind, id) in units.filter_map(Unit::object) {
            match kind {
                ObjectKind::Ingress => claims.ingresses.push(id.clone()),
                ObjectKind::IstioGateway => claims.gateways.push(id.clone()),
                ObjectKind::VirtualService => claims.services.push(id.clone()),
                ObjectKind::Gateway | ObjectKind::ListenerSet => {
                    claims.entities.push(ObjectKey::from_id(kind, id.clone()));
                }
                ObjectKind::HttpRoute | ObjectKind::GrpcRoute | ObjectKind::TlsRoute => {
                    claims.routes.push(ObjectKey::from_id(kind, id.clone()));
                }
                _ => {}
            }
        }
        claims
    }

    /// The objects of one namespace among them.
    pub fn of_namespace(&self, namespace: &str) -> Claims {
        let of = |ids: &[Arc<str>]| {
            let own = ids.iter().filter(|id| namespace_of(id) == namespace);
            own.cloned().collect()
        };
        let keys_of = |keys: &[ObjectKey]| {
            let own = keys.iter().filter(|key| key.namespace() == namespace);
            own.cloned().collect()
        };
        Claims {
            ingresses: of(&self.ingresses),
            gateways: of(&self.gateways),
            services: of(&self.services),
            entities: keys_of(&self.entities),
            routes: keys_of(&self.routes),
        }
    }

    /// Whether objects of Gateway API are among them.
    pub fn are_of_api(&self) -> bool {
        !self.entities.is_empty() || !self.routes.is_empty()
    }

    /// Whether objects of more than one namespace are among them.
    pub fn are_of_several(&self) -> bool {
        let mut namespaces = self.ids().map(|(_, id)| namespace_of(id));
        let first = namespaces.next();
        namespaces.any(|namespace| Some(namespace) != first)
    }

    /// All objects, with their kinds.
    pub fn ids(&self) -> impl Iterator<Item = (ObjectKind, &Arc<str>)> {
        let ingresses = self.ingresses.iter().map(|id| (ObjectKind::Ingress, id));
        let gateways = self.gateways.iter();
        let gateways = gateways.map(|id| (ObjectKind::IstioGateway, id));
        let services = self.services.iter();
        let services = services.map(|id| (ObjectKind::VirtualService, id));
        let of_api = self.entities.iter().chain(&self.routes);
        let of_api = of_api.map(|key| (key.kind, key.id()));
        ingresses.chain(gateways).chain(services).chain(of_api)
    }
}

/// The wildcard of any number of labels that is written alike.
pub(crate) fn twin(host: &Host) -> Option<Host> {
    match host.pattern() {
        Pattern::OneLabel(suffix) => Host::parse(&format!("**{suffix}")).ok(),
        _ => None,
    }
}

/// The name under which hosts ask for the claims to a wildcard; none for a host that is none.
pub(crate) fn suffix_of(pattern: &Host) -> Option<&str> {
    match pattern.pattern() {
        Pattern::Any => Some(""),
        Pattern::OneLabel(suffix) | Pattern::AnyLabels(suffix) => Some(suffix),
        Pattern::Exact(_) => None,
    }
}
