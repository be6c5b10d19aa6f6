//! Filters of HTTPRoutes and GRPCRoutes.

use std::time::Duration;

use serde::Deserializer;
use serde::de::Error;

use super::bounded::{FilledText, HeaderName, Hostname, List, Number, PortNumber, Positive, Text};
use super::choice::{Choice, choice};
use super::reference::{BackendRef, LocalObjectReference};
use crate::istio::note::Notes;
use crate::istio::reading::{Read, message};

/// The most filters of a rule, and of a backend.
pub const FILTERS_MAX: usize = 16;

/// The value of a header field.
pub(super) type HeaderValue = FilledText<4_096>;

/// A filter of requests or answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteFilter {
    /// `RequestHeaderModifier`.
    RequestHeaderModifier(Box<HeaderModifier>),
    /// `ResponseHeaderModifier`.
    ResponseHeaderModifier(Box<HeaderModifier>),
    /// `RequestMirror`.
    RequestMirror(Box<RequestMirror>),
    /// `RequestRedirect`, which GRPCRoutes do not have.
    RequestRedirect(Box<RequestRedirect>),
    /// `URLRewrite`, which GRPCRoutes do not have.
    UrlRewrite(Box<UrlRewrite>),
    /// `CORS`, which GRPCRoutes do not have.
    Cors(Box<CorsFilter>),
    /// `ExternalAuth`, which GRPCRoutes do not have.
    ExternalAuth(Box<ExternalAuth>),
    /// `ExtensionRef`, a filter of an implementation.
    ExtensionRef(Box<LocalObjectReference>),
    /// A type that is none of these, as it was written.
    Other(Box<str>),
}

impl RouteFilter {
    /// The type as it is written.
    pub fn kind(&self) -> &str {
        match self {
            RouteFilter::RequestHeaderModifier(_) => "RequestHeaderModifier",
            RouteFilter::ResponseHeaderModifier(_) => "ResponseHeaderModifier",
            RouteFilter::RequestMirror(_) => "RequestMirror",
            RouteFilter::RequestRedirect(_) => "RequestRedirect",
            RouteFilter::UrlRewrite(_) => "URLRewrite",
            RouteFilter::Cors(_) => "CORS",
            RouteFilter::ExternalAuth(_) => "ExternalAuth",
            RouteFilter::ExtensionRef(_) => "ExtensionRef",
            RouteFilter::Other(kind) => kind,
        }
    }

    /// Makes a filter that GRPCRoutes do not have into an unknown one.
    pub(super) fn keep_for_grpc(&mut self) {
        match self {
            RouteFilter::RequestHeaderModifier(_)
            | RouteFilter::ResponseHeaderModifier(_)
            | RouteFilter::RequestMirror(_)
            | RouteFilter::ExtensionRef(_)
            | RouteFilter::Other(_) => {}
            RouteFilter::RequestRedirect(_)
            | RouteFilter::UrlRewrite(_)
            | RouteFilter::Cors(_)
            | RouteFilter::ExternalAuth(_) => *self = RouteFilter::Other(self.kind().into()),
        }
    }
}

message! {
    pub(super) struct RawFilter {
        kind: Box<str> as FilledText<253> = "type" required,
        request_header_modifier: Option<Box<HeaderModifier>> = "requestHeaderModifier",
        response_header_modifier: Option<Box<HeaderModifier>> = "responseHeaderModifier",
        request_mirror: Option<Box<RequestMirror>> = "requestMirror",
        request_redirect: Option<Box<RequestRedirect>> = "requestRedirect",
        url_rewrite: Option<Box<UrlRewrite>> = "urlRewrite",
        cors: Option<Box<CorsFilter>> = "cors",
        external_auth: Option<Box<ExternalAuth>> = "externalAuth",
        extension_ref: Option<Box<LocalObjectReference>> = "extensionRef",
    }
    one_of [
        request_header_modifier = "requestHeaderModifier",
        response_header_modifier = "responseHeaderModifier",
        request_mirror = "requestMirror",
        request_redirect = "requestRedirect",
        url_rewrite = "urlRewrite",
        cors = "cors",
        external_auth = "externalAuth",
        extension_ref = "extensionRef"
    ]
}

