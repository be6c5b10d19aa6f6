//! The checked values of resources: no optional that has a default, nothing left to decide.

mod access_policy;
mod certificate;
mod challenge;
mod cut;
mod inquiry;
mod limit;
mod listener;
mod locality;
mod on_demand;
mod options;
mod policy;
mod provider;
mod route;
mod routes;
mod slices;
mod source_ranges;
mod stream_route;
mod telemetry;
mod traffic;
mod trust;
mod upstream;

pub use access_policy::{
    AccessAction, AccessCheck, AccessMatcher, AccessPolicy, AccessRule, AccessSubject, AccessTest,
    Authenticate, Authorize, ClaimHeader, TokenIssuer, TokenKeys,
};
pub use certificate::{Certificate, KeyEncoding, PrivateKey};
pub use challenge::{ChallengeAnswer, ChallengeForm};
pub use inquiry::{AnswerMemory, Inquiry};
pub use limit::RateLimit;
pub use listener::{
    ALTERNATIVES_MAX, BY_NAME_MAX, CLIENT_AUTH_PARTS_MAX, Capture, CaptureDirection, CipherSuite,
    ClientAuth, ClientAuthMode, Domain, Listener, ListenerProtocol, MutualTls, TlsSettings,
    TlsVersion,
};
pub use locality::{LocalityLevel, LocalityPart, LocalityRule, LocalityShares};
pub use on_demand::{is_demandable, on_demand_host, on_demand_name};
pub use options::{
    Balancer, HashBalancer, HashCookie, HashPart, HashSource, HashTable, Keepalive, Limits,
    Outlier, Ping, ProxyProtocol, RetryBudget, Tunnel, UpstreamOptions, Warmup,
};
pub use policy::{
    Affinity, CertificateDemand, CertificateNeed, Cors, ErrorPages, PathReading, PathRewrite,
    Policy, Rewrite, SameSite, TlsRedirect, Underscores,
};
pub use provider::{CheckBody, CheckProtocol, HttpCheck, NameMatch, Processing, Provider};
pub use route::{
    Action, PathMatch, Redirect, RedirectParts, RedirectPath, RedirectTarget, Respond, Route,
    ShareAnswer, ShareFilters, Source, Test, ValueMatch, WeightedUpstream,
};
pub use routes::{
    Draft, Label, PathForm, PathView, ResourcePlace, RouteView, Routes, Row, Setting, Tables,
    divide, in_order,
};
pub use source_ranges::SourceRanges;
pub use stream_route::StreamRoute;
pub use telemetry::{
    AccessLog, Attribute, Condition, ConditionStep, FormatPart, Literal, LogFormat, LogMember,
    LogSink, Metric, MetricAction, MetricRule, Relation, SpanTag, TagValue, Telemetry, TextForm,
    TraceProtocol, Tracing,
};
pub use traffic::{
    Abort, AbortAnswer, Delay, Fault, HeaderEdit, HeaderEdits, Mirror, Retry, RetryConditions,
    Share,
};
pub use trust::{BadHash, TRUST_PARTS_MAX, TRUST_SUBJECT_MAX, Trust, Users};
pub use upstream::{
    Dns, DnsMode, DnsName, Endpoint, Endpoints, MeshTls, Protocol, Upstream, UpstreamTls,
};

use std::sync::Arc;

use crate::{Kind, Origin};

/// One resource: what it is, and the object that it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The object.
    pub origin: Origin,
    /// The value.
    pub value: Value,
}

/// The value of a resource of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// See [`Listener`].
    Listener(Box<Listener>),
    /// See [`Domain`].
    Domain(Box<Domain>),
    /// See [`Certificate`].
    Certificate(Box<Certificate>),
    /// See [`Route`].
    Route(Box<Route>),
    /// See [`Routes`]; of the kind of [`Route`].
    Routes(Box<Routes>),
    /// See [`Upstream`].
    Upstream(Box<Upstream>),
    /// See [`Endpoints`].
    Endpoints(Box<Endpoints>),
    /// See [`Trust`].
    Trust(Box<Trust>),
    /// See [`StreamRoute`].
    StreamRoute(Box<StreamRoute>),
    /// See [`AccessPolicy`].
    AccessPolicy(Box<AccessPolicy>),
    /// See [`Provider`].
    Provider(Box<Provider>),
    /// See [`Telemetry`].
    Telemetry(Box<Telemetry>),
    /// See [`ChallengeAnswer`].
    ChallengeAnswer(Box<ChallengeAnswer>),
}

impl Value {
    /// The kind that the value is of.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Listener(_) => Kind::Listener,
            Value::Domain(_) => Kind::Domain,
            Value::Certificate(_) => Kind::Certificate,
            Value::Route(_) | Value::Routes(_) => Kind::Route,
            Value::Upstream(_) => Kind::Upstream,
            Value::Endpoints(_) => Kind::Endpoints,
            Value::Trust(_) => Kind::Trust,
            Value::StreamRoute(_) => Kind::StreamRoute,
            Value::AccessPolicy(_) => Kind::AccessPolicy,
            Value::Provider(_) => Kind::Provider,
            Value::Telemetry(_) => Kind::Telemetry,
            Value::ChallengeAnswer(_) => Kind::ChallengeAnswer,
        }
    }

    /// The routes that it holds.
    pub fn routes(&self) -> impl Iterator<Item = RouteView<'_>> {
        (0..self.routes_len()).filter_map(|at| self.route(at))
    }

    /// The policies of its routes; those of a block each once.
    pub fn policies(&self) -> &[Arc<Policy>] {
        match self {
            Value::Route(route) => std::slice::from_ref(&route.policy),
            Value::Routes(block) => block.policies(),
            _ => &[],
        }
    }

    /// The actions of its routes; those of a block each once.
    pub fn actions(&self) -> &[Action] {
        match self {
            Value::Route(route) => std::slice::from_ref(&route.action),
            Value::Routes(block) => block.actions(),
            _ => &[],
        }
    }

    /// The number of routes that it holds.
    pub fn routes_len(&self) -> usize {
        match self {
            Value::Route(_) => 1,
            Value::Routes(block) => block.len(),
            _ => 0,
        }
    }

    /// A route that it holds, by its number.
    pub fn route(&self, at: usize) -> Option<RouteView<'_>> {
        match self {
            Value::Route(route) => (at == 0).then(|| route.view()),
            Value::Routes(block) => block.get(at),
            _ => None,
        }
    }
}

impl Resource {
    /// The object that a route of it came from, by the route's number.
    pub fn origin_of(&self, at: usize) -> &Origin {
        match &self.value {
            Value::Routes(block) => block.origin(at).unwrap_or(&self.origin),
            _ => &self.origin,
        }
    }
}
