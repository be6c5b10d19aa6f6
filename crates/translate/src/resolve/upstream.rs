//! Upstreams: one port of one Service or of a host of ServiceEntries, or of a subset of it, and
//! the endpoints behind it.

pub(crate) mod border;
pub(crate) mod endpoint_source;
pub(crate) mod group;
mod service;
mod slices;
mod weight;

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{
    Dns, Endpoints, MeshTls, Name, Origin, OriginKind, Protocol, Resource, Upstream,
    UpstreamOptions, UpstreamTls, Value,
};

pub(crate) use service::{PortFound, ports_changed};
pub(crate) use weight::{namespace, weigh, weigh_slots};

use super::backend_tls::{self, SecuredBy};
use super::client_tls::{TlsPlan, plan};
use super::merged::Merged;
use super::service_entry::Entry;
use super::{destination_rule, hash_by, options};
use crate::engine::{Output, Reader, Unit};
use crate::settings::REDUCED_POINTS;
use border::{Border, is_beside};
use endpoint_source::{EndpointSource, Speech};

/// How the names of upstreams end of which it is said what they speak, whatever their port says.
/// No name of a Service has a `+`.
const SUFFIXES: [(&str, Protocol); 3] = [
    ("+https", Protocol::Https1),
    ("+h2c", Protocol::H2c),
    ("+h2", Protocol::H2),
];

/// The start of the name of an upstream of a host of ServiceEntries. No namespace of a Service is
/// followed by two slashes.
const ENTRY_PREFIX: &str = "entry/";

/// The start of the name of an upstream of a host that DNS knows, and that an Ingress names. No
/// namespace of a Service is followed by two slashes.
const OUTSIDE_PREFIX: &str = "outside/";

/// The start of what makes requests equal, in the names of upstreams that an Ingress wants so.
const HASH: &str = "+by=";

/// The start of what secures connections, in the names of upstreams with a BackendTLSPolicy.
const TLS: &str = "+tls=";

/// The end of the names of upstreams that get datagrams.
const DATAGRAMS: &str = "+udp";

/// The parts of an upstream's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address<'a> {
    /// The namespace, and the Service or host of ServiceEntries.
    owner: Owner<'a>,
    port: u16,
    /// The protocol that an Ingress asks for; plain HTTP/1 where it asks for none.
    told: Protocol,
    /// The parts that make requests equal where an Ingress says it; empty leaves it to rules.
    hash_by: &'a str,
    /// The BackendTLSPolicy by which a Gateway speaks to it; none for none.
    secured: Option<SecuredBy<'a>>,
    /// Whether it gets datagrams.
    is_datagrams: bool,
    /// Empty for all endpoints.
    subset: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner<'a> {
    /// A Service, by `namespace/name`.
    Service(&'a str),
    /// A host of ServiceEntries, by namespace and host.
    Entry(&'a str, &'a str),
    /// A host that DNS knows, by the namespace that names it and the host.
    Outside(&'a str, &'a str),
}

/// An upstream before its DestinationRules are read.
struct Draft<'a> {
    name: &'a Arc<str>,
    address: Address<'a>,
    /// The object that findings are about.
    key: &'a ObjectKey,
    origin: Origin,
    speech: Speech,
    subject_alt_names: &'a [Box<str>],
    /// The endpoints that are reached by mutual TLS of the mesh where no rule says otherwise.
    members: Members,
    /// Whether nobody says what is spoken, so that requests go out as they came in.
    is_open: bool,
}

/// The endpoints that are of the mesh.
#[derive(Default)]
struct Members {
    /// Their name in handshakes; `None` where there is no mesh.
    name: Option<String>,
    /// Whether they are spoken to by mutual TLS without being asked to.
    is_usual: bool,
    /// The identities that they may have; empty for any of the mesh.
    identities: BTreeSet<Box<str>>,
    /// Whether connections go where they were meant to go, and then whether all are of the mesh.
    original: Option<bool>,
}

/// The name of the upstream of a port of a Service.
pub(crate) fn name(service: &str, port: u16, protocol: Protocol) -> Arc<str> {
    let mut suffixes = SUFFIXES.iter().filter(|(_, known)| *known == protocol);
    let suffix = suffixes.next().map_or("", |(suffix, _)| suffix);
    format!("{service}:{port}{suffix}").into()
}

/// The name of an upstream that sends equal requests to the same endpoint: equal by this text.
pub(crate) fn hashed_name(name: &str, hash_by: &str) -> Arc<str> {
    format!("{name}{HASH}{hash_by}").into()
}

/// The name of an upstream of a port of a Service that a BackendTLSPolicy secures.
pub(crate) fn secured_name(
    service: &str,
    port: u16,
    protocol: Protocol,
    secured: &SecuredBy<'_>,
) -> Arc<str> {
    let name = name(service, port, protocol);
    format!("{name}{TLS}{}", secured.text()).into()
}

