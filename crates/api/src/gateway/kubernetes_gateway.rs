//! `gateway.networking.k8s.io` Gateway, which is not that of Istio.

use super::bounded::{BoundedLabels, List, Name, PortNumber, Text};
use super::listener::{LISTENERS_MAX, Listener, RawAllowedListeners, RouteNamespaces, check_names};
use super::object::{GatewayKind, GatewayObject};
use super::reference::{LocalObjectReference, ObjectReference};
use crate::ObjectKind;
use crate::istio::reading::{Wire, message};
use crate::istio::{Labels, SpecProblem};

/// Listeners, and settings that hold for all of them.
pub type KubernetesGateway = GatewayObject<GatewaySpec>;

message! {
    /// The spec of a Gateway.
    #[derive(Eq)]
    pub struct GatewaySpec {
        class: Box<str> as Name = "gatewayClassName" required,
        listeners: Box<[Listener]> as List<Listener, LISTENERS_MAX> = "listeners" required,
        /// Addresses that are asked for.
        addresses: Box<[GatewayAddress]> as List<GatewayAddress, 16> = "addresses",
        infrastructure: Option<Box<Infrastructure>> = "infrastructure",
        /// The namespaces of ListenerSets that are taken; none for no ListenerSet.
        allowed_listeners: Option<RouteNamespaces> as Option<RawAllowedListeners> =
            "allowedListeners",
        tls: Option<Box<GatewayTls>> = "tls",
        /// `All` to take routes that name no parent and ask for it, or `None`; empty for that.
        default_scope: Box<str> as Text<253> = "defaultScope",
    }
}

message! {
    /// An address that a Gateway asks for.
    #[derive(Eq)]
    pub struct GatewayAddress {
        /// `IPAddress`, which is the default, `Hostname`, or a domain and a path.
        kind: Option<Box<str>> as Option<Name> = "type",
        /// Empty for any of that kind.
        value: Box<str> as Text<253> = "value",
    }
}

message! {
    /// Properties of the objects that are made for a Gateway.
    #[derive(Eq)]
    pub struct Infrastructure {
        labels: Labels as BoundedLabels<8, 63> = "labels",
        annotations: Labels as BoundedLabels<16, 4_096> = "annotations",
        /// An object with settings of the controller.
        parameters: Option<LocalObjectReference> = "parametersRef",
    }
}

message! {
    /// TLS of all listeners, and towards backends.
    #[derive(Eq)]
    pub struct GatewayTls {
        backend: Option<BackendClientTls> = "backend",
        frontend: Option<FrontendTls> = "frontend",
    }
}

message! {
    /// TLS towards backends.
    #[derive(Eq)]
    pub struct BackendClientTls {
        /// A Secret with the certificate that backends are shown.
        client_certificate_ref: Option<ObjectReference> = "clientCertificateRef",
    }
}

message! {
    /// How clients are verified.
    #[derive(Eq)]
    pub struct FrontendTls {
        /// How clients are verified; they need no certificate where it is absent.
        default: Option<FrontendValidation> as RawFrontendConfig = "default" required,
        /// Instead of the default, for listeners with this port.
        per_port: Box<[PerPort]> as List<PerPort, 64> = "perPort",
    }
}

message! {
    /// How the clients of a port are verified.
    #[derive(Eq)]
    pub struct PerPort {
        port: u16 as PortNumber = "port" required,
        /// How clients are verified; they need no certificate where it is absent.
        validation: Option<FrontendValidation> as RawFrontendConfig = "tls" required,
    }
}

message! {
    pub(super) struct RawFrontendConfig {
        validation: Option<FrontendValidation> = "validation",
    }
}

impl Wire<Option<FrontendValidation>> for RawFrontendConfig {
    fn into_kept(self) -> Option<FrontendValidation> {
        self.validation
    }
}

message! {
    /// The authorities of clients.
    #[derive(Eq)]
    pub struct FrontendValidation {
        ca_certificate_refs: Box<[ObjectReference]> as List<ObjectReference, 16> =
            "caCertificateRefs" required,
        /// `AllowValidOnly`, which is the default, or `AllowInsecureFallback`.
        mode: Option<Box<str>> as Option<Text<253>> = "mode",
    }
}

impl GatewayKind for GatewaySpec {
    const KIND: ObjectKind = ObjectKind::Gateway;

    fn finish(&mut self) -> Result<(), SpecProblem> {
        check_names(&self.listeners)
    }
}
