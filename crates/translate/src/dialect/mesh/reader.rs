//! Objects that are for sidecars, as units read them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use myriad_api::istio::{PeerAuthentication, Sidecar};
use myriad_api::{Object, Service};

use super::facts::MeshFact;
use super::scope::SidecarScope;
use crate::engine::Reader;

impl<'a> Reader<'a> {
    /// The Services of a namespace that select workloads with these labels, in no order that has
    /// a meaning.
    pub fn services_of(
        &mut self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Arc<Service>> {
        let mut found = Vec::new();
        for (key, value) in labels {
            let fact = self.read(MeshFact::Selecting(namespace, key, value));
            for object in self.stored().collection(fact) {
                self.count(1);
                let Object::Service(service) = object else {
                    continue;
                };
                let mut selector = service.selector.iter();
                let has = |key: &str, value: &str| labels.get(key).is_some_and(|it| it == value);
                // Each is looked at by the first label that it asks for.
                let is_first = service
                    .selector
                    .first()
                    .is_some_and(|(first, _)| **first == **key);
                if service.meta.key.namespace() == namespace
                    && is_first
                    && selector.all(|(key, value)| has(key, value))
                {
                    found.push(service);
                }
            }
        }
        found
    }

    /// The Services that have an address in its canonical form, in no order that has a meaning.
    pub fn services_at(&mut self, address: IpAddr) -> Vec<Arc<Service>> {
        let fact = self.read(MeshFact::Address(address));
        self.collect(fact, |object| match object {
            Object::Service(service) => {
                let mut addresses = service.addresses.iter();
                let has = addresses.any(|it| it.to_canonical() == address);
                has.then_some(service)
            }
            _ => None,
        })
    }

    /// The PeerAuthentications of a namespace, in no order that has a meaning.
    pub fn peers(&mut self, namespace: &str) -> Vec<Arc<PeerAuthentication>> {
        let fact = self.read(MeshFact::Peers(namespace));
        self.collect(fact, |object| match object {
            Object::PeerAuthentication(peers) => {
                let is_of = peers.meta.key.namespace() == namespace;
                is_of.then_some(peers)
            }
            _ => None,
        })
    }

    /// The Sidecar that is for the view, for the unit of its workload. It runs again whenever that
    /// may be another, so no fact is noted.
    pub fn sidecar(&self) -> Option<&'a Sidecar> {
        let scope = self.view().scope_unasked().object::<SidecarScope>();
        scope.map(|scope| &*scope.0)
    }
}
