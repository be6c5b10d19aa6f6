//! The listeners that a route is attached to.
//!
//! A route names its parents, and a listener says which routes it takes: by kind, by namespace and
//! by host. Whether the listener itself has an effect does not matter. Of an HTTPRoute and a
//! GRPCRoute with hosts in common at a listener the older one is attached, and the other is not. As
//! attached routes alone stand in the way of others, who is depends on older routes alone.

use std::sync::Arc;

use myriad_api::gateway::{Listener, ParentReference};
use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::Host;

use super::allowed::{kinds, takes_routes_of};
use super::entity::{host_of, hostname};
use super::facts::GatewayFact;
use super::hostname::intersect;
use super::route::{RouteObject, entity_of, service_of};
use super::standing::{self, GatewayStanding, Unserved};
use crate::engine::{Reader, Stake, StakeClaim};
use crate::resolve::names::broader;

/// A listener that takes a route.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    /// The object that the listener is of.
    pub standing: GatewayStanding,
    /// The place of the listener in it.
    pub at: usize,
    /// The hosts that the route has there; none where its kind has none.
    pub hosts: Vec<Host>,
}

/// The answer of a parent to a route.
#[derive(Clone, Debug)]
pub(crate) enum ParentAnswer {
    /// It is none of ours.
    Foreign,
    /// It is a Service, by `namespace/name`.
    Service(Arc<str>),
    /// It does not take the route: the reason and the message of a condition.
    Refused(&'static str, String),
    /// Listeners of it take the route, at least one.
    Taken(Vec<Attached>),
}

/// A parent of a route, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    /// The parent as it is named.
    pub parent: ParentReference,
    /// The answer.
    pub answer: ParentAnswer,
}

impl Attached {
    /// The listener.
    pub(crate) fn listener(&self) -> Option<&Listener> {
        self.standing.entity.listeners().get(self.at)
    }

    /// The kind and the `namespace/name` of the object.
    fn entity(&self) -> (ObjectKind, &str) {
        let key = self.standing.entity.key();
        (key.kind, key.id())
    }
}

/// The answers of all parents of a route, in their order. Gateways that take routes without a
/// parent come last, where the route asks for them.
pub(crate) fn attach(reader: &mut Reader<'_>, route: &RouteObject) -> Vec<Attachment> {
    let mut parents = route.parents().to_vec();
    if route.uses_defaults() {
        let mut defaults = reader.default_gateways();
        defaults.sort_unstable();
        let own = route.key().namespace();
        for key in defaults {
            let mut named = parents.iter();
            if !named.any(|parent| entity_of(parent, own).as_ref() == Some(&key)) {
                parents.push(ParentReference {
                    namespace: Some(key.namespace().into()),
                    name: key.name().into(),
                    ..ParentReference::default()
                });
            }
        }
    }
    let parents = parents.into_iter();
    parents.map(|parent| ask(reader, route, parent)).collect()
}

/// The hosts that a route names, and findings about those that are none.
pub(crate) fn hosts_of(route: &RouteObject) -> (Vec<Host>, Vec<Finding>) {
    let (mut hosts, mut findings) = (Vec::new(), Vec::new());
    for (at, text) in route.hostnames().iter().enumerate() {
        match hostname(text) {
            Ok(host) => hosts.push(host),
            Err(error) => findings.push(Finding::new(
                Severity::Error,
                route.key(),
                format!("spec.hostnames[{at}]"),
                format!("{error}, so it has no effect"),
                "write a DNS name such as a.example.com or *.example.com",
            )),
        }
    }
    (hosts, findings)
}

fn ask(reader: &mut Reader<'_>, route: &RouteObject, parent: ParentReference) -> Attachment {
    let own = route.key().namespace();
    let answer = match (entity_of(&parent, own), service_of(&parent, own)) {
        (Some(key), _) => match ask_entity(reader, route, &parent, &key) {
            Ok(taken) => ParentAnswer::Taken(taken),
            Err(answer) => answer,
        },
        (None, Some(service)) => ParentAnswer::Service(service),
        (None, None) => ParentAnswer::Foreign,
    };
    Attachment { parent, answer }
}

