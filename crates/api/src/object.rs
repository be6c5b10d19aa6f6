//! An object of any kind that Myriad reads, and its key.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::gateway::{
    BackendTlsPolicy, GatewayClass, GrpcRoute, HttpRoute, ListenerSet, ReferenceGrant, TcpRoute,
    TlsRoute, UdpRoute,
};
use crate::issuer::{Issuer, NamespacedIssuer, WideIssuer};
use crate::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, PeerAuthentication, ProxyConfig,
    RequestAuthentication, ServiceEntry, Sidecar, Telemetry, VirtualService, WasmPlugin,
    WorkloadEntry,
};
use crate::{
    ConfigMap, EndpointSlice, HostProof, Ingress, IngressClass, Meta, Namespace, ObjectKind,
    OnDemand, Order, Pod, Secret, Service, gateway, istio,
};

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
    /// See [`istio::Gateway`].
    IstioGateway(Arc<istio::Gateway>),
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
    /// See [`GatewayClass`].
    GatewayClass(Arc<GatewayClass>),
    /// See [`gateway::Gateway`].
    Gateway(Arc<gateway::Gateway>),
    /// See [`ListenerSet`].
    ListenerSet(Arc<ListenerSet>),
    /// See [`HttpRoute`].
    HttpRoute(Arc<HttpRoute>),
    /// See [`GrpcRoute`].
    GrpcRoute(Arc<GrpcRoute>),
    /// See [`TlsRoute`].
    TlsRoute(Arc<TlsRoute>),
    /// See [`TcpRoute`].
    TcpRoute(Arc<TcpRoute>),
    /// See [`UdpRoute`].
    UdpRoute(Arc<UdpRoute>),
    /// See [`BackendTlsPolicy`].
    BackendTlsPolicy(Arc<BackendTlsPolicy>),
    /// See [`ReferenceGrant`].
    ReferenceGrant(Arc<ReferenceGrant>),
    /// See [`Namespace`].
    Namespace(Arc<Namespace>),
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
            Object::GatewayClass(object) => &object.meta,
            Object::Gateway(object) => &object.meta,
            Object::ListenerSet(object) => &object.meta,
            Object::HttpRoute(object) => &object.meta,
            Object::GrpcRoute(object) => &object.meta,
            Object::TlsRoute(object) => &object.meta,
            Object::TcpRoute(object) => &object.meta,
            Object::UdpRoute(object) => &object.meta,
            Object::BackendTlsPolicy(object) => &object.meta,
            Object::ReferenceGrant(object) => &object.meta,
            Object::Namespace(object) => &object.meta,
        }
    }

    /// The key.
    pub fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    /// The memory that an object of Istio's API, of Gateway API or an issuer takes, in bytes, as it
    /// was counted while it was read; 0 for other kinds, most of which are kept packed.
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
            | Object::HostProof(_)
            | Object::Namespace(_) => 0,
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
            Object::GatewayClass(object) => object.bytes,
            Object::Gateway(object) => object.bytes,
            Object::ListenerSet(object) => object.bytes,
            Object::HttpRoute(object) => object.bytes,
            Object::GrpcRoute(object) => object.bytes,
            Object::TlsRoute(object) => object.bytes,
            Object::TcpRoute(object) => object.bytes,
            Object::UdpRoute(object) => object.bytes,
            Object::BackendTlsPolicy(object) => object.bytes,
            Object::ReferenceGrant(object) => object.bytes,
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
            ObjectKind::GatewayClass => Object::GatewayClass(Arc::deserialize(deserializer)?),
            ObjectKind::Gateway => Object::Gateway(Arc::deserialize(deserializer)?),
            ObjectKind::ListenerSet => Object::ListenerSet(Arc::deserialize(deserializer)?),
            ObjectKind::HttpRoute => Object::HttpRoute(Arc::deserialize(deserializer)?),
            ObjectKind::GrpcRoute => Object::GrpcRoute(Arc::deserialize(deserializer)?),
            ObjectKind::TlsRoute => Object::TlsRoute(Arc::deserialize(deserializer)?),
            ObjectKind::TcpRoute => Object::TcpRoute(Arc::deserialize(deserializer)?),
            ObjectKind::UdpRoute => Object::UdpRoute(Arc::deserialize(deserializer)?),
            ObjectKind::BackendTlsPolicy => {
                Object::BackendTlsPolicy(Arc::deserialize(deserializer)?)
            }
            ObjectKind::ReferenceGrant => Object::ReferenceGrant(Arc::deserialize(deserializer)?),
            ObjectKind::Namespace => Object::Namespace(Arc::deserialize(deserializer)?),
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
            ObjectKind::GatewayClass => Object::GatewayClass(Arc::new(reader.read()?)),
            ObjectKind::Gateway => Object::Gateway(Arc::new(reader.read()?)),
            ObjectKind::ListenerSet => Object::ListenerSet(Arc::new(reader.read()?)),
            ObjectKind::HttpRoute => Object::HttpRoute(Arc::new(reader.read()?)),
            ObjectKind::GrpcRoute => Object::GrpcRoute(Arc::new(reader.read()?)),
            ObjectKind::TlsRoute => Object::TlsRoute(Arc::new(reader.read()?)),
            ObjectKind::TcpRoute => Object::TcpRoute(Arc::new(reader.read()?)),
            ObjectKind::UdpRoute => Object::UdpRoute(Arc::new(reader.read()?)),
            ObjectKind::BackendTlsPolicy => Object::BackendTlsPolicy(Arc::new(reader.read()?)),
            ObjectKind::ReferenceGrant => Object::ReferenceGrant(Arc::new(reader.read()?)),
            ObjectKind::Namespace => Object::Namespace(Arc::new(reader.read()?)),
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
