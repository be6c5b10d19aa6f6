//! The servers of Gateways as ways in: which listener they stand for, and what is done there.
//!
//! A Gateway may have very many servers that are one way in: what nobody tells apart is one from
//! the start, so that each host costs what its ways are, and not the servers.

use std::collections::{HashMap, HashSet};

use myriad_api::istio::gateway::{Server, TlsMode};
use myriad_api::istio::{Gateway, GatewaySpec};
use myriad_api::{Finding, ObjectKey};
use myriad_model::{Host, Name, host::Pattern};

use super::admission::may_be_unnamed;
use super::port::{self, Binding, Homeless, Stand};
use super::tls::{self, ServerProblem};
use crate::engine::{PortSpeech, Reader};
use crate::resolve::Namespaces;
use crate::resolve::names::{ServerHost, is_host};
use crate::settings::{CatchAll, Settings};

/// The treatment of connections at a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Door {
    /// Serves plain HTTP.
    Plain,
    /// Sends every request to HTTPS.
    ToTls,
    /// Ends TLS.
    Tls,
    /// Ends TLS, and hands on the bytes within.
    TlsStream,
    /// Hands on handshakes as they come.
    Passing,
    /// Hands on whatever connections say.
    Stream,
    /// Ends TLS in a way that cannot be honoured, so nobody answers.
    Closed,
}

impl Door {
    /// Whether handshakes end here, even if for nobody.
    pub(crate) fn ends_tls(&self) -> bool {
        matches!(self, Door::Tls | Door::TlsStream | Door::Closed)
    }

    /// Whether handshakes come to it, wherever they end.
    pub(crate) fn takes_tls(&self) -> bool {
        self.ends_tls() || *self == Door::Passing
    }
}

/// A server that can be entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entrance {
    /// The port as written.
    pub port: u16,
    /// The listener that stands for it.
    pub listener: Name,
    /// The treatment of connections there.
    pub door: Door,
    /// The place of the server among those of its Gateway.
    pub server: usize,
    /// Whether the server names the namespace that enters, with the pattern by which it does.
    pub is_naming: bool,
}

/// A server as a way in, before it is asked who has its port.
#[derive(Clone, Debug)]
pub struct Opening {
    port: u16,
    stand: Stand,
    speech: PortSpeech,
    door: Door,
    server: usize,
    is_naming: bool,
}

/// The ones who enter by the servers of a Gateway, and the ports whose address it may say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entering {
    /// The namespace whose objects enter; none for all servers, whoever they admit.
    pub namespace: Option<Box<str>>,
    /// The ports whose address the Gateway may say.
    pub binding: Binding,
}

/// The place of a host of a server: that of the server in its Gateway, and that among its hosts.
pub(crate) type ServerEntry = (usize, usize);

/// The entries that name a host, in their order.
pub(crate) fn entries(gateway: &GatewaySpec, host: &Host) -> Vec<ServerEntry> {
    let servers = gateway.servers.iter().enumerate();
    let entries = servers.flat_map(|(at, server)| {
        let hosts = server.hosts.iter().enumerate();
        let named = hosts.filter(move |(_, text)| is_host(ServerHost::read(text).host, host));
        named.map(move |(place, _)| (at, place))
    });
    entries.collect()
}

/// The entrances that name a pattern; where a namespace is given, those that admit its objects. Of
/// servers that nobody tells apart there is the first.
pub(crate) fn for_host(
    reader: &mut Reader<'_>,
    gateway: &Gateway,
    host: &Host,
    namespace: Option<&str>,
) -> Vec<Entrance> {
    let own = gateway.meta.key.namespace();
    let openings = reader.openings(gateway, host, namespace);
    let entrances = openings.iter().filter_map(|opening| {
        port::admit(reader, (&opening.stand, opening.speech), own).ok()?;
        Some(Entrance {
            port: opening.port,
            listener: opening.stand.name(),
            door: opening.door.clone(),
            server: opening.server,
            is_naming: opening.is_naming,
        })
    });
    entrances.collect()
}

