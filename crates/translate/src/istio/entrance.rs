//! The servers of Gateways as ways in: which listener they stand for, and what TLS does there.

use myriad_api::istio::GatewaySpec;
use myriad_api::istio::gateway::{Server, TlsMode};
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{Host, Name};

use super::names::{ServerHost, is_host};
use crate::Settings;

/// What a server does with connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
    /// Serves plain HTTP.
    Plain,
    /// Sends every request to HTTPS.
    ToTls,
    /// Ends TLS with the certificate of this Secret of the gateway's workload.
    Tls(Box<str>),
    /// Ends TLS in a way that cannot be honoured, so nobody answers.
    Closed,
}

/// A server that can be entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entrance {
    /// The port as written.
    pub port: u16,
    /// The listener that stands for it.
    pub listener: Name,
    /// What is done there.
    pub door: Door,
}

/// Whether a Gateway is for the workload that is served here.
pub fn is_selected(gateway: &GatewaySpec, settings: &Settings) -> bool {
    let labels = &settings.gateway_labels;
    let mut wanted = gateway.selector.iter();
    wanted.all(|(key, value)| labels.get(&**key).is_some_and(|known| **known == **value))
}

/// Whether any server names a host.
pub fn has_server(gateway: &GatewaySpec, host: &Host) -> bool {
    let mut named = gateway
        .servers
        .iter()
        .flat_map(|server| server.hosts.iter());
    named.any(|text| is_host(ServerHost::read(text).host, host))
}

/// What a server is; none where it cannot be listened on.
pub fn of(server: &Server, settings: &Settings) -> Option<Entrance> {
    let door = door(server)?;
    let is_tls = matches!(door, Door::Tls(_) | Door::Closed);
    let port = server.port.number;
    let known = match is_tls {
        false => [80, settings.http.port(), settings.http.port()],
        true => [443, settings.https.port(), settings.https_port],
    };
    let listener = if is_tls { "https" } else { "http" };
    known.contains(&port).then(|| Entrance {
        port,
        listener: Name::from(listener),
        door,
    })
}

/// The entrances that name a pattern; where a namespace is given, those that admit its objects.
pub fn for_host<'a>(
    gateway: &'a GatewaySpec,
    own: &'a str,
    host: &'a Host,
    namespace: Option<&'a str>,
    settings: &'a Settings,
) -> impl Iterator<Item = Entrance> + 'a {
    let names = move |server: &&Server| {
        server
            .hosts
            .iter()
            .map(|text| ServerHost::read(text))
            .any(|named| {
                is_host(named.host, host)
                    && namespace.is_none_or(|namespace| named.admits(namespace, own))
            })
    };
    let servers = gateway.servers.iter().filter(names);
    servers.filter_map(move |server| of(server, settings))
}

fn door(server: &Server) -> Option<Door> {
    let protocol = server.port.protocol.to_ascii_uppercase();
    match (protocol.as_str(), &server.tls) {
        ("HTTP" | "HTTP2" | "GRPC" | "GRPC-WEB", Some(tls)) if tls.https_redirect => {
            Some(Door::ToTls)
        }
        ("HTTP" | "HTTP2" | "GRPC" | "GRPC-WEB", _) => Some(Door::Plain),
        ("HTTPS", Some(tls)) => Some(match tls.mode {
            TlsMode::Simple if !tls.credential_name.is_empty() => {
                Door::Tls(tls.credential_name.clone())
            }
            _ => Door::Closed,
        }),
        ("HTTPS", None) => Some(Door::Closed),
        _ => None,
    }
}

/// What is wrong with a server, whoever binds to it.
pub fn judge(key: &ObjectKey, at: usize, server: &Server, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |field: &str, message: String, remedy: &str| {
        let field = format!("spec.servers[{at}].{field}");
        findings.push(Finding::new(Severity::Error, key, field, message, remedy));
    };
    let protocol = server.port.protocol.to_ascii_uppercase();
    match (protocol.as_str(), &server.tls) {
        ("HTTP" | "HTTP2" | "GRPC" | "GRPC-WEB", _) => {}
        ("HTTPS", None) => say(
            "tls",
            "is missing, so its hosts answer no handshake".into(),
            "add tls with mode SIMPLE and a credentialName",
        ),
        ("HTTPS", Some(tls)) if tls.mode != TlsMode::Simple => say(
            "tls.mode",
            format!(
                "is {}, which is not honoured yet, so its hosts answer no handshake",
                tls.mode.as_str()
            ),
            "use SIMPLE",
        ),
        ("HTTPS", Some(tls)) if tls.credential_name.is_empty() => say(
            "tls.credentialName",
            "is missing, and certificates are read from Secrets only, so its hosts answer no \
             handshake"
                .into(),
            "name a Secret of type kubernetes.io/tls",
        ),
        ("HTTPS", Some(_)) => {}
        _ => {
            say(
                "port.protocol",
                format!("is {protocol}, which is not honoured yet, so nobody listens there"),
                "use HTTP or HTTPS",
            );
            return findings;
        }
    }
    if of(server, settings).is_none() {
        let port = server.port.number;
        let (plain, tls) = (settings.http.port(), settings.https.port());
        say(
            "port.number",
            format!("is {port}, and nobody listens there"),
            &format!("use 80 or {plain} for HTTP, 443 or {tls} for HTTPS"),
        );
    }
    findings
}
