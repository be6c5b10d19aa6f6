//! `gateway.networking.k8s.io` GRPCRoute.

use super::bounded::{Hostname, List, Name, Text};
use super::choice::Choice;
use super::filter::{FILTERS_MAX, RouteFilter};
use super::http_route::{
    BACKENDS_MAX, HOSTNAMES_MAX, HeaderMatch, HttpBackendRef, MATCHES_MAX, PARENTS_MAX, RULES_MAX,
    SessionPersistence, ValueMatchKind, check_matches,
};
use super::object::GatewayKind;
use super::reference::ParentReference;
use crate::ObjectKind;
use crate::istio::SpecProblem;
use crate::istio::reading::message;

message! {
    /// The spec of a GRPCRoute.
    #[derive(Eq)]
    pub struct GrpcRouteSpec {
        parents: Box<[ParentReference]> as List<ParentReference, PARENTS_MAX> = "parentRefs",
        /// The hosts of the route; all of the listener where there are none.
        hostnames: Box<[Box<str>]> as List<Hostname, HOSTNAMES_MAX> = "hostnames",
        rules: Box<[GrpcRouteRule]> as List<GrpcRouteRule, RULES_MAX> = "rules",
        /// `All` to be taken by Gateways that take such routes, or `None`; empty for that.
        use_default_gateways: Box<str> as Text<253> = "useDefaultGateways",
    }
}

message! {
    /// One rule.
    #[derive(Eq)]
    pub struct GrpcRouteRule {
        name: Option<Box<str>> as Option<Name> = "name",
        /// Any of these must fit; none means every call.
        matches: Box<[GrpcRouteMatch]> as List<GrpcRouteMatch, MATCHES_MAX> = "matches",
        /// The filters; one that HTTPRoutes alone have is [`RouteFilter::Other`].
        filters: Box<[RouteFilter]> as List<RouteFilter, FILTERS_MAX> = "filters",
        backends: Box<[HttpBackendRef]> as List<HttpBackendRef, BACKENDS_MAX> = "backendRefs",
        session_persistence: Option<Box<SessionPersistence>> = "sessionPersistence",
    }
}

message! {
    /// Conditions of which all must hold.
    #[derive(Eq)]
    pub struct GrpcRouteMatch {
        /// The method of a call; every method where it is absent.
        method: Option<GrpcMethodMatch> = "method",
        headers: Box<[HeaderMatch]> as List<HeaderMatch, 16> = "headers",
    }
}

message! {
    /// A condition of the service and the method.
    #[derive(Eq)]
    pub struct GrpcMethodMatch {
        kind: Choice<ValueMatchKind> = "type",
        /// The name of the service; every service where it is absent or empty.
        service: Option<Box<str>> as Option<Text<1_024>> = "service",
        /// The name of the method; every method where it is absent or empty.
        method: Option<Box<str>> as Option<Text<1_024>> = "method",
    }
}

impl GrpcMethodMatch {
    /// The problem of names that are no regular expressions. An API server takes none with one; of
    /// what others take it is a problem of the rule alone.
    pub fn fault(&self) -> Option<&'static str> {
        if self.kind.known() != Some(ValueMatchKind::Exact) {
            return None;
        }
        let service = self.service.as_deref().unwrap_or("");
        let mut parts = service.strip_prefix('.').unwrap_or(service).split('.');
        if !service.is_empty() && !parts.all(is_name) {
            return Some("names a service that is none, such as package.Service");
        }
        let method = self.method.as_deref().unwrap_or("");
        (!method.is_empty() && !is_name(method)).then_some("names a method that is none")
    }
}

/// Whether a text is a name of protobuf.
fn is_name(text: &str) -> bool {
    let begins = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    begins
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl GatewayKind for GrpcRouteSpec {
    const KIND: ObjectKind = ObjectKind::GrpcRoute;

    fn finish(&mut self) -> Result<(), SpecProblem> {
        let matches = self.rules.iter().map(|rule| rule.matches.len());
        check_matches(matches.sum())?;
        for rule in &mut self.rules {
            let of_backends = rule.backends.iter_mut();
            let of_backends = of_backends.flat_map(|backend| backend.filters.iter_mut());
            let filters = rule.filters.iter_mut().chain(of_backends);
            filters.for_each(RouteFilter::keep_for_grpc);
        }
        Ok(())
    }
}
