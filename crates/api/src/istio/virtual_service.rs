//! `networking.istio.io` VirtualService.
//!
//! The most numerous kind: a hundred routes each in tens of thousands of objects. What most
//! routes set stands in the route itself, all else behind one pointer.

use std::sync::Arc;
use std::time::Duration;

use super::header::Headers;
use super::object::Spec;
use super::reading::{Map, message};
use super::scalar::{Base64, words};
use super::selector::PortSelector;
use super::string_match::StringMatch;
use super::{Labels, Names};
use crate::ObjectKind;

message! {
    /// The spec of a VirtualService.
    pub struct VirtualServiceSpec {
        /// Hosts as written; empty in a delegate.
        hosts: Names = "hosts",
        /// `namespace/name` or `name` of Gateways, or `mesh`; empty means `mesh`.
        gateways: Names = "gateways",
        http: Box<[HttpRoute]> = "http",
        tls: Box<[TlsRoute]> = "tls",
        tcp: Box<[TcpRoute]> = "tcp",
        /// Namespaces that see it, `.` for its own, `*` or nothing for all.
        export_to: Names = "exportTo" | "export_to",
    }
}

message! {
    /// One rule for HTTP.
    pub struct HttpRoute {
        name: Box<str> = "name",
        /// Any of these must fit; none means every request.
        matches: Box<[HttpMatch]> = "match",
        /// Rules share it.
        route: Arc<[HttpDestination]> = "route",
        /// Rules share it.
        rewrite: Option<Arc<HttpRewrite>> = "rewrite",
        /// None and zero both mean no limit.
        timeout: Option<Duration> = "timeout",
    }
    rare HttpRouteRare {
        redirect: Option<HttpRedirect> = "redirect",
        direct_response: Option<DirectResponse> = "directResponse" | "direct_response",
        delegate: Option<Delegate> = "delegate",
        retries: Option<HttpRetry> = "retries",
        fault: Option<HttpFault> = "fault",
        mirror: Option<Destination> = "mirror",
        mirrors: Box<[HttpMirror]> = "mirrors",
        /// Whole percent; the former form of `mirrorPercentage`.
        mirror_percent: Option<u32> = "mirrorPercent" | "mirror_percent",
        mirror_percentage: Option<Percent> = "mirrorPercentage" | "mirror_percentage",
        cors_policy: Option<CorsPolicy> = "corsPolicy" | "cors_policy",
        headers: Option<Headers> = "headers",
    }
}

message! {
    /// Conditions of which all must hold.
    pub struct HttpMatch {
        uri: Option<StringMatch> = "uri",
        /// Tests of headers, by their names in lower case.
        headers: Map<StringMatch> = "headers",
        /// Labels of the workload that asks; a gateway's own at a gateway. Matches share them.
        source_labels: Option<Arc<Labels>> = "sourceLabels" | "source_labels",
        /// Port that the request came in on; 0 means any.
        port: u16 = "port",
        /// For exact and prefix only.
        ignore_uri_case: bool = "ignoreUriCase" | "ignore_uri_case",
    }
    rare HttpMatchRare {
        name: Box<str> = "name",
        scheme: Option<StringMatch> = "scheme",
        method: Option<StringMatch> = "method",
        authority: Option<StringMatch> = "authority",
        /// Instead of those of the VirtualService, if there are any.
        gateways: Names = "gateways",
        query_params: Map<StringMatch> = "queryParams" | "query_params",
        without_headers: Map<StringMatch> = "withoutHeaders" | "without_headers",
        source_namespace: Box<str> = "sourceNamespace" | "source_namespace",
        /// The name by which Envoy's statistics tell routes apart.
        stat_prefix: Box<str> = "statPrefix" | "stat_prefix",
    }
}

message! {
    /// A service, or a subset of one.
    #[derive(Eq, Hash, PartialOrd, Ord)]
    pub struct Destination {
        /// Routes share it.
        host: Arc<str> = "host" required,
        subset: Box<str> = "subset",
        /// May be left out where the service has one port.
        port: Option<PortSelector> = "port",
    }
}

