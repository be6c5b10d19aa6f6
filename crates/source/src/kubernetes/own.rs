//! The controller's own objects: the authority that proxies know it by, and the keys that the
//! cluster signs tokens with.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::client::{CallError, Client};
use super::path::escape;

/// The path where the API server publishes the keys of service account tokens (JWK set, RFC 7517).
const TOKEN_KEYS_PATH: &str = "/openid/v1/jwks";

/// The path of MutatingWebhookConfigurations.
const WEBHOOKS_PATH: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

const JSON: &str = "application/json";

/// Text values of a Secret or ConfigMap, by key.
pub type Texts = BTreeMap<String, String>;

/// A Secret as it was read.
pub struct Secret {
    /// Its values.
    pub texts: Texts,
    /// Its resourceVersion, which a write rests on.
    pub version: Box<str>,
}

/// A ConfigMap as it was read.
pub struct OwnConfigMap {
    /// Its values.
    pub texts: Texts,
    /// Its resourceVersion, which a write rests on.
    pub version: Box<str>,
}

impl Client {
    /// The keys that tokens of service accounts are signed with, as a JWK set.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn token_keys(&self) -> Result<Bytes, CallError> {
        self.call(Method::GET, TOKEN_KEYS_PATH, None).await
    }

    /// A Secret.
    ///
    /// # Errors
    /// See [`CallError`]; a value that is no text is [`CallError::Rejected`].
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, CallError> {
        let path = format!("{}/{}", secrets(namespace), escape(name));
        let body = self.call(Method::GET, &path, None).await?;
        let read: Data = serde_json::from_slice(&body).map_err(|_| unreadable(name))?;
        let texts = read.data.into_iter().map(|(key, value)| {
            let bytes = STANDARD.decode(value).map_err(|_| unreadable(name))?;
            let text = String::from_utf8(bytes).map_err(|_| unreadable(name))?;
            Ok((key, text))
        });
        Ok(Secret {
            texts: texts.collect::<Result<_, CallError>>()?,
            version: read.metadata.resource_version,
        })
    }

    /// Makes a Secret that was read have these values. What it has beside them, labels for
    /// instance, stays.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if somebody else has written it since; see [`CallError`].
    pub async fn update_secret(
        &self,
        namespace: &str,
        name: &str,
        read: &Secret,
        texts: &Texts,
    ) -> Result<(), CallError> {
        let path = format!("{}/{}", secrets(namespace), escape(name));
        let patch = difference(read, texts).to_string().into_bytes();
        let body = Some(("application/merge-patch+json", patch));
        self.call(Method::PATCH, &path, body).await?;
        Ok(())
    }

    /// Creates a Secret of type `Opaque`.
    ///
    /// # Errors
    /// [`CallError::Conflict`] where there is one already; see [`CallError`].
    pub async fn create_secret(
        &self,
        namespace: &str,
        name: &str,
        texts: &Texts,
    ) -> Result<(), CallError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": namespace, "name": name},
            "type": "Opaque",
            "stringData": texts,
        });
        let body = Some((JSON, object.to_string().into_bytes()));
        self.call(Method::POST, &secrets(namespace), body).await?;
        Ok(())
    }

    /// A ConfigMap.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn config_map(&self, namespace: &str, name: &str) -> Result<OwnConfigMap, CallError> {
        let path = format!("{}/{}", config_maps(namespace), escape(name));
        let body = self.call(Method::GET, &path, None).await?;
        let read: Data = serde_json::from_slice(&body).map_err(|_| unreadable(name))?;
        Ok(OwnConfigMap {
            texts: read.data,
            version: read.metadata.resource_version,
        })
    }

    /// Writes values of a ConfigMap that was read, or creates it where there was none. What it has
    /// beside them stays.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if somebody else has written it since; see [`CallError`].
    pub async fn write_config_map(
        &self,
        namespace: &str,
        name: &str,
        read: Option<&OwnConfigMap>,
        texts: &Texts,
    ) -> Result<(), CallError> {
        let collection = config_maps(namespace);
        let Some(read) = read else {
            let object = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"namespace": namespace, "name": name},
                "data": texts,
            });
            let body = Some((JSON, object.to_string().into_bytes()));
            self.call(Method::POST, &collection, body).await?;
            return Ok(());
        };
        let patch = json!({"metadata": {"resourceVersion": read.version}, "data": texts});
        let patch = patch.to_string().into_bytes();
        let path = format!("{collection}/{}", escape(name));
        let body = Some(("application/merge-patch+json", patch));
        self.call(Method::PATCH, &path, body).await?;
        Ok(())
    }

    /// Gives a ConfigMap that is there a value, or takes it away, whatever else others write into
    /// it meanwhile.
    ///
    /// # Errors
    /// [`CallError::NotFound`] if there is no such ConfigMap; see [`CallError`].
    pub async fn patch_config_map(
        &self,
        namespace: &str,
        name: &str,
        (key, text): (&str, Option<&str>),
    ) -> Result<(), CallError> {
        let path = format!("{}/{}", config_maps(namespace), escape(name));
        let patch = json!({ "data": {key: text} }).to_string().into_bytes();
        let body = Some(("application/merge-patch+json", patch));
        self.call(Method::PATCH, &path, body).await?;
        Ok(())
    }

    /// Makes a ConfigMap have these values, and writes only where it has not.
    ///
    /// # Errors
    /// See [`CallError`]; after [`CallError::Conflict`] it is to be tried again.
    pub async fn put_config_map(
        &self,
        namespace: &str,
        name: &str,
        texts: &Texts,
    ) -> Result<(), CallError> {
        let collection = config_maps(namespace);
        let path = format!("{collection}/{}", escape(name));
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": name},
            "data": texts,
        });
        let (method, path) = match self.call(Method::GET, &path, None).await {
            Ok(body) => {
                let known: Value = serde_json::from_slice(&body).map_err(|_| unreadable(name))?;
                if known["data"] == object["data"] {
                    return Ok(());
                }
                object["metadata"]["resourceVersion"] =
                    known["metadata"]["resourceVersion"].clone();
                (Method::PUT, path)
            }
            Err(CallError::NotFound) => (Method::POST, collection),
            Err(error) => return Err(error),
        };
        let body = Some((JSON, object.to_string().into_bytes()));
        self.call(method, &path, body).await?;
        Ok(())
    }

    /// The namespaces that have a ConfigMap of this name, and whether it has these values. The
    /// question names it, so that a right to ConfigMaps of that name is enough.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn config_maps_named(
        &self,
        name: &str,
        texts: &Texts,
    ) -> Result<BTreeMap<String, bool>, CallError> {
        let selector = escape(&format!("metadata.name={name}"));
        let first = format!("/api/v1/configmaps?limit={PAGE_ITEMS}&fieldSelector={selector}");
        let (mut path, mut found) = (first.clone(), BTreeMap::new());
        loop {
            let body = self.call(Method::GET, &path, None).await?;
            let page: ConfigMaps = serde_json::from_slice(&body).map_err(|_| unreadable(name))?;
            let items = page.items.into_iter();
            found.extend(items.map(|item| (item.metadata.namespace, item.data == *texts)));
            if page.metadata.next.is_empty() {
                return Ok(found);
            }
            path = format!("{first}&continue={}", escape(&page.metadata.next));
        }
    }

    /// Makes every webhook of a MutatingWebhookConfiguration be known by these roots, as PEM, and
    /// writes only where one is not.
    ///
    /// # Errors
    /// See [`CallError`]; after [`CallError::Conflict`] it is to be tried again.
    pub async fn put_webhook_authority(&self, name: &str, bundle: &str) -> Result<(), CallError> {
        let path = format!("{WEBHOOKS_PATH}/{}", escape(name));
        let body = self.call(Method::GET, &path, None).await?;
        let mut object: Value = serde_json::from_slice(&body).map_err(|_| unreadable(name))?;
        let bundle = Value::from(STANDARD.encode(bundle));
        let mut is_written = true;
        let webhooks = object["webhooks"].as_array_mut();
        for webhook in webhooks.into_iter().flatten() {
            let known = &mut webhook["clientConfig"]["caBundle"];
            is_written &= *known == bundle;
            *known = bundle.clone();
        }
        if is_written {
            return Ok(());
        }
        let body = Some((JSON, object.to_string().into_bytes()));
        self.call(Method::PUT, &path, body).await?;
        Ok(())
    }

    /// Where traffic for a Service arrives, as its load balancer's status says.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn load_balancer(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<super::status::Address>, CallError> {
        let path = format!(
            "/api/v1/namespaces/{}/services/{}",
            escape(namespace),
            escape(name)
        );
        let body = self.call(Method::GET, &path, None).await?;
        let read: Value = serde_json::from_slice(&body).map_err(|_| unreadable(name))?;
        let entries = read["status"]["loadBalancer"]["ingress"].as_array();
        let entries = entries.map(Vec::as_slice).unwrap_or_default();
        Ok(entries.iter().filter_map(address).collect())
    }
}