/// The name of the upstream of a port of a Service that gets datagrams.
pub(crate) fn datagrams_name(service: &str, port: u16) -> Arc<str> {
    format!("{service}:{port}{DATAGRAMS}").into()
}

/// The name of the upstream of a subset of a port of a Service; that of the port where the
/// subset has no name.
pub(crate) fn subset_name(service: &str, port: u16, subset: &str) -> Arc<str> {
    match subset {
        "" => format!("{service}:{port}").into(),
        _ => format!("{service}:{port}@{subset}").into(),
    }
}

/// The name of an upstream for a host of the ServiceEntries of a namespace.
pub(crate) fn entry_name(namespace: &str, host: &str, port: u16, subset: &str) -> Arc<str> {
    subset_name(&format!("{ENTRY_PREFIX}{namespace}/{host}"), port, subset)
}

/// The name of an upstream for a host that DNS knows, and that Ingresses of a namespace name.
pub(crate) fn outside_name(namespace: &str, host: &str, port: u16, protocol: Protocol) -> Arc<str> {
    name(
        &format!("{OUTSIDE_PREFIX}{namespace}/{host}"),
        port,
        protocol,
    )
}

/// Translates one upstream.
pub(crate) fn translate(reader: &mut Reader<'_>, name: &Arc<str>) -> Output {
    let Some(address) = Address::read(name) else {
        return Output::default();
    };
    if reader.is_upstream_beyond(name) {
        return weight::close(reader, name, address);
    }
    match address.owner {
        Owner::Service(id) => service::translate(reader, name, address, id),
        Owner::Entry(namespace, host) => {
            translate_entry(reader, name, address, (namespace, host)).unwrap_or_default()
        }
        Owner::Outside(namespace, host) => outside(reader, name, address, (namespace, host)),
    }
}

/// The upstream of a host that DNS knows. Unlike Services it is where anybody might be in between,
/// so that its certificate is verified. Whoever names the host is told where it leads nowhere.
fn outside(
    reader: &Reader<'_>,
    name: &Arc<str>,
    address: Address<'_>,
    (namespace, host): (&str, &str),
) -> Output {
    let mut output = Output::default();
    if Border::of(reader)
        .refusal_of_host(host, address.port)
        .is_some()
    {
        return output;
    }
    let tls = address.told.is_tls().then(|| UpstreamTls {
        server_name: host.into(),
        verify: true,
        ..UpstreamTls::unverified()
    });
    let upstream = Upstream {
        dns: Some(Box::new(Dns::strict(host, address.port))),
        tls: tls.map(Box::new),
        ..Upstream::plain(address.told)
    };
    // All Ingresses of the namespace that name the host share it.
    let origin = Origin {
        kind: OriginKind::Ingress,
        id: format!("{namespace}/{host}").into(),
    };
    let value = Value::Upstream(Box::new(upstream));
    let resource = Resource { origin, value };
    output.resources.push((Name::new(name.clone()), resource));
    output
}

impl<'a> Address<'a> {
    fn read(name: &'a str) -> Option<Self> {
        let (name, subset) = name.split_once('@').unwrap_or((name, ""));
        let (name, hash_by) = name.split_once(HASH).unwrap_or((name, ""));
        let (name, secured) = match name.split_once(TLS) {
            Some((name, text)) => (name, Some(SecuredBy::read(text))),
            None => (name, None),
        };
        let datagrams = name.strip_suffix(DATAGRAMS);
        let name = datagrams.unwrap_or(name);
        let (text, told) = SUFFIXES
            .iter()
            .find_map(|(suffix, protocol)| Some((name.strip_suffix(suffix)?, *protocol)))
            .unwrap_or((name, Protocol::Http1));
        let (owner, port) = text.rsplit_once(':')?;
        let below = |prefix: &str| {
            let rest: Option<&'a str> = owner.strip_prefix(prefix);
            rest.and_then(|rest| rest.split_once('/'))
        };
        let owner = match (below(ENTRY_PREFIX), below(OUTSIDE_PREFIX)) {
            (Some((namespace, host)), _) => Owner::Entry(namespace, host),
            (None, Some((namespace, host))) => Owner::Outside(namespace, host),
            (None, None) => Owner::Service(owner),
        };
        Some(Address {
            owner,
            port: port.parse().ok()?,
            told,
            hash_by,
            secured,
            is_datagrams: datagrams.is_some(),
            subset,
        })
    }

    /// Whether its endpoints are a copy of those of the port.
    fn is_copy(&self) -> bool {
        let is_shown = |secured: SecuredBy<'_>| secured.certificate.is_some();
        !self.subset.is_empty() || !self.hash_by.is_empty() || self.secured.is_some_and(is_shown)
    }
}

