//! `v1` Service.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};

use crate::ingress::list;
use crate::istio::Labels;
use crate::meta::{Pairs, RawMeta};
use crate::{Meta, ObjectKind};

/// A Service: named ports in front of endpoints, or an alias of an outside host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Key and age.
    pub meta: Meta,
    /// `spec.externalName`, for Services of type `ExternalName`.
    pub external_name: Option<Box<str>>,
    /// `spec.selector`; nothing selects nothing.
    pub selector: Labels,
    /// `spec.ports`.
    pub ports: Box<[ServicePort]>,
    /// `spec.clusterIPs`, or the one of `spec.clusterIP`; none before it has one.
    pub addresses: Box<[IpAddr]>,
    /// Whether `spec.clusterIP` is `None`: who connects goes to an endpoint by itself.
    pub is_headless: bool,
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a mapping")]
pub struct ServicePort {
    /// The name; empty where the only port has none.
    #[serde(default)]
    pub name: Box<str>,
    /// The Service's port.
    pub port: u16,
    /// `targetPort`, used with ExternalName and to say what is meant.
    #[serde(default)]
    pub target_port: Option<TargetPort>,
    /// `appProtocol`.
    #[serde(default)]
    pub app_protocol: Option<Box<str>>,
    /// `protocol`; none means TCP.
    #[serde(default)]
    pub protocol: Option<Box<str>>,
}

/// The most ports of a Service: each path that names one looks through them.
const PORTS_MAX: usize = 1_024;

fn ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[ServicePort]>, D::Error> {
    let ports = list::<D, ServicePort>(deserializer)?;
    match ports.len() <= PORTS_MAX {
        true => Ok(ports),
        false => Err(serde::de::Error::custom(format_args!(
            "spec.ports has more than {PORTS_MAX} entries; divide the Service"
        ))),
    }
}

/// `targetPort`: a number, or the name of a container port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// A port number.
    Number(u16),
    /// A container port's name.
    Name(Box<str>),
}

impl<'de> Deserialize<'de> for Service {
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
            #[serde(default, rename = "type")]
            service_type: Option<Box<str>>,
            #[serde(default)]
            external_name: Option<Box<str>>,
            #[serde(default)]
            selector: Option<Pairs>,
            #[serde(default, deserialize_with = "ports")]
            ports: Box<[ServicePort]>,
            #[serde(default, rename = "clusterIP")]
            cluster_ip: Option<Box<str>>,
            #[serde(default, rename = "clusterIPs")]
            cluster_ips: Option<Box<[Box<str>]>>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let spec = raw.spec.unwrap_or_default();
        let is_external = spec.service_type.as_deref() == Some("ExternalName");
        if is_external && spec.external_name.as_deref().unwrap_or("").is_empty() {
            return Err(serde::de::Error::custom(
                "spec.externalName is required with spec.type ExternalName",
            ));
        }
        let written = spec.cluster_ips.unwrap_or_default();
        let written = match (&*written, &spec.cluster_ip) {
            ([], Some(only)) => std::slice::from_ref(only),
            (several, _) => several,
        };
        let addresses = written.iter().filter_map(|text| text.parse().ok());
        let addresses = addresses.collect();
        Ok(Service {
            addresses,
            is_headless: spec.cluster_ip.as_deref() == Some("None"),
            meta: raw.metadata.check(ObjectKind::Service)?,
            external_name: spec.external_name.filter(|_| is_external),
            selector: spec
                .selector
                .into_iter()
                .flat_map(|pairs| pairs.0)
                .collect(),
            ports: spec.ports,
        })
    }
}
