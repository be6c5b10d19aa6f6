//! The units of Gateway API.

use std::collections::BTreeSet;

use myriad_api::gateway::Listener;
use myriad_api::{Object, ObjectKey, ObjectKind};
use myriad_model::Host;

use super::facts::GatewayFact;
use super::route::{RouteObject, speech_of};
use crate::engine::{Bond, Claimed, NewlyClaimed, Own, PortKey, Unit, UnitKey, UnitKind, Viewers};
use crate::resolve::names;

/// The status of a GatewayClass.
pub(crate) static CLASS: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Main,
    bond: Bond::NONE,
    ..UnitKind::of_object("gateway class", 2, Own::Key)
};

/// The claims of a Gateway or a ListenerSet: to ports, and to hosts at them; or those of a
/// BackendTLSPolicy to Services.
pub(crate) static LISTENERS: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Entered,
    bond: Bond::NONE,
    claims_ports: true,
    // Until it runs others have no place but those that they had.
    waits_woken: true,
    ..UnitKind::of_object("listeners", 3, Own::Key)
};

/// The hosts and ports of a Gateway or a ListenerSet that have an effect.
pub(crate) static ENTRANCE: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Entered,
    bond: Bond {
        is_read_whole: true,
        ..Bond::READ
    },
    claim_fact: Some(|hasher, id, host| hasher.fact(GatewayFact::Claim(id, host.as_str()))),
    named_seat: Some(|hasher, host| hasher.fact(GatewayFact::NamedSeat(host.as_str()))),
    // A host that it needs no more asks whether it has a place there.
    waits_woken: true,
    ..UnitKind::of_object("entrance", 9, Own::Key)
};

/// The parents of a route, its claims there, and its status.
pub(crate) static ROUTE: UnitKind = UnitKind {
    bond: Bond {
        is_read_whole: true,
        ..Bond::READ
    },
    claim_fact: Some(|hasher, id, host| hasher.fact(GatewayFact::Claim(id, host.as_str()))),
    entered_seat: Some(|hasher, host| hasher.fact(GatewayFact::EnteredSeat(host.as_str()))),
    // A host that it enters no more asks whether its listener is for it, and so does a port.
    waits_woken: true,
    ..UnitKind::of_object("route", 10, Own::Key)
};

/// The rules of a route as proxies have them.
pub(crate) static ROWS: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Entered,
    bond: Bond::NONE,
    may_wait: true,
    ..UnitKind::of_object("rows", 12, Own::Key)
};

/// The destination of all that comes to a port whose connections or datagrams have no names.
pub(crate) static STREAM_PORT: UnitKind = UnitKind::needed("stream port", 13);

/// The status of a BackendTLSPolicy.
pub(crate) static BACKEND_POLICY: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Main,
    bond: Bond::NONE,
    waits_woken: true,
    ..UnitKind::of_object("backend policy", 29, Own::Key)
};

/// The status of a ListenerSet.
pub(crate) static SET_STATUS: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Main,
    bond: Bond::NONE,
    waits_woken: true,
    ..UnitKind::of_object("listener set status", 30, Own::Key)
};

/// The status of a Gateway, behind those of its ListenerSets, which it counts.
pub(crate) static GATEWAY_STATUS: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Main,
    bond: Bond::NONE,
    waits_woken: true,
    ..UnitKind::of_object("gateway status", 31, Own::Key)
};

impl Unit {
    /// The status of a GatewayClass.
    pub fn gateway_class(key: &ObjectKey) -> Unit {
        Unit::of_object(&CLASS, key)
    }

    /// The claims of a Gateway or a ListenerSet, or of a BackendTLSPolicy.
    pub fn listeners(key: &ObjectKey) -> Unit {
        Unit::of_object(&LISTENERS, key)
    }

    /// The hosts and ports of a Gateway or a ListenerSet.
    pub fn entrance(key: &ObjectKey) -> Unit {
        Unit::of_object(&ENTRANCE, key)
    }

    /// The parents of a route.
    pub fn route(key: &ObjectKey) -> Unit {
        Unit::of_object(&ROUTE, key)
    }

    /// The rules of a route.
    pub fn rows(key: &ObjectKey) -> Unit {
        Unit::of_object(&ROWS, key)
    }