/// The ways in by some entries of a Gateway, the first of those that nobody tells apart.
pub(crate) fn openings(
    gateway: &Gateway,
    entries: &[ServerEntry],
    settings: &Settings,
    entering: &Entering,
) -> Vec<Opening> {
    let own = gateway.meta.key.namespace();
    let mut known = HashSet::new();
    let mut found = Vec::new();
    for entries in entries.chunk_by(|(a, _), (b, _)| a == b) {
        let at = entries.first().map_or(0, |(at, _)| *at);
        let Some(server) = gateway.spec.servers.get(at) else {
            continue;
        };
        let texts = entries
            .iter()
            .filter_map(|(_, place)| server.hosts.get(*place));
        let written = texts.map(|text| ServerHost::read(text));
        let (mut is_admitted, mut is_naming) = (entering.namespace.is_none(), false);
        if let Some(namespace) = &entering.namespace {
            for host in written {
                is_admitted |= host.admits(namespace, own);
                is_naming |= *host.namespace == **namespace;
            }
        }
        if !is_admitted {
            continue;
        }
        let door = door(server, settings);
        let placed = port::place(server, settings, entering.binding);
        let (Some(door), Ok((stand, speech, _))) = (door, placed) else {
            continue;
        };
        let port = server.port.number;
        if known.insert((port, stand.clone(), door.clone(), is_naming)) {
            found.push(Opening {
                port,
                stand,
                speech,
                door,
                server: at,
                is_naming,
            });
        }
    }
    found
}

/// The entrances that name a pattern and have a say on it: for names that nobody claims those that
/// [`keep_answering`] leaves, and otherwise all.
pub(crate) fn effective(reader: &mut Reader<'_>, gateway: &Gateway, host: &Host) -> Vec<Entrance> {
    let mut ways = for_host(reader, gateway, host, None);
    keep_answering(reader, gateway, host, &mut ways);
    ways
}

/// Leaves of the entrances for hosts that nobody names those that may answer for them.
pub(crate) fn keep_answering(
    reader: &Reader<'_>,
    gateway: &Gateway,
    host: &Host,
    ways: &mut Vec<Entrance>,
) {
    if host.pattern() == Pattern::Any {
        let namespace = gateway.meta.key.namespace();
        ways.retain(|way| answers_unnamed(reader, namespace, way));
    }
}

/// Leaves of the entrances for hosts that nobody names those by which objects of a namespace may
/// answer for them: the Gateway may, and so may they, even where it is another namespace's.
pub(crate) fn keep_let(
    reader: &Reader<'_>,
    gateway: &Gateway,
    (host, namespace): (&Host, &str),
    ways: &mut Vec<Entrance>,
) {
    keep_answering(reader, gateway, host, ways);
    let is_any = host.pattern() == Pattern::Any;
    if is_any && !ways.is_empty() && !may_be_unnamed(reader, namespace) {
        ways.retain(|way| way.door == Door::Stream);
    }
}

/// Whether a server of a namespace may answer for names that nobody claims: the settings say so,
/// or the gateway is of that namespace itself. Plain connections have no names.
fn answers_unnamed(reader: &Reader<'_>, namespace: &str, way: &Entrance) -> bool {
    let (settings, view) = (reader.settings(), reader.view());
    let is_default = settings.default_certificate.is_some()
        && way.door.takes_tls()
        && way.listener.as_str() == "https";
    match &settings.catch_all_namespaces {
        _ if way.door == Door::Stream => true,
        _ if !settings.may_claim(namespace, &Host::any()) => false,
        CatchAll::Only(known) => known.contains(namespace) || view.is_of(namespace),
        // The operator's certificate goes before that of whoever comes.
        CatchAll::All => !is_default || view.is_of(namespace) || !view.is_ingress(),
    }
}

