//! The ways in which a request can fail, the side to blame, and whether to try again.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

/// Why a request was not served as its route says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureKind {
    /// The head is not well-formed, or its framing is ambiguous.
    BadRequest,
    /// The HTTP version is neither 1.0, 1.1 nor 2.
    BadVersion,
    /// The method is refused: CONNECT, or TRACE.
    BadMethod,
    /// The protocol that a stream shall carry is refused.
    BadProtocol,
    /// The request target is longer than the limit.
    TargetTooLong,
    /// The head is longer, or has more fields, than the limit.
    HeadTooLarge,
    /// The head took longer than the limit.
    HeadTimeout,
    /// The body is larger than the route's policy allows.
    BodyTooLarge,
    /// The body is not well-formed.
    BadBody,
    /// The body took longer than the limit.
    BodyTimeout,
    /// The host does not belong on this connection.
    Misdirected,
    /// The client address is not admitted.
    Forbidden,
    /// A policy of the listener does not admit the request.
    Unauthorized,
    /// The request has tokens, and none of them is valid.
    BadToken,
    /// The request has no password of a user that its route admits.
    BadPassword,
    /// The client has shown no certificate that its route asks for.
    BadCertificate,
    /// The client's certificate has another subject than its route asks for.
    CertificateRefused,
    /// The provider that was asked refuses the request; the response is its own.
    ProviderRefused,
    /// The provider that has to be asked does not answer; the status is its own.
    ProviderFailed,
    /// More requests came than are served in the time.
    RateLimited,
    /// The host has more than its share of what the proxy can bear, or memory is short.
    Overloaded,
    /// The regexes and conditions of the host take more steps than a request may.
    RegexBudget,
    /// No route is known for the host.
    NoHost,
    /// No route is known for what the captured connection was meant for.
    NoDestination,
    /// No route of the host matches.
    NoRoute,
    /// The client went away.
    ClientGone,
    /// The client does not read what it is sent.
    ClientStalled,
    /// The route names no upstream that is there.
    NoUpstream,
    /// The upstream has no endpoint.
    NoEndpoint,
    /// The upstream's DNS name has no address.
    Unresolved,
    /// All endpoints of the upstream are left out for what they answered.
    Ejected,
    /// The upstream bears no more requests or connections.
    Overflow,
    /// The endpoint's address is one that nobody may be led to.
    EndpointRefused,
    /// The request has passed as many gateways as it may: routes lead it in a circle.
    LoopDetected,
    /// No port is free from which the endpoint could be connected to.
    NoPort,
    /// The endpoint cannot be connected to.
    ConnectFailed,
    /// Connecting to the endpoint took longer than the route's policy allows.
    ConnectTimeout,
    /// The TLS handshake with the endpoint failed.
    UpstreamTls,
    /// A trust or a certificate that TLS with the endpoint needs is not there.
    UpstreamTrust,
    /// The endpoint closed the connection before the response was complete.
    UpstreamClosed,
    /// The endpoint's response is not well-formed, or beyond a limit.
    BadResponse,
    /// The endpoint does not offer to change the protocol, or answers as if nobody had asked.
    NoUpgrade,
    /// The endpoint took longer to answer than the route's policy allows.
    ReadTimeout,
    /// The endpoint took longer to read than the route's policy allows.
    SendTimeout,
    /// The request took longer than the route's policy allows, over all tries.
    RequestTimeout,
    /// One try took longer than the route's policy allows.
    TryTimeout,
    /// The route's policy makes trouble on purpose; the status is its own.
    FaultAbort,
    /// The proxy contradicts itself.
    Internal,
}

/// The side that is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSide {
    /// The client.
    Downstream,
    /// The endpoint, or that there is none.
    Upstream,
    /// The proxy.
    Ours,
}

/// Whether the request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Something of it may have had an effect, or it would only fail again.
    No,
    /// Nothing of it was sent.
    Yes,
    /// Only on a connection that had served before: the endpoint most likely closed it while
    /// it was idle.
    IfReused,
    /// Only what may be done twice: the proxy itself has ended the connection, and whoever shared
    /// it may be the cause.
    IfIdempotent,
}

/// One failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The side at fault.
    pub side: FaultSide,
    /// Whether to try again.
    pub retry: Retry,
}

/// How a failure is answered and logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureVerdict {
    /// The status of the response, where there can still be one.
    pub status: u16,
    /// The flag in the access log and the label in metrics.
    pub flag: &'static str,
    /// The side at fault.
    pub side: FaultSide,
    /// The body of the response.
    pub text: &'static str,
}