message! {
    /// A destination with its share.
    pub struct HttpDestination {
        destination: Destination = "destination" required,
        /// Relative to the sum of all; 0 in a rule's only destination counts as all.
        weight: u32 = "weight",
        headers: Option<Box<Headers>> = "headers",
    }
}

message! {
    /// The new path and authority of a request.
    #[derive(Eq)]
    pub struct HttpRewrite {
        /// Replaces what the match's prefix matched, or the whole path otherwise.
        uri: Box<str> = "uri",
        authority: Box<str> = "authority",
        uri_regex_rewrite: Option<Box<RegexRewrite>> = "uriRegexRewrite" | "uri_regex_rewrite",
    }
}

message! {
    /// A substitution in the path.
    #[derive(Eq)]
    pub struct RegexRewrite {
        /// A regular expression in RE2's syntax.
        pattern: Box<str> = "match",
        /// May refer to groups, as in `\1`.
        rewrite: Box<str> = "rewrite",
    }
}

words! {
    /// Where the port of a redirect comes from.
    pub enum RedirectPort {
        FromProtocolDefault = 0 "FROM_PROTOCOL_DEFAULT",
        FromRequestPort = 1 "FROM_REQUEST_PORT",
    }
}

message! {
    /// An answer that sends the client elsewhere.
    #[derive(Eq)]
    pub struct HttpRedirect {
        uri: Box<str> = "uri",
        authority: Box<str> = "authority",
        port: Option<u16> = "port",
        derive_port: Option<RedirectPort> = "derivePort" | "derive_port",
        scheme: Box<str> = "scheme",
        /// 0 means 301.
        redirect_code: u16 = "redirectCode" | "redirect_code",
        prefix_rewrite: Box<str> = "prefixRewrite" | "prefix_rewrite",
    }
    one_of [port = "port", derive_port = "derivePort"]
}

message! {
    /// An answer without upstream.
    #[derive(Eq)]
    pub struct DirectResponse {
        status: u16 = "status" required,
        body: Option<Body> = "body",
    }
}

message! {
    /// The body of an answer.
    #[derive(Eq)]
    pub struct Body {
        string: Option<Box<str>> = "string",
        bytes: Option<Base64> = "bytes",
    }
    one_of [string = "string", bytes = "bytes"]
}

message! {
    /// A VirtualService whose rules stand in the place of this one.
    #[derive(Eq)]
    pub struct Delegate {
        name: Box<str> = "name",
        /// Empty means that of the VirtualService itself.
        namespace: Box<str> = "namespace",
    }
}

message! {
    /// When and how often a request is tried again.
    #[derive(Eq)]
    pub struct HttpRetry {
        /// Without the first attempt; 0 means no retries.
        attempts: u32 = "attempts",
        per_try_timeout: Option<Duration> = "perTryTimeout" | "per_try_timeout",
        /// Conditions and status codes, separated by commas.
        retry_on: Box<str> = "retryOn" | "retry_on",
        retry_remote_localities: Option<bool> =
            "retryRemoteLocalities" | "retry_remote_localities",
        retry_ignore_previous_hosts: Option<bool> =
            "retryIgnorePreviousHosts" | "retry_ignore_previous_hosts",
        backoff: Option<Duration> = "backoff",
    }
}

message! {
    /// Faults that are made on purpose.
    pub struct HttpFault {
        delay: Option<FaultDelay> = "delay",
        abort: Option<FaultAbort> = "abort",
    }
}

message! {
    /// A delay before the request goes on.
    pub struct FaultDelay {
        fixed_delay: Option<Duration> = "fixedDelay" | "fixed_delay",
        /// Whole percent; the former form of `percentage`.
        percent: u32 = "percent",
        percentage: Option<Percent> = "percentage",
    }
    refused ["exponentialDelay", "exponential_delay"]
}

