//! Upstreams: one port of one Service or of a host of ServiceEntries, or of a subset of it, and
//! the endpoints behind it.

mod group;
mod service;

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{
    Dns, Endpoints, Name, Origin, Protocol, Resource, Upstream, UpstreamTls, Value,
};

pub use group::Group;
pub use service::{PortFound, find_port, ports_changed};

use crate::engine::Reader;
use crate::istio::{self, Merged, Plan};
use crate::output::Output;

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

/// What is spoken on a port by its name or protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// HTTP/1.1, and whatever else no HTTP request is meant for.
    Http1,
    /// HTTP/2, of gRPC too.
    Http2,
}

impl Speech {
    /// That of a protocol as Istio writes it, in any case.
    pub fn of_word(word: &str) -> Self {
        let words = ["http2", "grpc", "grpc-web"];
        match words.iter().any(|known| word.eq_ignore_ascii_case(known)) {
            true => Speech::Http2,
            false => Speech::Http1,
        }
    }
}

/// Where endpoints are.
pub enum Place {
    /// At these addresses.
    Endpoints(Endpoints),
    /// Where DNS says.
    Dns(Dns),
}

impl Place {
    /// Without endpoints.
    pub fn nowhere() -> Self {
        Place::Endpoints(Endpoints::new(Box::default()))
    }
}

/// What the name of an upstream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address<'a> {
    /// The namespace, and the Service or host of ServiceEntries.
    owner: Owner<'a>,
    port: u16,
    /// What an Ingress says of it; plain HTTP/1 where it says nothing.
    told: Protocol,
    /// Empty for all endpoints.
    subset: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner<'a> {
    /// By `namespace/name`.
    Service(&'a str),
    /// By namespace and host.
    Entry(&'a str, &'a str),
}

/// What is known of an upstream before its DestinationRules are read.
struct Draft<'a> {
    name: &'a Arc<str>,
    address: Address<'a>,
    /// The object that findings are about.
    key: &'a ObjectKey,
    origin: Origin,
    speech: Speech,
    subject_alt_names: &'a [Box<str>],
}

/// The name of the upstream of a port of a Service.
pub fn name(service: &str, port: u16, protocol: Protocol) -> Arc<str> {
    let mut suffixes = SUFFIXES.iter().filter(|(_, known)| *known == protocol);
    let suffix = suffixes.next().map_or("", |(suffix, _)| suffix);
    format!("{service}:{port}{suffix}").into()
}

/// The name of the upstream of a subset of a port of a Service; that of the port where the
/// subset has no name.
pub fn subset_name(service: &str, port: u16, subset: &str) -> Arc<str> {
    match subset {
        "" => format!("{service}:{port}").into(),
        _ => format!("{service}:{port}@{subset}").into(),
    }
}

/// The same for a host of the ServiceEntries of a namespace.
pub fn entry_name(namespace: &str, host: &str, port: u16, subset: &str) -> Arc<str> {
    subset_name(&format!("{ENTRY_PREFIX}{namespace}/{host}"), port, subset)
}

/// Translates one upstream.
pub fn translate(reader: &mut Reader<'_>, name: &Arc<str>) -> Output {
    let Some(address) = Address::read(name) else {
        return Output::default();
    };
    match address.owner {
        Owner::Service(id) => service::translate(reader, name, address, id),
        Owner::Entry(namespace, host) => {
            translate_entry(reader, name, address, (namespace, host)).unwrap_or_default()
        }
    }
}

impl<'a> Address<'a> {
    fn read(name: &'a str) -> Option<Self> {
        let (name, subset) = name.split_once('@').unwrap_or((name, ""));
        let (text, told) = SUFFIXES
            .iter()
            .find_map(|(suffix, protocol)| Some((name.strip_suffix(suffix)?, *protocol)))
            .unwrap_or((name, Protocol::Http1));
        let (owner, port) = text.rsplit_once(':')?;
        let owner = match owner
            .strip_prefix(ENTRY_PREFIX)
            .and_then(|it| it.split_once('/'))
        {
            Some((namespace, host)) => Owner::Entry(namespace, host),
            None => Owner::Service(owner),
        };
        Some(Address {
            owner,
            port: port.parse().ok()?,
            told,
            subset,
        })
    }
}

impl Draft<'_> {
    /// The resources, once it is known what rules say and where endpoints are.
    fn finish(&self, reader: &Reader<'_>, policy: &Merged<'_>, place: Place) -> Output {
        let mut output = Output::default();
        let mut upstream = Upstream {
            protocol: Protocol::Http1,
            dns: None,
            tls: self.address.told.is_tls().then(|| {
                // As ingress-nginx has it: the name of the request, and no verification.
                Box::new(UpstreamTls::unverified())
            }),
            options: istio::options(policy).map(Box::new),
            original_destination: false,
            source_address: None,
        };
        let mut place = place;
        let names = self.subject_alt_names;
        match policy.tls.map(|tls| istio::plan(reader.view(), tls, names)) {
            None | Some(Plan::Plain) => {}
            Some(Plan::Tls(tls, needs)) => {
                upstream.tls = Some(Box::new(tls));
                output.needs = needs;
            }
            Some(Plan::Closed) => {
                upstream.tls = None;
                place = Place::nowhere();
            }
        }
        let is_told = self.address.told.is_h2();
        let is_http2 = is_told || self.speech == Speech::Http2 || policy.is_upgraded();
        upstream.protocol = match (upstream.tls.is_some(), is_http2) {
            (false, false) => Protocol::Http1,
            (false, true) => Protocol::H2c,
            (true, false) => Protocol::Https1,
            (true, true) => Protocol::H2,
        };
        let endpoints = match place {
            Place::Dns(dns) => {
                upstream.dns = Some(Box::new(dns));
                None
            }
            Place::Endpoints(endpoints) => {
                let options = upstream.options.as_deref();
                let is_asked = options.is_some_and(|options| options.locality.is_some());
                Some(if is_asked {
                    endpoints
                } else {
                    anywhere(endpoints)
                })
            }
        };
        let values = [
            Some(Value::Upstream(upstream)),
            endpoints.map(Value::Endpoints),
        ];
        for value in values.into_iter().flatten() {
            let origin = self.origin.clone();
            let resource = Resource { origin, value };
            output
                .resources
                .push((Name::new(self.name.clone()), resource));
        }
        output
    }

    /// The resources of an upstream without endpoints, which answers 503.
    fn close(&self, reader: &Reader<'_>) -> Output {
        self.finish(reader, &Merged::default(), Place::nowhere())
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

/// The same where nobody asks where they are.
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
    let entry = istio::Entry::read(reader, namespace, host, address.port)?;
    let rules = istio::find_rules(reader, host, namespace);
    let draft = Draft {
        name,
        address,
        key: &entry.first().meta.key,
        origin: entry.origin(),
        speech: entry.speech(),
        subject_alt_names: entry.subject_alt_names(),
    };
    let Some(choice) = rules.choose(address.subset, address.port) else {
        return Some(draft.close(reader));
    };
    let place = entry.place(reader, host, choice.labels);
    let is_empty = matches!(&place, Place::Endpoints(found) if found.endpoints.is_empty());
    let mut output = draft.finish(reader, &choice.policy, place);
    if is_empty && entry.is_resolvable() {
        let remedy = "give it endpoints, or entries and Pods that its workloadSelector finds";
        output.findings.push(draft.no_endpoint(remedy));
    }
    Some(output)
}