impl FailureKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [FailureKind; 48] = [
        FailureKind::BadRequest,
        FailureKind::BadVersion,
        FailureKind::BadMethod,
        FailureKind::BadProtocol,
        FailureKind::TargetTooLong,
        FailureKind::HeadTooLarge,
        FailureKind::HeadTimeout,
        FailureKind::BodyTooLarge,
        FailureKind::BadBody,
        FailureKind::BodyTimeout,
        FailureKind::Misdirected,
        FailureKind::Forbidden,
        FailureKind::Unauthorized,
        FailureKind::BadToken,
        FailureKind::BadPassword,
        FailureKind::BadCertificate,
        FailureKind::CertificateRefused,
        FailureKind::ProviderRefused,
        FailureKind::ProviderFailed,
        FailureKind::RateLimited,
        FailureKind::Overloaded,
        FailureKind::RegexBudget,
        FailureKind::NoHost,
        FailureKind::NoDestination,
        FailureKind::NoRoute,
        FailureKind::ClientGone,
        FailureKind::ClientStalled,
        FailureKind::NoUpstream,
        FailureKind::NoEndpoint,
        FailureKind::Unresolved,
        FailureKind::Ejected,
        FailureKind::Overflow,
        FailureKind::EndpointRefused,
        FailureKind::LoopDetected,
        FailureKind::NoPort,
        FailureKind::ConnectFailed,
        FailureKind::ConnectTimeout,
        FailureKind::UpstreamTls,
        FailureKind::UpstreamTrust,
        FailureKind::UpstreamClosed,
        FailureKind::BadResponse,
        FailureKind::NoUpgrade,
        FailureKind::ReadTimeout,
        FailureKind::SendTimeout,
        FailureKind::RequestTimeout,
        FailureKind::TryTimeout,
        FailureKind::FaultAbort,
        FailureKind::Internal,
    ];

    /// Status, flag, side and text. The only place that knows them.
    pub const fn verdict(self) -> FailureVerdict {
        use FailureKind as Kind;
        use FaultSide::{Downstream, Ours, Upstream};
        let (status, flag, side, text) = match self {
            Kind::BadRequest => (400, "bad_request", Downstream, "bad request\n"),
            Kind::BadVersion => (505, "bad_version", Downstream, "HTTP version refused\n"),
            Kind::BadMethod => (405, "bad_method", Downstream, "method refused\n"),
            Kind::BadProtocol => (501, "bad_protocol", Downstream, "protocol refused\n"),
            Kind::TargetTooLong => (414, "target_too_long", Downstream, "URI too long\n"),
            Kind::HeadTooLarge => (431, "head_too_large", Downstream, "head too large\n"),
            Kind::HeadTimeout => (408, "head_timeout", Downstream, "request timeout\n"),
            Kind::BodyTooLarge => (413, "body_too_large", Downstream, "body too large\n"),
            Kind::BadBody => (400, "bad_body", Downstream, "bad request body\n"),
            Kind::BodyTimeout => (408, "body_timeout", Downstream, "request timeout\n"),
            Kind::Misdirected => (421, "misdirected", Downstream, "misdirected request\n"),
            Kind::Forbidden => (403, "forbidden", Downstream, "forbidden\n"),
            Kind::Unauthorized => (403, "unauthorized", Downstream, "RBAC: access denied"),
            Kind::BadToken => (401, "bad_token", Downstream, "token refused\n"),
            Kind::BadPassword => (401, "bad_password", Downstream, "password needed\n"),
            Kind::BadCertificate => (
                400,
                "bad_certificate",
                Downstream,
                "client certificate needed\n",
            ),
            Kind::CertificateRefused => (
                403,
                "certificate_refused",
                Downstream,
                "client certificate refused\n",
            ),
            Kind::ProviderRefused => (403, "provider_refused", Downstream, ""),
            Kind::ProviderFailed => (403, "provider_failed", Upstream, ""),
            Kind::RateLimited => (429, "rate_limited", Downstream, "too many requests\n"),
            Kind::Overloaded => (503, "overloaded", Ours, "overloaded\n"),
            Kind::RegexBudget => (503, "regex_budget", Ours, "too much to match\n"),
            Kind::NoHost => (404, "no_host", Downstream, "not found\n"),
            Kind::NoDestination => (502, "no_destination", Downstream, "not in the mesh\n"),
            Kind::NoRoute => (404, "no_route", Downstream, "not found\n"),
            Kind::ClientGone => (499, "client_gone", Downstream, ""),
            Kind::ClientStalled => (499, "client_stalled", Downstream, ""),
            Kind::NoUpstream => (503, "no_upstream", Upstream, "route leads nowhere\n"),
            Kind::NoEndpoint => (503, "no_endpoint", Upstream, "no endpoint\n"),
            Kind::Unresolved => (503, "unresolved", Upstream, "name has no address\n"),
            Kind::Ejected => (503, "ejected", Upstream, "no healthy endpoint\n"),
            Kind::Overflow => (503, "overflow", Upstream, "upstream overflow\n"),
            Kind::EndpointRefused => (503, "endpoint_refused", Upstream, "no endpoint\n"),
            Kind::LoopDetected => (508, "loop_detected", Upstream, "led in a circle\n"),
            Kind::NoPort => (503, "no_port", Ours, "no port left\n"),
            Kind::ConnectFailed => (502, "connect_failed", Upstream, "endpoint unreachable\n"),
            Kind::ConnectTimeout => (504, "connect_timeout", Upstream, "connecting timed out\n"),
            Kind::UpstreamTls => (502, "upstream_tls", Upstream, "TLS with endpoint failed\n"),
            Kind::UpstreamTrust => (503, "upstream_trust", Upstream, "upstream not trusted\n"),
            Kind::UpstreamClosed => (502, "upstream_closed", Upstream, "endpoint hung up\n"),
            Kind::BadResponse => (502, "bad_response", Upstream, "malformed response\n"),
            Kind::NoUpgrade => (502, "no_upgrade", Upstream, "upgrade not offered\n"),
            Kind::ReadTimeout => (504, "read_timeout", Upstream, "endpoint timed out\n"),
            Kind::SendTimeout => (504, "send_timeout", Upstream, "sending timed out\n"),
            Kind::RequestTimeout => (504, "request_timeout", Upstream, "request timed out\n"),
            Kind::TryTimeout => (504, "try_timeout", Upstream, "endpoint timed out\n"),
            Kind::FaultAbort => (503, "fault_abort", Ours, "fault injected\n"),
            Kind::Internal => (500, "internal", Ours, "internal error\n"),
        };
        FailureVerdict {
            status,
            flag,
            side,
            text,
        }
    }
}

