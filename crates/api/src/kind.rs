//! The kinds of objects.

/// The kinds that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ObjectKind {
    /// `networking.k8s.io/v1` Ingress.
    Ingress = 1,
    /// `networking.k8s.io/v1` IngressClass, cluster-scoped.
    IngressClass = 2,
    /// `v1` Service.
    Service = 3,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice = 4,
    /// `v1` Secret; only `kubernetes.io/tls` and `Opaque` have an effect.
    Secret = 5,
    /// `networking.istio.io` Gateway.
    IstioGateway = 6,
    /// `networking.istio.io` VirtualService.
    VirtualService = 7,
    /// `networking.istio.io` DestinationRule.
    DestinationRule = 8,
    /// `networking.istio.io` ServiceEntry.
    ServiceEntry = 9,
    /// `networking.istio.io` WorkloadEntry.
    WorkloadEntry = 10,
    /// `networking.istio.io` Sidecar.
    Sidecar = 11,
    /// `security.istio.io` RequestAuthentication.
    RequestAuthentication = 12,
    /// `security.istio.io` PeerAuthentication.
    PeerAuthentication = 13,
    /// `security.istio.io` AuthorizationPolicy.
    AuthorizationPolicy = 14,
    /// `telemetry.istio.io` Telemetry.
    Telemetry = 15,
    /// `networking.istio.io` ProxyConfig.
    ProxyConfig = 16,
    /// `networking.istio.io` EnvoyFilter; its presence is all that is read.
    EnvoyFilter = 17,
    /// `extensions.istio.io` WasmPlugin; its presence is all that is read.
    WasmPlugin = 18,
    /// `v1` Pod; its labels say to which subset its addresses belong.
    Pod = 19,
    /// `v1` ConfigMap; only that of an ingress-nginx has an effect.
    ConfigMap = 20,
    /// An order of a certificate. The process itself makes them, and reads none that is written.
    Order = 21,
    /// `myriad.dev` Issuer.
    Issuer = 22,
    /// `myriad.dev` ClusterIssuer, cluster-scoped.
    ClusterIssuer = 23,
    /// A certificate that was obtained on demand. The process itself makes them, and reads none
    /// that is written.
    OnDemand = 24,
    /// A proof of whose a host is, cluster-scoped. The process itself makes them, and reads none
    /// that is written.
    HostProof = 25,
    /// `gateway.networking.k8s.io` GatewayClass, cluster-scoped.
    GatewayClass = 26,
    /// `gateway.networking.k8s.io` Gateway, which is not [`ObjectKind::IstioGateway`].
    Gateway = 27,
    /// `gateway.networking.k8s.io` ListenerSet.
    ListenerSet = 28,
    /// `gateway.networking.k8s.io` HTTPRoute.
    HttpRoute = 29,
    /// `gateway.networking.k8s.io` GRPCRoute.
    GrpcRoute = 30,
    /// `gateway.networking.k8s.io` TLSRoute.
    TlsRoute = 31,
    /// `gateway.networking.k8s.io` TCPRoute.
    TcpRoute = 32,
    /// `gateway.networking.k8s.io` UDPRoute.
    UdpRoute = 33,
    /// `gateway.networking.k8s.io` BackendTLSPolicy.
    BackendTlsPolicy = 34,
    /// `gateway.networking.k8s.io` ReferenceGrant.
    ReferenceGrant = 35,
    /// `v1` Namespace, cluster-scoped; only its labels are read.
    Namespace = 36,
}