/// The listeners of a Gateway or a ListenerSet that take a route.
///
/// # Errors
/// The answer where there are none.
fn ask_entity(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    parent: &ParentReference,
    key: &ObjectKey,
) -> Result<Vec<Attached>, ParentAnswer> {
    match parent.section_name.as_deref() {
        Some(name) => reader.read(GatewayFact::Listener(key.kind, key.id(), name)),
        None => reader.read(GatewayFact::Listeners(key.kind, key.id())),
    };
    let standing = standing::of(reader, key).map_err(|why| match why {
        Unserved::Foreign => ParentAnswer::Foreign,
        Unserved::Parameters(_) => refuse("NoMatchingParent", format!("{key} is not accepted")),
        Unserved::NotAllowed => {
            let message = format!("{key} is not accepted, since its Gateway does not take it");
            refuse("NoMatchingParent", message)
        }
    })?;
    let listeners = standing.entity.listeners();
    let is_meant = |listener: &Listener| {
        let section = parent.section_name.as_deref();
        section.is_none_or(|name| *listener.name == *name)
            && parent.port.is_none_or(|port| listener.port == port)
    };
    let meant: Vec<usize> = (0..listeners.len())
        .filter(|at| listeners.get(*at).is_some_and(is_meant))
        .collect();
    if meant.is_empty() {
        let message = format!("{key} has no listener of this name or port");
        return Err(refuse("NoMatchingParent", message));
    }
    let mut allowed = meant;
    allowed.retain(|at| {
        let listener = listeners.get(*at);
        listener.is_some_and(|listener| is_allowed(reader, listener, key.namespace(), route))
    });
    if allowed.is_empty() {
        let message = format!(
            "no listener of {key} takes {}s of its namespace",
            route.kind()
        );
        return Err(refuse("NotAllowedByListeners", message));
    }
    let (named, _) = hosts_of(route);
    let attached = allowed.into_iter().filter_map(|at| {
        let hosts = common_hosts(route, listeners.get(at)?, &named)?;
        Some(Attached {
            standing: standing.clone(),
            at,
            hosts,
        })
    });
    let mut attached: Vec<Attached> = attached.collect();
    if attached.is_empty() {
        let message = format!("no listener of {key} has a host of the route");
        return Err(refuse("NoMatchingListenerHostname", message));
    }
    attached.retain(|it| !is_kept_out(reader, route, it));
    if attached.is_empty() {
        let message = format!("an older route of another kind has its hosts at {key}");
        return Err(refuse("NotAllowedByListeners", message));
    }
    Ok(attached)
}

/// Whether a listener of an object of the namespace `own` takes routes of a kind and namespace.
fn is_allowed(
    reader: &mut Reader<'_>,
    listener: &Listener,
    own: &str,
    route: &RouteObject,
) -> bool {
    kinds(listener).0.contains(&route.key().kind)
        && takes_routes_of(reader, listener, own, route.key().namespace())
}

fn refuse(reason: &'static str, message: String) -> ParentAnswer {
    ParentAnswer::Refused(reason, message)
}

/// The hosts that a route has at a listener; `None` where it has none there.
fn common_hosts(route: &RouteObject, listener: &Listener, named: &[Host]) -> Option<Vec<Host>> {
    if matches!(route, RouteObject::Tcp(_) | RouteObject::Udp(_)) {
        return Some(Vec::new());
    }
    let own = host_of(listener).ok()?;
    if route.hostnames().is_empty() {
        return Some(vec![own]);
    }
    let common = named.iter().filter_map(|host| intersect(&own, host));
    let mut hosts: Vec<Host> = common.collect();
    hosts.sort_unstable();
    hosts.dedup();
    (!hosts.is_empty()).then_some(hosts)
}

