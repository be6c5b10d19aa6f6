//! What an explanation consists of. It never holds key material.

use serde::{Deserialize, Serialize};

/// What a request would meet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// The URL.
    pub url: String,
    /// The method.
    pub method: String,
    /// What would happen, in one sentence.
    pub answer: String,
    /// Whether a route takes the request, and it gets somewhere.
    pub is_served: bool,
    /// The status, where the proxy answers by itself.
    pub status: Option<u16>,
    /// The listener, with its address.
    pub listener: Option<String>,
    /// Who answers the handshake.
    pub domain: Option<DomainPart>,
    /// With what.
    pub certificate: Option<CertificatePart>,
    /// The route that takes the request.
    pub route: Option<RoutePart>,
    /// Where it may be sent.
    pub upstreams: Vec<UpstreamPart>,
    /// What else to know, and what might have been meant.
    pub hints: Vec<String>,
    /// What is wrong with the objects that take part.
    pub findings: Vec<String>,
}

/// A domain.
#[derive(Debug, Serialize, Deserialize)]
pub struct DomainPart {
    /// The name or wildcard.
    pub host: String,
    /// The object that it came from.
    pub object: String,
}

/// A certificate.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CertificatePart {
    /// The Secret, as `namespace/name`.
    pub secret: String,
    /// Whether it is the one for names that no other covers.
    pub is_default: bool,
    /// The names that it is for.
    pub names: Vec<String>,
    /// Whether it is for the host that is asked for.
    pub is_for_host: bool,
    /// Who issued it.
    pub issuer: String,
    /// When it ends, as RFC 2822 has it.
    pub not_after: String,
    /// Whether it has ended.
    pub is_expired: bool,
}

/// A route.
#[derive(Debug, Serialize, Deserialize)]
pub struct RoutePart {
    /// Its name among resources.
    pub name: String,
    /// The object that it came from.
    pub object: String,
    /// The rule of a VirtualService, and the one of its delegate.
    pub rule: Option<String>,
    /// The host pattern that it was found under.
    pub host: String,
    /// What the path has to be.
    pub path: String,
    /// How many other conditions hold.
    pub conditions: usize,
    /// The path that is sent on, where it is another one.
    pub rewrite: Option<String>,
}

/// An upstream.
#[derive(Debug, Serialize, Deserialize)]
pub struct UpstreamPart {
    /// Its name: `namespace/service:port`.
    pub name: String,
    /// The object that it came from; none where it is missing.
    pub object: Option<String>,
    /// Its share among the upstreams of the route.
    pub weight: u32,
    /// What is spoken.
    pub protocol: String,
    /// The addresses, at most [`ENDPOINTS_SHOWN_MAX`].
    pub endpoints: Vec<String>,
    /// How many there are.
    pub endpoints_total: usize,
    /// The name that the proxy resolves instead.
    pub dns: Option<String>,
}

/// The most endpoints of an upstream that are listed.
pub const ENDPOINTS_SHOWN_MAX: usize = 20;