impl ObjectKind {
    /// Every kind that people write, in a fixed order.
    pub const ALL: [ObjectKind; 33] = [
        ObjectKind::Ingress,
        ObjectKind::IngressClass,
        ObjectKind::Service,
        ObjectKind::EndpointSlice,
        ObjectKind::Secret,
        ObjectKind::IstioGateway,
        ObjectKind::VirtualService,
        ObjectKind::DestinationRule,
        ObjectKind::ServiceEntry,
        ObjectKind::WorkloadEntry,
        ObjectKind::Sidecar,
        ObjectKind::RequestAuthentication,
        ObjectKind::PeerAuthentication,
        ObjectKind::AuthorizationPolicy,
        ObjectKind::Telemetry,
        ObjectKind::ProxyConfig,
        ObjectKind::EnvoyFilter,
        ObjectKind::WasmPlugin,
        ObjectKind::Pod,
        ObjectKind::ConfigMap,
        ObjectKind::Issuer,
        ObjectKind::ClusterIssuer,
        ObjectKind::GatewayClass,
        ObjectKind::Gateway,
        ObjectKind::ListenerSet,
        ObjectKind::HttpRoute,
        ObjectKind::GrpcRoute,
        ObjectKind::TlsRoute,
        ObjectKind::TcpRoute,
        ObjectKind::UdpRoute,
        ObjectKind::BackendTlsPolicy,
        ObjectKind::ReferenceGrant,
        ObjectKind::Namespace,
    ];

    /// The kinds of issuers. Who does not know whether there are any obtains no certificate, and
    /// serves those that are there.
    pub const ISSUERS: [ObjectKind; 2] = [ObjectKind::Issuer, ObjectKind::ClusterIssuer];

    /// The kinds of Gateway API.
    pub const GATEWAY_API: [ObjectKind; 10] = [
        ObjectKind::GatewayClass,
        ObjectKind::Gateway,
        ObjectKind::ListenerSet,
        ObjectKind::HttpRoute,
        ObjectKind::GrpcRoute,
        ObjectKind::TlsRoute,
        ObjectKind::TcpRoute,
        ObjectKind::UdpRoute,
        ObjectKind::BackendTlsPolicy,
        ObjectKind::ReferenceGrant,
    ];

    /// The kinds of Istio's API.
    pub const ISTIO: [ObjectKind; 13] = [
        ObjectKind::IstioGateway,
        ObjectKind::VirtualService,
        ObjectKind::DestinationRule,
        ObjectKind::ServiceEntry,
        ObjectKind::WorkloadEntry,
        ObjectKind::Sidecar,
        ObjectKind::RequestAuthentication,
        ObjectKind::PeerAuthentication,
        ObjectKind::AuthorizationPolicy,
        ObjectKind::Telemetry,
        ObjectKind::ProxyConfig,
        ObjectKind::EnvoyFilter,
        ObjectKind::WasmPlugin,
    ];

    /// The kinds that every Kubernetes API serves and that are always read; most others need
    /// definitions of their own.
    pub const CORE: [ObjectKind; 5] = [
        ObjectKind::Ingress,
        ObjectKind::IngressClass,
        ObjectKind::Service,
        ObjectKind::EndpointSlice,
        ObjectKind::Secret,
    ];

