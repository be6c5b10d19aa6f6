//! `gateway.networking.k8s.io` HTTPRoute, and the parts that GRPCRoutes share with it.
//!
//! One of the most numerous kinds. What most rules set stands in the rule itself, all else behind
//! one pointer.

use std::time::Duration;

use serde::Deserializer;

use super::bounded::{
    FilledText, GroupName, HeaderName, Hostname, List, Name, Number, PortNumber, Positive,
    ShortName, Text,
};
use super::choice::{Choice, choice};
use super::filter::{FILTERS_MAX, HeaderValue, RouteFilter};
use super::object::{GatewayKind, problem};
use super::reference::{BackendRef, ParentReference, Weight};
use super::span::Span;
use crate::ObjectKind;
use crate::istio::SpecProblem;
use crate::istio::note::Notes;
use crate::istio::reading::{Read, message};

/// The most parents of a route.
pub const PARENTS_MAX: usize = 32;

/// The most hosts of a route for HTTP or gRPC.
pub const HOSTNAMES_MAX: usize = 16;

/// The most rules of a route.
pub const RULES_MAX: usize = 16;

/// The most matches of a rule.
pub const MATCHES_MAX: usize = 64;

/// The most matches of all rules of a route.
pub const ROUTE_MATCHES_MAX: usize = 128;

/// The most backends of a rule.
pub const BACKENDS_MAX: usize = 16;

/// The most status codes that a request is tried again for: all that are allowed.
pub const RETRY_CODES_MAX: usize = 200;

message! {
    /// The spec of an HTTPRoute.
    #[derive(Eq)]
    pub struct HttpRouteSpec {
        parents: Box<[ParentReference]> as List<ParentReference, PARENTS_MAX> = "parentRefs",
        /// The hosts of the route; all of the listener where there are none.
        hostnames: Box<[Box<str>]> as List<Hostname, HOSTNAMES_MAX> = "hostnames",
        /// At least one: without any, there is one that takes all and leads nowhere.
        rules: Box<[HttpRouteRule]> as List<HttpRouteRule, RULES_MAX> = "rules",
        /// `All` to be taken by Gateways that take such routes, or `None`; empty for that.
        use_default_gateways: Box<str> as Text<253> = "useDefaultGateways",
    }
}

message! {
    /// One rule.
    #[derive(Eq)]
    pub struct HttpRouteRule {
        name: Option<Box<str>> as Option<Name> = "name",
        /// Any of these must fit; none means every request.
        matches: Box<[HttpRouteMatch]> as List<HttpRouteMatch, MATCHES_MAX> = "matches",
        filters: Box<[RouteFilter]> as List<RouteFilter, FILTERS_MAX> = "filters",
        backends: Box<[HttpBackendRef]> as List<HttpBackendRef, BACKENDS_MAX> = "backendRefs",
        timeouts: Option<Box<HttpRouteTimeouts>> = "timeouts",
        retry: Option<Box<HttpRouteRetry>> = "retry",
        session_persistence: Option<Box<SessionPersistence>> = "sessionPersistence",
    }
}

message! {
    /// Conditions of which all must hold.
    #[derive(Eq)]
    pub struct HttpRouteMatch {
        /// The path; every path where it is absent.
        path: Option<PathMatch> = "path",
        headers: Box<[HeaderMatch]> as List<HeaderMatch, 16> = "headers",
        query_params: Box<[QueryParamMatch]> as List<QueryParamMatch, 16> = "queryParams",
        method: Option<Box<str>> as Option<FilledText<253>> = "method",
    }
}

choice! {
    /// How a path is compared.
    pub enum PathMatchKind {
        PathPrefix "PathPrefix",
        Exact "Exact",
        RegularExpression "RegularExpression",
    }
}

message! {
    /// A condition of the path.
    #[derive(Eq)]
    pub struct PathMatch {
        kind: Choice<PathMatchKind> = "type",
        /// The text of the path; `/` where it is absent.
        value: Option<Box<str>> as Option<Text<1_024>> = "value",
    }
}

impl PathMatch {
    /// The path or the regular expression.
    pub fn value(&self) -> &str {
        self.value.as_deref().unwrap_or("/")
    }

    /// The problem of a path that is no regular expression.
    fn fault(&self) -> Option<&'static str> {
        let path = match self.kind.known() {
            Some(PathMatchKind::PathPrefix | PathMatchKind::Exact) => self.value(),
            Some(PathMatchKind::RegularExpression) | None => return None,
        };
        if !path.starts_with('/') {
            return Some("has a path that does not begin with /");
        }
        let forbidden = ["//", "/./", "/../", "%2f", "%2F", "#"];
        if forbidden.iter().any(|part| path.contains(*part))
            || path.ends_with("/.")
            || path.ends_with("/..")
        {
            return Some("has a path with //, /./, /../, %2F or #, which no request has");
        }
        (!is_path(path)).then_some("has a path with characters that no path has")
    }
}

