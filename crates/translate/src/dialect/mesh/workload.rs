//! The listeners of a workload: the ports that Services lead to, or that its Sidecar lists, and
//! every other one as it comes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use myriad_api::istio::destination_rule::connection::ConnectionPool;
use myriad_api::istio::sidecar::IngressListener;
use myriad_api::{Service, ServicePort, TargetPort};
use myriad_model::{
    CaptureDirection, Endpoint, Endpoints, Host, ListenerProtocol, MutualTls, Name, Origin,
    OriginKind, Policy, Protocol, Resource, Underscores, Upstream, Value,
};

use super::captured;
use super::peers::Peers;
use crate::engine::{Output, Reader};
use crate::resolve::upstream::endpoint_source::Speech;
use crate::resolve::{Merged, Spoken, options};
use crate::settings::Bounds;

/// The source address of connections to the workload, so that network rules let them through.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6));

/// A port of the workload.
struct Port {
    spoken: Spoken,
    is_http2: bool,
    inner: Inner,
    origin: Origin,
    pool: Option<Box<ConnectionPool>>,
}

/// The address where connections are handed to the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    /// The original destination of the connection.
    Original,
    /// This address, at another port.
    At(SocketAddr),
    /// Nobody is let in.
    Closed,
}

/// Translates what is accepted for the workload of the view.
pub(super) fn translate(reader: &mut Reader<'_>) -> Output {
    let mut output = Output::default();
    let (namespace, labels) = (
        reader.view().namespace_unasked(),
        reader.view().labels_unasked(),
    );
    let peers = Peers::read(reader, namespace, labels);
    let sidecar = reader.sidecar();
    let wide = sidecar.and_then(|it| it.spec.inbound_connection_pool.clone());
    let listed = sidecar.map_or(&[][..], |it| &it.spec.ingress);
    let mut ports = match listed.is_empty() {
        true => of_services(reader, namespace, labels),
        false => of_sidecar(sidecar.map(|it| it.meta.key.id()), listed),
    };
    // Whoever has a rule of its own for mutual TLS has a listener for it.
    for number in peers.ports() {
        ports
            .entry(number)
            .or_insert_with(|| Port::bytes(Inner::Original));
    }
    let underscores = reader.settings().underscores(Underscores::Colliding);
    for (number, port) in &ports {
        let pool = port.pool.as_deref().or(wide.as_deref());
        port.add(
            &number.to_string(),
            *number,
            peers.at(*number),
            pool,
            underscores,
            &mut output,
        );
    }
    let rest = Port::bytes(Inner::Original);
    rest.add(
        "any",
        0,
        peers.elsewhere(),
        wide.as_deref(),
        underscores,
        &mut output,
    );
    output
}

/// The ports that Services lead to. Of several for one port the oldest says what is spoken.
fn of_services(
    reader: &mut Reader<'_>,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> BTreeMap<u16, Port> {
    let mut services = reader.services_of(namespace, labels);
    services.sort_by_key(|it| (it.meta.created, it.meta.key.clone()));
    let mut ports = BTreeMap::new();
    for service in &services {
        for port in &service.ports {
            if port.protocol.as_deref().is_some_and(|it| it != "TCP") {
                continue;
            }
            for number in targets(reader, service, port) {
                ports.entry(number).or_insert_with(|| Port {
                    spoken: Spoken::of_port(port),
                    is_http2: Speech::of_port(port) == Speech::Http2,
                    inner: Inner::Original,
                    origin: Origin {
                        kind: OriginKind::Service,
                        id: service.meta.key.id().clone(),
                    },
                    pool: None,
                });
            }
        }
    }
    ports
}

