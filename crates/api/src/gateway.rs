//! Gateway API, from its definitions for v1.6.3 with the experimental channel.
//!
//! Every object is a [`GatewayObject`]: its spec, and [`Note`](crate::istio::Note)s of all that
//! was written and is not known. An object fails to be read where the API server would refuse it:
//! a required field is missing, a list or a text is longer than its definition allows, two of a
//! choice are set. A word that is none of an enum is kept, because a condition has to name it. A
//! policy that is absent permits, so that of the TLS of backends is there with what can be read
//! of it.
//!
//! A field whose default means something is `None` where it is absent, and has a function of its
//! name that returns the default.

pub mod backend_tls_policy;
mod bounded;
pub mod choice;
pub mod filter;
pub mod gateway_class;
pub mod grpc_route;
pub mod http_route;
pub mod kubernetes_gateway;
pub mod listener;
mod object;
pub mod reference;
pub mod reference_grant;
mod span;
pub mod status;
pub mod stream_route;

pub use backend_tls_policy::{
    BackendSubjectAltName, BackendTlsPolicySpec, BackendTlsValidation, PolicyTarget,
    SubjectAltNameKind,
};
pub use choice::{Choice, Words};
pub use filter::{
    AuthProtocol, CorsFilter, ExternalAuth, ForwardBody, GrpcAuth, HeaderModifier, HeaderSetting,
    HttpAuth, MirrorFraction, PathModifier, RequestMirror, RequestRedirect, RouteFilter,
    UrlRewrite,
};
pub use gateway_class::{GatewayClassSpec, ParametersReference};
pub use grpc_route::{GrpcMethodMatch, GrpcRouteMatch, GrpcRouteRule, GrpcRouteSpec};
pub use http_route::{
    CookieLifetime, HeaderMatch, HttpBackendRef, HttpRouteMatch, HttpRouteRetry, HttpRouteRule,
    HttpRouteSpec, HttpRouteTimeouts, PathMatch, PathMatchKind, QueryParamMatch, SessionCookie,
    SessionKind, SessionPersistence, ValueMatchKind,
};
pub use kubernetes_gateway::KubernetesGateway as Gateway;
pub use kubernetes_gateway::{
    BackendClientTls, FrontendTls, FrontendValidation, GatewayAddress, GatewaySpec, GatewayTls,
    Infrastructure, PerPort,
};
pub use listener::{
    AllowedRoutes, LabelExpression, LabelSelector, Listener, ListenerSetSpec, ListenerTls,
    RouteGroupKind, RouteNamespaces,
};
pub use object::{GatewayKind, GatewayObject};
pub use reference::{
    BackendRef, LocalObjectReference, ObjectReference, ParentGateway, ParentReference,
};
pub use reference_grant::{GrantFrom, GrantTo, ReferenceGrantSpec};
pub use stream_route::{StreamRule, TcpRouteSpec, TlsRouteSpec, UdpRouteSpec};

/// The group of all these kinds.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// Which controller serves the Gateways of a class; cluster-scoped.
pub type GatewayClass = GatewayObject<GatewayClassSpec>;
/// Further listeners of a Gateway, in the hands of a tenant.
pub type ListenerSet = GatewayObject<ListenerSetSpec>;
/// Rules for requests of HTTP.
pub type HttpRoute = GatewayObject<HttpRouteSpec>;
/// Rules for calls of gRPC.
pub type GrpcRoute = GatewayObject<GrpcRouteSpec>;
/// Backends of TLS connections, by the name that the client asks for.
pub type TlsRoute = GatewayObject<TlsRouteSpec>;
/// Backends of TCP connections.
pub type TcpRoute = GatewayObject<TcpRouteSpec>;
/// Backends of UDP datagrams.
pub type UdpRoute = GatewayObject<UdpRouteSpec>;
/// How the certificates of backends are verified.
pub type BackendTlsPolicy = GatewayObject<BackendTlsPolicySpec>;
/// Which objects of other namespaces may name objects of this one.
pub type ReferenceGrant = GatewayObject<ReferenceGrantSpec>;

#[cfg(test)]
mod tests;
