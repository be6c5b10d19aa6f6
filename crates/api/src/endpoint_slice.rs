//! `discovery.k8s.io/v1` EndpointSlice.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};

use crate::ingress::list;
use crate::meta::RawMeta;
use crate::{Meta, ObjectKind};

/// The label that names the Service of a slice.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Some of the endpoints of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Key and age.
    pub meta: Meta,
    /// The Service in the same namespace, from [`SERVICE_LABEL`]; none makes the slice void.
    pub service: Option<Box<str>>,
    /// The endpoints; those of address type FQDN have no addresses here.
    pub endpoints: Box<[Endpoint]>,
    /// The ports, each of which every endpoint has.
    pub ports: Box<[EndpointPort]>,
}

/// One entry of `endpoints`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The first of `addresses`; the API says that all are equal and clients take one.
    pub address: Option<IpAddr>,
    /// The Pod of the same namespace that it is, from `targetRef`.
    pub pod: Option<Box<str>>,
    /// The zone of the topology that it is in.
    pub zone: Option<Box<str>>,
    /// Whether it takes traffic.
    pub conditions: Conditions,
}

/// `conditions`, with the API's rule for absent ones applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Takes new traffic; absent means yes.
    pub ready: bool,
    /// Can answer; absent means as `ready`.
    pub serving: bool,
    /// On its way out; absent means no.
    pub terminating: bool,
}

/// One entry of `ports`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EndpointPort {
    /// The name of the Service port; empty where it has none.
    #[serde(default, deserialize_with = "text")]
    pub name: Box<str>,
    /// The port; none means every port, which is void here.
    #[serde(default)]
    pub port: Option<u16>,
    /// `protocol`; none means TCP.
    #[serde(default)]
    pub protocol: Option<Box<str>>,
}

impl<'de> Deserialize<'de> for EndpointSlice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            address_type: Option<Box<str>>,
            #[serde(default, deserialize_with = "list")]
            endpoints: Box<[RawEndpoint]>,
            #[serde(default, deserialize_with = "list")]
            ports: Box<[EndpointPort]>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct RawEndpoint {
            #[serde(default, deserialize_with = "list")]
            addresses: Box<[Box<str>]>,
            #[serde(default)]
            conditions: Option<RawConditions>,
            #[serde(default)]
            target_ref: Option<RawTarget>,
            #[serde(default)]
            zone: Option<Box<str>>,
        }
        #[derive(Deserialize, Default)]
        struct RawConditions {
            ready: Option<bool>,
            serving: Option<bool>,
            terminating: Option<bool>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let is_fqdn = raw.address_type.as_deref() == Some("FQDN");
        let mut endpoints = Vec::with_capacity(raw.endpoints.len());
        for endpoint in raw.endpoints {
            let conditions = endpoint.conditions.as_ref();
            let ready = conditions.and_then(|c| c.ready).unwrap_or(true);
            let address = match endpoint.addresses.first() {
                Some(text) if !is_fqdn => Some(text.parse().map_err(|_| {
                    serde::de::Error::custom(format_args!(
                        "endpoints.addresses has {text:?}, which is not an IP address"
                    ))
                })?),
                _ => None,
            };
            endpoints.push(Endpoint {
                address,
                pod: endpoint.target_ref.and_then(RawTarget::into_pod),
                zone: endpoint.zone.filter(|zone| !zone.is_empty()),
                conditions: Conditions {
                    ready,
                    serving: conditions.and_then(|c| c.serving).unwrap_or(ready),
                    terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
                },
            });
        }
        let service = raw.metadata.labels.as_ref().and_then(|labels| {
            let (_, value) = labels.0.iter().find(|(key, _)| &**key == SERVICE_LABEL)?;
            Some(value.clone())
        });
        Ok(EndpointSlice {
            meta: raw.metadata.check(ObjectKind::EndpointSlice)?,
            service,
            endpoints: endpoints.into(),
            ports: raw.ports,
        })
    }
}

/// `targetRef` of an endpoint.
#[derive(Deserialize)]
struct RawTarget {
    #[serde(default)]
    kind: Box<str>,
    #[serde(default)]
    name: Box<str>,
}

impl RawTarget {
    fn into_pod(self) -> Option<Box<str>> {
        (&*self.kind == "Pod").then_some(self.name)
    }
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
    Ok(Option::<Box<str>>::deserialize(deserializer)?.unwrap_or_default())
}
