//! The tracked handle: the only way from a unit to objects.

mod ingress;

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::istio::{
    DestinationRule, Gateway, Labels, PeerAuthentication, ServiceEntry, Sidecar, Telemetry,
    VirtualService, WorkloadEntry,
};
use myriad_api::{BackendPort, EndpointSlice, Object, ObjectKey, ObjectKind, Pod, Secret, Service};

use myriad_model::Host;

use super::allowance::Allowances;
use super::facts::{Fact, FactHasher, service_of, trust_of};
use super::objects::Objects;
use super::rules;
use super::units::Units;
use super::viewpoint::Viewpoint;
use super::views::Views;
use crate::Settings;
use crate::certificate::{self, Names};
use crate::host::Claims;
use crate::ingress::{Defaults, Opened};
use crate::istio::{self, OpenedGateway, PortClaim, PortKey, Resolved, Speech};
use crate::output::Unit;
use crate::ownership::suffix_of;
use crate::upstream::{self, PortFound};

/// What was read last and stays open between the units of a batch: each host of a large object
/// reads it, and all of them in a row.
#[derive(Default)]
pub struct Open {
    ingress: Option<Arc<Opened>>,
    gateway: Option<OpenedGateway>,
    /// Read by the hosts of all Ingresses, so it is kept beyond the batch.
    defaults: Option<Arc<Defaults>>,
}

impl Open {
    /// Forgets what may be the object of a kind that changes.
    pub fn forget(&mut self, kind: ObjectKind) {
        let defaults = self.defaults.take();
        *self = Open {
            defaults: defaults.filter(|_| kind != ObjectKind::ConfigMap),
            ..Open::default()
        };
    }

    /// What stays when the batch is over.
    pub fn keep(self) -> Open {
        Open {
            defaults: self.defaults,
            ..Open::default()
        }
    }
}

/// Hands out objects and remembers which facts about them were read.
pub struct Reader<'a> {
    objects: &'a Objects,
    hasher: &'a FactHasher,
    settings: &'a Settings,
    views: &'a Views,
    allowances: &'a Allowances,
    view: &'a Viewpoint<'a>,
    now: i64,
    units: &'a Units,
    opened: &'a mut Open,
    resolved: Option<Resolved>,
    facts: Vec<u64>,
    visited: u64,
}