/// ConfigMaps that one page of a list has.
const PAGE_ITEMS: u32 = 100;

#[derive(Deserialize)]
struct ConfigMaps {
    metadata: Page,
    items: Vec<ConfigMap>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct ConfigMap {
    metadata: InNamespace,
    #[serde(default)]
    data: Texts,
}

#[derive(Deserialize)]
struct InNamespace {
    namespace: String,
}

#[derive(Deserialize)]
struct Data {
    metadata: Metadata,
    #[serde(default)]
    data: Texts,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Box<str>,
}

/// The merge patch (RFC 7396) that makes a Secret have these values. It is refused with 409 if
/// the Secret is not what was read any more.
fn difference(read: &Secret, texts: &Texts) -> Value {
    let changed = texts
        .iter()
        .filter(|(key, text)| read.texts.get(*key) != Some(*text));
    let changed = changed.map(|(key, text)| (key.clone(), Value::from(STANDARD.encode(text))));
    let removed = read.texts.keys().filter(|key| !texts.contains_key(*key));
    let removed = removed.map(|key| (key.clone(), Value::Null));
    json!({
        "metadata": {"resourceVersion": read.version},
        "data": changed.chain(removed).collect::<Map<_, _>>(),
    })
}

fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{}/configmaps", escape(namespace))
}

