//! `networking.k8s.io/v1` Ingress and IngressClass.

use serde::{Deserialize, Deserializer};

use crate::meta::RawMeta;
use crate::{Meta, ObjectKind};

/// An Ingress: hosts, paths, backends and TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Key, age, annotations.
    pub meta: Meta,
    /// `spec.ingressClassName`.
    pub class_name: Option<Box<str>>,
    /// `spec.defaultBackend`.
    pub default_backend: Option<IngressBackend>,
    /// `spec.tls`.
    pub tls: Box<[IngressTls]>,
    /// `spec.rules`.
    pub rules: Box<[IngressRule]>,
}

/// One entry of `spec.tls`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a mapping")]
pub struct IngressTls {
    /// Hosts that the certificate is for, as written.
    #[serde(default, deserialize_with = "list")]
    pub hosts: Box<[Box<str>]>,
    /// Secret in the Ingress's namespace; none means the default certificate.
    #[serde(default)]
    pub secret_name: Option<Box<str>>,
}

/// One entry of `spec.rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressRule {
    /// The host as written; none means every host.
    pub host: Option<Box<str>>,
    /// `http.paths`; empty means that all traffic goes to the default backend.
    pub paths: Box<[IngressPath]>,
}

/// One entry of `http.paths`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a mapping")]
pub struct IngressPath {
    /// The path as written.
    #[serde(default)]
    pub path: Option<Box<str>>,
    /// How it is compared.
    pub path_type: PathType,
    /// The backend that requests go to.
    pub backend: IngressBackend,
}

/// `pathType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum PathType {
    /// The whole path, case-sensitive.
    Exact,
    /// Matches the path element by element.
    Prefix,
    /// Matches as the controller decides: here like `Prefix`, or as a regex where `use-regex` says
    /// so.
    ImplementationSpecific,
}

/// A backend reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IngressBackend {
    /// A Service in the namespace of the Ingress.
    Service {
        /// Its name.
        name: Box<str>,
        /// Its port.
        port: BackendPort,
    },
    /// `resource:`, which names an object of any kind; not supported.
    Resource {
        /// The kind that was named.
        kind: Box<str>,
        /// The name that was named.
        name: Box<str>,
    },
}

/// A Service port by number or by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BackendPort {
    /// `port.number`.
    Number(u16),
    /// `port.name`.
    Name(Box<str>),
}

/// An IngressClass; the controller serves those whose `controller` it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressClass {
    /// Key, age, annotations (`ingressclass.kubernetes.io/is-default-class`).
    pub meta: Meta,
    /// `spec.controller`.
    pub controller: Box<str>,
}

impl<'de> Deserialize<'de> for Ingress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            spec: Option<RawSpec>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", expecting = "a mapping")]
        struct RawSpec {
            #[serde(default)]
            ingress_class_name: Option<Box<str>>,
            #[serde(default)]
            default_backend: Option<IngressBackend>,
            #[serde(default, deserialize_with = "list")]
            tls: Box<[IngressTls]>,
            #[serde(default, deserialize_with = "list")]
            rules: Box<[IngressRule]>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let spec = raw.spec.unwrap_or_default();
        Ok(Ingress {
            meta: raw.metadata.check(ObjectKind::Ingress)?,
            class_name: spec.ingress_class_name,
            default_backend: spec.default_backend,
            tls: spec.tls,
            rules: spec.rules,
        })
    }
}

impl<'de> Deserialize<'de> for IngressRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct Raw {
            #[serde(default)]
            host: Option<Box<str>>,
            #[serde(default)]
            http: Option<RawHttp>,
        }
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct RawHttp {
            #[serde(default, deserialize_with = "list")]
            paths: Box<[IngressPath]>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let host = raw.host.filter(|host| !host.is_empty());
        Ok(IngressRule {
            host,
            paths: raw.http.map_or_else(Box::default, |http| http.paths),
        })
    }
}

impl<'de> Deserialize<'de> for IngressBackend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct Raw {
            #[serde(default)]
            service: Option<RawService>,
            #[serde(default)]
            resource: Option<RawResource>,
        }
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct RawService {
            name: Box<str>,
            #[serde(default)]
            port: Option<RawPort>,
        }
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct RawPort {
            #[serde(default)]
            number: Option<u16>,
            #[serde(default)]
            name: Option<Box<str>>,
        }
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct RawResource {
            kind: Box<str>,
            name: Box<str>,
        }
        let raw = Raw::deserialize(deserializer)?;
        match (raw.service, raw.resource) {
            (Some(service), None) => {
                let port = match service.port {
                    Some(RawPort {
                        number: Some(number),
                        name: None,
                    }) if number > 0 => BackendPort::Number(number),
                    Some(RawPort {
                        number: None | Some(0),
                        name: Some(name),
                    }) => BackendPort::Name(name),
                    _ => {
                        return Err(serde::de::Error::custom(
                            "backend.service.port needs either number (1 to 65535) or name",
                        ));
                    }
                };
                Ok(IngressBackend::Service {
                    name: service.name,
                    port,
                })
            }
            (None, Some(resource)) => Ok(IngressBackend::Resource {
                kind: resource.kind,
                name: resource.name,
            }),
            _ => Err(serde::de::Error::custom(
                "backend needs either service or resource",
            )),
        }
    }
}

impl<'de> Deserialize<'de> for IngressClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct Raw {
            metadata: RawMeta,
            spec: RawSpec,
        }
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct RawSpec {
            controller: Box<str>,
        }
        let raw = Raw::deserialize(deserializer)?;
        Ok(IngressClass {
            meta: raw.metadata.check(ObjectKind::IngressClass)?,
            controller: raw.spec.controller,
        })
    }
}

/// A list in which `null` means empty, as the API server reads it.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Box<[T]>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?
        .unwrap_or_default()
        .into())
}
