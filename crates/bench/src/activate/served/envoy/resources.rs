//! The resources that Envoy is sent, by the numbers of their fields in its API.

use std::net::SocketAddr;

use super::bootstrap::{CLUSTERS, LISTENER, ROUTES, XDS};
use super::protobuf::Message;
use crate::domains::{Domain, Pair, pem};

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The listener with its chains.
    Listener,
    /// The routes, which leave hosts to be asked for.
    Routes,
    /// A host of the routes.
    Host,
    /// A certificate and its key.
    Secret,
}

const KINDS: [Kind; 4] = [Kind::Listener, Kind::Routes, Kind::Host, Kind::Secret];

/// The version of Envoy's API, as it numbers it.
const V3: u64 = 2;

/// The protocol of differences, likewise.
const DELTA_GRPC: u64 = 3;

/// How long Envoy waits for hosts before it serves: none are sent unless they are asked for.
const FETCH_NANOS: u64 = 100_000_000;

impl Kind {
    /// The kind whose type this is.
    pub(super) fn of(url: &str) -> Option<Kind> {
        let name = url.strip_prefix("type.googleapis.com/")?;
        KINDS.into_iter().find(|kind| kind.name() == name)
    }

    /// The whole name of its type.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Listener => "envoy.config.listener.v3.Listener",
            Kind::Routes => "envoy.config.route.v3.RouteConfiguration",
            Kind::Host => "envoy.config.route.v3.VirtualHost",
            Kind::Secret => "envoy.extensions.transport_sockets.tls.v3.Secret",
        }
    }
}

/// The name of a host among those of the routes.
pub(super) fn host_name(host: &str) -> String {
    format!("{ROUTES}/{host}")
}

/// A certificate and its key, in PEM.
fn certificate(pair: &Pair, issuer: &[u8]) -> Message {
    let chain = pem("CERTIFICATE", &pair.leaf) + &pem("CERTIFICATE", issuer);
    let inline = |text: &str| Message::new().text(2, text);
    Message::new()
        .message(1, &inline(&chain))
        .message(2, &inline(&pem("PRIVATE KEY", &pair.key)))
}

/// The secret of a host.
pub(super) fn secret(host: &str, pair: &Pair, issuer: &[u8]) -> Message {
    Message::new()
        .text(1, host)
        .message(2, &certificate(pair, issuer))
}

/// A host, all of whose paths lead to one of the clusters.
pub(super) fn host(domain: &Domain, endpoints: [SocketAddr; 2]) -> Message {
    let [first, second] = CLUSTERS;
    let is_first = domain.endpoint == endpoints[0];
    let action = Message::new().text(1, if is_first { first } else { second });
    let route = Message::new()
        .message(1, &Message::new().text(1, "/"))
        // Without a timeout, as elsewhere here.
        .message(2, &action.message(8, &Message::new()));
    Message::new()
        .text(1, &domain.host)
        .text(2, &domain.host)
        .message(3, &route)
}

/// Routes whose hosts are asked for one by one.
pub(super) fn routes() -> Message {
    let service = Message::new().message(1, &Message::new().text(1, XDS));
    let api = Message::new()
        .number(1, DELTA_GRPC)
        .message(4, &service)
        .number(8, V3);
    let source = Message::new()
        .message(2, &api)
        .message(4, &Message::new().number(2, FETCH_NANOS))
        .number(6, V3);
    Message::new()
        .text(1, ROUTES)
        .message(9, &Message::new().message(1, &source))
}

/// The filter chain of a domain, with its certificate and its host in it.
pub(super) fn chain(
    domain: &Domain,
    pair: &Pair,
    issuer: &[u8],
    endpoints: [SocketAddr; 2],
) -> Message {
    let tls = Message::new()
        .message(2, &certificate(pair, issuer))
        .text(4, "http/1.1");
    let tls = Message::new().message(1, &tls);
    let router = Message::new().text(1, "envoy.filters.http.router").any(
        4,
        "envoy.extensions.filters.http.router.v3.Router",
        &Message::new(),
    );
    let routes = Message::new()
        .text(1, &domain.host)
        .message(2, &host(domain, endpoints));
    let manager = Message::new()
        .text(2, "ingress")
        .message(4, &routes)
        .message(5, &router)
        // No request ids.
        .message(15, &Message::new().number(1, 0));
    let filter = Message::new()
        .text(1, "envoy.filters.network.http_connection_manager")
        .any(
            4,
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            &manager,
        );
    let socket = Message::new().text(1, "envoy.transport_sockets.tls").any(
        3,
        "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        &tls,
    );
    Message::new()
        .message(1, &Message::new().text(11, &domain.host))
        .message(3, &filter)
        .message(6, &socket)
        .text(7, &domain.host)
}

/// The listener with these chains.
pub(super) fn listener<'a>(
    address: SocketAddr,
    chains: impl Iterator<Item = &'a Message>,
) -> Message {
    let socket = Message::new()
        .text(2, &address.ip().to_string())
        .number(3, u64::from(address.port()));
    let inspector = Message::new()
        .text(1, "envoy.filters.listener.tls_inspector")
        .any(
            3,
            "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
            &Message::new(),
        );
    let message = Message::new()
        .text(1, LISTENER)
        .message(2, &Message::new().message(1, &socket));
    let message = chains.fold(message, |message, chain| message.message(3, chain));
    message.message(9, &inspector)
}

/// A resource in a response: without a body it says that there is none.
pub(super) fn resource(kind: Kind, name: &str, version: u64, body: Option<&Message>) -> Message {
    let message = Message::new().text(1, &version.to_string()).text(3, name);
    let message = match kind {
        // Hosts are found by the names that are asked for.
        Kind::Host => message.text(4, name),
        Kind::Listener | Kind::Routes | Kind::Secret => message,
    };
    match body {
        Some(body) => message.any(2, kind.name(), body),
        None => message,
    }
}

/// A response with these resources, and the names of those that there are no more.
pub(super) fn response(
    kind: Kind,
    version: u64,
    resources: &[Message],
    removed: &[String],
) -> Message {
    let message = Message::new().text(1, &version.to_string());
    let add = |message: Message, resource: &Message| message.message(2, resource);
    let message = resources.iter().fold(message, add);
    let message = message
        .text(4, &format!("type.googleapis.com/{}", kind.name()))
        .text(5, &version.to_string());
    removed
        .iter()
        .fold(message, |message, name| message.text(6, name))
}