/// The namespaces that servers let in, as written, by port, listener and door.
pub(crate) type Admitted = HashMap<(u16, Name, Door), Namespaces>;

/// The namespaces that the servers of a Gateway let in by a pattern.
pub(crate) fn admitted(reader: &mut Reader<'_>, gateway: &Gateway, pattern: &Host) -> Admitted {
    let own = gateway.meta.key.namespace();
    let mut found: HashMap<_, Vec<Box<str>>> = HashMap::new();
    for (at, place) in reader.server_entries(gateway, pattern) {
        let Some(server) = gateway.spec.servers.get(at) else {
            continue;
        };
        let Some(text) = server.hosts.get(place) else {
            continue;
        };
        let Some(door) = door(server, reader.settings()) else {
            continue;
        };
        let Ok((stand, ..)) = port::stand(reader, own, server) else {
            continue;
        };
        let namespace = match ServerHost::read(text).namespace {
            "." => own,
            namespace => namespace,
        };
        let likeness = (server.port.number, stand.name(), door);
        found.entry(likeness).or_default().push(namespace.into());
    }
    let found = found.into_iter();
    found
        .map(|(likeness, listed)| (likeness, listed.into_iter().collect()))
        .collect()
}

fn door(server: &Server, settings: &Settings) -> Option<Door> {
    match PortSpeech::read(&server.port.protocol)? {
        PortSpeech::Http => match &server.tls {
            Some(tls) if tls.https_redirect => Some(Door::ToTls),
            _ => Some(Door::Plain),
        },
        PortSpeech::Tls if is_passing(server) => Some(Door::Passing),
        PortSpeech::Tls => {
            let is_http = server.port.protocol.eq_ignore_ascii_case("HTTPS");
            let is_ended =
                tls::is_usual(server) || tls::read(server, settings, &mut Vec::new()).is_some();
            Some(match (is_ended, is_http) {
                (false, _) => Door::Closed,
                (true, true) => Door::Tls,
                (true, false) => Door::TlsStream,
            })
        }
        // What asked for TLS must not be open without it.
        PortSpeech::Tcp => server.tls.is_none().then_some(Door::Stream),
        // No protocol of Istio's is of datagrams.
        PortSpeech::Udp => None,
    }
}

/// Whether handshakes go on as they come.
fn is_passing(server: &Server) -> bool {
    let mode = server.tls.as_ref().map(|tls| tls.mode);
    mode == Some(TlsMode::Passthrough)
}

/// The field of a server, for the finding of a host.
pub(crate) fn field(
    reader: &mut Reader<'_>,
    gateway: &ObjectKey,
    server: usize,
    end: &str,
) -> String {
    reader.note_places(gateway.id());
    format!("spec.servers[{server}].{end}")
}

/// The problems of a server, whoever binds to it, and the listener that it stands on.
pub(crate) fn judge(
    reader: &mut Reader<'_>,
    key: &ObjectKey,
    at: usize,
    server: &Server,
) -> (Vec<Finding>, Option<Stand>) {
    let mut problems = Vec::new();
    let stand = port::stand(reader, key.namespace(), server);
    match &stand {
        Ok((_, PortSpeech::Tls, _)) if !is_passing(server) && !tls::is_usual(server) => {
            tls::read(server, reader.settings(), &mut problems);
        }
        Ok(_) => {}
        Err(homeless) => problems.push(explain(homeless, server, reader.settings())),
    }
    let is_entered = door(server, reader.settings()).is_some();
    if !is_entered && !matches!(stand, Err(Homeless::Protocol)) {
        problems = vec![ServerProblem::error(
            "tls",
            "is set for a protocol without TLS, so nobody answers there".to_owned(),
            "use protocol TLS, or leave tls out",
        )];
    }
    if let Ok((_, _, true)) = stand {
        problems.push(ServerProblem::error(
            "bind",
            format!(
                "is {}, which has no effect: it is listened on as everywhere",
                server.bind
            ),
            "leave it out, or write the Gateway into the namespace of the gateway's workload",
        ));
    }
    let finding = |problem: ServerProblem| {
        let field = format!("spec.servers[{at}].{}", problem.field);
        Finding::new(
            problem.severity,
            key,
            field,
            problem.message,
            problem.remedy,
        )
    };
    let findings = problems.into_iter().map(finding).collect();
    let stand = stand.ok().filter(|_| is_entered);
    (findings, stand.map(|(stand, ..)| stand))
}

