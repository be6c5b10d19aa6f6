//! Gateways, VirtualServices and Telemetries, as units read them.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use myriad_api::istio::{Gateway, Telemetry, VirtualService};
use myriad_api::{Object, ObjectKind};
use myriad_model::Host;

use super::destination::Resolved;
use super::entrance::{self, Entering, Opening, ServerEntry};
use super::facts::IstioFact;
use super::opened::OpenedGateway;
use super::port::Binding;
use super::service_names::ServiceNames;
use super::touch;
use crate::engine::{Claimed, Kept, Moment, Reader};
use crate::resolve::Claim;

/// The most names that are indexed again rather than kept.
const LINEAR_MAX: usize = 16;

/// The most names of Gateways, and as many of VirtualServices, that are kept open at a time: some
/// 100 MB. Sixteen namespaces may have as many in front of tenants, so that nobody makes others
/// open all of theirs again for each host.
const KEPT_NAMES_MAX: usize = 1 << 22;

/// The large Gateways and VirtualServices that were opened, and the destination that was resolved
/// last.
#[derive(Default)]
struct OpenIstio {
    gateways: HashMap<Arc<str>, OpenedGateway>,
    /// How many names those have.
    gateway_names: usize,
    services: HashMap<Arc<str>, (Arc<VirtualService>, Arc<ServiceNames>)>,
    /// How many names those have.
    service_names: usize,
    /// The result with all that was read for it, so it is kept for one run alone.
    resolved: Option<Resolved>,
}

impl OpenIstio {
    /// Keeps ways in to a Gateway that is open.
    fn keep(&mut self, gateway: &Gateway, asked: (Host, Entering), found: Arc<[Opening]>) {
        self.gateway_names += found.len();
        if self.gateway_names > KEPT_NAMES_MAX {
            self.gateways.clear();
            self.gateway_names = 0;
        }
        let opened = self.gateways.get_mut(gateway.meta.key.id());
        if let Some(opened) = opened.filter(|opened| opened.is_of(gateway)) {
            opened.keep(asked, found);
        }
    }
}