    /// The destination of all that comes to a port.
    pub fn stream_port(port: PortKey) -> Unit {
        Unit::new(&STREAM_PORT, UnitKey::Port(port))
    }

    /// The status of a BackendTLSPolicy.
    pub fn backend_policy(key: &ObjectKey) -> Unit {
        Unit::of_object(&BACKEND_POLICY, key)
    }

    /// The status of a ListenerSet.
    pub fn set_status(key: &ObjectKey) -> Unit {
        Unit::of_object(&SET_STATUS, key)
    }

    /// The status of a Gateway.
    pub fn gateway_status(key: &ObjectKey) -> Unit {
        Unit::of_object(&GATEWAY_STATUS, key)
    }
}

/// The unit that an object is there with, for kinds that claim hosts.
pub(crate) fn claimant(key: &ObjectKey) -> Option<Unit> {
    match key.kind {
        ObjectKind::Gateway | ObjectKind::ListenerSet => Some(Unit::entrance(key)),
        ObjectKind::HttpRoute | ObjectKind::GrpcRoute | ObjectKind::TlsRoute => {
            Some(Unit::route(key))
        }
        _ => None,
    }
}

/// The claims of an object, and those of them that may be new.
pub(crate) fn newly(old: &Object, new: &Object) -> Option<NewlyClaimed> {
    let is_same = match (old, new) {
        (Object::Gateway(old), Object::Gateway(new)) => old.spec.class == new.spec.class,
        (Object::ListenerSet(old), Object::ListenerSet(new)) => old.spec.parent == new.spec.parent,
        _ => {
            let (old, new) = (RouteObject::of(old)?, RouteObject::of(new)?);
            let is_newly_default = new.uses_defaults() && !old.uses_defaults();
            old.parents() == new.parents() && !is_newly_default
        }
    };
    let hosts = NewlyClaimed::new(claimed_hosts(old), claimed_hosts(new), |_| is_same);
    let named = ports(old);
    let is_named = |port: &Claimed| is_same && named.contains(port);
    Some(hosts.and(named.clone(), ports(new), is_named))
}

/// The hosts that an object claims, among them that of listeners without one, and of routes that
/// name none and have those of their listeners.
fn claimed_hosts(object: &Object) -> BTreeSet<Host> {
    let mut hosts = named(object);
    let mut listeners = listeners_of(object).iter();
    let is_unnamed = listeners.any(|it| it.hostname.as_deref().is_none_or(str::is_empty));
    let route = RouteObject::of(object);
    let is_for_all = route.is_some_and(|route| route.hostnames().is_empty());
    hosts.extend((is_unnamed || is_for_all).then(Host::any));
    hosts
}

/// The ports of the listeners of an object, with what is spoken there.
fn ports(object: &Object) -> BTreeSet<Claimed> {
    let listeners = listeners_of(object).iter();
    let ports = listeners.filter_map(|it| {
        let speech = speech_of(&it.protocol)?;
        Some(Claimed::Port(it.port, speech))
    });
    ports.collect()
}

/// The numbers of those ports, and which of them are of UDP.
pub(crate) fn port_numbers(object: &Object) -> BTreeSet<(u16, bool)> {
    let listeners = listeners_of(object).iter();
    let ports = listeners.map(|it| (it.port, *it.protocol == *"UDP"));
    ports.collect()
}

fn listeners_of(object: &Object) -> &[Listener] {
    match object {
        Object::Gateway(gateway) => &gateway.spec.listeners,
        Object::ListenerSet(set) => &set.spec.listeners,
        _ => &[],
    }
}

/// The names of hosts that listeners of an object have.
pub(crate) fn listener_names(object: &Object) -> impl Iterator<Item = &str> {
    let listeners = listeners_of(object).iter();
    listeners.filter_map(|it| it.hostname.as_deref())
}

/// The hosts that an object names, by what it says alone.
fn named(object: &Object) -> BTreeSet<Host> {
    let route = RouteObject::of(object);
    let of_route = route.iter().flat_map(|route| route.hostnames());
    let texts = listener_names(object).chain(of_route.map(|text| &**text));
    texts.filter_map(|text| names::host(text).ok()).collect()
}

/// The number of hosts that an object names.
pub(crate) fn hosts(object: &Object) -> u64 {
    named(object).len() as u64
}