/// The numbers that a port of a Service stands for. Which one a name is at its Pods is known by
/// EndpointSlices alone.
fn targets(reader: &mut Reader<'_>, service: &Service, port: &ServicePort) -> Vec<u16> {
    match &port.target_port {
        Some(TargetPort::Number(number)) if *number > 0 => vec![*number],
        Some(TargetPort::Number(_)) | None => vec![port.port],
        Some(TargetPort::Name(_)) => {
            let listed = reader.slices(service.meta.key.id()).ports(&port.name);
            let mut numbers: Vec<u16> = listed.into_iter().map(|port| port.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        }
    }
}

/// The ports that a Sidecar lists.
fn of_sidecar(id: Option<&Arc<str>>, listed: &[IngressListener]) -> BTreeMap<u16, Port> {
    let mut ports = BTreeMap::new();
    for ingress in listed.iter().filter(|it| it.port.number > 0) {
        let word = &ingress.port.protocol;
        ports.entry(ingress.port.number).or_insert_with(|| Port {
            spoken: Spoken::of_word(word).unwrap_or(Spoken::Tcp),
            is_http2: Speech::of_word(word) == Speech::Http2,
            inner: inner(ingress),
            origin: Origin {
                kind: OriginKind::Object,
                id: id.cloned().unwrap_or_else(|| "".into()),
            },
            pool: ingress.connection_pool.clone(),
        });
    }
    ports
}

/// The address that a listener of a Sidecar leads to.
pub(super) fn inner(ingress: &IngressListener) -> Inner {
    if ingress.tls.is_some() {
        return Inner::Closed;
    }
    let written = &*ingress.default_endpoint;
    if written.is_empty() {
        return Inner::Original;
    }
    match written.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() && address.port() > 0 => Inner::At(address),
        Ok(address) if address.ip().is_unspecified() && address.port() == ingress.port.number => {
            Inner::Original
        }
        _ => Inner::Closed,
    }
}

impl Port {
    /// Bytes of which nobody says what they are.
    fn bytes(inner: Inner) -> Self {
        Port {
            spoken: Spoken::Tcp,
            is_http2: false,
            inner,
            origin: Origin::settings(),
            pool: None,
        }
    }

    fn add(
        &self,
        word: &str,
        number: u16,
        mutual: MutualTls,
        pool: Option<&ConnectionPool>,
        underscores: Underscores,
        output: &mut Output,
    ) {
        let name = Name::new(format!("inbound/any:{word}"));
        let protocol = match self.spoken {
            Spoken::Http => ListenerProtocol::Http,
            Spoken::Tls | Spoken::Tcp => ListenerProtocol::Tcp,
            Spoken::Unknown => ListenerProtocol::Detected,
        };
        let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), number);
        let direction = CaptureDirection::Inbound;
        let listener = captured::listener(address, protocol, direction, mutual);
        self.push(name.clone(), listener, output);
        if self.inner == Inner::Closed {
            return;
        }
        let upstream = Name::new(format!("inbound/{word}"));
        self.add_upstream(&upstream, pool, output);
        let listeners: Arc<[Name]> = [name.clone()].into();
        let upstreams = || [captured::weighted(upstream.clone())];
        if protocol != ListenerProtocol::Tcp {
            let hosts: Arc<[Host]> = [Host::any()].into();
            let mut route = captured::route(listeners.clone(), hosts, 0, upstreams(), underscores);
            // Whoever sent it repeats it.
            route.policy = Arc::new(Policy {
                underscores,
                ..Policy::default()
            });
            self.push(name.clone(), Value::Route(Box::new(route)), output);
        }
        if protocol != ListenerProtocol::Http {
            let stream_route = captured::stream_route(listeners, 0, upstreams());
            self.push(name, Value::StreamRoute(Box::new(stream_route)), output);
        }
    }

    fn add_upstream(&self, name: &Name, pool: Option<&ConnectionPool>, output: &mut Output) {
        // Bytes are handed on as they are, whatever it says.
        let protocol = match self.is_http2 {
            true => Protocol::H2c,
            false => Protocol::Http1,
        };
        let settings = Merged {
            pool,
            ..Merged::default()
        };
        // No table of hashes is among them, so that no bound matters.
        let mut options = options(&settings, &Bounds::default());
        if self.spoken == Spoken::Unknown {
            // Nobody says what is spoken, so requests go on as they came.
            options.get_or_insert_default().follows_client = true;
        }
        let upstream = Upstream {
            original_destination: self.inner == Inner::Original,
            source_address: Some(Box::new(SOURCE)),
            options: options.map(Box::new),
            ..Upstream::plain(protocol)
        };
        self.push(name.clone(), Value::Upstream(Box::new(upstream)), output);
        if let Inner::At(address) = self.inner {
            let endpoints = Endpoints::new([Endpoint::even(address)].into());
            self.push(name.clone(), Value::Endpoints(Box::new(endpoints)), output);
        }
    }

    fn push(&self, name: Name, value: Value, output: &mut Output) {
        let origin = self.origin.clone();
        output.resources.push((name, Resource { origin, value }));
    }
}
