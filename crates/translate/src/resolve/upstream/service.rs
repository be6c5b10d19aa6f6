//! Services: their ports, and the endpoints behind one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_api::istio::{Labels, WorkloadEntry};
use myriad_api::{BackendPort, Finding, Service, ServicePort, Severity, TargetPort};
use myriad_model::{Dns, Endpoints, Host, Origin, OriginKind, host::Pattern};

use super::border::{Border, is_beside, remedy};
use super::endpoint_source::{EndpointSource, Speech};
use super::group::{Group, Marks, Spots};
use super::slices::{self, Asking, Hearing, Identities, Listed, is_member};
use super::{Address, Draft, Members, member_name};
use crate::engine::{Output, Reader, Weight};
use crate::resolve::Merged;
use crate::resolve::destination_rule::{self, Choice};
use crate::resolve::names::service_host;
use crate::resolve::opened::{OpenedService, is_tcp};
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

/// The ways to name a port that no longer lead to the same number.
pub(crate) fn ports_changed(old: Option<&Service>, new: Option<&Service>) -> Vec<BackendPort> {
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
    let port = port_of(&service, address);
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
    let Some(choice) = rules.choose(reader, address.subset, address.port) else {
        super::weigh(reader, name);
        return draft.close(reader);
    };
    // Rules are about connections.
    let policy = match address.is_datagrams {
        true => Merged::default(),
        false => choice.policy,
    };
    if let Some(external_name) = &service.external_name {
        let border = Border::of(reader);
        let dns = read_external(&service, external_name, border, (port, address.port));
        return match dns {
            Ok(dns) => draft.finish(reader, &policy, EndpointSource::Dns(dns)),
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
    let Some((endpoints, hashes)) = found.collect(reader, &service, port, &choice) else {
        return draft.close_beyond(reader);
    };
    if reader.settings().sidecars && !address.is_datagrams {
        let name = member_name(&host, address.port, address.subset);
        let is_original = service.is_headless && is_beside(reader);
        draft.members = members(name, is_original, found.identities, &endpoints);
    }
    let is_empty = endpoints.endpoints.is_empty();
    let place = EndpointSource::Endpoints(endpoints, hashes);
    let mut output = draft.finish(reader, &policy, place);
    let has_refused = !found.findings.is_empty();
    output.findings.extend(found.findings);
    if is_empty && !has_refused && !is_beside(reader) {
        output.findings.push(no_endpoint(&draft, choice.labels));
    }
    output
}

/// The amount that a port of a Service counts for, or each copy of its endpoints. What its slices
/// list for a port counts with them, and once more for each further port of the same name.
pub(super) fn weigh(reader: &mut Reader<'_>, address: Address<'_>, id: &str) -> Option<Weight> {
    let service = reader.service(id)?;
    if service.external_name.is_some() {
        return None;
    }
    let port = port_of(&service, address)?;
    let looks = reader.looks(service.meta.key.namespace(), &service.selector);
    let listed = match address.is_copy() || service.is_repeated(port) {
        // A copy of nothing is an upstream as well.
        true => Listed::read(reader, &service, port).count.max(1),
        false => 0,
    };
    Weight::new(service.meta.created, listed + looks)
}

/// The port of a Service that an upstream is of.
fn port_of<'a>(service: &'a OpenedService, address: Address<'_>) -> Option<&'a ServicePort> {
    match address.is_datagrams {
        true => service.datagram_port(address.port),
        false => service.port(address.port),
    }
}

/// Whether a port of a Service has the name of one before it.
pub(super) fn is_repeated(reader: &mut Reader<'_>, number: u16, id: &str) -> bool {
    let service = reader.service(id);
    service.is_some_and(|service| {
        let port = service.port(number);
        port.is_some_and(|port| service.is_repeated(port))
    })
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
    /// The workloads that the Service selects.
    selected: Group,
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
            selected: Group::default(),
            identities: Identities::default(),
            border: Border::of(reader),
            room: usize::MAX,
            findings: Vec::new(),
        }
    }

    /// The addresses that may take traffic: the ready ones, or, if there is none, those that still
    /// serve while they terminate. An address in two slices counts once. With them the hashes of
    /// all, where there are many. None where a subset has more than it may.
    fn collect(
        &mut self,
        reader: &mut Reader<'_>,
        service: &Service,
        port: &ServicePort,
        choice: &Choice<'_>,
    ) -> Option<(Endpoints, Box<[u64]>)> {
        let listed = Listed::read(reader, service, port);
        let workloads = reader.workloads(service.meta.key.namespace(), &service.selector);
        let count = listed.count + workloads.len();
        self.room = choice.room(count, &reader.settings().bounds);
        if self.room == 0 {
            return None;
        }
        let labels = choice.labels.filter(|labels| !labels.is_empty());
        let asking = Asking {
            port: port.name.clone(),
            labels: labels.cloned(),
            is_gateway: !is_beside(reader),
        };
        let is_many = slices::are_many(count);
        let room = (self.room < count).then_some(self.room);
        let hearing = Hearing::hold(reader, &listed, asking, (is_many, room))?;
        self.add_workloads(reader, port, &workloads, labels);
        for said in hearing.said() {
            self.identities.add_all(&said.identities);
            self.findings.extend_from_slice(&said.findings);
        }
        let selected = std::mem::take(&mut self.selected).sorted(is_many);
        let ready = hearing.said().map(|said| &said.ready);
        let (mut endpoints, mut hashes) = Spots::join(ready.chain([&selected]));
        if endpoints.endpoints.is_empty() {
            (endpoints, hashes) = Spots::join(hearing.said().map(|said| &said.leaving));
        }
        hearing.close(reader);
        let hashes = if is_many { hashes } else { Box::default() };
        (endpoints.endpoints.len() <= self.room).then_some((endpoints, hashes))
    }

    fn add_workloads(
        &mut self,
        reader: &Reader<'_>,
        port: &ServicePort,
        workloads: &[Arc<WorkloadEntry>],
        labels: Option<&Labels>,
    ) {
        for workload in workloads {
            if self.selected.len() > self.room {
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
            self.selected.add(at, weight, marks);
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

/// The numbers of TCP ports, by number and by name; of several of one name the first.
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
