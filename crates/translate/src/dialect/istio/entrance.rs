//! The servers of Gateways as ways in: which listener they stand for, and what is done there.

use myriad_api::istio::gateway::{Server, TlsMode};
use myriad_api::istio::{Gateway, GatewaySpec};
use myriad_api::{Finding, ObjectKey};
use myriad_model::{Host, Name, host::Pattern};

use super::port::{self, Homeless, Stand};
use super::tls::{self, ServerProblem};
use crate::engine::{PortSpeech, Reader};
use crate::resolve::names::{ServerHost, is_host};
use crate::settings::{CatchAll, Settings};

/// The treatment of connections at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
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
    pub fn ends_tls(&self) -> bool {
        matches!(self, Door::Tls | Door::TlsStream | Door::Closed)
    }

    /// Whether handshakes come to it, wherever they end.
    pub fn takes_tls(&self) -> bool {
        self.ends_tls() || *self == Door::Passing
    }
}

/// A server that can be entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entrance {
    /// The port as written.
    pub port: u16,
    /// The listener that stands for it.
    pub listener: Name,
    /// The treatment of connections there.
    pub door: Door,
    /// The place of the server among those of its Gateway.
    pub server: usize,
}

/// The place of a host of a server: that of the server in its Gateway, and that among its hosts.
pub type ServerEntry = (usize, usize);

/// The entries that name a host, in their order.
pub fn entries(gateway: &GatewaySpec, host: &Host) -> Vec<ServerEntry> {
    let servers = gateway.servers.iter().enumerate();
    let entries = servers.flat_map(|(at, server)| {
        let hosts = server.hosts.iter().enumerate();
        let named = hosts.filter(move |(_, text)| is_host(ServerHost::read(text).host, host));
        named.map(move |(place, _)| (at, place))
    });
    entries.collect()
}

/// The entrances that name a pattern; where a namespace is given, those that admit its objects.
pub fn for_host(
    reader: &mut Reader<'_>,
    gateway: &Gateway,
    host: &Host,
    namespace: Option<&str>,
) -> Vec<Entrance> {
    let own = gateway.meta.key.namespace();
    let servers = &gateway.spec.servers;
    let mut entries = reader.server_entries(gateway, host);
    entries.retain(|(at, place)| {
        let text = servers.get(*at).and_then(|server| server.hosts.get(*place));
        let admits = |namespace| text.is_some_and(|it| ServerHost::read(it).admits(namespace, own));
        namespace.is_none_or(admits)
    });
    entries.dedup_by_key(|(at, _)| *at);
    let named = entries.into_iter();
    named
        .filter_map(|(at, _)| of(reader, own, at, servers.get(at)?))
        .collect()
}

/// The entrances that name a pattern and have a say on it: for names that nobody claims those that
/// [`keep_answering`] leaves, and otherwise all.
pub fn effective(reader: &mut Reader<'_>, gateway: &Gateway, host: &Host) -> Vec<Entrance> {
    let mut ways = for_host(reader, gateway, host, None);
    keep_answering(reader, gateway, host, &mut ways);
    ways
}

/// Leaves of the entrances for hosts that nobody names those that may answer for them.
pub fn keep_answering(
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

/// Whether a server of a namespace may answer for names that nobody claims: the settings say so,
/// or the gateway is of that namespace itself. Plain connections have no names.
fn answers_unnamed(reader: &Reader<'_>, namespace: &str, way: &Entrance) -> bool {
    let (settings, view) = (reader.settings(), reader.view());
    let is_default = settings.default_certificate.is_some()
        && way.door.takes_tls()
        && way.listener.as_str() == "https";
    match &settings.catch_all_namespaces {
        _ if way.door == Door::Stream => true,
        CatchAll::Only(known) => known.contains(namespace) || view.is_of(namespace),
        // The operator's certificate goes before that of whoever comes.
        CatchAll::All => !is_default || view.is_of(namespace) || !view.is_ingress(),
    }
}

/// The entrance of a server; `None` where it cannot be listened on.
fn of(reader: &mut Reader<'_>, gateway: &str, at: usize, server: &Server) -> Option<Entrance> {
    let door = door(server, reader.settings())?;
    let (stand, ..) = port::stand(reader, gateway, server).ok()?;
    Some(Entrance {
        port: server.port.number,
        listener: stand.name(),
        door,
        server: at,
    })
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
    }
}

/// Whether handshakes go on as they come.
fn is_passing(server: &Server) -> bool {
    let mode = server.tls.as_ref().map(|tls| tls.mode);
    mode == Some(TlsMode::Passthrough)
}

/// The field of a server, for the finding of a host.
pub fn field(reader: &mut Reader<'_>, gateway: &ObjectKey, server: usize, end: &str) -> String {
    reader.note_places(gateway.id());
    format!("spec.servers[{server}].{end}")
}

/// The problems of a server, whoever binds to it, and the listener that it stands on.
pub fn judge(
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
                "is {number}, where {} is spoken for Gateway {}, so nobody answers for this server",
                owner.speech.as_str(),
                owner.gateway
            );
            ServerProblem::error("port.number", message, "use another port")
        }
    }
}
