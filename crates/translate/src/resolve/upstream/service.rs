//! Services: their ports, and the endpoints behind one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_api::istio::{Labels, WorkloadEntry};
use myriad_api::{BackendPort, EndpointSlice, Finding, Service, ServicePort, Severity, TargetPort};
use myriad_model::{
    Dns, Endpoints, Host, Origin, OriginKind, Unreachable, UpstreamTls, host::Pattern,
};

use super::border::{Border, is_beside, remedy};
use super::endpoint_source::{EndpointSource, Speech};
use super::group::{Group, Marks};
use super::{Address, Draft, Members, member_name};
use crate::engine::{Output, Reader, Weight};
use crate::resolve::destination_rule::{self, Choice};
use crate::resolve::names::service_host;
use crate::resolve::service_entry::has_labels;
use crate::resolve::spoken::Spoken;

/// The outcome of the search for a port that a backend names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFound {
    /// `spec.ports` has it; this is its number.
    Listed(u16),
    /// The Service is an alias of an outside host and takes any number.
    Implied(u16),
    /// There is no such Service.
    NoService,
    /// The Service has no such TCP port.
    NoPort,
}

/// Looks a port up by number or name.
pub fn find_port(service: Option<&Service>, wanted: &BackendPort) -> PortFound {
    let Some(service) = service else {
        return PortFound::NoService;
    };
    let is_wanted = |port: &&ServicePort| match wanted {
        BackendPort::Number(number) => port.port == *number,
        BackendPort::Name(name) => *port.name == **name,
    };
    let listed = service.ports.iter().filter(|port| is_tcp(port));
    match (listed.into_iter().find(is_wanted), wanted) {
        (Some(port), _) => PortFound::Listed(port.port),
        (None, BackendPort::Number(number)) if service.external_name.is_some() => {
            PortFound::Implied(*number)
        }
        _ => PortFound::NoPort,
    }
}

/// The ways to name a port that no longer lead to the same number.
pub fn ports_changed(old: Option<&Service>, new: Option<&Service>) -> Vec<BackendPort> {
    let (old, new) = (all_ports(old), all_ports(new));
    let differs = |port: &&BackendPort| old.get(*port) != new.get(*port);
    let known: BTreeSet<&BackendPort> = old.keys().chain(new.keys()).collect();
    known.into_iter().filter(differs).cloned().collect()
}

/// Translates the upstream of a port of a Service.
pub(super) fn translate(
    reader: &mut Reader<'_>,
    name: &Arc<str>,
    address: Address<'_>,
    id: &str,
) -> Output {
    // Without the Service no route refers here; the host that did runs in the same batch.
    let Some(service) = reader.service(id) else {
        return Output::default();
    };
    let port = port_of(&service, address.port);
    let key = &service.meta.key;
    let mut draft = Draft {
        name,
        address,
        key,
        origin: Origin {
            kind: OriginKind::Service,
            id: key.id().clone(),
        },
        speech: port.map_or(Speech::Http1, Speech::of_port),
        subject_alt_names: &[],
        members: Members::default(),
        is_open: is_open(reader, port),
    };
    let host = service_host(id, &reader.settings().cluster_domain);
    let rules = destination_rule::find(reader, &host, key.namespace());
    let Some(choice) = rules.choose(address.subset, address.port) else {
        super::weigh(reader, name);
        return draft.close(reader);
    };
    if let Some(external_name) = &service.external_name {
        let border = Border::of(reader);
        let dns = read_external(&service, external_name, border, (port, address.port));
        return match dns {
            Ok(dns) => draft.finish(reader, &choice.policy, EndpointSource::Dns(dns)),
            Err(finding) => Output {
                findings: vec![*finding],
                ..Output::default()
            },
        };
    }
    let Some(port) = port else {
        return Output::default();
    };
    let mut found = Found::new(reader);
    let Some(endpoints) = found.collect(reader, &service, port, &choice) else {
        return draft.close_beyond(reader);
    };
    if reader.settings().sidecars {
        let name = member_name(&host, address.port, address.subset);
        let is_original = service.is_headless && is_beside(reader);
        draft.members = members(name, is_original, found.identities, &endpoints);
    }
    let is_empty = endpoints.endpoints.is_empty();
    let mut output = draft.finish(reader, &choice.policy, EndpointSource::Endpoints(endpoints));
    let has_refused = !found.findings.is_empty();
    output.findings.extend(found.findings);
    if is_empty && !has_refused && !is_beside(reader) {
        output.findings.push(no_endpoint(&draft, choice.labels));
    }
    output
}

