//! The checked values of resources: no optional that has a default, nothing left to decide.

mod access_policy;
mod certificate;
mod limit;
mod listener;
mod locality;
mod options;
mod policy;
mod provider;
mod route;
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
pub use limit::RateLimit;
pub use listener::{
    ALTERNATIVES_MAX, CLIENT_AUTH_PARTS_MAX, Capture, CaptureDirection, CipherSuite, ClientAuth,
    ClientAuthMode, Domain, Listener, ListenerProtocol, MutualTls, TlsSettings, TlsVersion,
};
pub use locality::{LocalityLevel, LocalityPart, LocalityRule, LocalityShares};
pub use options::{
    Balancer, HashBalancer, HashCookie, HashPart, HashSource, HashTable, Keepalive, Limits,
    Outlier, Ping, ProxyProtocol, RetryBudget, Tunnel, UpstreamOptions, Warmup,
};
pub use policy::{
    Affinity, Cors, ErrorPages, PathReading, PathRewrite, Policy, Rewrite, SameSite, TlsRedirect,
    Underscores,
};
pub use provider::{CheckBody, CheckProtocol, HttpCheck, NameMatch, Processing, Provider};
pub use route::{
    Action, PathMatch, Redirect, RedirectParts, RedirectPath, RedirectTarget, Respond, Route,
    Source, Test, ValueMatch, WeightedUpstream,
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
pub use trust::{BadHash, TRUST_PARTS_MAX, Trust, Users};
pub use upstream::{
    Dns, DnsMode, DnsName, Endpoint, Endpoints, MeshTls, Protocol, Upstream, UpstreamTls,
};

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
    /// See [`Upstream`].
    Upstream(Upstream),
    /// See [`Endpoints`].
    Endpoints(Endpoints),
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
}

impl Value {
    /// The kind that the value is of.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Listener(_) => Kind::Listener,
            Value::Domain(_) => Kind::Domain,
            Value::Certificate(_) => Kind::Certificate,
            Value::Route(_) => Kind::Route,
            Value::Upstream(_) => Kind::Upstream,
            Value::Endpoints(_) => Kind::Endpoints,
            Value::Trust(_) => Kind::Trust,
            Value::StreamRoute(_) => Kind::StreamRoute,
            Value::AccessPolicy(_) => Kind::AccessPolicy,
            Value::Provider(_) => Kind::Provider,
            Value::Telemetry(_) => Kind::Telemetry,
        }
    }
}
