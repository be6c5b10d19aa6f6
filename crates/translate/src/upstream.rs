//! Upstreams: one port of one Service, and the endpoints behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use myriad_api::{BackendPort, EndpointSlice, Finding, Service, ServicePort, Severity, TargetPort};
use myriad_model::{
    Dns, Endpoint, Endpoints, Host, Name, Origin, OriginKind, Protocol, Resource, Upstream,
    UpstreamTls, Value, host::Pattern,
};

use crate::engine::Reader;
use crate::output::Output;

/// What became of a port that a backend names.
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

/// The end of the name of an upstream that speaks HTTP/2 in plain text.
const H2C_SUFFIX: &str = "+h2c";

/// The end of the name of an upstream that speaks TLS.
const HTTPS_SUFFIX: &str = "+https";

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

/// The name of the upstream of a port.
pub fn name(service: &str, port: u16, protocol: Protocol) -> Arc<str> {
    match protocol {
        Protocol::Http1 => format!("{service}:{port}").into(),
        Protocol::H2c => format!("{service}:{port}{H2C_SUFFIX}").into(),
        _ => format!("{service}:{port}{HTTPS_SUFFIX}").into(),
    }
}

/// Translates one upstream.
pub fn translate(reader: &mut Reader<'_>, name: &Arc<str>) -> Output {
    let mut output = Output::default();
    let ends = [
        (HTTPS_SUFFIX, Protocol::Https1),
        (H2C_SUFFIX, Protocol::H2c),
    ];
    let ended = |(end, protocol)| Some((name.strip_suffix(end)?, protocol));
    let (text, protocol) = ends
        .into_iter()
        .find_map(ended)
        .unwrap_or((name, Protocol::Http1));
    let Some((id, Ok(number))) = text.rsplit_once(':').map(|(id, n)| (id, n.parse())) else {
        return output;
    };
    // Without the Service no route refers here; the host that did runs in the same batch.
    let Some(service) = reader.service(id) else {
        return output;
    };
    let mut ports = service.ports.iter().filter(|port| is_tcp(port));
    let port = ports.find(|port| port.port == number);
    let mut upstream = Upstream {
        protocol,
        dns: None,
        options: None,
        tls: (protocol == Protocol::Https1).then(|| {
            // As ingress-nginx has it: the name of the request, and no verification.
            Box::new(UpstreamTls::unverified())
        }),
    };
    let origin = Origin {
        kind: OriginKind::Service,
        id: service.meta.key.id().clone(),
    };
    let resource = |value| Resource {
        origin: origin.clone(),
        value,
    };
    let name = Name::new(name.clone());
    if let Some(external_name) = &service.external_name {
        match read_external(external_name, port, number) {
            Some(dns) => upstream.dns = Some(Box::new(dns)),
            None => {
                output.findings.push(bad_external_name(&service));
                return output;
            }
        }
        output
            .resources
            .push((name, resource(Value::Upstream(upstream))));
        return output;
    }
    let Some(port) = port else {
        return output;
    };
    let endpoints = collect(&reader.slices(id), &port.name);
    if endpoints.is_empty() {
        output.findings.push(no_endpoint(&service, number));
    }
    let endpoints = Value::Endpoints(Endpoints { endpoints });
    output
        .resources
        .push((name.clone(), resource(Value::Upstream(upstream))));
    output.resources.push((name, resource(endpoints)));
    output
}

/// The addresses that may take traffic: the ready ones, or, if there is none, those that still
/// serve while they terminate. An address in two slices counts once.
fn collect(slices: &[Arc<EndpointSlice>], port_name: &str) -> Box<[Endpoint]> {
    let mut ready = BTreeSet::new();
    let mut leaving = BTreeSet::new();
    for slice in slices {
        let ports = slice.ports.iter().filter(|port| {
            *port.name == *port_name && port.protocol.as_deref().is_none_or(|p| p == "TCP")
        });
        for port in ports.filter_map(|port| port.port) {
            for endpoint in &slice.endpoints {
                let Some(address) = endpoint.address else {
                    continue;
                };
                let conditions = endpoint.conditions;
                if conditions.ready {
                    ready.insert(SocketAddr::new(address, port));
                } else if conditions.serving && conditions.terminating {
                    leaving.insert(SocketAddr::new(address, port));
                }
            }
        }
    }
    let chosen = if ready.is_empty() { leaving } else { ready };
    let endpoints = chosen.into_iter();
    endpoints.map(Endpoint::even).collect()
}

fn read_external(text: &str, port: Option<&ServicePort>, number: u16) -> Option<Dns> {
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let host = Host::parse(&host).ok()?;
    let Pattern::Exact(name) = host.pattern() else {
        return None;
    };
    let target = port.and_then(|port| match port.target_port {
        Some(TargetPort::Number(target)) if target > 0 => Some(target),
        _ => None,
    });
    Some(Dns::strict(name, target.unwrap_or(number)))
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

fn no_endpoint(service: &Service, port: u16) -> Finding {
    Finding::new(
        Severity::Warning,
        &service.meta.key,
        "",
        format!("has no endpoint that takes traffic on port {port}, so its routes answer 503"),
        "check its EndpointSlices: their label kubernetes.io/service-name, port name and \
         conditions",
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