/// The amount that a port of a Service counts for, or each copy of its endpoints.
pub(super) fn weigh(reader: &mut Reader<'_>, address: Address<'_>, id: &str) -> Option<Weight> {
    let service = reader.service(id)?;
    if service.external_name.is_some() {
        return None;
    }
    let port = port_of(&service, address.port)?;
    let workloads = reader.workloads(service.meta.key.namespace(), &service.selector);
    let listed = match address.is_copy() {
        true => count(&parts(reader, &service, port)),
        false => 0,
    };
    Weight::new(service.meta.created, listed + workloads.len())
}

fn port_of(service: &Service, number: u16) -> Option<&ServicePort> {
    let mut ports = service.ports.iter().filter(|port| is_tcp(port));
    ports.find(|port| port.port == number)
}

/// The EndpointSlices of a port, each with the number that the port has there.
fn parts(
    reader: &mut Reader<'_>,
    service: &Service,
    port: &ServicePort,
) -> Vec<(Arc<EndpointSlice>, u16)> {
    let mut parts = Vec::new();
    for slice in reader.slices(service.meta.key.id()) {
        let ports = slice.ports.iter().filter(|known| {
            *known.name == *port.name && known.protocol.as_deref().is_none_or(|p| p == "TCP")
        });
        let numbers = ports.filter_map(|port| port.port);
        parts.extend(numbers.map(|number| (slice.clone(), number)));
    }
    parts
}

fn count(parts: &[(Arc<EndpointSlice>, u16)]) -> usize {
    parts.iter().map(|(slice, _)| slice.endpoints.len()).sum()
}

/// The endpoints that sidecars speak to by mutual TLS.
fn members(
    name: String,
    is_original: bool,
    identities: Identities,
    endpoints: &Endpoints,
) -> Members {
    let mut all = endpoints.endpoints.iter();
    let is_all = !endpoints.endpoints.is_empty() && all.all(|endpoint| endpoint.mesh);
    Members {
        name: Some(name),
        is_usual: true,
        identities: identities.into_known(),
        original: is_original.then_some(is_all),
    }
}

fn no_endpoint(draft: &Draft<'_>, labels: Option<&Labels>) -> Finding {
    draft.no_endpoint(match labels {
        None => {
            "check its EndpointSlices: their label kubernetes.io/service-name, port name and \
             conditions"
        }
        Some(_) => "check the labels of its Pods beside those of the subset",
    })
}

/// Whether a sidecar reaches a port of which nobody says what is spoken there.
fn is_open(reader: &Reader<'_>, port: Option<&ServicePort>) -> bool {
    is_beside(reader) && port.is_some_and(|port| Spoken::of_port(port) == Spoken::Unknown)
}

/// Endpoints as they are found.
struct Found<'a> {
    ready: Group,
    leaving: Group,
    identities: Identities,
    border: Border<'a>,
    /// How many there may be.
    room: usize,
    /// The findings about addresses that are left out.
    findings: Vec<Finding>,
}

impl<'a> Found<'a> {
    fn new(reader: &Reader<'a>) -> Self {
        Found {
            ready: Group::default(),
            leaving: Group::default(),
            identities: Identities::default(),
            border: Border::of(reader),
            room: usize::MAX,
            findings: Vec::new(),
        }
    }

