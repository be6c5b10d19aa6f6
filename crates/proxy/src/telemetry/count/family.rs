//! The families of counters that the counts are shown as.

use super::Count;

/// Counters of one meaning, told apart by one label of few values.
pub(super) struct Family {
    /// The name of the metric, without prefix and suffix.
    pub(super) name: &'static str,
    /// Its help text.
    pub(super) help: &'static str,
    /// The name of the label; empty for none.
    pub(super) label: &'static str,
    /// The values of the label with their counts; empty for the kinds of failure.
    pub(super) members: &'static [(&'static str, Count)],
}

/// Every family of counts.
pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "connections_accepted",
        help: "Connections accepted from clients",
        label: "",
        members: &[("", Count::Accepted)],
    },
    Family {
        name: "accept_failures",
        help: "Times that the system had nothing left for a connection, which waits to be accepted",
        label: "",
        members: &[("", Count::AcceptFailed)],
    },
    Family {
        name: "connections_closed",
        help: "Connections of clients ended",
        label: "",
        members: &[("", Count::Closed)],
    },
    Family {
        name: "connections_shed",
        help: "Connections of clients closed at once because of a limit",
        label: "",
        members: &[("", Count::Shed)],
    },
    Family {
        name: "connections_evicted",
        help: "Connections of clients closed to make room for others, by what they did",
        label: "state",
        members: &[
            ("silent", Count::EvictedSilent),
            ("idle", Count::EvictedIdle),
            ("handshake", Count::EvictedHandshake),
        ],
    },
    Family {
        name: "requests_evicted",
        help: "Requests that waited, ended to make room for others",
        label: "waits_for",
        members: &[
            ("body", Count::EvictedBody),
            ("read", Count::EvictedRead),
            ("endpoint", Count::EvictedEndpoint),
        ],
    },
    Family {
        name: "proxy_protocol_headers",
        help: "Connections that had to begin with a PROXY protocol header, by what came of it",
        label: "outcome",
        members: &[
            ("taken", Count::IntroductionTaken),
            ("empty", Count::IntroductionEmpty),
            ("untrusted", Count::IntroductionUntrusted),
            ("malformed", Count::IntroductionMalformed),
            ("timeout", Count::IntroductionTimeout),
        ],
    },
    Family {
        name: "fair_share_refused",
        help: "What was refused because a domain has more than its share and little is left",
        label: "of",
        members: &[
            ("handshakes", Count::ShareHandshakes),
            ("connections", Count::ShareConnections),
            ("requests", Count::ShareRequests),
            ("tunnels", Count::ShareTunnels),
        ],
    },
    Family {
        name: "handshakes_queued",
        help: "TLS handshakes that waited, since as many were under way as may be",
        label: "",
        members: &[("", Count::HandshakeQueued)],
    },
    Family {
        name: "handshakes",
        help: "TLS handshakes by how they ended",
        label: "outcome",
        members: &[
            ("full", Count::HandshakeFull),
            ("resumed", Count::HandshakeResumed),
            ("unknown_name", Count::HandshakeUnknownName),
            ("timeout", Count::HandshakeTimeout),
            ("failed", Count::HandshakeFailed),
        ],
    },
    Family {
        name: "mesh_peers_refused",
        help: "Handshakes of the mesh that failed since the peer was not believed, by reason",
        label: "reason",
        members: &[
            ("no_certificate", Count::PeerAnonymous),
            ("ended", Count::PeerEnded),
            ("not_begun", Count::PeerNotBegun),
            ("authority", Count::PeerAuthority),
            ("identity", Count::PeerIdentity),
            ("version", Count::PeerVersion),
            ("other", Count::PeerOther),
        ],
    },
    Family {
        name: "peers_refused",
        help: "Handshakes outside the mesh that failed since the peer was not believed",
        label: "side",
        members: &[
            ("client", Count::ClientRefused),
            ("endpoint", Count::EndpointRefused),
        ],
    },
    Family {
        name: "requests",
        help: "Requests by class of status",
        label: "status",
        members: &[
            ("1xx", Count::Status1xx),
            ("2xx", Count::Status2xx),
            ("3xx", Count::Status3xx),
            ("4xx", Count::Status4xx),
            ("5xx", Count::Status5xx),
        ],
    },
    Family {
        name: "request_failures",
        help: "Requests not served as their route says, by reason",
        label: "reason",
        members: &[],
    },
    Family {
        name: "upstream_connections",
        help: "Connections to endpoints by what became of them",
        label: "event",
        members: &[
            ("opened", Count::UpstreamOpened),
            ("reused", Count::UpstreamReused),
            ("failed", Count::UpstreamFailed),
            ("retried", Count::UpstreamRetried),
            ("evicted", Count::UpstreamEvicted),
            ("idle", Count::UpstreamIdle),
            ("crowded", Count::UpstreamCrowded),
        ],
    },
    Family {
        name: "upstream_ejections",
        help: "Endpoints left out for what they answered",
        label: "",
        members: &[("", Count::UpstreamEjected)],
    },
    Family {
        name: "upstream_overflows",
        help: "Requests refused because of a limit of their upstream",
        label: "limit",
        members: &[
            ("requests", Count::OverflowRequests),
            ("pending", Count::OverflowPending),
            ("streams", Count::OverflowStreams),
        ],
    },
    Family {
        name: "retries_refused",
        help: "Repetitions left out because their upstream has as many in flight as it may",
        label: "",
        members: &[("", Count::RetryRefused)],
    },
    Family {
        name: "requests_delayed",
        help: "Requests that waited because their route makes trouble on purpose",
        label: "",
        members: &[("", Count::FaultDelayed)],
    },
    Family {
        name: "mirrored_requests",
        help: "Copies of requests by what became of them",
        label: "event",
        members: &[
            ("sent", Count::MirrorSent),
            ("dropped", Count::MirrorDropped),
            ("failed", Count::MirrorFailed),
        ],
    },
    Family {
        name: "streams",
        help: "Streams by what became of them",
        label: "event",
        members: &[
            ("opened", Count::StreamOpened),
            ("ended", Count::StreamEnded),
            ("broken", Count::StreamBroken),
            ("idle", Count::StreamIdle),
            ("removed", Count::StreamRemoved),
            ("failed", Count::StreamFailed),
        ],
    },
    Family {
        name: "stream_bytes",
        help: "Bytes of ended streams by who received them",
        label: "direction",
        members: &[
            ("received", Count::StreamBytesReceived),
            ("sent", Count::StreamBytesSent),
        ],
    },
    Family {
        name: "flows",
        help: "Flows of datagrams by what became of them",
        label: "event",
        members: &[
            ("opened", Count::FlowOpened),
            ("idle", Count::FlowIdle),
            ("removed", Count::FlowRemoved),
            ("failed", Count::FlowFailed),
            ("evicted", Count::FlowEvicted),
            ("looped", Count::FlowLooped),
            ("paced", Count::FlowPaced),
        ],
    },
    Family {
        name: "datagrams",
        help: "Datagrams: of clients, to clients, and of either side those that went nowhere",
        label: "event",
        members: &[
            ("received", Count::DatagramReceived),
            ("sent", Count::DatagramSent),
            ("dropped", Count::DatagramDropped),
        ],
    },
    Family {
        name: "datagram_bytes",
        help: "Bytes of datagrams by who received them",
        label: "direction",
        members: &[
            ("received", Count::DatagramBytesReceived),
            ("sent", Count::DatagramBytesSent),
        ],
    },
    Family {
        name: "guards_on_trial",
        help: "Access policies that are not enforced, by what they would have done with a request",
        label: "verdict",
        members: &[
            ("admitted", Count::DryRunAdmitted),
            ("refused", Count::DryRunRefused),
        ],
    },
    Family {
        name: "requests_audited",
        help: "Requests that fit a policy which asks for a mark in the access log",
        label: "",
        members: &[("", Count::Audited)],
    },
    Family {
        name: "certificate_keys",
        help: "Certificate keys by what became of them",
        label: "event",
        members: &[("parsed", Count::KeyParsed), ("evicted", Count::KeyEvicted)],
    },
    Family {
        name: "trace_spans",
        help: "Spans by what became of them",
        label: "event",
        members: &[("sent", Count::SpanSent), ("dropped", Count::SpanDropped)],
    },
    Family {
        name: "header_fields_dropped",
        help: "Header fields of requests dropped, by what was wrong with them",
        label: "reason",
        members: &[("underscore", Count::UnderscoreDropped)],
    },
    Family {
        name: "access_log_lines_dropped",
        help: "Lines of the access log dropped because its writer is behind",
        label: "",
        members: &[("", Count::LogDropped)],
    },
    Family {
        name: "provider_checks",
        help: "Requests that a provider was asked about, by what became of them",
        label: "outcome",
        members: &[
            ("passed", Count::CheckPassed),
            ("refused", Count::CheckRefused),
            ("failed_open", Count::CheckFailedOpen),
            ("failed_closed", Count::CheckFailedClosed),
        ],
    },
    Family {
        name: "rate_limits",
        help: "Rate limits by what they did",
        label: "event",
        members: &[
            ("limited", Count::RateLimited),
            ("evicted", Count::RateEvicted),
        ],
    },
];
