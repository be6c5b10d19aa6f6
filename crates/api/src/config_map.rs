//! `v1` ConfigMap, of which only that of an ingress-nginx has an effect.

use serde::{Deserialize, Deserializer};

use crate::meta::{Pairs, RawMeta};
use crate::{Meta, ObjectKind};

/// Keys of `data` that are kept, sorted; all others are dropped while reading, so that ConfigMaps
/// of other programs cost next to nothing.
pub const CONFIG_MAP_KEYS: [&str; 25] = [
    "block-cidrs",
    "block-referers",
    "block-user-agents",
    "denylist-source-range",
    "enable-modsecurity",
    "force-ssl-redirect",
    "global-auth-url",
    "hsts",
    "hsts-include-subdomains",
    "hsts-max-age",
    "hsts-preload",
    "http-snippet",
    "location-snippet",
    "main-snippet",
    "plugins",
    "proxy-body-size",
    "proxy-connect-timeout",
    "proxy-read-timeout",
    "proxy-send-timeout",
    "proxy-set-headers",
    "server-snippet",
    "ssl-redirect",
    "use-forwarded-headers",
    "use-proxy-protocol",
    "whitelist-source-range",
];

/// A ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    /// Key and age.
    pub meta: Meta,
    /// The entries of `data` whose keys are among [`CONFIG_MAP_KEYS`], sorted by key.
    pub data: Box<[(Box<str>, Box<str>)]>,
}

impl ConfigMap {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self
            .data
            .binary_search_by(|(known, _)| (**known).cmp(key))
            .ok()?;
        let (_, value) = self.data.get(found)?;
        Some(value)
    }
}

impl<'de> Deserialize<'de> for ConfigMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            data: Option<Pairs>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let is_kept = |key: &str| CONFIG_MAP_KEYS.binary_search(&key).is_ok();
        let pairs = raw.data.into_iter().flat_map(|pairs| pairs.0);
        let mut data: Vec<_> = pairs.filter(|(key, _)| is_kept(key)).collect();
        data.sort();
        Ok(ConfigMap {
            meta: raw.metadata.check(ObjectKind::ConfigMap)?,
            data: data.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{CONFIG_MAP_KEYS, ConfigMap};

    #[test]
    fn only_the_keys_that_mean_something_are_kept() {
        assert!(CONFIG_MAP_KEYS.is_sorted());
        let text = r#"{"metadata": {"namespace": "n", "name": "kube-root-ca.crt"},
            "data": {"ssl-redirect": "false", "ca.crt": "x", "block-cidrs": "10.0.0.0/8"},
            "binaryData": {"a": "AA=="}}"#;
        let map: ConfigMap = serde_json::from_str(text).expect("a ConfigMap");
        assert_eq!(map.meta.key.to_string(), "ConfigMap n/kube-root-ca.crt");
        assert_eq!(map.data.len(), 2);
        assert_eq!(map.get("ssl-redirect"), Some("false"));
        assert_eq!(map.get("block-cidrs"), Some("10.0.0.0/8"));
        assert_eq!(map.get("ca.crt"), None);
        let empty = r#"{"metadata": {"name": "a"}, "data": null}"#;
        let map: ConfigMap = serde_json::from_str(empty).expect("a ConfigMap");
        assert!(map.data.is_empty());
    }
}