impl Failure {
    /// A failure that must not be tried again.
    pub const fn of(kind: FailureKind) -> Self {
        Failure {
            kind,
            side: kind.verdict().side,
            retry: Retry::No,
        }
    }

    /// This verdict with another answer to whether to try again.
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }
}

impl From<FailureKind> for Failure {
    fn from(kind: FailureKind) -> Self {
        Failure::of(kind)
    }
}

/// Envoy's letters for a flag; `None` where it has none.
pub fn envoy_flag(flag: &str) -> Option<&'static str> {
    Some(match flag {
        "client_gone" | "client_stalled" | "body_timeout" => "DC",
        "head_timeout" | "bad_request" | "bad_body" | "bad_version" | "bad_protocol" => "DPE",
        "unauthorized" | "forbidden" | "provider_refused" | "provider_failed" => "UAEX",
        "bad_token" | "bad_password" | "bad_certificate" | "certificate_refused" => "UAEX",
        "rate_limited" => "RL",
        "no_host" | "no_route" | "misdirected" | "passage_removed" => "NR",
        "no_upstream" => "NC",
        "no_endpoint" | "ejected" => "UH",
        "unresolved" => "DF",
        "overflow" => "UO",
        "overloaded" | "regex_budget" => "OM",
        "connect_failed" | "connect_timeout" | "no_port" => "UF",
        "upstream_tls" | "upstream_trust" => "UF",
        "upstream_closed" => "UC",
        "bad_response" | "no_upgrade" => "UPE",
        "read_timeout" | "send_timeout" | "request_timeout" | "try_timeout" => "UT",
        "idle_timeout" => "SI",
        "fault_abort" => "FI",
        "fault_delay" => "DI",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::FailureKind;

    #[test]
    fn every_kind_has_its_own_number_and_flag() {
        let mut flags: Vec<&str> = Vec::new();
        for (number, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            flags.push(kind.verdict().flag);
        }
        flags.sort_unstable();
        flags.dedup();
        assert_eq!(flags.len(), FailureKind::ALL.len());
    }
}
