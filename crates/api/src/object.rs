//! An object of any kind that Myriad reads, and its key.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::issuer::{Issuer, NamespacedIssuer, WideIssuer};
use crate::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig,
    RequestAuthentication, ServiceEntry, Sidecar, Telemetry, VirtualService, WasmPlugin,
    WorkloadEntry,
};
use crate::{
    ConfigMap, EndpointSlice, HostProof, Ingress, IngressClass, Meta, OnDemand, Order, Pod, Secret,
    Service,
};

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
}

impl ObjectKind {
    /// Every kind that people write, in a fixed order.
    pub const ALL: [ObjectKind; 22] = [
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
    ];

    /// The kinds of issuers. Who does not know whether there are any obtains no certificate, and
    /// serves those that are there.
    pub const ISSUERS: [ObjectKind; 2] = [ObjectKind::Issuer, ObjectKind::ClusterIssuer];

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
        }
    }

    /// The groups and versions that are read, as written in `apiVersion:`, the newest first.
    /// The fields are the same in all of them.
    pub const fn api_versions(self) -> &'static [&'static str] {
        match self {
            ObjectKind::Ingress | ObjectKind::IngressClass => &["networking.k8s.io/v1"],
            ObjectKind::Service | ObjectKind::Secret | ObjectKind::Pod | ObjectKind::ConfigMap => {
                &["v1"]
            }
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
            ObjectKind::IngressClass | ObjectKind::ClusterIssuer | ObjectKind::HostProof
        )
    }

    /// The kind for an `apiVersion` and a `kind`, if it is one that Myriad reads.
    pub fn find(api_version: &str, kind: &str) -> Option<ObjectKind> {
        ObjectKind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind && known.api_versions().contains(&api_version))
    }
}

/// Kind, namespace and name of an object. Cheap to clone; ordered by kind, namespace, name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The kind.
    pub kind: ObjectKind,
    id: Arc<str>,
}

impl ObjectKey {
    /// A key; `namespace` is ignored for cluster-scoped kinds.
    pub fn new(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.is_cluster_scoped() {
            ""
        } else {
            namespace
        };
        let mut id = String::with_capacity(namespace.len() + 1 + name.len());
        id.push_str(namespace);
        id.push('/');
        id.push_str(name);
        ObjectKey {
            kind,
            id: id.into(),
        }
    }

    /// A key from what [`ObjectKey::id`] returned, sharing it.
    pub fn from_id(kind: ObjectKind, id: Arc<str>) -> Self {
        ObjectKey { kind, id }
    }

    /// The namespace; empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        self.id
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.id.split_once('/').map_or(&*self.id, |(_, name)| name)
    }

    /// `namespace/name`, shared with every clone of this key.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            self.kind.as_str(),
            self.id.trim_start_matches('/')
        )
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An object of any kind. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// See [`Ingress`].
    Ingress(Arc<Ingress>),
    /// See [`IngressClass`].
    IngressClass(Arc<IngressClass>),
    /// See [`Service`].
    Service(Arc<Service>),
    /// See [`EndpointSlice`].
    EndpointSlice(Arc<EndpointSlice>),
    /// See [`Secret`].
    Secret(Arc<Secret>),
    /// See [`Gateway`].
    IstioGateway(Arc<Gateway>),
    /// See [`VirtualService`].
    VirtualService(Arc<VirtualService>),
    /// See [`DestinationRule`].
    DestinationRule(Arc<DestinationRule>),
    /// See [`ServiceEntry`].
    ServiceEntry(Arc<ServiceEntry>),
    /// See [`WorkloadEntry`].
    WorkloadEntry(Arc<WorkloadEntry>),
    /// See [`Sidecar`].
    Sidecar(Arc<Sidecar>),
    /// See [`RequestAuthentication`].
    RequestAuthentication(Arc<RequestAuthentication>),
    /// See [`PeerAuthentication`].
    PeerAuthentication(Arc<PeerAuthentication>),
    /// See [`AuthorizationPolicy`].
    AuthorizationPolicy(Arc<AuthorizationPolicy>),
    /// See [`Telemetry`].
    Telemetry(Arc<Telemetry>),
    /// See [`ProxyConfig`].
    ProxyConfig(Arc<ProxyConfig>),
    /// See [`EnvoyFilter`].
    EnvoyFilter(Arc<EnvoyFilter>),
    /// See [`WasmPlugin`].
    WasmPlugin(Arc<WasmPlugin>),
    /// See [`Pod`].
    Pod(Arc<Pod>),
    /// See [`ConfigMap`].
    ConfigMap(Arc<ConfigMap>),
    /// See [`Order`].
    Order(Arc<Order>),
    /// See [`OnDemand`].
    OnDemand(Arc<OnDemand>),
    /// See [`HostProof`].
    HostProof(Arc<HostProof>),
    /// See [`Issuer`]; of either kind.
    Issuer(Arc<Issuer>),
}