fn secrets(namespace: &str) -> String {
    format!("/api/v1/namespaces/{}/secrets", escape(namespace))
}

pub(super) fn address(entry: &Value) -> Option<super::status::Address> {
    let entry: &Map<String, Value> = entry.as_object()?;
    if let Some(ip) = entry.get("ip").and_then(Value::as_str) {
        return Some(super::status::Address::Ip(ip.parse().ok()?));
    }
    let hostname = entry.get("hostname")?.as_str()?;
    Some(super::status::Address::Hostname(hostname.into()))
}

fn unreadable(name: &str) -> CallError {
    CallError::Rejected(format!("{name} is not as it should be"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Secret, Texts, difference};

    #[test]
    fn a_secret_is_changed_only_where_it_differs_and_only_if_it_is_what_was_read() {
        let texts = |pairs: &[(&str, &str)]| -> Texts {
            let own = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
            pairs.iter().map(own).collect()
        };
        let read = Secret {
            texts: texts(&[("a", "1"), ("b", "2"), ("c", "3")]),
            version: "7".into(),
        };
        let patch = difference(&read, &texts(&[("a", "1"), ("b", "4"), ("d", "5")]));
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "data": {"b": "NA==", "d": "NQ==", "c": null},
        });
        assert_eq!(patch, expected);
    }
}