    /// The addresses that may take traffic: the ready ones, or, if there is none, those that still
    /// serve while they terminate. An address in two slices counts once. None where a subset has
    /// more than it may.
    fn collect(
        &mut self,
        reader: &mut Reader<'_>,
        service: &Service,
        port: &ServicePort,
        choice: &Choice<'_>,
    ) -> Option<Endpoints> {
        let parts = parts(reader, service, port);
        let workloads = reader.workloads(service.meta.key.namespace(), &service.selector);
        let listed = count(&parts) + workloads.len();
        self.room = choice.room(listed, &reader.settings().bounds);
        if self.room == 0 {
            return None;
        }
        let labels = choice.labels.filter(|labels| !labels.is_empty());
        for (slice, number) in &parts {
            self.add_slice(reader, slice, *number, labels);
        }
        self.add_workloads(reader, port, &workloads, labels);
        let chosen = match self.ready.is_empty() {
            true => &mut self.leaving,
            false => &mut self.ready,
        };
        let chosen = std::mem::take(chosen);
        (chosen.len() <= self.room).then(|| chosen.endpoints())
    }

    fn add_workloads(
        &mut self,
        reader: &Reader<'_>,
        port: &ServicePort,
        workloads: &[Arc<WorkloadEntry>],
        labels: Option<&Labels>,
    ) {
        for workload in workloads {
            if self.ready.len() > self.room {
                return;
            }
            let namespace = workload.meta.key.namespace();
            let spec = &workload.spec;
            let own = spec.ports.get(&port.name).copied();
            let target = match port.target_port {
                Some(TargetPort::Number(number)) => number,
                Some(TargetPort::Name(_)) | None => port.port,
            };
            let number = own.filter(|own| *own > 0).unwrap_or(target);
            let Ok(ip) = spec.address.parse::<IpAddr>() else {
                continue;
            };
            let at = SocketAddr::new(ip, number);
            let is_wanted = labels.is_none_or(|wanted| has_labels(&spec.labels, wanted));
            if !is_wanted || self.border.refusal(at).is_some() {
                continue;
            }
            let weight = spec.weight.max(1);
            let mesh = is_member(reader, &spec.labels);
            if mesh {
                let account = Some(&*spec.service_account);
                self.identities.add(namespace, account, reader);
            }
            let marks = Marks {
                locality: &spec.locality,
                mesh,
            };
            self.ready.add(at, weight, marks);
        }
    }

    fn add_slice(
        &mut self,
        reader: &mut Reader<'_>,
        slice: &EndpointSlice,
        port: u16,
        labels: Option<&Labels>,
    ) {
        let is_mesh = reader.settings().sidecars;
        let namespace = slice.meta.key.namespace();
        let mut refused = None;
        for (index, endpoint) in slice.endpoints.iter().enumerate() {
            // Then there are more, whatever follows.
            if self.ready.len() > self.room {
                return;
            }
            let Some(address) = endpoint.address else {
                continue;
            };
            let at = SocketAddr::new(address, port);
            if let Some(why) = self.border.refusal(at) {
                refused.get_or_insert((index, at, why));
                continue;
            }
            let conditions = endpoint.conditions;
            let is_ready = conditions.ready;
            let is_leaving = conditions.serving && conditions.terminating;
            if !(is_ready || is_leaving) {
                continue;
            }
            let pod = endpoint.pod.as_deref();
            let pod = pod.filter(|_| is_mesh || labels.is_some());
            let pod = pod.and_then(|pod| reader.pod(&format!("{namespace}/{pod}")));
            let has = |wanted| {
                let labels = pod.as_ref().map(|pod| &pod.labels);
                labels.is_some_and(|labels| has_labels(labels, wanted))
            };
            if !labels.is_none_or(has) {
                continue;
            }
            let member = pod.filter(|pod| is_member(reader, &pod.labels));
            if let Some(pod) = &member {
                let account = pod.account.as_deref();
                self.identities.add(namespace, account, reader);
            }
            let zone = endpoint.zone.as_deref();
            let into = match is_ready {
                true => &mut self.ready,
                false => &mut self.leaving,
            };
            into.add_in_zone(at, zone, member.is_some());
        }
        // The first says what is wrong; a slice may have a hundred of them.
        let told = refused.map(|(index, at, why)| refused_endpoint(slice, index, at, why));
        self.findings.extend(told);
    }
}

