//! Providers: services that are asked whether a request may pass.

use std::time::Duration;

use crate::Name;

/// How a service is asked whether a request may pass. Its name is what access policies know it by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Provider {
    /// The upstream of the service; one that does not exist counts as a service that is down.
    pub upstream: Name,
    /// The protocol of the service.
    pub protocol: CheckProtocol,
    /// The longest that an answer is waited for, connecting included.
    pub timeout: Duration,
    /// Whether requests pass while the service is down, or answers what is no answer.
    pub fail_open: bool,
    /// The status of the answer while the service is down and requests do not pass, 400 to 599.
    pub error_status: u16,
    /// How much of the body of a request the service is told; none tells it nothing.
    pub body: Option<CheckBody>,
    /// The host that the service is asked by.
    pub authority: Box<str>,
    /// Whether the route is looked for again once the service has changed the request.
    pub reroutes: bool,
    /// Headers of the request that a service over gRPC is told; empty for all.
    pub told: Box<[NameMatch]>,
}

impl Provider {
    /// The most bytes of a request's body that a service may be told.
    pub const BODY_BYTES_MAX: u32 = 1 << 20;
}

/// The protocol of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckProtocol {
    /// A request like the client's: 200 lets it pass, and every other answer is the client's.
    Http(Box<HttpCheck>),
    /// `envoy.service.auth.v3.Authorization/Check`.
    Grpc,
    /// `envoy.service.ext_proc.v3.ExternalProcessor/Process`: for routes, and never for access
    /// policies.
    Process(Processing),
}

/// The parts that a processor is told beside the head of a request, and its body where its provider
/// says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Processing {
    /// Whether it is told the head of the response.
    pub tells_response: bool,
}

/// The request to a provider over HTTP, and the parts of its answer that are passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HttpCheck {
    /// The prefix that the path of the request is appended to.
    pub path_prefix: Box<str>,
    /// Headers of the request that the service is told, beside `authorization`.
    pub request: Box<[NameMatch]>,
    /// Headers that the service is told as well, in place of the client's.
    pub additional: Box<[(Box<str>, Box<str>)]>,
    /// Headers of the answer that take the place of the request's when it passes.
    pub upstream_on_allow: Box<[NameMatch]>,
    /// Headers of the answer that the response gets as well when the request passes.
    pub downstream_on_allow: Box<[NameMatch]>,
    /// Headers of the answer that the client gets when the request does not pass; empty for all.
    pub downstream_on_deny: Box<[NameMatch]>,
}

/// How much of the body of a request a provider is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckBody {
    /// The most bytes, from 1 to [`Provider::BODY_BYTES_MAX`].
    pub bytes_max: u32,
    /// Whether a longer body is told as far as that; otherwise it is answered with 413.
    pub allows_part: bool,
    /// Whether it is told as bytes where text is what is expected; gRPC only.
    pub is_raw: bool,
}

/// A test of a header's name, lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NameMatch {
    /// Equal.
    Exact(Box<str>),
    /// Starts with it.
    Start(Box<str>),
    /// Ends with it.
    End(Box<str>),
    /// Whatever it is.
    Any,
}

impl NameMatch {
    /// Whether a lower-case name is meant.
    pub fn is_met(&self, name: &str) -> bool {
        match self {
            NameMatch::Exact(text) => **text == *name,
            NameMatch::Start(text) => name.starts_with(&**text),
            NameMatch::End(text) => name.ends_with(&**text),
            NameMatch::Any => true,
        }
    }
}