fn explain(homeless: &Homeless, server: &Server, settings: &Settings) -> ServerProblem {
    let number = server.port.number;
    match homeless {
        Homeless::Protocol => ServerProblem::error(
            "port.protocol",
            format!(
                "is {}, which nobody speaks, so nobody listens there",
                server.port.protocol
            ),
            "use HTTP, HTTPS, HTTP2, GRPC, TLS or TCP",
        ),
        Homeless::Bind => ServerProblem::error(
            "bind",
            format!(
                "is {}, which is no IP address, so nobody listens there",
                server.bind
            ),
            "write an IP address, or leave it out for all",
        ),
        Homeless::Own(speech) => {
            let (http, https) = (settings.http.port(), settings.https.port());
            let message = format!(
                "is {number}, where {} is spoken, so nobody answers for this server",
                speech.as_str()
            );
            let remedy = format!("use 80 or {http} for HTTP, 443 or {https} for TLS, or another");
            ServerProblem::error("port.number", message, &remedy)
        }
        Homeless::NotAdmitted => ServerProblem::error(
            "port.number",
            format!("is {number}, which Gateways may not use here, so nobody listens there"),
            "use another, or admit it with --gateway-ports",
        ),
        Homeless::Taken(owner) => {
            let message = format!(
                "is {number}, where {} is spoken for {}, so nobody answers for this server",
                owner.speech.as_str(),
                owner.gateway
            );
            ServerProblem::error("port.number", message, "use another port")
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::gateway::Port;
    use myriad_api::{Meta, ObjectKind};

    use super::*;

    fn server(number: u16, hosts: &[&str]) -> Server {
        Server {
            port: Port {
                number,
                protocol: "HTTP".into(),
                ..Port::default()
            },
            hosts: hosts.iter().map(|host| (*host).into()).collect(),
            ..Server::default()
        }
    }

    #[test]
    fn of_servers_that_nobody_tells_apart_there_is_the_first() {
        let mut servers = vec![server(80, &["x/a.example"])];
        servers.extend((0..500).map(|_| server(80, &["a.example", "y/a.example", "z/b.example"])));
        servers.push(server(9_000, &["a.example"]));
        let gateway = Gateway {
            meta: Meta::new(ObjectKey::new(ObjectKind::IstioGateway, "n", "g")),
            spec: GatewaySpec {
                servers: servers.into(),
                ..GatewaySpec::default()
            },
            notes: Box::default(),
            bytes: 0,
        };
        let host = Host::parse("a.example").expect("a host");
        let entries = entries(&gateway.spec, &host);
        let of = |namespace: Option<&str>| {
            let entering = Entering {
                namespace: namespace.map(Box::from),
                binding: Binding::Nowhere,
            };
            let settings = Settings::default();
            let found = openings(&gateway, &entries, &settings, &entering);
            let found = found.iter().map(|it| (it.server, it.is_naming));
            found.collect::<Vec<_>>()
        };
        assert_eq!(of(None), [(0, false), (501, false)]);
        assert_eq!(of(Some("x")), [(0, true), (1, false), (501, false)]);
        assert_eq!(of(Some("y")), [(1, true), (501, false)]);
        assert_eq!(of(Some("z")), [(1, false), (501, false)]);
    }
}