impl Kept for OpenIstio {
    fn forget(&mut self, at: Moment) {
        self.resolved = None;
        if at != Moment::Run {
            self.gateways = HashMap::new();
            self.gateway_names = 0;
            self.services = HashMap::new();
            self.service_names = 0;
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Reader<'_> {
    /// An Istio Gateway, for the unit of its name, which runs again with it: no fact is noted.
    pub fn gateway(&mut self, id: &str) -> Option<Arc<Gateway>> {
        match self.visit(ObjectKind::IstioGateway, id)? {
            Object::IstioGateway(gateway) => Some(gateway),
            _ => None,
        }
    }

    /// Whether an Istio Gateway is there and for the workload that is served here.
    pub fn has_gateway(&mut self, id: &str) -> bool {
        self.read(IstioFact::Gateway(id));
        let gateway = self.gateway(id);
        gateway.is_some_and(|gateway| self.view().has_servers(&gateway.spec.selector))
    }

    /// An Istio Gateway that is for the workload that is served here and has a server that names
    /// this host. The caller reads of it those servers, and no others.
    pub fn servers(&mut self, id: &str, host: &Host) -> Option<Arc<Gateway>> {
        self.read(IstioFact::Server(id, host.as_str()));
        let gateway = self.gateway(id)?;
        if !self.view().has_servers(&gateway.spec.selector) {
            return None;
        }
        if self.opened(&gateway).is_none()
            && let Some(opened) = OpenedGateway::new(&gateway)
            && let Some(open) = self.open_mut::<OpenIstio>()
        {
            open.gateway_names += opened.count();
            if open.gateway_names > KEPT_NAMES_MAX {
                open.gateways.clear();
                open.gateway_names = opened.count();
            }
            open.gateways.insert(gateway.meta.key.id().clone(), opened);
        }
        self.is_named(&gateway, None, host).then_some(gateway)
    }

    /// Notes that the servers of a Gateway that name a host are read, by [`Reader::servers`].
    pub fn note_servers(&mut self, id: &str, host: &Host) {
        self.read(IstioFact::Server(id, host.as_str()));
    }

    /// Whether a server of a Gateway names a host, or this one does. The caller noted that it reads
    /// them, by [`Reader::servers`].
    pub fn is_named(&self, gateway: &Gateway, server: Option<usize>, host: &Host) -> bool {
        match self.opened(gateway) {
            Some(opened) => opened.names(server, host),
            None => {
                let entries = entrance::entries(&gateway.spec, host);
                let mut entries = entries.iter();
                entries.any(|(at, _)| server.is_none_or(|server| *at == server))
            }
        }
    }

    /// The ways in to a Gateway by servers that name a host, for a namespace or for anybody. As
    /// above. Where many servers name it, they are looked at once for all who ask.
    pub fn openings(
        &mut self,
        gateway: &Gateway,
        host: &Host,
        namespace: Option<&str>,
    ) -> Arc<[Opening]> {
        let opened = self.opened(gateway);
        let has_binds = match opened {
            Some(opened) => opened.has_binds(),
            None => {
                let mut servers = gateway.spec.servers.iter();
                servers.any(|server| !server.bind.is_empty())
            }
        };
        let is_many = opened.is_some_and(|opened| opened.has_many(host));
        let entering = Entering {
            namespace: namespace.map(Box::from),
            binding: match has_binds {
                true => Binding::read(self, gateway.meta.key.namespace()),
                false => Binding::Nowhere,
            },
        };
        if !is_many {
            return self.find_openings(gateway, host, &entering).into();
        }
        let asked = (host.clone(), entering);
        let known = self.opened(gateway).and_then(|opened| opened.kept(&asked));
        if let Some(known) = known {
            return known.clone();
        }
        let found: Arc<[Opening]> = self.find_openings(gateway, host, &asked.1).into();
        self.count(self.server_entries(gateway, host).len() as u64);
        if let Some(open) = self.open_mut::<OpenIstio>() {
            open.keep(gateway, asked, found.clone());
        }
        found
    }

    fn find_openings(&self, gateway: &Gateway, host: &Host, entering: &Entering) -> Vec<Opening> {
        let entries = self.server_entries(gateway, host);
        entrance::openings(gateway, &entries, self.settings(), entering)
    }

    /// The entries of a Gateway that name a host, in their order. As above.
    pub fn server_entries(&self, gateway: &Gateway, host: &Host) -> Vec<ServerEntry> {
        match self.opened(gateway) {
            Some(opened) => opened.entries(host),
            None => entrance::entries(&gateway.spec, host),
        }
    }

    fn opened(&self, gateway: &Gateway) -> Option<&OpenedGateway> {
        let gateways = &self.open::<OpenIstio>()?.gateways;
        let opened = gateways.get(gateway.meta.key.id());
        opened.filter(|opened| opened.is_of(gateway))
    }

    /// Notes that a finding says where a server stands among those of its Gateway. What is served
    /// does not depend on it, so that one that comes before others runs no host without findings.
    pub fn note_places(&mut self, gateway: &str) {
        self.read(IstioFact::Places(gateway));
    }

    /// The VirtualServices that are bound to a Gateway and name a host, in no order that has a
    /// meaning.
    pub fn bound(&mut self, gateway: &str, host: &Host) -> Vec<Arc<VirtualService>> {
        self.bound_of(gateway, host, None)
    }

    /// The same, or those of one namespace alone: the others are not opened.
    pub fn bound_of(
        &mut self,
        gateway: &str,
        host: &Host,
        namespace: Option<&str>,
    ) -> Vec<Arc<VirtualService>> {
        self.read(IstioFact::Bound(gateway, host.as_str()));
        self.find_bound(gateway, host, namespace)
    }

    /// The same, for who reads of them only whose they are, who sees them, where they are bound and
    /// which kinds of rules they have: hosts below a wildcard, which are many.
    pub fn bound_shapes(&mut self, gateway: &str, host: &Host) -> Vec<Arc<VirtualService>> {
        self.read(IstioFact::BoundShapes(gateway, host.as_str()));
        self.find_bound(gateway, host, None)
    }

    fn find_bound(
        &mut self,
        gateway: &str,
        host: &Host,
        namespace: Option<&str>,
    ) -> Vec<Arc<VirtualService>> {
        let fact = self.hash(IstioFact::Bound(gateway, host.as_str()));
        let mut found = self.collect(fact, |object| match object {
            Object::VirtualService(service) => {
                let own = service.meta.key.namespace();
                let is_asked = namespace.is_none_or(|namespace| namespace == own);
                is_asked.then_some(service)
            }
            _ => None,
        });
        found.retain(|service| self.names_of(service).is_bound(gateway, host));
        found
    }

    /// The hosts and names of a VirtualService. The caller noted what of it is read.
    pub fn names_of(&mut self, service: &Arc<VirtualService>) -> Arc<ServiceNames> {
        let id = service.meta.key.id();
        let known = self.open::<OpenIstio>();
        let known = known.and_then(|open| open.services.get(id));
        if let Some((of, names)) = known
            && Arc::ptr_eq(of, service)
        {
            return names.clone();
        }
        let names = Arc::new(ServiceNames::of(service));
        let count = names.count();
        if count > LINEAR_MAX
            && let Some(open) = self.open_mut::<OpenIstio>()
        {
            open.service_names += count;
            if open.service_names > KEPT_NAMES_MAX {
                open.services.clear();
                open.service_names = count;
            }
            let kept = (service.clone(), names.clone());
            open.services.insert(id.clone(), kept);
        }
        names
    }

    /// A VirtualService, whole.
    pub fn virtual_service(&mut self, id: &str) -> Option<Arc<VirtualService>> {
        self.read_object(ObjectKind::VirtualService, id);
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

    /// The claim of a VirtualService to a host that it may not have, which is told of here alone.
    pub fn noted_claim(&mut self, service: &VirtualService, host: &Host) -> Claim {
        let id = service.meta.key.id();
        self.read(IstioFact::ServiceClaim(id, host.as_str()));
        self.claim(&service.meta, host)
    }

    /// Since when rules of a VirtualService take plain connections at a port of a Gateway that they
    /// name, or at any by 0, where that is later than its creation. What is for all hosts runs when
    /// it is told otherwise, so that no fact is noted.
    pub fn stream_since(
        &self,
        service: &VirtualService,
        gateway: &Arc<str>,
        port: u16,
    ) -> Option<i64> {
        if self.settings().late_claims && touch::has_many_streams(service) {
            return Some(i64::MAX);
        }
        if !self.is_late(&service.meta.key) {
            return None;
        }
        self.claimed_since(&service.meta, &Claimed::stream(gateway, port)?)
    }

    /// The destination that was resolved last in this run, with all that was read for it.
    pub fn resolved(&self) -> Option<&Resolved> {
        self.open::<OpenIstio>()?.resolved.as_ref()
    }

    /// Keeps the destination that was resolved last in this run.
    pub fn set_resolved(&mut self, resolved: Resolved) {
        if let Some(open) = self.open_mut::<OpenIstio>() {
            open.resolved = Some(resolved);
        }
    }

    /// The Telemetries of a namespace, in no order that has a meaning.
    pub fn telemetries(&mut self, namespace: &str) -> Vec<Arc<Telemetry>> {
        let fact = self.read(IstioFact::Telemetries(namespace));
        self.collect(fact, |object| match object {
            Object::Telemetry(telemetry) => {
                let is_of = telemetry.meta.key.namespace() == namespace;
                is_of.then_some(telemetry)
            }
            _ => None,
        })
    }
}