impl RawFilter {
    /// The type, and the filter whose fields are set.
    fn into_parts(self) -> (Box<str>, Option<RouteFilter>) {
        let request = self.request_header_modifier;
        let response = self.response_header_modifier;
        let set = request
            .map(RouteFilter::RequestHeaderModifier)
            .or(response.map(RouteFilter::ResponseHeaderModifier))
            .or(self.request_mirror.map(RouteFilter::RequestMirror))
            .or(self.request_redirect.map(RouteFilter::RequestRedirect))
            .or(self.url_rewrite.map(RouteFilter::UrlRewrite))
            .or(self.cors.map(RouteFilter::Cors))
            .or(self.external_auth.map(RouteFilter::ExternalAuth))
            .or(self.extension_ref.map(RouteFilter::ExtensionRef));
        (self.kind, set)
    }
}

/// The types that are known.
const KNOWN: [&str; 8] = [
    "RequestHeaderModifier",
    "ResponseHeaderModifier",
    "RequestMirror",
    "RequestRedirect",
    "URLRewrite",
    "CORS",
    "ExternalAuth",
    "ExtensionRef",
];

impl Read for RouteFilter {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let (kind, set) = RawFilter::read(d, notes)?.into_parts();
        match set {
            Some(filter) if filter.kind() == &*kind => Ok(filter),
            Some(filter) => Err(D::Error::custom(format_args!(
                "the type is {kind}, and the fields are those of {}",
                filter.kind()
            ))),
            None if KNOWN.contains(&&*kind) => Err(D::Error::custom(format_args!(
                "the fields of the type {kind} are missing"
            ))),
            None => Ok(RouteFilter::Other(kind)),
        }
    }
}

message! {
    /// Changes of header fields.
    #[derive(Eq)]
    pub struct HeaderModifier {
        set: Box<[HeaderSetting]> as List<HeaderSetting, 16> = "set",
        add: Box<[HeaderSetting]> as List<HeaderSetting, 16> = "add",
        remove: Box<[Box<str>]> as List<Text<256>, 16> = "remove",
    }
}

message! {
    /// A header field with its value.
    #[derive(Eq)]
    pub struct HeaderSetting {
        name: Box<str> as HeaderName = "name" required,
        value: Box<str> as HeaderValue = "value" required,
    }
}

message! {
    /// A copy of requests for another backend, whose answers nobody sees.
    #[derive(Eq)]
    pub struct RequestMirror {
        backend: BackendRef = "backendRef" required,
        /// Of a hundred requests, so many; all where neither it nor `fraction` is set.
        percent: Option<u32> as Option<Number<0, 100>> = "percent",
        fraction: Option<MirrorFraction> = "fraction",
    }
    one_of [percent = "percent", fraction = "fraction"]
}

message! {
    /// A share of requests.
    #[derive(Eq)]
    pub struct MirrorFraction {
        numerator: u32 as Number<0, 2_147_483_647> = "numerator" required,
        /// The whole of which the numerator is a part; 100 where it is absent.
        denominator: Option<u32> as Option<Positive> = "denominator",
    }
}

impl MirrorFraction {
    /// The number of parts of which [`numerator`](MirrorFraction::numerator) are meant, by
    /// default 100; never 0.
    pub fn denominator(&self) -> u32 {
        self.denominator.unwrap_or(100)
    }
}

/// The new path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathModifier {
    /// `ReplaceFullPath`: the whole path.
    Full(Box<str>),
    /// `ReplacePrefixMatch`: the part that the match's prefix takes.
    Prefix(Box<str>),
    /// A type that is none of these, as it was written.
    Other(Box<str>),
}

message! {
    pub(super) struct RawPathModifier {
        kind: Box<str> as FilledText<253> = "type" required,
        replace_full_path: Option<Box<str>> as Option<Text<1_024>> = "replaceFullPath",
        replace_prefix_match: Option<Box<str>> as Option<Text<1_024>> = "replacePrefixMatch",
    }
    one_of [replace_full_path = "replaceFullPath", replace_prefix_match = "replacePrefixMatch"]
}