impl Object {
    /// Key, age and annotations.
    pub fn meta(&self) -> &Meta {
        match self {
            Object::Ingress(object) => &object.meta,
            Object::IngressClass(object) => &object.meta,
            Object::Service(object) => &object.meta,
            Object::EndpointSlice(object) => &object.meta,
            Object::Secret(object) => &object.meta,
            Object::IstioGateway(object) => &object.meta,
            Object::VirtualService(object) => &object.meta,
            Object::DestinationRule(object) => &object.meta,
            Object::ServiceEntry(object) => &object.meta,
            Object::WorkloadEntry(object) => &object.meta,
            Object::Sidecar(object) => &object.meta,
            Object::RequestAuthentication(object) => &object.meta,
            Object::PeerAuthentication(object) => &object.meta,
            Object::AuthorizationPolicy(object) => &object.meta,
            Object::Telemetry(object) => &object.meta,
            Object::ProxyConfig(object) => &object.meta,
            Object::EnvoyFilter(object) => &object.meta,
            Object::WasmPlugin(object) => &object.meta,
            Object::Pod(object) => &object.meta,
            Object::ConfigMap(object) => &object.meta,
            Object::Order(object) => &object.meta,
            Object::OnDemand(object) => &object.meta,
            Object::HostProof(object) => &object.meta,
            Object::Issuer(object) => &object.meta,
        }
    }

    /// The key.
    pub fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    /// The memory that an object of Istio's API or an issuer takes, in bytes, as it was counted
    /// while it was read; 0 for other kinds, which are kept packed.
    pub fn bytes(&self) -> u32 {
        match self {
            Object::Ingress(_)
            | Object::IngressClass(_)
            | Object::Service(_)
            | Object::EndpointSlice(_)
            | Object::Secret(_)
            | Object::Pod(_)
            | Object::ConfigMap(_)
            | Object::Order(_)
            | Object::OnDemand(_)
            | Object::HostProof(_) => 0,
            Object::IstioGateway(object) => object.bytes,
            Object::VirtualService(object) => object.bytes,
            Object::DestinationRule(object) => object.bytes,
            Object::ServiceEntry(object) => object.bytes,
            Object::WorkloadEntry(object) => object.bytes,
            Object::Sidecar(object) => object.bytes,
            Object::RequestAuthentication(object) => object.bytes,
            Object::PeerAuthentication(object) => object.bytes,
            Object::AuthorizationPolicy(object) => object.bytes,
            Object::Telemetry(object) => object.bytes,
            Object::ProxyConfig(object) => object.bytes,
            Object::EnvoyFilter(object) => object.bytes,
            Object::WasmPlugin(object) => object.bytes,
            Object::Issuer(object) => object.bytes,
        }
    }

    /// Whether it says nothing to anybody, so that nobody need hold it: a Secret of which nothing
    /// is read.
    pub fn is_blank(&self) -> bool {
        matches!(self, Object::Secret(secret) if secret.is_blank())
    }

