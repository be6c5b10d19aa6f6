//! Facts about Gateways, VirtualServices and Telemetries, and which of them a change touches.

use std::hash::Hash;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_api::{Object, ObjectKey, ObjectKind};

use super::touch::{bound, servers_changed, servers_moved, wildcards};
use crate::engine::{Scene, States, Touched, Unit};
use crate::resolve::{SharedFact, suffix_of};
use crate::store::{Fact, FactHasher, object_fact};

/// Something that a unit may read of an object of Istio's at gateways.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum IstioFact<'a> {
    /// Whether an Istio Gateway is there and of this role.
    Gateway(&'a str),
    /// The servers of an Istio Gateway that name a host.
    Server(&'a str, &'a str),
    /// Where the servers of an Istio Gateway stand among each other.
    Places(&'a str),
    /// The VirtualServices that are bound to an Istio Gateway and name a host.
    Bound(&'a str, &'a str),
    /// The namespaces, Gateways and kinds of rules of those VirtualServices: what they mean as
    /// wildcards to the hosts below.
    BoundShapes(&'a str, &'a str),
    /// The time since which a VirtualService claims a host.
    ServiceClaim(&'a str, &'a str),
    /// The Telemetries of a namespace.
    Telemetries(&'a str),
}

impl Fact for IstioFact<'_> {
    const FAMILY: u8 = 5;
}

/// Adds what differs between an object and its successor, either of which may be absent.
pub(crate) fn touch(scene: &Scene<'_>, key: &ObjectKey, states: States<'_>, touched: &mut Touched) {
    let (hasher, id) = (scene.hasher, key.id());
    match key.kind {
        ObjectKind::IstioGateway => {
            touched.unit = Some(Unit::gateway(id.clone()));
            touch_servers(scene, id, states, &mut touched.facts);
        }
        ObjectKind::VirtualService => {
            touched.unit = Some(Unit::virtual_service(id.clone()));
            let facts = &mut touched.facts;
            facts.push(object_fact(hasher, key.kind, id));
            for object in [states.0, states.1].into_iter().flatten() {
                found_under(hasher, object, &mut |fact| facts.push(fact));
            }
            touch_claims(hasher, states, facts);
        }
        ObjectKind::AuthorizationPolicy | ObjectKind::RequestAuthentication => {
            touched.unit = Some(Unit::access_policy(key));
        }
        ObjectKind::Telemetry => {
            touched.unit = Some(Unit::refused(key));
            let fact = hasher.fact(IstioFact::Telemetries(key.namespace()));
            touched.facts.push(fact);
        }
        ObjectKind::DestinationRule
        | ObjectKind::ServiceEntry
        | ObjectKind::WorkloadEntry
        | ObjectKind::ProxyConfig
        | ObjectKind::EnvoyFilter
        | ObjectKind::WasmPlugin => touched.unit = Some(Unit::refused(key)),
        _ => {}
    }
}

fn touch_servers(scene: &Scene<'_>, id: &str, states: States<'_>, facts: &mut Vec<u64>) {
    let (old, new) = (as_gateway(states.0), as_gateway(states.1));
    let (hosts, is_other) = servers_changed(old, new, scene.views);
    let hasher = scene.hasher;
    let hosts = hosts.iter();
    facts.extend(hosts.map(|host| hasher.fact(IstioFact::Server(id, host.as_str()))));
    if is_other {
        facts.push(hasher.fact(IstioFact::Gateway(id)));
    }
    if servers_moved(old, new) {
        facts.push(hasher.fact(IstioFact::Places(id)));
    }
}

/// The wildcards that a VirtualService names before and after, where hosts below read other things
/// of it. Claims that come and go are noted where hosts are needed; that it is bound to a Gateway
/// without one, by a pattern broader than its servers, is noted here.
fn touch_claims(hasher: &FactHasher, states: States<'_>, facts: &mut Vec<u64>) {
    let (old, new) = (as_service(states.0), as_service(states.1));
    let both = old.zip(new);
    let is_same = both.is_some_and(|(old, new)| is_shade_same(old, new));
    if let Some((_, new)) = both.filter(|_| !is_same) {
        let wildcards = wildcards(new);
        let suffixes = wildcards.iter().filter_map(suffix_of);
        facts.extend(suffixes.map(|suffix| hasher.fact(SharedFact::Above(suffix))));
    }
    let is_bound_alike = |(old, new): (&VirtualService, &VirtualService)| {
        old.spec.export_to == new.spec.export_to && wildcards(old) == wildcards(new)
    };
    if is_same && both.is_some_and(is_bound_alike) {
        return;
    }
    for service in [old, new].into_iter().flatten() {
        for (gateway, host) in bound(service) {
            if suffix_of(&host).is_some() {
                facts.push(hasher.fact(IstioFact::BoundShapes(&gateway, host.as_str())));
            }
        }
    }
}

/// Whether two states of a VirtualService are the same to the hosts below its wildcards, which do
/// not read where its rules lead.
fn is_shade_same(old: &VirtualService, new: &VirtualService) -> bool {
    old.meta.created == new.meta.created
        && old.spec.gateways == new.spec.gateways
        && old.spec.tls == new.spec.tls
        && old.spec.http.is_empty() == new.spec.http.is_empty()
        && old.spec.tcp.is_empty() == new.spec.tcp.is_empty()
}

/// The facts under which an object is found that is not found by its key alone.
pub(crate) fn found_under(hasher: &FactHasher, object: &Object, add: &mut dyn FnMut(u64)) {
    match object {
        Object::VirtualService(service) => {
            for (gateway, host) in bound(service) {
                add(hasher.fact(IstioFact::Bound(&gateway, host.as_str())));
            }
        }
        Object::Telemetry(telemetry) => {
            let namespace = telemetry.meta.key.namespace();
            add(hasher.fact(IstioFact::Telemetries(namespace)));
        }
        _ => {}
    }
}

fn as_service(object: Option<&Object>) -> Option<&VirtualService> {
    match object {
        Some(Object::VirtualService(service)) => Some(service),
        _ => None,
    }
}

fn as_gateway(object: Option<&Object>) -> Option<&Gateway> {
    match object {
        Some(Object::IstioGateway(gateway)) => Some(gateway),
        _ => None,
    }
}
