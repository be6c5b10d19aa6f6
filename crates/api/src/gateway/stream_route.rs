//! `gateway.networking.k8s.io` TLSRoute, TCPRoute and UDPRoute.
//!
//! Former versions allowed sixteen rules, and TLSRoutes without hosts, and an API server serves
//! such objects as they were stored.

use super::bounded::{Hostname, List, Name, Text};
use super::http_route::{BACKENDS_MAX, PARENTS_MAX, RULES_MAX};
use super::object::GatewayKind;
use super::reference::{BackendRef, ParentReference};
use crate::ObjectKind;
use crate::istio::reading::message;

/// The most hosts of a TLSRoute.
pub const TLS_HOSTNAMES_MAX: usize = 1_024;

message! {
    /// The spec of a TLSRoute.
    #[derive(Eq)]
    pub struct TlsRouteSpec {
        parents: Box<[ParentReference]> as List<ParentReference, PARENTS_MAX> = "parentRefs",
        /// Names that clients ask for; none for every name of the listener.
        hostnames: Box<[Box<str>]> as List<Hostname, TLS_HOSTNAMES_MAX> = "hostnames",
        rules: Box<[StreamRule]> as List<StreamRule, RULES_MAX> = "rules" required,
        /// `All` to be taken by Gateways that take such routes, or `None`; empty for that.
        use_default_gateways: Box<str> as Text<253> = "useDefaultGateways",
    }
}

message! {
    /// The spec of a TCPRoute.
    #[derive(Eq)]
    pub struct TcpRouteSpec {
        parents: Box<[ParentReference]> as List<ParentReference, PARENTS_MAX> = "parentRefs",
        rules: Box<[StreamRule]> as List<StreamRule, RULES_MAX> = "rules" required,
        /// `All` to be taken by Gateways that take such routes, or `None`; empty for that.
        use_default_gateways: Box<str> as Text<253> = "useDefaultGateways",
    }
}

message! {
    /// The spec of a UDPRoute.
    #[derive(Eq)]
    pub struct UdpRouteSpec {
        parents: Box<[ParentReference]> as List<ParentReference, PARENTS_MAX> = "parentRefs",
        rules: Box<[StreamRule]> as List<StreamRule, RULES_MAX> = "rules" required,
        /// `All` to be taken by Gateways that take such routes, or `None`; empty for that.
        use_default_gateways: Box<str> as Text<253> = "useDefaultGateways",
    }
}

message! {
    /// The backends of connections.
    #[derive(Eq)]
    pub struct StreamRule {
        name: Option<Box<str>> as Option<Name> = "name",
        backends: Box<[BackendRef]> as List<BackendRef, BACKENDS_MAX> = "backendRefs" required,
    }
}

impl GatewayKind for TlsRouteSpec {
    const KIND: ObjectKind = ObjectKind::TlsRoute;
}

impl GatewayKind for TcpRouteSpec {
    const KIND: ObjectKind = ObjectKind::TcpRoute;
}

impl GatewayKind for UdpRouteSpec {
    const KIND: ObjectKind = ObjectKind::UdpRoute;
}