impl<'a> Reader<'a> {
    /// A handle for one run of one unit.
    pub fn new(
        (objects, hasher, units): (&'a Objects, &'a FactHasher, &'a Units),
        (settings, views, allowances): (&'a Settings, &'a Views, &'a Allowances),
        view: &'a Viewpoint<'a>,
        now: i64,
        opened: &'a mut Open,
    ) -> Self {
        Reader {
            objects,
            hasher,
            settings,
            views,
            allowances,
            view,
            now,
            units,
            opened,
            resolved: None,
            facts: Vec::new(),
            visited: 0,
        }
    }

    /// The settings, which hold for the life of the engine and are no fact.
    pub fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// The view that is translated for. Whatever differs between views is asked of it.
    pub fn view(&self) -> &'a Viewpoint<'a> {
        self.view
    }

    /// Whether any view is of a namespace. No fact: what reads it runs again when views change.
    pub fn is_served(&self, namespace: &str) -> bool {
        !self.views.of_namespace(namespace).is_empty()
    }

    /// The namespaces of all gateways, the main one's first. No fact, as above.
    pub fn namespaces(&self) -> Vec<&'a str> {
        let mut namespaces: Vec<&str> = Vec::new();
        for standing in self.views.gateways() {
            let namespace = &*standing.view.namespace;
            if !namespaces.contains(&namespace) {
                namespaces.push(namespace);
            }
        }
        namespaces
    }

    /// The time of the run, in seconds since the epoch. Who reads it sets a deadline.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Whether an Ingress is beyond what its namespace may hold. It changes when it gets there,
    /// so no fact is noted either.
    pub fn is_beyond(&self, id: &Arc<str>) -> bool {
        self.allowances.is_ingress_beyond(id)
    }

    /// A Secret, for the unit of its name, which runs again with it: no fact is noted.
    pub fn secret(&mut self, id: &str) -> Option<Arc<Secret>> {
        match self.visit(ObjectKind::Secret, id)? {
            Object::Secret(secret) => Some(secret),
            _ => None,
        }
    }

    /// The names that the certificate of a Secret covers; none where there is no such Secret.
    /// For who needs the unit of that Secret and so runs again when the names change.
    pub fn secret_names(&mut self, id: &str) -> Option<Names> {
        match self.visit(ObjectKind::Secret, id)? {
            Object::Secret(secret) => Some(certificate::names(&secret)),
            _ => None,
        }
    }

    /// Whether there is a Secret of this name.
    pub fn has_secret(&mut self, id: &str) -> bool {
        self.note(Fact::Object(ObjectKind::Secret, id));
        self.objects.has(self.hasher, ObjectKind::Secret, id)
    }

    /// A Secret, for the unit of the authorities in it.
    pub fn trust(&mut self, id: &str) -> Option<Arc<Secret>> {
        self.note(Fact::Trust(id));
        self.secret(id)
    }

    /// Whether there are authorities in a Secret, that can be read or not.
    pub fn has_trust(&mut self, id: &str) -> bool {
        self.note(Fact::TrustThere(id));
        let secret = self.visit(ObjectKind::Secret, id);
        trust_of(secret.as_ref()).is_some()
    }

    /// An object, for the unit of its name, which runs again with it: no fact is noted.
    pub fn itself(&mut self, key: &ObjectKey) -> Option<Object> {
        self.visit(key.kind, key.id())
    }

    /// An Istio Gateway, for the unit of its name, which runs again with it: no fact is noted.
    pub fn gateway(&mut self, id: &str) -> Option<Arc<Gateway>> {
        match self.visit(ObjectKind::IstioGateway, id)? {
            Object::IstioGateway(gateway) => Some(gateway),
            _ => None,
        }
    }

    /// Whether an Istio Gateway is there and for the workload that is served here.
    pub fn has_gateway(&mut self, id: &str) -> bool {
        self.note(Fact::Gateway(id));
        let gateway = self.gateway(id);
        gateway.is_some_and(|gateway| self.view.has_labels(&gateway.spec.selector))
    }

    /// An Istio Gateway that is for the workload that is served here and has a server that names
    /// this host. The caller reads of it those servers, and no others.
    pub fn servers(&mut self, id: &str, host: &Host) -> Option<Arc<Gateway>> {
        self.note(Fact::Server(id, host.as_str()));
        let gateway = self.gateway(id)?;
        if !self.view.has_labels(&gateway.spec.selector) {
            return None;
        }
        let is_open = |open: &OpenedGateway| open.is_of(&gateway);
        if !self.opened.gateway.as_ref().is_some_and(is_open)
            && let Some(opened) = OpenedGateway::new(&gateway)
        {
            self.opened.gateway = Some(opened);
        }
        (!self.places(&gateway, host).is_empty()).then_some(gateway)
    }

    /// The places of those servers of a Gateway that name a host, in their order. The caller noted
    /// that it reads them, by [`Reader::servers`].
    pub fn places(&self, gateway: &Gateway, host: &Host) -> Vec<usize> {
        match &self.opened.gateway {
            Some(opened) if opened.is_of(gateway) => opened.places(host),
            _ => istio::places(&gateway.spec, host),
        }
    }

    /// The objects that claim a wildcard, for hosts that it covers.
    pub fn claims_above(&mut self, pattern: &Host) -> Claims {
        let Some(suffix) = suffix_of(pattern) else {
            return Claims::default();
        };
        self.note(Fact::Above(suffix));
        let unit = Unit::Host(pattern.clone());
        match self.units.find(self.hasher, &unit) {
            Some(id) => self.units.claims(id, self.view, self.views.is_single()),
            None => Claims::default(),
        }
    }

    /// The VirtualServices that are bound to a Gateway and name a host, in no order that has a
    /// meaning.
    pub fn bound(&mut self, gateway: &str, host: &Host) -> Vec<Arc<VirtualService>> {
        let fact = Fact::Bound(gateway, host.as_str());
        self.note(fact);
        let mut found = Vec::new();
        for object in self.objects.collection(self.hasher.hash(fact)) {
            self.visited += 1;
            let Object::VirtualService(service) = object else {
                continue;
            };
            let pairs = istio::bound(&service);
            if pairs
                .iter()
                .any(|(id, known)| **id == *gateway && known == host)
            {
                found.push(service);
            }
        }
        found
    }

    /// A Service, for the unit of what it is to sidecars, which runs again with it.
    pub fn service_itself(&mut self, id: &str) -> Option<Arc<Service>> {
        match self.visit(ObjectKind::Service, id)? {
            Object::Service(service) => Some(service),
            _ => None,
        }
    }

    /// Whether a Service is there.
    pub fn has_service(&mut self, id: &str) -> bool {
        self.note(Fact::ServiceShape(id));
        self.objects.has(self.hasher, ObjectKind::Service, id)
    }

    /// The Services of a namespace that select workloads with these labels, in no order that has
    /// a meaning.
    pub fn services_of(
        &mut self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Arc<Service>> {
        let mut found = Vec::new();
        for (key, value) in labels {
            let fact = Fact::Selecting(namespace, key, value);
            self.note(fact);
            for object in self.objects.collection(self.hasher.hash(fact)) {
                self.visited += 1;
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

    /// The PeerAuthentications of a namespace, in no order that has a meaning.
    pub fn peers(&mut self, namespace: &str) -> Vec<Arc<PeerAuthentication>> {
        let fact = Fact::Peers(namespace);
        self.note(fact);
        let mut found = Vec::new();
        for object in self.objects.collection(self.hasher.hash(fact)) {
            self.visited += 1;
            if let Object::PeerAuthentication(peers) = object
                && peers.meta.key.namespace() == namespace
            {
                found.push(peers);
            }
        }
        found
    }

    /// Whether the view may connect to whom no object names.
    pub fn allows_any(&mut self) -> bool {
        self.note(Fact::Policies);
        let allows = self.view.allows_any();
        allows.unwrap_or(self.settings.allows_any)
    }

    /// The Sidecar that is for the view, for the unit of its workload.
    pub fn sidecar(&mut self) -> Option<&'a Sidecar> {
        self.note(Fact::Sidecars(self.view.namespace_unasked()));
        self.note(Fact::Sidecars(self.settings.root_namespace()));
        self.view.sidecar_unasked()
    }

    /// A VirtualService, whole.
    pub fn virtual_service(&mut self, id: &str) -> Option<Arc<VirtualService>> {
        self.note(Fact::Object(ObjectKind::VirtualService, id));
        self.virtual_service_itself(id)
    }

    /// A VirtualService, for the unit of its name and for hosts that it claims by
    /// [`Reader::bound`]: no fact is noted.
    pub fn virtual_service_itself(&mut self, id: &str) -> Option<Arc<VirtualService>> {
        match self.visit(ObjectKind::VirtualService, id)? {
            Object::VirtualService(service) => Some(service),
            _ => None,
        }
    }

    /// The destination that was resolved last in this run, with all that was read for it.
    pub fn resolved(&mut self) -> &mut Option<Resolved> {
        &mut self.resolved
    }

    /// What is spoken on a port.
    pub fn speech(&mut self, port: &PortKey) -> Option<Speech> {
        self.note(Fact::Speech(port));
        Some(self.view.port(port)?.speech)
    }

    /// The Gateway that has a port, and what is spoken there.
    pub fn port_owner(&mut self, port: &PortKey) -> Option<PortClaim> {
        self.note(Fact::PortOwner(port));
        self.view.port(port).cloned()
    }

    /// A Service, with all that [`Reader::slices`] returns.
    pub fn service(&mut self, id: &str) -> Option<Arc<Service>> {
        self.note(Fact::Endpoints(id));
        match self.visit(ObjectKind::Service, id)? {
            Object::Service(service) => Some(service),
            _ => None,
        }
    }

    /// The number of a port of a Service.
    pub fn service_port(&mut self, id: &str, port: &BackendPort) -> PortFound {
        self.exported_port(id, port).0
    }

    /// The number of a port of a Service, by its number, and the namespaces to which the Service
    /// is exported, as written; none for all.
    pub fn exported_port(&mut self, id: &str, port: &BackendPort) -> (PortFound, Vec<Box<str>>) {
        self.note(Fact::ServicePort(id, port));
        let service = match self.visit(ObjectKind::Service, id) {
            Some(Object::Service(service)) => Some(service),
            _ => None,
        };
        let found = upstream::find_port(service.as_deref(), port);
        if !matches!(found, PortFound::Listed(_)) {
            self.note(Fact::ServiceShape(id));
        }
        let exports = service.as_deref().map(istio::mesh::exports);
        (found, exports.unwrap_or_default())
    }

    /// Notes that what DestinationRules say of a host is read by [`Reader::rules`].
    pub fn note_rules(&mut self, host: &str) {
        for pattern in istio::fact_patterns(host, &self.settings.cluster_domain) {
            self.note(Fact::Rules(&pattern));
        }
    }

    /// Notes that only the subsets of a host are read by [`Reader::rules`].
    pub fn note_subsets(&mut self, host: &str) {
        for pattern in istio::fact_patterns(host, &self.settings.cluster_domain) {
            self.note(Fact::Subsets(&pattern));
        }
    }

    /// Whether there is any DestinationRule. Who asks noted the host that it asks for.
    pub fn has_rules(&self) -> bool {
        self.objects.has_any(ObjectKind::DestinationRule)
    }

    /// The DestinationRules of a namespace for a host or wildcard in full, in no order that has a
    /// meaning. The caller noted the host that it reads them for.
    pub fn rules(&mut self, namespace: &str, pattern: &str) -> Vec<Arc<DestinationRule>> {
        let stored = (self.objects, self.hasher);
        let domain = &self.settings.cluster_domain;
        rules::find(stored, domain, namespace, pattern, &mut self.visited)
    }

    /// The same for the namespace of the view. Views whose namespaces have none are alike.
    pub fn own_rules(&mut self, pattern: &str) -> Vec<Arc<DestinationRule>> {
        let namespace = self.view.namespace_unasked();
        let rules = self.rules(namespace, pattern);
        self.view.note_rules(pattern, !rules.is_empty());
        if !rules.is_empty() {
            self.view.namespace();
        }
        rules
    }

    /// The ServiceEntries of all namespaces that name a host, in no order that has a meaning.
    pub fn entries(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        self.note(Fact::Entries(host));
        self.find_entries(host)
    }

    /// The same, for who reads of them only whose they are, who sees them, and their ports.
    pub fn entry_shapes(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        self.note(Fact::EntryShapes(host));
        self.find_entries(host)
    }

    fn find_entries(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        let fact = self.hasher.hash(Fact::Entries(host));
        let mut found = Vec::new();
        for object in self.objects.collection(fact) {
            self.visited += 1;
            let Object::ServiceEntry(entry) = object else {
                continue;
            };
            let mut hosts = entry.spec.hosts.iter();
            if hosts.any(|known| known.eq_ignore_ascii_case(host)) {
                found.push(entry);
            }
        }
        found
    }

    /// The Telemetries of a namespace, in no order that has a meaning.
    pub fn telemetries(&mut self, namespace: &str) -> Vec<Arc<Telemetry>> {
        let fact = Fact::Telemetries(namespace);
        self.note(fact);
        let mut found = Vec::new();
        for object in self.objects.collection(self.hasher.hash(fact)) {
            self.visited += 1;
            if let Object::Telemetry(telemetry) = object
                && telemetry.meta.key.namespace() == namespace
            {
                found.push(telemetry);
            }
        }
        found
    }

    /// A Pod, of which the labels are read.
    pub fn pod(&mut self, id: &str) -> Option<Arc<Pod>> {
        self.note(Fact::Object(ObjectKind::Pod, id));
        match self.visit(ObjectKind::Pod, id)? {
            Object::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    /// The WorkloadEntries of a namespace that have all labels; none without labels.
    pub fn workloads(&mut self, namespace: &str, labels: &Labels) -> Vec<Arc<WorkloadEntry>> {
        let found = self.find_workloads(namespace, labels).into_iter();
        let found = found.filter_map(|object| match object {
            Object::WorkloadEntry(entry) => Some(entry),
            _ => None,
        });
        found
            .filter(|it| istio::has_labels(&it.spec.labels, labels))
            .collect()
    }

    /// The Pods of a namespace that have all labels; none without labels.
    pub fn pods(&mut self, namespace: &str, labels: &Labels) -> Vec<Arc<Pod>> {
        let found = self.find_workloads(namespace, labels).into_iter();
        let found = found.filter_map(|object| match object {
            Object::Pod(pod) => Some(pod),
            _ => None,
        });
        found
            .filter(|it| istio::has_labels(&it.labels, labels))
            .collect()
    }

    /// The workloads of a namespace that have one of the labels.
    fn find_workloads(&mut self, namespace: &str, labels: &Labels) -> Vec<Object> {
        let Some((key, value)) = labels.first() else {
            return Vec::new();
        };
        let fact = Fact::Workloads(namespace, key, value);
        self.note(fact);
        let found = self.objects.collection(self.hasher.hash(fact));
        let found: Vec<Object> = found
            .filter(|object| object.key().namespace() == namespace)
            .collect();
        self.visited += found.len() as u64;
        found
    }

    /// The EndpointSlices of a Service, in no order that has a meaning.
    pub fn slices(&mut self, service: &str) -> Vec<Arc<EndpointSlice>> {
        self.note(Fact::Endpoints(service));
        let fact = self.hasher.hash(Fact::Endpoints(service));
        let mut slices = Vec::new();
        for object in self.objects.collection(fact) {
            self.visited += 1;
            if service_of(Some(&object)).as_deref() == Some(service)
                && let Object::EndpointSlice(slice) = object
            {
                slices.push(slice);
            }
        }
        slices
    }

    /// The facts read, sorted, and the number of objects visited.
    pub fn finish(mut self) -> (Vec<u64>, u64) {
        self.facts.sort_unstable();
        self.facts.dedup();
        (self.facts, self.visited)
    }

    fn visit(&mut self, kind: ObjectKind, id: &str) -> Option<Object> {
        let object = self.objects.get(self.hasher, kind, id)?;
        self.visited += 1;
        Some(object)
    }

    fn note(&mut self, fact: Fact<'_>) {
        self.facts.push(self.hasher.hash(fact));
    }
}
