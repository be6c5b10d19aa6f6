//! A rule as it was written, be it of an HTTPRoute or of a GRPCRoute.

use myriad_api::gateway::{
    GrpcRouteMatch, GrpcRouteRule, HttpBackendRef, HttpRouteMatch, HttpRouteRetry, HttpRouteRule,
    HttpRouteTimeouts, PathMatchKind, RouteFilter, SessionPersistence,
};

use crate::dialect::gateway::backend_problem::BackendUse;
use crate::dialect::gateway::tenants::RouteObject;

/// The status of requests that an HTTPRoute leads to no backend.
const HTTP_REFUSAL: u16 = 500;

/// The status of calls that a GRPCRoute leads to no backend: clients of gRPC read it as
/// `UNAVAILABLE`.
const GRPC_REFUSAL: u16 = 503;

/// A rule.
#[derive(Clone, Copy)]
pub(super) struct WrittenRule<'a> {
    /// The name.
    pub name: Option<&'a str>,
    /// The matches.
    pub matches: WrittenMatches<'a>,
    /// The filters.
    pub filters: &'a [RouteFilter],
    /// The backends.
    pub backends: &'a [HttpBackendRef],
    /// How long requests may take.
    pub timeouts: Option<&'a HttpRouteTimeouts>,
    /// When they are tried again.
    pub retry: Option<&'a HttpRouteRetry>,
    /// Whether those of a session go to one endpoint.
    pub session: Option<&'a SessionPersistence>,
}

/// The matches of a rule; an empty list takes everything.
#[derive(Clone, Copy)]
pub(super) enum WrittenMatches<'a> {
    /// The matches of an HTTPRoute.
    Http(&'a [HttpRouteMatch]),
    /// The matches of a GRPCRoute.
    Grpc(&'a [GrpcRouteMatch]),
}

impl<'a> WrittenRule<'a> {
    /// The rules of an object; empty for one whose rules are about connections.
    pub(super) fn all(route: &'a RouteObject) -> Vec<Self> {
        match route {
            RouteObject::Http(route) => route.spec.rules.iter().map(Self::of_http).collect(),
            RouteObject::Grpc(route) => route.spec.rules.iter().map(Self::of_grpc).collect(),
            RouteObject::Tls(_) | RouteObject::Tcp(_) | RouteObject::Udp(_) => Vec::new(),
        }
    }

    /// A rule of an HTTPRoute.
    pub(super) fn of_http(rule: &'a HttpRouteRule) -> Self {
        WrittenRule {
            name: rule.name.as_deref(),
            matches: WrittenMatches::Http(&rule.matches),
            filters: &rule.filters,
            backends: &rule.backends,
            timeouts: rule.timeouts.as_deref(),
            retry: rule.retry.as_deref(),
            session: rule.session_persistence.as_deref(),
        }
    }

    /// A rule of a GRPCRoute.
    pub(super) fn of_grpc(rule: &'a GrpcRouteRule) -> Self {
        WrittenRule {
            name: rule.name.as_deref(),
            matches: WrittenMatches::Grpc(&rule.matches),
            filters: &rule.filters,
            backends: &rule.backends,
            timeouts: None,
            retry: None,
            session: rule.session_persistence.as_deref(),
        }
    }

    /// How requests are sent to backends.
    pub(super) fn used(&self) -> BackendUse {
        match self.matches {
            WrittenMatches::Http(_) => BackendUse::Http,
            WrittenMatches::Grpc(_) => BackendUse::Grpc,
        }
    }

    /// The status of requests that are led to no backend.
    pub(super) fn refusal(&self) -> u16 {
        match self.matches {
            WrittenMatches::Http(_) => HTTP_REFUSAL,
            WrittenMatches::Grpc(_) => GRPC_REFUSAL,
        }
    }

    /// Whether every match is about the prefix of a path.
    pub(super) fn is_by_prefix(&self) -> bool {
        let WrittenMatches::Http(matches) = self.matches else {
            return false;
        };
        matches.iter().all(|matched| {
            let path = matched.path.as_ref();
            path.is_none_or(|path| path.kind.known() == Some(PathMatchKind::PathPrefix))
        })
    }
}
