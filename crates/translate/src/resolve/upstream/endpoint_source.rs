//! Where endpoints are, and what is spoken there.

use myriad_api::ServicePort;
use myriad_model::{Dns, Endpoints};

/// The protocol that is spoken on a port, by its name or protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// HTTP/1.1, and whatever else no HTTP request is meant for.
    Http1,
    /// HTTP/2, of gRPC too.
    Http2,
}

impl Speech {
    /// That of a protocol as Istio writes it, in any case.
    pub(crate) fn of_word(word: &str) -> Self {
        let words = ["http2", "grpc", "grpc-web"];
        match words.iter().any(|known| word.eq_ignore_ascii_case(known)) {
            true => Speech::Http2,
            false => Speech::Http1,
        }
    }
}

impl Speech {
    /// That of a port of a Service: `appProtocol` says it, or the start of the port's name.
    pub(crate) fn of_port(port: &ServicePort) -> Self {
        match port.app_protocol.as_deref() {
            Some("kubernetes.io/h2c") => Speech::Http2,
            Some(word) => Speech::of_word(word),
            None if port.name.starts_with("grpc-web") => Speech::Http2,
            None => Speech::of_word(port.name.split('-').next().unwrap_or_default()),
        }
    }
}

/// Where endpoints are.
pub(crate) enum EndpointSource {
    /// At these addresses, with the hashes of all of them where they are known.
    Endpoints(Endpoints, Box<[u64]>),
    /// Where DNS says.
    Dns(Dns),
}

impl EndpointSource {
    /// A source without endpoints.
    pub(crate) fn nowhere() -> Self {
        EndpointSource::at(Endpoints::new(Box::default()))
    }

    /// At these addresses, of which no hash is known.
    pub(crate) fn at(endpoints: Endpoints) -> Self {
        EndpointSource::Endpoints(endpoints, Box::default())
    }
}
