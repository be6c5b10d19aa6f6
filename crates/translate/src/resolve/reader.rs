//! The objects that every dialect reads: Secrets, Services, ServiceEntries, their rules and
//! endpoints.

use std::sync::Arc;

use myriad_api::istio::DestinationRule;
use myriad_api::{BackendPort, HostProof, Meta, Object, ObjectKey, ObjectKind, Pod, Secret};
use myriad_model::Host;

use super::certificate;
use super::claim::{Claim, Claims, suffix_of};
use super::facts::{SecretContent, SharedFact};
use super::lent::{is_among, lent_to};
use super::names::rule_host;
use super::opened::OpenedService;
use super::rule_facts::fact_patterns;
use super::upstream::PortFound;
use crate::engine::{Engine, Reader, Unit};
use crate::settings::{GatewayCredentials, Settings};
use crate::store::Stored;

impl Reader<'_> {
    /// The claim of an object to a host. Since when it has it changes with the object, and hosts
    /// run when they are told otherwise, so that no fact is noted.
    pub fn claim(&self, meta: &Meta, host: &Host) -> Claim {
        Claim::new(meta, self.late_since(meta, host))
    }

    /// The claim of an object that claims the host of the unit that runs, which is not opened.
    pub fn claim_of(&self, kind: ObjectKind, id: &Arc<str>, host: &Host) -> Option<Claim> {
        let meta = Meta {
            created: self.created(kind, id)?,
            key: ObjectKey::from_id(kind, id.clone()),
            annotations: Box::default(),
        };
        Some(self.claim(&meta, host))
    }

    /// The namespace that has proven a host to be its own. The unit of the host runs again with
    /// the proof, so that nothing is noted but of a wildcard, which hosts below it may read.
    pub fn proven_by(&mut self, host: &Host) -> Option<Box<str>> {
        let key = HostProof::key_of(host.as_str());
        if suffix_of(host).is_some() {
            self.read_object(key.kind, key.id());
        }
        match self.visit(key.kind, key.id())? {
            Object::HostProof(proof) => Some(proof.namespace.clone()),
            _ => None,
        }
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

    /// Why a Secret holds no certificate that can be served; none where it does.
    pub fn certificate_fault(&mut self, id: &str) -> Option<&'static str> {
        self.read(SharedFact::Pair(id));
        match self.secret(id) {
            Some(secret) => {
                self.count_text();
                certificate::fault(&secret)
            }
            None => Some("is not there"),
        }
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
    pub fn service_alone(&mut self, id: &str) -> Option<Arc<OpenedService>> {
        self.read(SharedFact::Service(id));
        self.service_itself(id)
    }

    /// A Service, with all that [`Reader::slices`] returns.
    pub fn service(&mut self, id: &str) -> Option<Arc<OpenedService>> {
        self.read(SharedFact::Endpoints(id));
        self.service_itself(id)
    }

    /// The number of a port of a Service.
    pub fn service_port(&mut self, id: &str, port: &BackendPort) -> PortFound {
        self.exported_port(id, port).0
    }

    /// Whether a Service is an alias of an outside host, of which no more is read.
    pub fn is_alias(&mut self, id: &str) -> bool {
        self.read(SharedFact::ServiceShape(id));
        let service = self.service_itself(id);
        service.is_some_and(|service| service.external_name.is_some())
    }

    /// The number of a port of a Service, and the Service, of which no more is read than the
    /// namespaces to which it is exported.
    pub fn exported_port(
        &mut self,
        id: &str,
        port: &BackendPort,
    ) -> (PortFound, Option<Arc<OpenedService>>) {
        self.read(SharedFact::ServicePort(id, port));
        let service = self.service_itself(id);
        let found = service.as_ref();
        let found = found.map_or(PortFound::NoService, |service| service.find(port));
        if !matches!(found, PortFound::Listed(_)) {
            self.read(SharedFact::ServiceShape(id));
        }
        (found, service)
    }

    /// Whether the owner of a Service exports it to a namespace by its name, or to all by `*`. No
    /// more of it is noted, so that one which is for others alone is none that this depends on.
    pub fn is_exported_to(&mut self, id: &str, namespace: &str) -> bool {
        for to in [namespace, "*"] {
            self.read(SharedFact::ExportedTo(id, to));
        }
        let service = self.service_itself(id);
        let mut exports = service.iter().flat_map(|service| service.exports());
        exports.any(|to| **to == *"*" || **to == *namespace)
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

/// Whether a namespace has DestinationRules for a host or wildcard in full, without noting that
/// somebody asked.
pub(crate) fn has_rules(
    stored: Stored<'_>,
    settings: &Settings,
    namespace: &str,
    pattern: &str,
) -> bool {
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