impl Read for PathModifier {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let raw = RawPathModifier::read(d, notes)?;
        match (&*raw.kind, raw.replace_full_path, raw.replace_prefix_match) {
            ("ReplaceFullPath", Some(path), None) => Ok(PathModifier::Full(path)),
            ("ReplacePrefixMatch", None, Some(path)) => Ok(PathModifier::Prefix(path)),
            ("ReplaceFullPath" | "ReplacePrefixMatch", _, _) => Err(D::Error::custom(
                "the field of the type is missing, or that of the other type is set",
            )),
            (kind, None, None) => Ok(PathModifier::Other(kind.into())),
            (kind, _, _) => Err(D::Error::custom(format_args!(
                "the type is {kind}, and the field is that of another type"
            ))),
        }
    }
}

message! {
    /// An answer that sends the client elsewhere.
    #[derive(Eq)]
    pub struct RequestRedirect {
        /// `http` or `https`; none for that of the request.
        scheme: Option<Box<str>> as Option<Text<253>> = "scheme",
        hostname: Option<Box<str>> as Option<Hostname> = "hostname",
        path: Option<PathModifier> = "path",
        port: Option<u16> as Option<PortNumber> = "port",
        /// The status of the redirect; 302 where it is absent.
        status_code: Option<u16> = "statusCode",
    }
}

message! {
    /// The new host and path of a request.
    #[derive(Eq)]
    pub struct UrlRewrite {
        hostname: Option<Box<str>> as Option<Hostname> = "hostname",
        path: Option<PathModifier> = "path",
    }
}

message! {
    /// Which other origins may ask (Fetch standard, CORS protocol).
    #[derive(Eq)]
    pub struct CorsFilter {
        /// Such as `https://*.example.com`, or `*`.
        allow_origins: Box<[Box<str>]> as List<FilledText<253>, 64> = "allowOrigins",
        allow_credentials: Option<bool> = "allowCredentials",
        /// Methods, or `*`.
        allow_methods: Box<[Box<str>]> as List<FilledText<253>, 9> = "allowMethods",
        allow_headers: Box<[Box<str>]> as List<HeaderName, 64> = "allowHeaders",
        expose_headers: Box<[Box<str>]> as List<HeaderName, 64> = "exposeHeaders",
        /// In seconds; none for 5.
        max_age: Option<u32> as Option<Positive> = "maxAge",
    }
}

impl CorsFilter {
    /// How long an answer to a preflight holds, by default five seconds.
    pub fn max_age(&self) -> Duration {
        Duration::from_secs(self.max_age.unwrap_or(5).into())
    }
}

choice! {
    /// The protocol by which an authorizer is asked.
    pub enum AuthProtocol {
        Http "HTTP",
        Grpc "GRPC",
    }
}

message! {
    /// A server that is asked whether a request may go on.
    #[derive(Eq)]
    pub struct ExternalAuth {
        protocol: Choice<AuthProtocol> = "protocol" required,
        backend: BackendRef = "backendRef" required,
        /// Only with the protocol `GRPC`.
        grpc: Option<GrpcAuth> = "grpc",
        /// Only with the protocol `HTTP`.
        http: Option<HttpAuth> = "http",
        /// The part of the body that is sent; none of it where it is absent.
        forward_body: Option<ForwardBody> = "forwardBody",
    }
    one_of [grpc = "grpc", http = "http"]
}

message! {
    /// How an authorizer is asked by Envoy's protocol.
    #[derive(Eq)]
    pub struct GrpcAuth {
        /// Header fields that are sent; all where there are none.
        allowed_headers: Box<[Box<str>]> as List<Text<256>, 64> = "allowedHeaders",
    }
}

message! {
    /// How an authorizer is asked by requests of HTTP.
    #[derive(Eq)]
    pub struct HttpAuth {
        /// The path that goes before that of the request.
        path: Box<str> as Text<1_024> = "path",
        /// Header fields that are sent, beside those that always are.
        allowed_headers: Box<[Box<str>]> as List<Text<256>, 64> = "allowedHeaders",
        /// Header fields of the answer that the backend gets; all where there are none.
        allowed_response_headers: Box<[Box<str>]> as List<Text<256>, 64> =
            "allowedResponseHeaders",
    }
}

message! {
    /// How much of a body an authorizer is sent.
    #[derive(Eq)]
    pub struct ForwardBody {
        /// In bytes; 0 sends nothing.
        max_size: u16 = "maxSize",
    }
}
