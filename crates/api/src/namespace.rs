//! `v1` Namespace, of which the labels say which Gateways it may use.

use serde::{Deserialize, Deserializer};

use crate::istio::Labels;
use crate::meta::RawMeta;
use crate::{Meta, ObjectKind};

/// A Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Key and age.
    pub meta: Meta,
    /// `metadata.labels`.
    pub labels: Labels,
}

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "a mapping")]
        struct Raw {
            metadata: RawMeta,
        }
        let mut raw = Raw::deserialize(deserializer)?;
        let labels = raw.metadata.labels.take();
        Ok(Namespace {
            meta: raw.metadata.check(ObjectKind::Namespace)?,
            labels: labels.into_iter().flat_map(|pairs| pairs.0).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Namespace;

    #[test]
    fn a_namespace_is_its_name_and_its_labels() {
        let text = r#"{"metadata": {"name": "shop", "labels": {"b": "2", "a": "1"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}"#;
        let namespace: Namespace = serde_json::from_str(text).expect("a Namespace");
        assert_eq!(namespace.meta.key.to_string(), "Namespace shop");
        let labels = namespace.labels.iter();
        let labels: Vec<_> = labels.map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(labels, [("a", "1"), ("b", "2")]);
        let bare = r#"{"metadata": {"name": "shop"}}"#;
        let namespace: Namespace = serde_json::from_str(bare).expect("a Namespace");
        assert!(namespace.labels.is_empty());
    }
}
