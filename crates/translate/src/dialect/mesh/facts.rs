//! Facts that units read for sidecars alone, and which of them a change touches.

use std::hash::Hash;
use std::net::IpAddr;

use myriad_api::{Object, ObjectKey, ObjectKind, Service};

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
            }
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
            let addresses = service.addresses.iter();
            let facts = addresses.map(|it| hasher.fact(MeshFact::Address(it.to_canonical())));
            facts.for_each(add);
        }
        _ => {}
    }
}

/// The label by which a Service is found that selects workloads.
fn selecting(hasher: &FactHasher, service: &Service) -> Option<u64> {
    let (key, value) = service.selector.first()?;
    let namespace = service.meta.key.namespace();
    Some(hasher.fact(MeshFact::Selecting(namespace, key, value)))
}
