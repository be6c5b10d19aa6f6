//! `v1` Pod: what selectors of labels find.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};

use crate::istio::Labels;
use crate::meta::RawMeta;
use crate::{Meta, ObjectKind};

/// A Pod: its labels, and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Key and age.
    pub meta: Meta,
    /// `metadata.uid`, which no other Pod has, whatever its name. It is not kept beyond who reads
    /// the change.
    pub uid: Option<Box<str>>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `status.podIP`; none before it has one.
    pub address: Option<IpAddr>,
    /// `spec.serviceAccountName`; `None` where only the metadata was asked for.
    pub account: Option<Box<str>>,
    /// The controller of the Pod: the owner in `metadata.ownerReferences` that is marked as such.
    pub owner: Option<Owner>,
    /// Whether its condition `Ready` is not false; one without conditions is ready.
    pub is_ready: bool,
}

/// An object that runs a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            spec: Option<RawSpec>,
            #[serde(default)]
            status: Option<RawStatus>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", expecting = "a mapping")]
        struct RawSpec {
            #[serde(default)]
            service_account_name: Option<Box<str>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", expecting = "a mapping")]
        struct RawStatus {
            #[serde(default, rename = "podIP")]
            pod_ip: Option<Box<str>>,
            #[serde(default)]
            phase: Option<Box<str>>,
            #[serde(default)]
            conditions: Option<Vec<RawCondition>>,
        }
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct RawCondition {
            #[serde(rename = "type")]
            condition: Box<str>,
            status: Box<str>,
        }
        let mut raw = Raw::deserialize(deserializer)?;
        let status = raw.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let is_refused = conditions
            .iter()
            .any(|known| &*known.condition == "Ready" && &*known.status != "True");
        let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let labels = raw.metadata.labels.take();
        let uid = raw.metadata.uid.take();
        let owners = raw.metadata.owner_references.take().unwrap_or_default();
        let owner = owners.into_iter().find(|owner| owner.controller);
        Ok(Pod {
            meta: raw.metadata.check(ObjectKind::Pod)?,
            uid,
            labels: labels.into_iter().flat_map(|pairs| pairs.0).collect(),
            account: raw.spec.and_then(|spec| spec.service_account_name),
            address: status.pod_ip.as_deref().and_then(|text| text.parse().ok()),
            owner: owner.map(|owner| Owner {
                kind: owner.kind,
                name: owner.name,
            }),
            is_ready: !is_refused && !is_over,
        })
    }
}