/// The endpoints beside an upstream, with the hashes of their addresses as far as they are known,
/// where addresses are neither asked of DNS nor those of clients.
fn found(place: EndpointSource, upstream: &mut Upstream) -> Option<(Endpoints, Box<[u64]>)> {
    match place {
        EndpointSource::Dns(dns) => {
            upstream.dns = Some(Box::new(dns));
            None
        }
        EndpointSource::Endpoints(..) if upstream.original_destination => None,
        EndpointSource::Endpoints(endpoints, hashes) => {
            let options = upstream.options.as_deref();
            let is_asked = options.is_some_and(|options| options.locality.is_some());
            let endpoints = match is_asked {
                true => endpoints,
                false => anywhere(endpoints),
            };
            Some((endpoints, hashes))
        }
    }
}

impl Draft<'_> {
    /// The resources, once it is known what rules say and where endpoints are.
    fn finish(
        &self,
        reader: &mut Reader<'_>,
        policy: &Merged<'_>,
        place: EndpointSource,
    ) -> Output {
        let mut output = Output::default();
        if reader.is_table_beyond(self.name) {
            let bound = reader.settings().bounds.hash_slots;
            let finding = weight::table_beyond(self.key, self.address, bound);
            output.findings.push(finding);
        }
        let mut upstream = Upstream {
            protocol: Protocol::Http1,
            dns: None,
            tls: self.address.told.is_tls().then(|| {
                // As ingress-nginx has it: the name of the request, and no verification.
                Box::new(UpstreamTls::unverified())
            }),
            options: self.options(reader, policy),
            original_destination: false,
            source_address: None,
        };
        upstream.original_destination = self.members.original.is_some();
        let mut place = match self.secure(reader, policy, &mut upstream) {
            Some(needs) => {
                output.needs = needs;
                place
            }
            None => {
                upstream.tls = None;
                upstream.original_destination = false;
                EndpointSource::nowhere()
            }
        };
        let is_told = self.address.told.is_h2();
        if policy.tunnel.is_some() && !options::has_tunnel(upstream.options.as_deref()) {
            upstream.original_destination = false;
            place = EndpointSource::nowhere();
        }
        let is_by_port = self.speech == Speech::Http2 || policy.is_upgraded();
        let is_http2 = is_told || is_by_port && !policy.follows_client();
        upstream.protocol = match (upstream.tls.is_some(), is_http2) {
            (false, false) => Protocol::Http1,
            (false, true) => Protocol::H2c,
            (true, false) => Protocol::Https1,
            (true, true) => Protocol::H2,
        };
        if self.is_open && !is_http2 {
            upstream.options.get_or_insert_default().follows_client = true;
        }
        let endpoints = found(place, &mut upstream);
        let parts = endpoints.map(|(all, hashes)| all.divide_by(self.name, &hashes));
        let parts = parts.into_iter().flatten();
        let upstream = (
            Name::new(self.name.clone()),
            Value::Upstream(Box::new(upstream)),
        );
        let values = parts.map(|(name, part)| (name, Value::Endpoints(Box::new(part))));
        for (name, value) in std::iter::once(upstream).chain(values) {
            let origin = self.origin.clone();
            output.resources.push((name, Resource { origin, value }));
        }
        output
    }

    /// The options that rules say, but for what an Ingress says of equal requests.
    fn options(&self, reader: &Reader<'_>, policy: &Merged<'_>) -> Option<Box<UpstreamOptions>> {
        let bounds = &reader.settings().bounds;
        let mut built = options::of_policy(policy, bounds).map(Box::new);
        let slots_max = match reader.is_table_beyond(self.name) {
            true => bounds.upstream_hash_slots.min(REDUCED_POINTS),
            false => bounds.upstream_hash_slots,
        };
        if let Some(balancer) = hash_by::balancer(self.address.hash_by, slots_max) {
            built.get_or_insert_default().balancer = balancer;
        }
        built
    }

    /// Sets how TLS is done, and returns what that needs; `None` where nobody may be reached.
    fn secure(
        &self,
        reader: &mut Reader<'_>,
        policy: &Merged<'_>,
        upstream: &mut Upstream,
    ) -> Option<Vec<Unit>> {
        if let Some(secured) = self.address.secured {
            let (tls, needs) = backend_tls::plan(reader, self.key.namespace(), secured)?;
            upstream.tls = Some(Box::new(tls));
            return Some(needs);
        }
        let names = self.subject_alt_names;
        let Some(written) = policy.tls else {
            let told = upstream.tls.take();
            upstream.tls = told.or_else(|| self.members.tls().map(Box::new));
            return Some(Vec::new());
        };
        match plan(reader, written, (policy.namespace, names)) {
            TlsPlan::Plain => Some(Vec::new()),
            TlsPlan::Mesh(mut tls) => {
                let name = self.members.name.as_deref()?;
                if tls.server_name.is_empty() {
                    tls.server_name = name.into();
                }
                upstream.tls = Some(Box::new(tls));
                Some(Vec::new())
            }
            TlsPlan::Tls(tls, needs) => {
                upstream.tls = Some(Box::new(tls));
                Some(needs)
            }
            TlsPlan::Closed => None,
        }
    }

    /// The resources of an upstream without endpoints, which answers 503.
    fn close(&self, reader: &mut Reader<'_>) -> Output {
        self.finish(reader, &Merged::default(), EndpointSource::nowhere())
    }

    /// Closes the upstream of a subset that has more endpoints than it may.
    fn close_beyond(&self, reader: &mut Reader<'_>) -> Output {
        let mut output = self.close(reader);
        let max = reader.settings().bounds.subset_endpoints;
        output.findings.push(Finding::new(
            Severity::Error,
            self.key,
            "",
            format!(
                "would have more than {max} endpoints on port {} in all subsets together, so \
                 subset {} has none, and its routes answer 503",
                self.address.port, self.address.subset
            ),
            format!("define fewer or smaller subsets, or raise --bound subset-endpoints={max}"),
        ));
        output
    }

    fn no_endpoint(&self, remedy: &str) -> Finding {
        let of = match self.address.subset {
            "" => String::new(),
            subset => format!(" in subset {subset}"),
        };
        Finding::new(
            Severity::Warning,
            self.key,
            "",
            format!(
                "has no endpoint that takes traffic on port {}{of}, so its routes answer 503",
                self.address.port
            ),
            remedy,
        )
    }
}

