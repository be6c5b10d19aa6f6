//! Objects that are for sidecars, as units read them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use myriad_api::istio::{PeerAuthentication, ServiceEntry, Sidecar};
use myriad_api::{Object, Service};
use myriad_model::Host;

use super::facts::MeshFact;
use super::scope::SidecarScope;
use crate::engine::Reader;
use crate::resolve::names;
use crate::store::Stored;

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

    /// Whether any Service has an address in a block: in one of a length that Services are found
    /// under, or in one that is an address. Where one has, nothing is noted but that it stands
    /// there.
    pub fn has_service_in(&mut self, block: IpNet) -> bool {
        if block.prefix_len() == block.max_prefix_len() {
            return !self.services_at(block.addr().to_canonical()).is_empty();
        }
        let mut visited = 0;
        let standing = |object: Object| {
            visited += 1;
            let Object::Service(service) = object else {
                return None;
            };
            let addresses = service.addresses.iter().map(IpAddr::to_canonical);
            addresses.filter(|it| block.contains(it)).min()
        };
        let fact = self.hash(MeshFact::Block(block));
        let found = self.stored().collection(fact).find_map(standing);
        self.count(visited);
        match found {
            Some(address) => self.read(MeshFact::Standing(block, address)),
            None => self.read(MeshFact::Block(block)),
        };
        found.is_some()
    }

    /// Whether the caller's namespace has a ServiceEntry for a host or for a wildcard above it, or
    /// the root namespace one that the caller sees. One for all names says nothing of any.
    pub fn is_declared(&mut self, host: &Host) -> bool {
        let mut patterns = vec![host.clone()];
        patterns.extend(names::broader(host));
        patterns.retain(|pattern| *pattern != Host::any());
        patterns.iter().any(|pattern| {
            let pattern = names::written(pattern);
            self.read(MeshFact::Declares(pattern));
            self.is_declared_by_root(pattern) || self.is_declared_by_caller(pattern)
        })
    }

    fn is_declared_by_root(&self, pattern: &str) -> bool {
        let root = self.settings().root_namespace();
        let mut found = declared(self.stored(), root, pattern);
        found.any(|entry| self.view().sees(&entry.spec.export_to, root))
    }

    fn is_declared_by_caller(&self, pattern: &str) -> bool {
        let view = self.view();
        let has = declares(self.stored(), view.namespace_unasked(), pattern);
        view.note_declared(pattern, has);
        has
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

/// Whether a namespace has a ServiceEntry for a host or wildcard as it is written, without noting
/// that somebody asked.
pub(crate) fn declares(stored: Stored<'_>, namespace: &str, pattern: &str) -> bool {
    declared(stored, namespace, pattern).next().is_some()
}

/// The ServiceEntries of a namespace for a host or wildcard as it is written.
fn declared<'a>(
    stored: Stored<'a>,
    namespace: &'a str,
    pattern: &'a str,
) -> impl Iterator<Item = Arc<ServiceEntry>> + use<'a> {
    let fact = stored.hasher().fact(MeshFact::Declared(namespace, pattern));
    stored.collection(fact).filter_map(move |object| {
        let Object::ServiceEntry(entry) = object else {
            return None;
        };
        let mut hosts = entry.spec.hosts.iter();
        let is_it = hosts.any(|host| host.eq_ignore_ascii_case(pattern));
        (is_it && entry.meta.key.namespace() == namespace).then_some(entry)
    })
}
