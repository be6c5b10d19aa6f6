//! The parts of an explanation. It never holds key material.

use serde::{Deserialize, Serialize};

/// The domain, route and upstreams that a request would meet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// The moment that it is of, as RFC 3339 has it; none for the present.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<String>,
    /// The URL.
    pub url: String,
    /// The method; empty for datagrams.
    pub method: String,
    /// The outcome, in one sentence.
    pub answer: String,
    /// Whether the request gets through: to an endpoint, or to an answer that a route wants.
    pub is_served: bool,
    /// The status, where the proxy answers by itself.
    pub status: Option<u16>,
    /// The listener, with its address.
    pub listener: Option<String>,
    /// The domain that answers the handshake.
    pub domain: Option<DomainPart>,
    /// The certificate that it presents.
    pub certificate: Option<CertificatePart>,
    /// The certificates that it presents to clients which cannot verify that one.
    #[serde(default)]
    pub other_certificates: Vec<CertificatePart>,
    /// The verdicts of the stages that the request passes, in order.
    #[serde(default)]
    pub stages: Vec<StagePart>,
    /// The route that takes the request.
    pub route: Option<RoutePart>,
    /// The upstreams that it may be sent to.
    pub upstreams: Vec<UpstreamPart>,
    /// Hints: what else to know, and what might have been meant.
    pub hints: Vec<String>,
    /// Findings about the objects that take part.
    pub findings: Vec<String>,
}

/// The verdict of one stage.
#[derive(Debug, Serialize, Deserialize)]
pub struct StagePart {
    /// Its name.
    pub stage: String,
    /// Its effect on the request, in words.
    pub text: String,
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
    /// The algorithm of its key.
    #[serde(default)]
    pub key: String,
    /// The names that it is for.
    pub names: Vec<String>,
    /// Whether it is for the host that is asked for.
    pub is_for_host: bool,
    /// The issuer of the certificate.
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
    /// The condition on the path.
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
    /// The protocol.
    pub protocol: String,
    /// The addresses, at most [`ENDPOINTS_SHOWN_MAX`].
    pub endpoints: Vec<String>,
    /// How many there are.
    pub endpoints_total: usize,
    /// The name that the proxy resolves instead.
    pub dns: Option<String>,
}

/// The most endpoints of an upstream that are listed.
pub(super) const ENDPOINTS_SHOWN_MAX: usize = 20;