    /// Reads an object of a known kind from any serde format.
    ///
    /// # Errors
    /// The errors of the deserializer: a field of a wrong type, a required field missing.
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        kind: ObjectKind,
        deserializer: D,
    ) -> Result<Object, D::Error> {
        Ok(match kind {
            ObjectKind::Ingress => Object::Ingress(Arc::deserialize(deserializer)?),
            ObjectKind::IngressClass => Object::IngressClass(Arc::deserialize(deserializer)?),
            ObjectKind::Service => Object::Service(Arc::deserialize(deserializer)?),
            ObjectKind::EndpointSlice => Object::EndpointSlice(Arc::deserialize(deserializer)?),
            ObjectKind::Secret => Object::Secret(Arc::deserialize(deserializer)?),
            ObjectKind::IstioGateway => Object::IstioGateway(Arc::deserialize(deserializer)?),
            ObjectKind::VirtualService => Object::VirtualService(Arc::deserialize(deserializer)?),
            ObjectKind::DestinationRule => Object::DestinationRule(Arc::deserialize(deserializer)?),
            ObjectKind::ServiceEntry => Object::ServiceEntry(Arc::deserialize(deserializer)?),
            ObjectKind::WorkloadEntry => Object::WorkloadEntry(Arc::deserialize(deserializer)?),
            ObjectKind::Sidecar => Object::Sidecar(Arc::deserialize(deserializer)?),
            ObjectKind::RequestAuthentication => {
                Object::RequestAuthentication(Arc::deserialize(deserializer)?)
            }
            ObjectKind::PeerAuthentication => {
                Object::PeerAuthentication(Arc::deserialize(deserializer)?)
            }
            ObjectKind::AuthorizationPolicy => {
                Object::AuthorizationPolicy(Arc::deserialize(deserializer)?)
            }
            ObjectKind::Telemetry => Object::Telemetry(Arc::deserialize(deserializer)?),
            ObjectKind::ProxyConfig => Object::ProxyConfig(Arc::deserialize(deserializer)?),
            ObjectKind::EnvoyFilter => Object::EnvoyFilter(Arc::deserialize(deserializer)?),
            ObjectKind::WasmPlugin => Object::WasmPlugin(Arc::deserialize(deserializer)?),
            ObjectKind::Pod => Object::Pod(Arc::deserialize(deserializer)?),
            ObjectKind::ConfigMap => Object::ConfigMap(Arc::deserialize(deserializer)?),
            ObjectKind::Order | ObjectKind::OnDemand | ObjectKind::HostProof => {
                return Err(serde::de::Error::custom(UNWRITTEN));
            }
            ObjectKind::Issuer => {
                let NamespacedIssuer(issuer) = Deserialize::deserialize(deserializer)?;
                Object::Issuer(Arc::new(issuer))
            }
            ObjectKind::ClusterIssuer => {
                let WideIssuer(issuer) = Deserialize::deserialize(deserializer)?;
                Object::Issuer(Arc::new(issuer))
            }
        })
    }

    /// Reads an object of a known kind from JSON. The types of all kinds are compiled for it here,
    /// once, and not in every crate that reads JSON.
    ///
    /// # Errors
    /// Where the text is no JSON or does not fit the kind.
    pub fn from_json(kind: ObjectKind, json: &str) -> Result<Object, serde_json::Error> {
        Object::deserialize(kind, &mut serde_json::Deserializer::from_str(json))
    }

    /// The problem of an object that [`Object::from_json`] does not read, and the path of the
    /// field; that takes longer than reading does.
    pub fn json_problem(kind: ObjectKind, json: &str) -> Option<(serde_json::Error, String)> {
        let mut track = serde_path_to_error::Track::new();
        let mut json = serde_json::Deserializer::from_str(json);
        let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
        let error = Object::deserialize(kind, tracked).err()?;
        Some((error, track.path().to_string()))
    }

    /// Reads an object with a function that reads one type, as YAML libraries offer.
    ///
    /// # Errors
    /// The errors of `reader`.
    pub fn read<E>(kind: ObjectKind, reader: impl ReadOne<Error = E>) -> Result<Object, E> {
        Ok(match kind {
            ObjectKind::Ingress => Object::Ingress(Arc::new(reader.read()?)),
            ObjectKind::IngressClass => Object::IngressClass(Arc::new(reader.read()?)),
            ObjectKind::Service => Object::Service(Arc::new(reader.read()?)),
            ObjectKind::EndpointSlice => Object::EndpointSlice(Arc::new(reader.read()?)),
            ObjectKind::Secret => Object::Secret(Arc::new(reader.read()?)),
            ObjectKind::IstioGateway => Object::IstioGateway(Arc::new(reader.read()?)),
            ObjectKind::VirtualService => Object::VirtualService(Arc::new(reader.read()?)),
            ObjectKind::DestinationRule => Object::DestinationRule(Arc::new(reader.read()?)),
            ObjectKind::ServiceEntry => Object::ServiceEntry(Arc::new(reader.read()?)),
            ObjectKind::WorkloadEntry => Object::WorkloadEntry(Arc::new(reader.read()?)),
            ObjectKind::Sidecar => Object::Sidecar(Arc::new(reader.read()?)),
            ObjectKind::RequestAuthentication => {
                Object::RequestAuthentication(Arc::new(reader.read()?))
            }
            ObjectKind::PeerAuthentication => Object::PeerAuthentication(Arc::new(reader.read()?)),
            ObjectKind::AuthorizationPolicy => {
                Object::AuthorizationPolicy(Arc::new(reader.read()?))
            }
            ObjectKind::Telemetry => Object::Telemetry(Arc::new(reader.read()?)),
            ObjectKind::ProxyConfig => Object::ProxyConfig(Arc::new(reader.read()?)),
            ObjectKind::EnvoyFilter => Object::EnvoyFilter(Arc::new(reader.read()?)),
            ObjectKind::WasmPlugin => Object::WasmPlugin(Arc::new(reader.read()?)),
            ObjectKind::Pod => Object::Pod(Arc::new(reader.read()?)),
            ObjectKind::ConfigMap => Object::ConfigMap(Arc::new(reader.read()?)),
            ObjectKind::Order | ObjectKind::OnDemand | ObjectKind::HostProof => {
                match reader.read::<Unwritten>()? {}
            }
            ObjectKind::Issuer => {
                let NamespacedIssuer(issuer) = reader.read()?;
                Object::Issuer(Arc::new(issuer))
            }
            ObjectKind::ClusterIssuer => {
                let WideIssuer(issuer) = reader.read()?;
                Object::Issuer(Arc::new(issuer))
            }
        })
    }
}

/// Why a kind is not read that nobody writes.
const UNWRITTEN: &str = "is of a kind that nobody writes";

/// A value that no text is.
enum Unwritten {}

impl<'de> Deserialize<'de> for Unwritten {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom(UNWRITTEN))
    }
}

/// Something that can read one value of a type that the caller names.
pub trait ReadOne {
    /// The error of the format.
    type Error;
    /// Reads the value.
    ///
    /// # Errors
    /// Where the text does not fit the type.
    fn read<T: DeserializeOwned>(self) -> Result<T, Self::Error>;
}
