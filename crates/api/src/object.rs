//! An object of any kind that Myriad reads, and its key.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{EndpointSlice, Ingress, IngressClass, Meta, Secret, Service};

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
    /// `v1` Secret; only `kubernetes.io/tls` has an effect.
    Secret = 5,
}

impl ObjectKind {
    /// Every kind, in a fixed order.
    pub const ALL: [ObjectKind; 5] = [
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
        }
    }

    /// The group and version as written in `apiVersion:`.
    pub const fn api_version(self) -> &'static str {
        match self {
            ObjectKind::Ingress | ObjectKind::IngressClass => "networking.k8s.io/v1",
            ObjectKind::Service | ObjectKind::Secret => "v1",
            ObjectKind::EndpointSlice => "discovery.k8s.io/v1",
        }
    }

    /// Whether objects of this kind have no namespace.
    pub const fn is_cluster_scoped(self) -> bool {
        matches!(self, ObjectKind::IngressClass)
    }

    /// The kind for an `apiVersion` and a `kind`, if it is one that Myriad reads.
    pub fn find(api_version: &str, kind: &str) -> Option<ObjectKind> {
        ObjectKind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind && known.api_version() == api_version)
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
        }
    }

    /// The key.
    pub fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    /// Reads an object of a known kind from any serde format.
    ///
    /// # Errors
    /// Those of the deserializer: a field of a wrong type, a required field missing.
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
        })
    }

    /// Reads an object with a function that reads one type, as YAML libraries offer.
    ///
    /// # Errors
    /// Those of `reader`.
    pub fn read<E>(kind: ObjectKind, reader: impl ReadOne<Error = E>) -> Result<Object, E> {
        Ok(match kind {
            ObjectKind::Ingress => Object::Ingress(Arc::new(reader.read()?)),
            ObjectKind::IngressClass => Object::IngressClass(Arc::new(reader.read()?)),
            ObjectKind::Service => Object::Service(Arc::new(reader.read()?)),
            ObjectKind::EndpointSlice => Object::EndpointSlice(Arc::new(reader.read()?)),
            ObjectKind::Secret => Object::Secret(Arc::new(reader.read()?)),
        })
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