/// Whether all characters are those of a path (RFC 3986, section 3.3).
fn is_path(path: &str) -> bool {
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let fits = match byte {
            b'%' => {
                let mut hex = || rest.next().is_some_and(|byte| byte.is_ascii_hexdigit());
                hex() && hex()
            }
            byte => byte.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@".contains(&byte),
        };
        if !fits {
            return false;
        }
    }
    true
}

choice! {
    /// How a header field or a query parameter is compared.
    pub enum ValueMatchKind {
        Exact "Exact",
        RegularExpression "RegularExpression",
    }
}

message! {
    /// A condition of a header field.
    #[derive(Eq)]
    pub struct HeaderMatch {
        kind: Choice<ValueMatchKind> = "type",
        name: Box<str> as HeaderName = "name" required,
        value: Box<str> as HeaderValue = "value" required,
    }
}

message! {
    /// A condition of a query parameter.
    #[derive(Eq)]
    pub struct QueryParamMatch {
        kind: Choice<ValueMatchKind> = "type",
        name: Box<str> as HeaderName = "name" required,
        value: Box<str> as FilledText<1_024> = "value" required,
    }
}

/// A backend of requests with its share, and filters of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpBackendRef {
    /// The backend and its share.
    pub reference: BackendRef,
    /// Filters of requests that go there.
    pub filters: Box<[RouteFilter]>,
}

message! {
    pub(super) struct RawHttpBackendRef {
        group: Option<Box<str>> as Option<GroupName> = "group",
        kind: Option<Box<str>> as Option<ShortName> = "kind",
        namespace: Option<Box<str>> as Option<ShortName> = "namespace",
        name: Box<str> as Name = "name" required,
        port: Option<u16> as Option<PortNumber> = "port",
        weight: Option<u32> as Option<Weight> = "weight",
        filters: Box<[RouteFilter]> as List<RouteFilter, FILTERS_MAX> = "filters",
    }
}

impl Read for HttpBackendRef {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let raw = RawHttpBackendRef::read(d, notes)?;
        Ok(HttpBackendRef {
            reference: BackendRef {
                group: raw.group,
                kind: raw.kind,
                namespace: raw.namespace,
                name: raw.name,
                port: raw.port,
                weight: raw.weight,
            },
            filters: raw.filters,
        })
    }
}

message! {
    /// How long a request may take; 0 means no limit.
    #[derive(Eq)]
    pub struct HttpRouteTimeouts {
        /// With all attempts.
        request: Option<Duration> as Option<Span> = "request",
        /// Each attempt.
        backend_request: Option<Duration> as Option<Span> = "backendRequest",
    }
}

message! {
    /// When and how often a request is tried again.
    #[derive(Eq)]
    pub struct HttpRouteRetry {
        codes: Box<[u16]> as List<Number<400, 599>, RETRY_CODES_MAX> = "codes",
        /// Without the first attempt.
        attempts: Option<u32> as Option<Positive> = "attempts",
        /// The shortest time before the next attempt.
        backoff: Option<Duration> as Option<Span> = "backoff",
    }
}

choice! {
    /// The part of a request that tells sessions apart.
    pub enum SessionKind {
        Cookie "Cookie",
        Header "Header",
    }
}

message! {
    /// Whether requests of one session go to one endpoint.
    #[derive(Eq)]
    pub struct SessionPersistence {
        /// The name of the cookie or of the header field.
        session_name: Option<Box<str>> as Option<Text<128>> = "sessionName",
        /// The longest life of a session; without a bound where it is absent.
        absolute_timeout: Option<Duration> as Option<Span> = "absoluteTimeout",
        kind: Choice<SessionKind> = "type",
        cookie_config: Option<SessionCookie> = "cookieConfig",
    }
}

choice! {
    /// How long a cookie lasts: until the browser ends, or until the timeout.
    pub enum CookieLifetime {
        Session "Session",
        Permanent "Permanent",
    }
}

message! {
    /// The cookie of a session.
    #[derive(Eq)]
    pub struct SessionCookie {
        lifetime_type: Choice<CookieLifetime> = "lifetimeType",
    }
}

impl GatewayKind for HttpRouteSpec {
    const KIND: ObjectKind = ObjectKind::HttpRoute;

    fn finish(&mut self) -> Result<(), SpecProblem> {
        if self.rules.is_empty() {
            self.rules = Box::new([HttpRouteRule::default()]);
        }
        let matches = self.rules.iter().map(|rule| rule.matches.len());
        check_matches(matches.sum())?;
        let matches = self.rules.iter().flat_map(|rule| rule.matches.iter());
        let mut faults = matches.filter_map(|it| it.path.as_ref()?.fault());
        match faults.next() {
            None => Ok(()),
            Some(fault) => Err(problem("spec.rules", fault)),
        }
    }
}

/// A route is bounded as a whole as well.
pub(super) fn check_matches(count: usize) -> Result<(), SpecProblem> {
    if count <= ROUTE_MATCHES_MAX {
        return Ok(());
    }
    let message = format!("has more than {ROUTE_MATCHES_MAX} matches in all; divide the route");
    Err(problem("spec.rules", &message))
}
