//! Facts that units read for sidecars alone, and which of them a change touches.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::net::IpAddr;

use ipnet::IpNet;
use myriad_api::istio::ServiceEntry;
use myriad_api::{Object, ObjectKey, ObjectKind, Service};

use super::blocks;
use crate::engine::{Scene, States, Touched, Unit};
use crate::resolve::exported_to;
use crate::store::{Fact, FactHasher};

/// Something that a unit may read for sidecars.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum MeshFact<'a> {
    /// The Sidecars of a namespace.
    Sidecars(&'a str),
    /// The PeerAuthentications of a namespace.
    Peers(&'a str),
    /// The Services of a namespace that select by a label first.
    Selecting(&'a str, &'a str, &'a str),
    /// The Services that have an address.
    Address(IpAddr),
    /// The Services that have an address in a block of one of the lengths that are known.
    Block(IpNet),
    /// The Service that was found in such a block, by its address.
    Standing(IpNet, IpAddr),
    /// Which namespaces have ServiceEntries for a host or wildcard as it is written, and who sees
    /// them.
    Declares(&'a str),
    /// The ServiceEntries of a namespace for one are found under it.
    Declared(&'a str, &'a str),
}

impl Fact for MeshFact<'_> {
    const FAMILY: u8 = 6;
}

/// Adds what differs between an object and its successor, either of which may be absent.
pub(crate) fn touch(scene: &Scene<'_>, key: &ObjectKey, states: States<'_>, touched: &mut Touched) {
    let hasher = scene.hasher;
    let (old, new) = states;
    match key.kind {
        ObjectKind::Sidecar => {
            touched.unit = Some(Unit::refused(key));
            touched.is_scope = true;
        }
        ObjectKind::PeerAuthentication => {
            touched.unit = Some(Unit::refused(key));
            let fact = hasher.fact(MeshFact::Peers(key.namespace()));
            touched.facts.push(fact);
        }
        ObjectKind::Service | ObjectKind::ServiceEntry if scene.settings.sidecars => {
            let facts = &mut touched.facts;
            for object in [old, new].into_iter().flatten() {
                found_under(hasher, object, &mut |fact| facts.push(fact));
                facts.extend(standing(hasher, object));
            }
            let declares = |host: &String| hasher.fact(MeshFact::Declares(host));
            facts.extend(declared_otherwise(states).iter().map(declares));
            touched.reachable = Some((Unit::reachable(key), new.and_then(exported_to)));
        }
        _ => {}
    }
}

/// The facts under which an object is found that is not found by its key alone.
pub(crate) fn found_under(hasher: &FactHasher, object: &Object, add: &mut dyn FnMut(u64)) {
    match object {
        Object::Sidecar(sidecar) => {
            add(hasher.fact(MeshFact::Sidecars(sidecar.meta.key.namespace())));
        }
        Object::PeerAuthentication(peers) => {
            add(hasher.fact(MeshFact::Peers(peers.meta.key.namespace())));
        }
        Object::Service(service) => {
            selecting(hasher, service).into_iter().for_each(&mut *add);
            for address in service.addresses.iter().map(IpAddr::to_canonical) {
                add(hasher.fact(MeshFact::Address(address)));
                let blocks = blocks::around(address);
                let facts = blocks.map(|block| hasher.fact(MeshFact::Block(block)));
                facts.for_each(&mut *add);
            }
        }
        Object::ServiceEntry(entry) => {
            let namespace = entry.meta.key.namespace();
            for host in hosts(entry) {
                add(hasher.fact(MeshFact::Declared(namespace, &host)));
            }
        }
        _ => {}
    }
}

/// The hosts of a ServiceEntry in lower case, each once.
fn hosts(entry: &ServiceEntry) -> BTreeSet<String> {
    let hosts = entry.spec.hosts.iter();
    hosts.map(|host| host.to_ascii_lowercase()).collect()
}

/// The hosts that a ServiceEntry names and named not before, or the other way round; all of them
/// where it is seen by others than before.
fn declared_otherwise((old, new): States<'_>) -> Vec<String> {
    let entry = |object: Option<&Object>| match object {
        Some(Object::ServiceEntry(entry)) => Some(entry.clone()),
        _ => None,
    };
    match (entry(old), entry(new)) {
        (Some(old), Some(new)) if old.spec.export_to == new.spec.export_to => {
            let (old, new) = (hosts(&old), hosts(&new));
            old.symmetric_difference(&new).cloned().collect()
        }
        (old, new) => {
            let both = [old, new].into_iter().flatten();
            both.flat_map(|entry| hosts(&entry)).collect()
        }
    }
}

/// The facts that a Service stands where its addresses are.
fn standing(hasher: &FactHasher, object: &Object) -> Vec<u64> {
    let Object::Service(service) = object else {
        return Vec::new();
    };
    let addresses = service.addresses.iter().map(IpAddr::to_canonical);
    let facts = addresses.flat_map(|address| {
        let blocks = blocks::around(address);
        blocks.map(move |block| hasher.fact(MeshFact::Standing(block, address)))
    });
    facts.collect()
}

/// The label by which a Service is found that selects workloads.
fn selecting(hasher: &FactHasher, service: &Service) -> Option<u64> {
    let (key, value) = service.selector.first()?;
    let namespace = service.meta.key.namespace();
    Some(hasher.fact(MeshFact::Selecting(namespace, key, value)))
}