fn refused_endpoint(
    slice: &EndpointSlice,
    index: usize,
    at: SocketAddr,
    why: Unreachable,
) -> Finding {
    Finding::new(
        Severity::Error,
        &slice.meta.key,
        format!("endpoints[{index}].addresses[0]"),
        format!("{at} is {why}, so no gateway leads there"),
        remedy(why),
    )
}

/// Whether a workload speaks mutual TLS of the mesh: its labels say so where a sidecar is beside
/// it.
fn is_member(reader: &Reader<'_>, labels: &Labels) -> bool {
    let mode = labels.get("security.istio.io/tlsMode");
    reader.settings().sidecars && mode.is_some_and(|mode| **mode == *"istio")
}

/// The identities that endpoints of the mesh may have.
#[derive(Default)]
struct Identities {
    known: BTreeSet<Box<str>>,
    /// Whether the identity of one of them is not known.
    is_open: bool,
}

impl Identities {
    fn add(&mut self, namespace: &str, account: Option<&str>, reader: &Reader<'_>) {
        match account.filter(|account| !account.is_empty()) {
            Some(account) => {
                let domains = reader.settings().trust_domains();
                let ids = domains.map(|it| format!("spiffe://{it}/ns/{namespace}/sa/{account}"));
                self.known.extend(ids.map(Into::into));
            }
            None => self.is_open = true,
        }
    }

    /// The identities, or none for any of the mesh.
    fn into_known(self) -> BTreeSet<Box<str>> {
        match self.is_open || self.known.len() > UpstreamTls::NAMES_MAX {
            true => BTreeSet::new(),
            false => self.known,
        }
    }
}

fn read_external(
    service: &Service,
    text: &str,
    border: Border<'_>,
    (port, number): (Option<&ServicePort>, u16),
) -> Result<Dns, Box<Finding>> {
    let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let host = Host::parse(&text).ok();
    let Some(Pattern::Exact(name)) = host.as_ref().map(Host::pattern) else {
        return Err(bad_external_name(service).into());
    };
    let target = port.and_then(|port| match port.target_port {
        Some(TargetPort::Number(target)) if target > 0 => Some(target),
        _ => None,
    });
    let number = target.unwrap_or(number);
    match border.refusal_of_host(name, number) {
        None => Ok(Dns::strict(name, number)),
        Some(why) => {
            let message = format!("{name}:{number} is {why}, so its routes answer 503");
            let (key, field) = (&service.meta.key, "spec.externalName");
            let finding = Finding::new(Severity::Error, key, field, message, remedy(why));
            Err(finding.into())
        }
    }
}

fn bad_external_name(service: &Service) -> Finding {
    Finding::new(
        Severity::Error,
        &service.meta.key,
        "spec.externalName",
        "is not a host name, so its routes answer 503",
        "write a DNS name such as api.example.com",
    )
}

fn all_ports(service: Option<&Service>) -> BTreeMap<BackendPort, u16> {
    let mut ports = BTreeMap::new();
    let listed = service.map_or(&[][..], |service| &service.ports);
    for port in listed.iter().filter(|port| is_tcp(port)) {
        let by_number = BackendPort::Number(port.port);
        ports.entry(by_number).or_insert(port.port);
        let by_name = BackendPort::Name(port.name.clone());
        ports.entry(by_name).or_insert(port.port);
    }
    ports
}

fn is_tcp(port: &ServicePort) -> bool {
    port.protocol.as_deref().is_none_or(|p| p == "TCP")
}