message! {
    /// An answer instead of the upstream's.
    pub struct FaultAbort {
        http_status: Option<u16> = "httpStatus" | "http_status",
        /// Name or number of a gRPC status.
        grpc_status: Option<Box<str>> = "grpcStatus" | "grpc_status",
        percentage: Option<Percent> = "percentage",
    }
    one_of [http_status = "httpStatus", grpc_status = "grpcStatus"]
    refused ["http2Error", "http2_error"]
}

message! {
    /// A copy of requests for another destination.
    pub struct HttpMirror {
        destination: Destination = "destination" required,
        /// None means all requests.
        percentage: Option<Percent> = "percentage",
    }
}

message! {
    /// A share of requests.
    #[derive(Copy)]
    pub struct Percent {
        /// From 0.0 to 100.0.
        value: f64 = "value",
    }
}

words! {
    /// The treatment of preflight requests from origins that do not match.
    pub enum UnmatchedPreflights {
        Unspecified = 0 "UNSPECIFIED",
        Forward = 1 "FORWARD",
        Ignore = 2 "IGNORE",
    }
}

message! {
    /// Which other origins may ask (Fetch standard, CORS protocol).
    #[derive(Eq)]
    pub struct CorsPolicy {
        /// Exact origins; the former form of `allowOrigins`.
        allow_origin: Names = "allowOrigin" | "allow_origin",
        allow_origins: Box<[StringMatch]> = "allowOrigins" | "allow_origins",
        allow_methods: Names = "allowMethods" | "allow_methods",
        allow_headers: Names = "allowHeaders" | "allow_headers",
        expose_headers: Names = "exposeHeaders" | "expose_headers",
        max_age: Option<Duration> = "maxAge" | "max_age",
        allow_credentials: Option<bool> = "allowCredentials" | "allow_credentials",
        unmatched_preflights: UnmatchedPreflights =
            "unmatchedPreflights" | "unmatched_preflights",
    }
}

message! {
    /// One rule for TLS that is passed through.
    pub struct TlsRoute {
        /// Any of these must fit.
        matches: Box<[TlsMatch]> = "match" required,
        route: Box<[RouteDestination]> = "route",
    }
}

message! {
    /// One rule for TCP.
    pub struct TcpRoute {
        /// Any of these must fit; none means every connection.
        matches: Box<[TcpMatch]> = "match",
        route: Box<[RouteDestination]> = "route",
    }
}

message! {
    /// Conditions of which all must hold.
    #[derive(Eq)]
    pub struct TlsMatch {
        /// Names or wildcards within the hosts of the VirtualService.
        sni_hosts: Names = "sniHosts" | "sni_hosts" required,
        destination_subnets: Names = "destinationSubnets" | "destination_subnets",
        /// Port that the connection came in on; 0 means any.
        port: u16 = "port",
        source_labels: Labels = "sourceLabels" | "source_labels",
        gateways: Names = "gateways",
        source_namespace: Box<str> = "sourceNamespace" | "source_namespace",
    }
}

message! {
    /// Conditions of which all must hold.
    #[derive(Eq)]
    pub struct TcpMatch {
        destination_subnets: Names = "destinationSubnets" | "destination_subnets",
        /// Port that the connection came in on; 0 means any.
        port: u16 = "port",
        source_labels: Labels = "sourceLabels" | "source_labels",
        gateways: Names = "gateways",
        source_namespace: Box<str> = "sourceNamespace" | "source_namespace",
        /// An address or a range of them; empty means all.
        source_subnet: Box<str> = "sourceSubnet" | "source_subnet",
    }
}

message! {
    /// A destination of connections with its share.
    #[derive(Eq)]
    pub struct RouteDestination {
        destination: Destination = "destination" required,
        /// Relative to the sum of all; 0 in a rule's only destination counts as all.
        weight: u32 = "weight",
    }
}

impl Spec for VirtualServiceSpec {
    const KIND: ObjectKind = ObjectKind::VirtualService;
}
