//! The objects that every dialect reads: Secrets, Services, ServiceEntries, their rules and
//! endpoints.

use std::sync::Arc;

use myriad_api::istio::{DestinationRule, Labels, ServiceEntry, WorkloadEntry};
use myriad_api::{EndpointSlice, Meta, Object, ObjectKind, Pod, Secret, Service};
use myriad_model::Host;

use super::claim::{Claim, Claims, suffix_of};
use super::facts::{SecretContent, SharedFact, service_of};
use super::lent::{is_among, lent_to};
use super::names::rule_host;
use super::rule_facts::fact_patterns;
use super::service_entry::has_labels;
use crate::engine::{Engine, Reader, Unit};
use crate::settings::{GatewayCredentials, Settings};
use crate::store::{SliceHead, Stored};

impl Reader<'_> {
    /// The claim of an object to a host. Since when it has it changes with the object, and hosts
    /// run when they are told otherwise, so that no fact is noted.
    pub fn claim(&self, meta: &Meta, host: &Host) -> Claim {
        Claim::new(meta, self.late_since(meta, host))
    }

    /// The objects that claim the host of the unit that runs.
    pub fn claims(&self) -> Claims {
        Claims::of(self.needers())
    }

    /// Notes that it is read who claims a wildcard, and what that means to the hosts below it.
    pub fn note_above(&mut self, pattern: &Host) {
        if let Some(suffix) = suffix_of(pattern) {
            self.read(SharedFact::Above(suffix));
        }
    }

    /// The objects that claim a wildcard, for hosts that it covers.
    pub fn claims_above(&mut self, pattern: &Host) -> Claims {
        self.note_above(pattern);
        match self.find(&Unit::host_of(pattern.clone())) {
            Some(id) => Claims::of(self.needers_of(id)),
            None => Claims::default(),
        }
    }

    /// A Secret, for the unit of its name, which runs again with it: no fact is noted.
    pub fn secret(&mut self, id: &str) -> Option<Arc<Secret>> {
        match self.visit(ObjectKind::Secret, id)? {
            Object::Secret(secret) => Some(secret),
            _ => None,
        }
    }

    /// Whether there is a Secret of this name.
    pub fn has_secret(&mut self, id: &str) -> bool {
        self.read_object(ObjectKind::Secret, id);
        self.stored().has(ObjectKind::Secret, id)
    }

    /// A Secret, for the unit of the authorities or users in it.
    pub fn trust(&mut self, id: &str) -> Option<Arc<Secret>> {
        self.read(SharedFact::Trust(id));
        self.secret(id)
    }

    /// Whether there are authorities in a Secret, that can be read or not.
    pub fn has_trust(&mut self, id: &str) -> bool {
        self.held(id) == Some(SecretContent::Authorities)
    }

    /// Whether the owner of a Secret lets objects of a namespace use it.
    pub fn is_lent(&mut self, id: &str, namespace: &str) -> bool {
        self.read(SharedFact::LentTo(id));
        let secret = self.visit(ObjectKind::Secret, id);
        lent_to(secret.as_ref()).is_some_and(|written| is_among(written, namespace))
    }

    /// Whether objects of a namespace may use a Secret of another one, that of a proxy's workload.
    pub fn may_use(&mut self, id: &str, namespace: &str) -> bool {
        match self.settings().gateway_credentials {
            GatewayCredentials::Any => true,
            GatewayCredentials::Named => self.is_lent(id, namespace),
        }
    }

    /// Whether a Service is there.
    pub fn has_service(&mut self, id: &str) -> bool {
        self.read(SharedFact::ServiceShape(id));
        self.stored().has(ObjectKind::Service, id)
    }

    /// A Service alone, for who has no use for its endpoints.
    pub fn service_alone(&mut self, id: &str) -> Option<Arc<Service>> {
        self.read(SharedFact::Service(id));
        self.service_itself(id)
    }

    /// A Service, with all that [`Reader::slices`] returns.
    pub fn service(&mut self, id: &str) -> Option<Arc<Service>> {
        self.read(SharedFact::Endpoints(id));
        self.service_itself(id)
    }

    /// Notes that what DestinationRules say of a host is read by [`Reader::rules`].
    pub fn note_rules(&mut self, host: &str) {
        for pattern in fact_patterns(host, &self.settings().cluster_domain) {
            self.read(SharedFact::Rules(&pattern));
        }
    }

    /// Notes that only the subsets of a host are read by [`Reader::rules`].
    pub fn note_subsets(&mut self, host: &str) {
        for pattern in fact_patterns(host, &self.settings().cluster_domain) {
            self.read(SharedFact::Subsets(&pattern));
        }
    }

    /// Whether there is any DestinationRule. Who asks noted the host that it asks for.
    pub fn has_rules(&self) -> bool {
        self.stored().has_any(ObjectKind::DestinationRule)
    }

    /// The DestinationRules of a namespace for a host or wildcard in full, in no order that has a
    /// meaning. The caller noted the host that it reads them for.
    pub fn rules(&mut self, namespace: &str, pattern: &str) -> Vec<Arc<DestinationRule>> {
        let domain = &self.settings().cluster_domain;
        let mut visited = 0;
        let found = rules(self.stored(), domain, namespace, pattern, &mut visited);
        self.count(visited);
        found
    }

    /// The same for the namespace of the view. Views whose namespaces have none are alike.
    pub fn own_rules(&mut self, pattern: &str) -> Vec<Arc<DestinationRule>> {
        let namespace = self.view().namespace_unasked();
        let rules = self.rules(namespace, pattern);
        self.view().note_rules(pattern, !rules.is_empty());
        if !rules.is_empty() {
            self.view().namespace();
        }
        rules
    }

    /// The ServiceEntries of all namespaces that name a host, in no order that has a meaning.
    pub fn entries(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        self.read(SharedFact::Entries(host));
        self.find_entries(host)
    }

    /// The same, for who reads of them only whose they are, who sees them, and their ports.
    pub fn entry_shapes(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        self.read(SharedFact::EntryShapes(host));
        self.find_entries(host)
    }

    fn find_entries(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        let fact = self.hash(SharedFact::Entries(host));
        self.collect(fact, |object| match object {
            Object::ServiceEntry(entry) => {
                let mut hosts = entry.spec.hosts.iter();
                let is_named = hosts.any(|known| known.eq_ignore_ascii_case(host));
                is_named.then_some(entry)
            }
            _ => None,
        })
    }

    /// A Pod, of which the labels and the account are read.
    pub fn pod(&mut self, id: &str) -> Option<Arc<Pod>> {
        self.read_object(ObjectKind::Pod, id);
        match self.visit(ObjectKind::Pod, id)? {
            Object::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    /// Whether there is any WorkloadEntry. No fact: who asks reads those that it looks for.
    pub fn has_workloads(&self) -> bool {
        self.stored().has_any(ObjectKind::WorkloadEntry)
    }

    /// The WorkloadEntries of a namespace that have all labels; none without labels.
    pub fn workloads(&mut self, namespace: &str, labels: &Labels) -> Vec<Arc<WorkloadEntry>> {
        let found = self.find_workloads(namespace, labels).into_iter();
        let found = found.filter_map(|object| match object {
            Object::WorkloadEntry(entry) => Some(entry),
            _ => None,
        });
        found
            .filter(|it| has_labels(&it.spec.labels, labels))
            .collect()
    }

    /// The Pods of a namespace that have all labels; none without labels.
    pub fn pods(&mut self, namespace: &str, labels: &Labels) -> Vec<Arc<Pod>> {
        let found = self.find_workloads(namespace, labels).into_iter();
        let found = found.filter_map(|object| match object {
            Object::Pod(pod) => Some(pod),
            _ => None,
        });
        found.filter(|it| has_labels(&it.labels, labels)).collect()
    }

    /// The workloads of a namespace that have one of the labels.
    fn find_workloads(&mut self, namespace: &str, labels: &Labels) -> Vec<Object> {
        let Some((key, value)) = labels.first() else {
            return Vec::new();
        };
        let fact = self.read(SharedFact::Workloads(namespace, key, value));
        let found = self.stored().collection(fact);
        let found: Vec<Object> = found
            .filter(|object| object.key().namespace() == namespace)
            .collect();
        self.count(found.len() as u64);
        found
    }

    /// The heads of the EndpointSlices of a Service, in no order that has a meaning. They count
    /// for no object that is visited: none is unpacked.
    pub fn slice_heads(&mut self, service: &str) -> Vec<SliceHead> {
        let fact = self.read(SharedFact::Endpoints(service));
        let heads = self.stored().slice_heads(fact);
        heads.filter(|head| is_head_of(head, service)).collect()
    }

    /// An EndpointSlice by its `namespace/name`, for who reads the heads of those of its Service.
    pub fn slice(&mut self, id: &str) -> Option<Arc<EndpointSlice>> {
        match self.visit(ObjectKind::EndpointSlice, id)? {
            Object::EndpointSlice(slice) => Some(slice),
            _ => None,
        }
    }

    /// The EndpointSlices of a Service, in no order that has a meaning.
    pub fn slices(&mut self, service: &str) -> Vec<Arc<EndpointSlice>> {
        let fact = self.read(SharedFact::Endpoints(service));
        self.collect(fact, |object| {
            let is_of = service_of(Some(&object)).as_deref() == Some(service);
            match object {
                Object::EndpointSlice(slice) if is_of => Some(slice),
                _ => None,
            }
        })
    }
}

impl Engine {
    /// A Pod, by `namespace/name`.
    pub fn pod(&self, id: &str) -> Option<Arc<Pod>> {
        match self.stored().get(ObjectKind::Pod, id)? {
            Object::Pod(pod) => Some(pod),
            _ => None,
        }
    }
}

/// Whether a slice is of a Service, by `namespace/name`.
fn is_head_of(head: &SliceHead, service: &str) -> bool {
    let both = head.id.split_once('/').zip(service.split_once('/'));
    both.is_some_and(|((own, _), (namespace, name))| {
        own == namespace && head.service.as_deref() == Some(name)
    })
}

/// Whether a namespace has DestinationRules for a host or wildcard in full, without noting that
/// somebody asked.
pub fn has_rules(stored: Stored<'_>, settings: &Settings, namespace: &str, pattern: &str) -> bool {
    let domain = &settings.cluster_domain;
    !rules(stored, domain, namespace, pattern, &mut 0).is_empty()
}

/// The DestinationRules of a namespace for a host or wildcard in full.
fn rules(
    stored: Stored<'_>,
    domain: &str,
    namespace: &str,
    pattern: &str,
    visited: &mut u64,
) -> Vec<Arc<DestinationRule>> {
    let mut found = Vec::new();
    // A rule may name a Service of its own namespace in short.
    let suffix = format!(".{namespace}.svc.{domain}");
    let short = pattern
        .strip_suffix(&suffix)
        .filter(|it| !it.contains(['.', '*']));
    for written in [Some(pattern), short].into_iter().flatten() {
        let fact = stored
            .hasher()
            .fact(SharedFact::RulesIn(namespace, written));
        for object in stored.collection(fact) {
            *visited += 1;
            if let Object::DestinationRule(rule) = object
                && rule.meta.key.namespace() == namespace
                && rule_host(&rule.spec.host, namespace, domain) == pattern
            {
                found.push(rule);
            }
        }
    }
    found
}