    /// The kind as written in `kind:`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Ingress => "Ingress",
            ObjectKind::IngressClass => "IngressClass",
            ObjectKind::Service => "Service",
            ObjectKind::EndpointSlice => "EndpointSlice",
            ObjectKind::Secret => "Secret",
            ObjectKind::IstioGateway => "Gateway",
            ObjectKind::VirtualService => "VirtualService",
            ObjectKind::DestinationRule => "DestinationRule",
            ObjectKind::ServiceEntry => "ServiceEntry",
            ObjectKind::WorkloadEntry => "WorkloadEntry",
            ObjectKind::Sidecar => "Sidecar",
            ObjectKind::RequestAuthentication => "RequestAuthentication",
            ObjectKind::PeerAuthentication => "PeerAuthentication",
            ObjectKind::AuthorizationPolicy => "AuthorizationPolicy",
            ObjectKind::Telemetry => "Telemetry",
            ObjectKind::ProxyConfig => "ProxyConfig",
            ObjectKind::EnvoyFilter => "EnvoyFilter",
            ObjectKind::WasmPlugin => "WasmPlugin",
            ObjectKind::Pod => "Pod",
            ObjectKind::ConfigMap => "ConfigMap",
            ObjectKind::Order => "Order",
            ObjectKind::Issuer => "Issuer",
            ObjectKind::ClusterIssuer => "ClusterIssuer",
            ObjectKind::OnDemand => "OnDemand",
            ObjectKind::HostProof => "HostProof",
            ObjectKind::GatewayClass => "GatewayClass",
            ObjectKind::Gateway => "Gateway",
            ObjectKind::ListenerSet => "ListenerSet",
            ObjectKind::HttpRoute => "HTTPRoute",
            ObjectKind::GrpcRoute => "GRPCRoute",
            ObjectKind::TlsRoute => "TLSRoute",
            ObjectKind::TcpRoute => "TCPRoute",
            ObjectKind::UdpRoute => "UDPRoute",
            ObjectKind::BackendTlsPolicy => "BackendTLSPolicy",
            ObjectKind::ReferenceGrant => "ReferenceGrant",
            ObjectKind::Namespace => "Namespace",
        }
    }

    /// The kind as no other is called, with its group where two have one name.
    pub const fn full_name(self) -> &'static str {
        match self {
            ObjectKind::Gateway => "gateway.networking.k8s.io Gateway",
            other => other.as_str(),
        }
    }

    /// The kind in the plural, as it stands in the API's paths.
    pub const fn plural(self) -> &'static str {
        match self {
            ObjectKind::Ingress => "ingresses",
            ObjectKind::IngressClass => "ingressclasses",
            ObjectKind::Service => "services",
            ObjectKind::EndpointSlice => "endpointslices",
            ObjectKind::Secret => "secrets",
            ObjectKind::IstioGateway => "gateways",
            ObjectKind::VirtualService => "virtualservices",
            ObjectKind::DestinationRule => "destinationrules",
            ObjectKind::ServiceEntry => "serviceentries",
            ObjectKind::WorkloadEntry => "workloadentries",
            ObjectKind::Sidecar => "sidecars",
            ObjectKind::RequestAuthentication => "requestauthentications",
            ObjectKind::PeerAuthentication => "peerauthentications",
            ObjectKind::AuthorizationPolicy => "authorizationpolicies",
            ObjectKind::Telemetry => "telemetries",
            ObjectKind::ProxyConfig => "proxyconfigs",
            ObjectKind::EnvoyFilter => "envoyfilters",
            ObjectKind::WasmPlugin => "wasmplugins",
            ObjectKind::Pod => "pods",
            ObjectKind::ConfigMap => "configmaps",
            ObjectKind::Order => "orders",
            ObjectKind::Issuer => "issuers",
            ObjectKind::ClusterIssuer => "clusterissuers",
            ObjectKind::OnDemand => "ondemand",
            ObjectKind::HostProof => "hostproofs",
            ObjectKind::GatewayClass => "gatewayclasses",
            ObjectKind::Gateway => "gateways",
            ObjectKind::ListenerSet => "listenersets",
            ObjectKind::HttpRoute => "httproutes",
            ObjectKind::GrpcRoute => "grpcroutes",
            ObjectKind::TlsRoute => "tlsroutes",
            ObjectKind::TcpRoute => "tcproutes",
            ObjectKind::UdpRoute => "udproutes",
            ObjectKind::BackendTlsPolicy => "backendtlspolicies",
            ObjectKind::ReferenceGrant => "referencegrants",
            ObjectKind::Namespace => "namespaces",
        }
    }

    /// The groups and versions that are read, as written in `apiVersion:`, the newest first.
    /// The fields are the same in all of them.
    pub const fn api_versions(self) -> &'static [&'static str] {
        match self {
            ObjectKind::Ingress | ObjectKind::IngressClass => &["networking.k8s.io/v1"],
            ObjectKind::Service
            | ObjectKind::Secret
            | ObjectKind::Pod
            | ObjectKind::ConfigMap
            | ObjectKind::Namespace => &["v1"],
            ObjectKind::EndpointSlice => &["discovery.k8s.io/v1"],
            ObjectKind::IstioGateway
            | ObjectKind::VirtualService
            | ObjectKind::DestinationRule
            | ObjectKind::ServiceEntry
            | ObjectKind::WorkloadEntry
            | ObjectKind::Sidecar => &[
                "networking.istio.io/v1",
                "networking.istio.io/v1beta1",
                "networking.istio.io/v1alpha3",
            ],
            ObjectKind::RequestAuthentication
            | ObjectKind::PeerAuthentication
            | ObjectKind::AuthorizationPolicy => {
                &["security.istio.io/v1", "security.istio.io/v1beta1"]
            }
            ObjectKind::Telemetry => &["telemetry.istio.io/v1", "telemetry.istio.io/v1alpha1"],
            ObjectKind::ProxyConfig => &["networking.istio.io/v1beta1"],
            ObjectKind::EnvoyFilter => &["networking.istio.io/v1alpha3"],
            ObjectKind::WasmPlugin => &["extensions.istio.io/v1alpha1"],
            ObjectKind::Order | ObjectKind::OnDemand | ObjectKind::HostProof => &[],
            ObjectKind::Issuer | ObjectKind::ClusterIssuer => &["myriad.dev/v1alpha1"],
            ObjectKind::GatewayClass | ObjectKind::Gateway | ObjectKind::HttpRoute => &[
                "gateway.networking.k8s.io/v1",
                "gateway.networking.k8s.io/v1beta1",
            ],
            ObjectKind::ListenerSet => &["gateway.networking.k8s.io/v1"],
            ObjectKind::GrpcRoute | ObjectKind::TcpRoute | ObjectKind::UdpRoute => &[
                "gateway.networking.k8s.io/v1",
                "gateway.networking.k8s.io/v1alpha2",
            ],
            ObjectKind::TlsRoute => &[
                "gateway.networking.k8s.io/v1",
                "gateway.networking.k8s.io/v1alpha3",
                "gateway.networking.k8s.io/v1alpha2",
            ],
            ObjectKind::BackendTlsPolicy => &[
                "gateway.networking.k8s.io/v1",
                "gateway.networking.k8s.io/v1alpha3",
            ],
            ObjectKind::ReferenceGrant => &[
                "gateway.networking.k8s.io/v1",
                "gateway.networking.k8s.io/v1beta1",
                "gateway.networking.k8s.io/v1alpha2",
            ],
        }
    }

    /// The newest of [`api_versions`](Self::api_versions).
    pub const fn api_version(self) -> &'static str {
        match self.api_versions() {
            [newest, ..] => newest,
            [] => "",
        }
    }

    /// Whether objects of this kind have no namespace.
    pub const fn is_cluster_scoped(self) -> bool {
        matches!(
            self,
            ObjectKind::IngressClass
                | ObjectKind::ClusterIssuer
                | ObjectKind::HostProof
                | ObjectKind::GatewayClass
                | ObjectKind::Namespace
        )
    }

    /// The kind for an `apiVersion` and a `kind`, if it is one that Myriad reads.
    pub fn find(api_version: &str, kind: &str) -> Option<ObjectKind> {
        ObjectKind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind && known.api_versions().contains(&api_version))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ObjectKind;

    #[test]
    fn no_two_kinds_have_one_number_or_one_full_name() {
        let kinds = ObjectKind::ALL.into_iter();
        let names: BTreeSet<_> = kinds.clone().map(ObjectKind::full_name).collect();
        assert_eq!(names.len(), ObjectKind::ALL.len());
        let numbers: BTreeSet<_> = kinds.map(|kind| kind as u8).collect();
        assert_eq!(numbers.len(), ObjectKind::ALL.len());
    }

    #[test]
    fn every_kind_is_found_by_each_of_its_versions() {
        for kind in ObjectKind::ALL {
            for version in kind.api_versions() {
                assert_eq!(ObjectKind::find(version, kind.as_str()), Some(kind));
            }
        }
    }
}
