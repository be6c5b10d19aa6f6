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
#[serde(expecting = "a mapping")]
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
        #[serde(rename_all = "camelCase", expecting = "a mapping")]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            address_type: Option<Box<str>>,
            #[serde(default, deserialize_with = "list")]
            endpoints: Box<[RawEndpoint]>,
            #[serde(default, deserialize_with = "ports")]
            ports: Box<[EndpointPort]>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", expecting = "a mapping")]
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
        #[serde(expecting = "a mapping")]
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
                zone: endpoint.zone.filter(|zone| is_within(zone, ZONE_BYTES_MAX)),
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

/// The most ports of a slice: no Service that is read has more.
const PORTS_MAX: usize = 1_024;

fn ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[EndpointPort]>, D::Error> {
    let ports = list::<D, EndpointPort>(deserializer)?;
    match ports.len() <= PORTS_MAX {
        true => Ok(ports),
        false => Err(serde::de::Error::custom(format_args!(
            "ports has more than {PORTS_MAX} entries; divide the Service"
        ))),
    }
}

/// The longest name of a Pod.
const NAME_BYTES_MAX: usize = 253;

/// The longest name of a zone, which is the value of a label.
const ZONE_BYTES_MAX: usize = 63;

/// `targetRef` of an endpoint.
#[derive(Deserialize)]
#[serde(expecting = "a mapping")]
struct RawTarget {
    #[serde(default)]
    kind: Box<str>,
    #[serde(default)]
    name: Box<str>,
}

impl RawTarget {
    fn into_pod(self) -> Option<Box<str>> {
        let is_pod = &*self.kind == "Pod" && is_within(&self.name, NAME_BYTES_MAX);
        is_pod.then_some(self.name)
    }
}

/// Whether a name is there, and none that cannot be.
fn is_within(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len())
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
    Ok(Option::<Box<str>>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{EndpointSlice, NAME_BYTES_MAX, PORTS_MAX, ZONE_BYTES_MAX};

    fn read(ports: usize, pod: &str, zone: &str) -> Result<EndpointSlice, serde_json::Error> {
        let ports: Vec<_> = (0..ports).map(|_| serde_json::json!({"port": 1})).collect();
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a"},
            "ports": ports,
            "endpoints": [{"targetRef": {"kind": "Pod", "name": pod}, "zone": zone}],
        }))
    }

    #[test]
    fn a_slice_has_as_many_ports_as_a_service() {
        assert_eq!(read(PORTS_MAX, "", "").unwrap().ports.len(), PORTS_MAX);
        let problem = read(PORTS_MAX + 1, "", "").unwrap_err().to_string();
        assert!(problem.contains("more than 1024 entries"), "{problem}");
    }

    #[test]
    fn names_that_nothing_has_are_not_kept() {
        let of = |pod: usize, zone: usize| {
            let slice = read(1, &"p".repeat(pod), &"z".repeat(zone)).unwrap();
            let [endpoint] = &*slice.endpoints else {
                panic!("one endpoint");
            };
            (endpoint.pod.is_some(), endpoint.zone.is_some())
        };
        assert_eq!(of(NAME_BYTES_MAX, ZONE_BYTES_MAX), (true, true));
        assert_eq!(of(NAME_BYTES_MAX + 1, ZONE_BYTES_MAX + 1), (false, false));
        assert_eq!(of(0, 0), (false, false));
    }
}
