//! `v1` ConfigMap, of which only that of an ingress-nginx has an effect, those that Ingresses name
//! for header fields, and those that objects of Gateway API name for settings or authorities.

use std::cell::RefCell;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use crate::meta::{Pairs, RawMeta};
use crate::secret::{self, SecretProblem, TrustDer};
use crate::{Meta, ObjectKind};

/// Keys of `data` that mean something to translation, sorted. Of all others no more is kept than
/// header fields need, so that ConfigMaps of other programs cost next to nothing.
pub const CONFIG_MAP_KEYS: [&str; 41] = [
    "allow-cross-namespace-resources",
    "block-cidrs",
    "block-referers",
    "block-user-agents",
    "denylist-source-range",
    "enable-modsecurity",
    "force-ssl-redirect",
    "global-allowed-response-headers",
    "global-auth-always-set-cookie",
    "global-auth-cache-duration",
    "global-auth-cache-key",
    "global-auth-method",
    "global-auth-request-redirect",
    "global-auth-response-headers",
    "global-auth-signin",
    "global-auth-signin-redirect-param",
    "global-auth-snippet",
    "global-auth-url",
    "hsts",
    "hsts-include-subdomains",
    "hsts-max-age",
    "hsts-preload",
    "http-snippet",
    "location-snippet",
    "main-snippet",
    "myriad-gateway-cpu-percent",
    "myriad-gateway-mode",
    "myriad-gateway-replicas-max",
    "myriad-gateway-replicas-min",
    "no-auth-locations",
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
    /// The entries of `data` as fields of a head.
    pub fields: HeaderFields,
    /// The authorities that `data[ca.crt]` holds, if there is any, or why they cannot be read.
    /// ConfigMaps share equal ones, since each namespace has those of the cluster.
    pub trust: Result<Option<Arc<TrustDer>>, SecretProblem>,
}

thread_local! {
    /// The authorities that were read last.
    static LAST: RefCell<Option<Arc<TrustDer>>> = const { RefCell::new(None) };
}

/// The same authorities as the last ones, where they are equal.
fn share(trust: TrustDer) -> Arc<TrustDer> {
    LAST.with_borrow_mut(|last| match last {
        Some(last) if **last == trust => last.clone(),
        _ => last.insert(Arc::new(trust)).clone(),
    })
}

/// The name of a field as written, and its value; none in place of one that no field has.
pub type HeaderEntry = (Box<str>, Option<Box<str>>);

/// The entries of a ConfigMap as fields of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderFields {
    /// Sorted by name. A value that no field has is that of a file, for one.
    pub entries: Box<[HeaderEntry]>,
    /// Whether there are more than [`HeaderFields::ENTRIES_MAX`], or more than
    /// [`HeaderFields::BYTES_MAX`] in them: then none is kept.
    pub is_too_long: bool,
}

impl HeaderFields {
    /// The most entries that are kept.
    pub const ENTRIES_MAX: usize = 64;

    /// The most bytes of all names and values, with what separates them in a head.
    pub const BYTES_MAX: usize = 8 << 10;

    fn new(pairs: &[(Box<str>, Box<str>)]) -> Self {
        let kept = || pairs.iter().map(|(name, value)| (name, field_value(value)));
        let bytes = kept().map(|(name, value)| name.len() + value.map_or(0, str::len) + 4);
        if pairs.len() > HeaderFields::ENTRIES_MAX || bytes.sum::<usize>() > HeaderFields::BYTES_MAX
        {
            return HeaderFields {
                entries: Box::default(),
                is_too_long: true,
            };
        }
        let entries = kept().map(|(name, value)| (name.clone(), value.map(Box::from)));
        let mut entries: Vec<(Box<str>, Option<Box<str>>)> = entries.collect();
        entries.sort();
        HeaderFields {
            entries: entries.into(),
            is_too_long: false,
        }
    }
}

/// A text as the value of a field (RFC 9110, section 5.5), without blanks around it.
fn field_value(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_printable.then_some(text)
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
        #[serde(expecting = "a mapping")]
        struct Raw {
            metadata: RawMeta,
            #[serde(default)]
            data: Option<Pairs>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let is_kept = |key: &str| CONFIG_MAP_KEYS.binary_search(&key).is_ok();
        let pairs = raw.data.map(|pairs| pairs.0).unwrap_or_default();
        let fields = HeaderFields::new(&pairs);
        let trust = match pairs
            .iter()
            .find(|(key, _)| **key == *secret::PUBLIC_AUTHORITIES)
        {
            Some((_, text)) => secret::read_public_trust(text).map(|trust| trust.map(share)),
            None => Ok(None),
        };
        let pairs = pairs.into_iter();
        let mut data: Vec<_> = pairs.filter(|(key, _)| is_kept(key)).collect();
        data.sort();
        Ok(ConfigMap {
            meta: raw.metadata.check(ObjectKind::ConfigMap)?,
            data: data.into(),
            fields,
            trust,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, CONFIG_MAP_KEYS, ConfigMap, HeaderFields, SecretProblem};

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

    #[test]
    fn authorities_are_kept_and_equal_ones_once() {
        let read = |text: &str| -> ConfigMap {
            let value = serde_json::json!({"metadata": {"name": "a"}, "data": {"ca.crt": text}});
            serde_json::from_value(value).expect("a ConfigMap")
        };
        let pem = |base64: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n")
        };
        let trust = |text: &str| read(text).trust.expect("authorities").expect("some");
        let (one, same) = (trust(&pem("AAEC")), trust(&pem("AAEC")));
        assert_eq!(&*one.roots[0], [0, 1, 2]);
        assert!(Arc::ptr_eq(&one, &same));
        let both = trust(&format!("{}{}", pem("AAEC"), pem("AAED")));
        assert_eq!(both.roots.len(), 2);
        assert_eq!(read(" \n").trust, Ok(None));
        for text in [
            "x",
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(read(text).trust, Err(SecretProblem::NotPem("ca.crt")));
        }
    }

    #[test]
    fn what_a_field_can_have_is_kept_up_to_a_bound() {
        let read = |data: &serde_json::Value| -> HeaderFields {
            let value = serde_json::json!({"metadata": {"name": "a"}, "data": data});
            let map: ConfigMap = serde_json::from_value(value).expect("a ConfigMap");
            map.fields
        };
        let data = serde_json::json!({"X-B": " b \n", "X-A": "", "ca.crt": "1\n2", "é": "ü"});
        let entries = [
            ("X-A", Some("")),
            ("X-B", Some("b")),
            ("ca.crt", None),
            ("é", None),
        ];
        let fields = read(&data);
        let found = fields.entries.iter();
        let found: Vec<_> = found.map(|(name, it)| (&**name, it.as_deref())).collect();
        assert_eq!(found, entries);
        let many = |count: usize| {
            let pairs = (0..count).map(|at| (format!("x-{at}"), "a".into()));
            serde_json::Value::Object(pairs.collect())
        };
        assert_eq!(read(&many(64)).entries.len(), HeaderFields::ENTRIES_MAX);
        let none = HeaderFields {
            entries: Box::default(),
            is_too_long: true,
        };
        assert_eq!(read(&many(65)), none);
        // A name of three bytes, and four that separate.
        let long = |bytes: usize| serde_json::json!({"x-a": "a".repeat(bytes)});
        assert!(!read(&long(HeaderFields::BYTES_MAX - 7)).is_too_long);
        assert_eq!(read(&long(HeaderFields::BYTES_MAX - 6)), none);
    }
}