impl Members {
    /// Mutual TLS with those who speak it. Where a connection goes that was meant for one of
    /// them, nobody is asked.
    fn tls(&self) -> Option<UpstreamTls> {
        if !self.is_usual {
            return None;
        }
        let mesh = match self.original {
            None => MeshTls::Flagged,
            Some(true) => MeshTls::All,
            Some(false) => return None,
        };
        let identities = self.identities.iter().cloned();
        Some(UpstreamTls {
            server_name: self.name.as_deref()?.into(),
            verify: true,
            subject_alt_names: identities.take(UpstreamTls::NAMES_MAX).collect(),
            mesh,
            ..UpstreamTls::unverified()
        })
    }
}

/// A ServiceEntry leads out of the mesh, unless a rule says otherwise; one without resolution
/// leads a sidecar where connections were meant to go.
fn entry_members(reader: &Reader<'_>, entry: &Entry, host: &str, address: Address<'_>) -> Members {
    let name = member_name(host, address.port, address.subset);
    let is_original = !entry.is_resolvable() && is_beside(reader);
    Members {
        name: reader.settings().sidecars.then_some(name),
        original: is_original.then_some(false),
        ..Members::default()
    }
}

/// The name of an upstream in handshakes of the mesh.
fn member_name(host: &str, port: u16, subset: &str) -> String {
    format!("outbound_.{port}_.{subset}_.{host}")
}

/// The endpoints without their localities, where nobody asks for them.
fn anywhere(endpoints: Endpoints) -> Endpoints {
    let mut endpoints = endpoints.endpoints;
    for endpoint in &mut endpoints {
        endpoint.locality = 0;
    }
    Endpoints::new(endpoints)
}

fn translate_entry(
    reader: &mut Reader<'_>,
    name: &Arc<str>,
    address: Address<'_>,
    (namespace, host): (&str, &str),
) -> Option<Output> {
    let entry = Entry::read(reader, namespace, host, address.port)?;
    let rules = destination_rule::find(reader, host, namespace);
    let draft = Draft {
        name,
        address,
        key: &entry.first().meta.key,
        origin: entry.origin(),
        speech: entry.speech(),
        subject_alt_names: entry.subject_alt_names(),
        members: entry_members(reader, &entry, host, address),
        is_open: false,
    };
    let Some(choice) = rules.choose(reader, address.subset, address.port) else {
        weigh(reader, name);
        return Some(draft.close(reader));
    };
    let Some(place) = entry.place(reader, host, &choice) else {
        return Some(draft.close_beyond(reader));
    };
    let is_empty =
        matches!(&place, EndpointSource::Endpoints(found, _) if found.endpoints.is_empty());
    let mut output = draft.finish(reader, &choice.policy, place);
    if is_empty && entry.is_resolvable() && !is_beside(reader) {
        let remedy = "give it endpoints, or entries and Pods that its workloadSelector finds";
        output.findings.push(draft.no_endpoint(remedy));
    }
    Some(output)
}