/// Since when a route has a host at a listener: as the oldest of its hosts does which makes it so.
/// One that comes to a host by an edit has it since then.
fn had_since(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    listener: &Listener,
    host: &Host,
) -> i64 {
    let meta = route.meta();
    if route.hostnames().is_empty() {
        return reader.noted_api_claim(meta, &Host::any()).since();
    }
    let Ok(own) = host_of(listener) else {
        return meta.created;
    };
    let named = hosts_of(route).0.into_iter();
    let named = named.filter(|named| intersect(&own, named).as_ref() == Some(host));
    let since = named.map(|named| reader.noted_api_claim(meta, &named).since());
    since.min().unwrap_or(meta.created)
}

/// Whether an older route of the other kind for requests is attached to a listener with a host of a
/// route, or a wildcard above or a host below it.
fn is_kept_out(reader: &mut Reader<'_>, route: &RouteObject, place: &Attached) -> bool {
    let (Some(rival), Some(listener)) = (route.rival(), place.listener()) else {
        return false;
    };
    let key = route.key();
    let (of, name) = (place.entity(), &*listener.name);
    let mut is_lost = false;
    for host in &place.hosts {
        let since = had_since(reader, route, listener, host);
        let age = (since, &**key.id(), key.kind as u32);
        let above = broader(host);
        let above = above.iter().map(Host::as_str);
        let above = above.map(|pattern| GatewayFact::KindSeat(rival, of, name, pattern));
        let below = GatewayFact::KindBelow(rival, of, name, host.as_str());
        // Every seat is asked for, so that what is read depends on nothing that is not.
        for fact in above.chain([below]) {
            let seat = reader.hash(fact);
            let oldest = reader.seat(seat);
            is_lost |= oldest.is_some_and(|it| (it.created, &*it.id, it.value) < age);
        }
    }
    is_lost
}

/// The claim of a route to seats, since its creation.
pub(super) fn claim_of(route: &RouteObject) -> StakeClaim {
    StakeClaim {
        order: 0,
        created: route.meta().created,
        id: route.key().id().clone(),
        value: route.key().kind as u32,
    }
}

/// The claims of a route to seats, by the answers of its parents. One of which no rule has an
/// effect is refused, and keeps no other kind out.
pub(crate) fn stakes(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    attachments: &[Attachment],
    is_refused: bool,
) -> Vec<Stake> {
    let kind = route.key().kind;
    let claim = claim_of(route);
    let mut stakes = Vec::new();
    for attachment in attachments {
        let taken = match &attachment.answer {
            ParentAnswer::Taken(taken) => &taken[..],
            _ => &[],
        };
        for place in taken {
            let Some(listener) = place.listener() else {
                continue;
            };
            let (of, name) = (place.entity(), &*listener.name);
            let attached = GatewayFact::Attached(of.0, of.1, name);
            let stream = GatewayFact::StreamSeat(of.0, of.1, name);
            let streams = place.hosts.is_empty().then_some(stream);
            for fact in [Some(attached), streams].into_iter().flatten() {
                stakes.push(Stake {
                    seat: reader.hash(fact),
                    claim: claim.clone(),
                });
            }
            if !route.is_of_requests() || is_refused {
                continue;
            }
            for host in &place.hosts {
                let claim = StakeClaim {
                    created: had_since(reader, route, listener, host),
                    ..claim.clone()
                };
                let above = broader(host);
                let patterns = above.iter().map(Host::as_str).chain([host.as_str()]);
                let below = patterns.map(|it| GatewayFact::KindBelow(kind, of, name, it));
                let own = GatewayFact::KindSeat(kind, of, name, host.as_str());
                for fact in below.chain([own]) {
                    stakes.push(Stake {
                        seat: reader.hash(fact),
                        claim: claim.clone(),
                    });
                }
            }
        }
    }
    stakes
}
