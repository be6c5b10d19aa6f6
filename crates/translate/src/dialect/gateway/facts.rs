//! Facts about objects of Gateway API, and which of them a change touches.

use std::hash::Hash;

use myriad_api::gateway::{Gateway, Listener, ListenerSet, LocalObjectReference, ReferenceGrant};
use myriad_api::{Object, ObjectKey, ObjectKind};

use crate::engine::{Scene, States, Touched, Unit};
use crate::store::{Fact, FactHasher, object_fact};

/// Something that a unit may read of an object of Gateway API, or a seat that units claim there.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum GatewayFact<'a> {
    /// The controller and the parameters of a GatewayClass, by its name.
    Class(&'a str),
    /// The class and the age of a Gateway, and which ListenerSets it takes, or the parent and the
    /// age of a ListenerSet.
    Frame(ObjectKind, &'a str),
    /// How the clients of a Gateway are verified, and what its backends are shown.
    Tls(&'a str),
    /// Whatever the listeners of a Gateway or a ListenerSet say of routes, and whose they are.
    Listeners(ObjectKind, &'a str),
    /// The same of one listener, by its name.
    Listener(ObjectKind, &'a str, &'a str),
    /// The ReferenceGrants of a namespace for objects of a group and kind.
    Grants(&'a str, &'a str, &'a str),
    /// The labels of a namespace.
    Labels(&'a str),
    /// The seat of the BackendTLSPolicies for a Service or a port of it, of which it is told
    /// whether there is any.
    Policies(&'a str),
    /// The seat of the BackendTLSPolicy for a port of a Service, by its name, or for all that have
    /// none of their own, by none.
    PolicySeat(&'a str, &'a str),
    /// The seat of the Gateways that lead to a Service with a BackendTLSPolicy.
    Ancestors(&'a str),
    /// The seat of the routes of a namespace whose parent is a Service, the oldest first.
    RoutesOf(&'a str, &'a str),
    /// The seat of the namespaces of others than a Service whose routes have it as a parent.
    CallersOf(&'a str),
    /// The seat of the Gateways of a namespace that take routes which name no parent.
    Defaults(&'a str),
    /// The seat of the listeners by which routes enter a host that those do not name, by the age of
    /// what enters it there.
    EnteredSeat(&'a str),
    /// The seat of the same of the objects of a namespace, each of them once.
    EntrySeat(&'a str, &'a str),
    /// The seat of the other namespaces whose routes have a wildcard at a listener, by kind and
    /// `namespace/name` of its object, its name and the wildcard; or, by a namespace, of its routes
    /// among them, the oldest first.
    GuestSeat((ObjectKind, &'a str), &'a str, &'a str, &'a str),
    /// The seat of the objects with listeners that name a host, where they have a place for it.
    NamedSeat(&'a str),
    /// The answer of a listener of an object, or of a Gateway to ListenerSets by no name, to the
    /// objects of a namespace. It is kept for a batch, and is nothing that is read.
    Taken(ObjectKind, &'a str, &'a str, &'a str),
    /// The time since which an object claims a host.
    Claim(&'a str, &'a str),
    /// The seat of who says what is spoken at a port of a Gateway; set for one of UDP.
    PortSeat(&'a str, u16, bool),
    /// The seat of the listener for a host at a port of a Gateway, by what is spoken there.
    HostSeat(&'a str, (u16, u8), &'a str),
    /// The seat of the listeners with TLS whose hosts are below a pattern at a port of a Gateway.
    BelowSeat(&'a str, u16, &'a str),
    /// The seat of the ListenerSet of a namespace for a host at a port of a Gateway.
    SetSeat(&'a str, (u16, u8), &'a str, &'a str),
    /// The seat of the Gateway for a host at a socket that Gateways share: of those of a namespace,
    /// or of all by none.
    SharedSeat(&'a str, &'a str, &'a str),
    /// The seat of the namespace that has a host which objects with listeners of others claim too.
    OwnerSeat(&'a str),
    /// The seat that says that objects with listeners of a namespace lose a host in some view, or
    /// that by none those of any may.
    LostSeat(&'a str, &'a str),
    /// The seat of the routes that are attached to a listener, of which the number is told.
    Attached(ObjectKind, &'a str, &'a str),
    /// The seat of the ListenerSets that are attached to a Gateway.
    Sets(&'a str),
    /// The seat of the ports of a Gateway and its ListenerSets that are used, each once.
    Ports(&'a str),
    /// The seat of those of them that listeners of ListenerSets of a namespace have.
    PortsOf(&'a str, &'a str),
    /// The seat of a Gateway that has an authority by which clients are verified at a port, or at
    /// all ports of which it says nothing else, by 0.
    Verified(&'a str, u16),
    /// The seat of the routes of a kind for a host at a listener.
    KindSeat(ObjectKind, (ObjectKind, &'a str), &'a str, &'a str),
    /// The seat of the routes of a kind for a host, or one below it, at a listener.
    KindBelow(ObjectKind, (ObjectKind, &'a str), &'a str, &'a str),
    /// The seat of the route for all that comes to a listener.
    StreamSeat(ObjectKind, &'a str, &'a str),
}

impl Fact for GatewayFact<'_> {
    const FAMILY: u8 = 11;
}

/// Adds what differs between an object and its successor, either of which may be absent.
pub(crate) fn touch(scene: &Scene<'_>, key: &ObjectKey, states: States<'_>, touched: &mut Touched) {
    let (hasher, id) = (scene.hasher, key.id());
    match key.kind {
        ObjectKind::GatewayClass => {
            touched.unit = Some(Unit::gateway_class(key));
            if class_of(states.0) != class_of(states.1) {
                touched
                    .facts
                    .push(hasher.fact(GatewayFact::Class(key.name())));
            }
        }
        ObjectKind::Gateway => {
            touched.unit = Some(Unit::entrance(key));
            touched.beside = vec![Unit::listeners(key), Unit::gateway_status(key)];
            touch_gateway(hasher, key, states, &mut touched.facts);
        }
        ObjectKind::ListenerSet => {
            touched.unit = Some(Unit::entrance(key));
            touched.beside = vec![Unit::listeners(key), Unit::set_status(key)];
            let (old, new) = (as_set(states.0), as_set(states.1));
            let is_other = old.map(set_frame) != new.map(set_frame);
            if is_other {
                let fact = hasher.fact(GatewayFact::Frame(key.kind, id));
                touched.facts.push(fact);
            }
            touch_listeners(hasher, key, states, is_other, &mut touched.facts);
        }
        ObjectKind::HttpRoute
        | ObjectKind::GrpcRoute
        | ObjectKind::TlsRoute
        | ObjectKind::TcpRoute
        | ObjectKind::UdpRoute => {
            touched.unit = Some(Unit::route(key));
            touched.beside = vec![Unit::rows(key)];
            touched.facts.push(object_fact(hasher, key.kind, id));
        }
        ObjectKind::BackendTlsPolicy => {
            touched.unit = Some(Unit::backend_policy(key));
            touched.beside = vec![Unit::listeners(key)];
            touched.facts.push(object_fact(hasher, key.kind, id));
        }
        ObjectKind::ReferenceGrant => touch_found(hasher, states, &mut touched.facts),
        ObjectKind::Namespace => {
            touched
                .facts
                .push(hasher.fact(GatewayFact::Labels(key.name())));
        }
        _ => {}
    }
}

/// Adds the facts under which both states of an object are found.
fn touch_found(hasher: &FactHasher, (old, new): States<'_>, facts: &mut Vec<u64>) {
    for object in [old, new].into_iter().flatten() {
        found_under(hasher, object, &mut |fact| facts.push(fact));
    }
}

fn touch_gateway(hasher: &FactHasher, key: &ObjectKey, states: States<'_>, facts: &mut Vec<u64>) {
    let (old, new) = (as_gateway(states.0), as_gateway(states.1));
    let id = key.id();
    let is_other = old.map(gateway_frame) != new.map(gateway_frame);
    if is_other {
        facts.push(hasher.fact(GatewayFact::Frame(key.kind, id)));
    }
    let tls = |gateway: Option<&Gateway>| gateway.and_then(|it| it.spec.tls.clone());
    if is_other || tls(old) != tls(new) {
        facts.push(hasher.fact(GatewayFact::Tls(id)));
    }
    touch_listeners(hasher, key, states, is_other, facts);
}

/// Adds the facts about listeners that differ.
fn touch_listeners(
    hasher: &FactHasher,
    key: &ObjectKey,
    states: States<'_>,
    is_other: bool,
    facts: &mut Vec<u64>,
) {
    let (kind, id) = (key.kind, key.id());
    let (old, new) = (listeners_of(states.0), listeners_of(states.1));
    let mut is_any = is_other;
    for name in old.iter().chain(new).map(|listener| &*listener.name) {
        let is_same = match (find(old, name), find(new, name)) {
            (Some(old), Some(new)) => is_same_to_routes(old, new),
            _ => false,
        };
        if is_other || !is_same {
            is_any = true;
            facts.push(hasher.fact(GatewayFact::Listener(kind, id, name)));
        }
    }
    if is_any {
        facts.push(hasher.fact(GatewayFact::Listeners(kind, id)));
    }
}

fn listeners_of(object: Option<&Object>) -> &[Listener] {
    match object {
        Some(Object::Gateway(gateway)) => &gateway.spec.listeners,
        Some(Object::ListenerSet(set)) => &set.spec.listeners,
        _ => &[],
    }
}

fn find<'a>(listeners: &'a [Listener], name: &str) -> Option<&'a Listener> {
    listeners.iter().find(|listener| *listener.name == *name)
}

/// Whether two states of a listener are the same to routes, which read nothing of certificates.
fn is_same_to_routes(old: &Listener, new: &Listener) -> bool {
    let mode = |listener: &Listener| listener.tls.as_ref().map(|tls| tls.mode.clone());
    old.hostname == new.hostname
        && old.port == new.port
        && old.protocol == new.protocol
        && old.allowed_routes == new.allowed_routes
        && mode(old) == mode(new)
}

/// The facts under which an object is found that is not found by its key alone.
pub(crate) fn found_under(hasher: &FactHasher, object: &Object, add: &mut dyn FnMut(u64)) {
    if let Object::ReferenceGrant(grant) = object {
        for fact in granted(hasher, grant) {
            add(fact);
        }
    }
}

/// The facts that a ReferenceGrant is of.
fn granted(hasher: &FactHasher, grant: &ReferenceGrant) -> Vec<u64> {
    let namespace = grant.meta.key.namespace();
    let to = grant.spec.to.iter();
    let mut facts: Vec<u64> = to
        .map(|to| hasher.fact(GatewayFact::Grants(namespace, &to.group, &to.kind)))
        .collect();
    facts.sort_unstable();
    facts.dedup();
    facts
}

/// Whether a Gateway takes routes that name no parent.
pub(super) fn is_default(gateway: &Gateway) -> bool {
    *gateway.spec.default_scope == *"All"
}

/// The parameters of a Gateway itself; no kind of them is known.
pub(super) fn own_parameters(gateway: &Gateway) -> Option<&LocalObjectReference> {
    gateway.spec.infrastructure.as_ref()?.parameters.as_ref()
}

/// All that is read of a Gateway by whoever reads [`GatewayFact::Frame`].
fn gateway_frame(gateway: &Gateway) -> impl PartialEq + use<'_> {
    let spec = &gateway.spec;
    (
        gateway.meta.created,
        &spec.class,
        &spec.allowed_listeners,
        own_parameters(gateway),
    )
}

/// All that is read of a ListenerSet as a whole.
fn set_frame(set: &ListenerSet) -> impl PartialEq + use<'_> {
    (set.meta.created, &set.spec.parent)
}

/// All that is read of a GatewayClass.
fn class_of(object: Option<&Object>) -> Option<impl PartialEq + use<'_>> {
    match object {
        Some(Object::GatewayClass(class)) => Some((&class.spec.controller, &class.spec.parameters)),
        _ => None,
    }
}

fn as_gateway(object: Option<&Object>) -> Option<&Gateway> {
    match object {
        Some(Object::Gateway(gateway)) => Some(gateway),
        _ => None,
    }
}

fn as_set(object: Option<&Object>) -> Option<&ListenerSet> {
    match object {
        Some(Object::ListenerSet(set)) => Some(set),
        _ => None,
    }
}
