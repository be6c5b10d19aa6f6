//! Objects that are made for an object of a tenant: the service account, the network policy, the
//! Deployment with its autoscaler and the Services of a Gateway with proxies of its own, and the
//! roots that these know controllers by.
//!
//! An object is read before it is written, and a write names the object that was read, so that one
//! of the same name which somebody else has made is never taken over.

use http::Method;
use myriad_api::ObjectKey;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{CallError, Client};
use super::own::address;
use super::path::escape;
use super::status::Address;

/// Objects that one page of a list has.
const PAGE_ITEMS: u32 = 100;

/// The kind of such an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MadeKind {
    /// `v1`.
    ServiceAccount,
    /// `networking.k8s.io/v1`.
    NetworkPolicy,
    /// `apps/v1`.
    Deployment,
    /// `autoscaling/v2`.
    HorizontalPodAutoscaler,
    /// `v1`.
    Service,
    /// `v1`.
    ConfigMap,
}

/// An object that has the label by which it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeObject {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// The names of the Gateways among its owners, each with its UID.
    pub gateways: Vec<(Box<str>, Box<str>)>,
    /// The addresses of a Service.
    pub addresses: Vec<Address>,
}

impl MadeKind {
    /// The kinds that a single object always has for itself, in the order in which they are made.
    pub const OWN: [MadeKind; 4] = [
        MadeKind::ServiceAccount,
        MadeKind::NetworkPolicy,
        MadeKind::Deployment,
        MadeKind::Service,
    ];

    /// The kind as written in `kind:`.
    pub fn as_str(self) -> &'static str {
        match self {
            MadeKind::ServiceAccount => "ServiceAccount",
            MadeKind::NetworkPolicy => "NetworkPolicy",
            MadeKind::Deployment => "Deployment",
            MadeKind::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            MadeKind::Service => "Service",
            MadeKind::ConfigMap => "ConfigMap",
        }
    }

    /// The group and version.
    pub fn api_version(self) -> &'static str {
        match self {
            MadeKind::Deployment => "apps/v1",
            MadeKind::HorizontalPodAutoscaler => "autoscaling/v2",
            MadeKind::NetworkPolicy => "networking.k8s.io/v1",
            MadeKind::ServiceAccount | MadeKind::Service | MadeKind::ConfigMap => "v1",
        }
    }

    /// The path of all of them in a namespace, or in all.
    fn collection(self, namespace: Option<&str>) -> String {
        let (root, plural) = match self {
            MadeKind::ServiceAccount => ("/api/v1", "serviceaccounts"),
            MadeKind::NetworkPolicy => ("/apis/networking.k8s.io/v1", "networkpolicies"),
            MadeKind::Deployment => ("/apis/apps/v1", "deployments"),
            MadeKind::HorizontalPodAutoscaler => {
                ("/apis/autoscaling/v2", "horizontalpodautoscalers")
            }
            MadeKind::Service => ("/api/v1", "services"),
            MadeKind::ConfigMap => ("/api/v1", "configmaps"),
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{}/{plural}", escape(namespace)),
            None => format!("{root}/{plural}"),
        }
    }
}

impl Client {
    /// An object of a kind that is watched, as the API server has it now.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn read_object(&self, key: &ObjectKey) -> Result<Option<Value>, CallError> {
        let namespace = Some(key.namespace()).filter(|it| !it.is_empty());
        let collection = self.collection(key.kind, namespace);
        let path = format!("{collection}/{}", escape(key.name()));
        self.read_value(&path).await
    }

    /// An object that may have been made, as it is now.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn made(
        &self,
        kind: MadeKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, CallError> {
        let path = format!("{}/{}", kind.collection(Some(namespace)), escape(name));
        self.read_value(&path).await
    }

    /// Makes an object have these fields, as a field manager, and returns it: one that was read,
    /// which is given, or a new one where there was none.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if there is another one by now, or a newer version than the fields
    /// name; see [`CallError`].
    pub async fn apply_made(
        &self,
        kind: MadeKind,
        manager: &str,
        (wanted, read): (&Value, Option<&Value>),
    ) -> Result<Value, CallError> {
        let metadata = &wanted["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let name = metadata["name"].as_str().unwrap_or_default();
        let collection = kind.collection(Some(namespace));
        let mut path = format!(
            "{collection}/{}?fieldManager={}",
            escape(name),
            escape(manager)
        );
        let mut wanted = wanted.clone();
        if let Some(read) = read {
            // Fields that others have set on an object of ours are ours all the same.
            path.push_str("&force=true");
            wanted["metadata"]["uid"] = read["metadata"]["uid"].clone();
        }
        let body = wanted.to_string().into_bytes();
        let body = Some(("application/apply-patch+yaml", body));
        let written = self.call(Method::PATCH, &path, body).await?;
        parse(&written)
    }

    /// Removes an object that was read; one that is gone is no error.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if there is another one by now; see [`CallError`].
    pub async fn unmake(&self, kind: MadeKind, read: &Value) -> Result<(), CallError> {
        let metadata = &read["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let name = metadata["name"].as_str().unwrap_or_default();
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": metadata["uid"]},
        });
        let body = Some(("application/json", options.to_string().into_bytes()));
        let path = format!("{}/{}", kind.collection(Some(namespace)), escape(name));
        match self.call(Method::DELETE, &path, body).await {
            Ok(_) | Err(CallError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The objects of a kind that have a label, in the namespaces that are watched.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn made_with(
        &self,
        kind: MadeKind,
        (label, value): (&str, &str),
    ) -> Result<Vec<MadeObject>, CallError> {
        let selector = escape(&format!("{label}={value}"));
        let namespaces = self.namespaces();
        let all: Vec<Option<&str>> = match namespaces.is_empty() {
            true => vec![None],
            false => namespaces.iter().map(|it| Some(&**it)).collect(),
        };
        let mut found = Vec::new();
        for namespace in all {
            let collection = kind.collection(namespace);
            let first = format!("{collection}?limit={PAGE_ITEMS}&labelSelector={selector}");
            let mut path = first.clone();
            loop {
                let body = self.call(Method::GET, &path, None).await?;
                let page: Page = serde_json::from_slice(&body).map_err(|_| unreadable())?;
                found.extend(page.items.iter().filter_map(made_object));
                if page.metadata.next.is_empty() {
                    break;
                }
                path = format!("{first}&continue={}", escape(&page.metadata.next));
            }
        }
        Ok(found)
    }

    async fn read_value(&self, path: &str) -> Result<Option<Value>, CallError> {
        match self.call(Method::GET, path, None).await {
            Ok(body) => parse(&body).map(Some),
            Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The addresses of a Service: those of its load balancer or, where it has none, its own.
pub fn service_addresses(service: &Value) -> Vec<Address> {
    if service["spec"]["type"] == "LoadBalancer" {
        let entries = service["status"]["loadBalancer"]["ingress"].as_array();
        return entries.into_iter().flatten().filter_map(address).collect();
    }
    let own = service["spec"]["clusterIPs"].as_array();
    let own = own.into_iter().flatten().filter_map(Value::as_str);
    own.filter_map(|ip| Some(Address::Ip(ip.parse().ok()?)))
        .collect()
}

fn made_object(item: &Value) -> Option<MadeObject> {
    let metadata = &item["metadata"];
    let owners = metadata["ownerReferences"].as_array();
    let gateways = owners.into_iter().flatten().filter_map(|owner| {
        let is_gateway = owner["kind"] == "Gateway"
            && owner["apiVersion"]
                .as_str()
                .is_some_and(|it| it.starts_with("gateway.networking.k8s.io/"));
        let name = owner["name"].as_str().filter(|_| is_gateway)?;
        Some((name.into(), owner["uid"].as_str()?.into()))
    });
    Some(MadeObject {
        namespace: metadata["namespace"].as_str()?.into(),
        name: metadata["name"].as_str()?.into(),
        gateways: gateways.collect(),
        addresses: service_addresses(item),
    })
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

fn parse(body: &[u8]) -> Result<Value, CallError> {
    serde_json::from_slice(body).map_err(|_| unreadable())
}

fn unreadable() -> CallError {
    CallError::Lost("the answer is not what the API promises".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{made_object, service_addresses};
    use crate::kubernetes::status::Address;

    #[test]
    fn a_service_has_the_addresses_of_its_balancer_or_its_own() {
        let mut service = json!({
            "spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1", "fd00::1"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "a.b"}, 7]}},
        });
        let ip = |text: &str| Address::Ip(text.parse().expect("an address"));
        let balancer = [ip("192.0.2.1"), Address::Hostname("a.b".into())];
        assert_eq!(service_addresses(&service), balancer);
        service["status"] = json!({});
        assert_eq!(service_addresses(&service), []);
        service["spec"]["type"] = "ClusterIP".into();
        assert_eq!(service_addresses(&service), [ip("10.0.0.1"), ip("fd00::1")]);
        service["spec"]["clusterIPs"] = json!(["None"]);
        assert_eq!(service_addresses(&service), []);
        assert_eq!(service_addresses(&json!("odd")), []);
    }

    #[test]
    fn the_gateways_among_the_owners_of_an_object_are_told_from_others() {
        let owner = |version: &str, kind: &str, name: &str| {
            let version = version.to_owned();
            json!({"apiVersion": version, "kind": kind, "name": name, "uid": "u"})
        };
        let item = json!({"metadata": {
            "namespace": "n",
            "name": "a-myriad",
            "ownerReferences": [
                owner("gateway.networking.k8s.io/v1", "Gateway", "a"),
                owner("networking.istio.io/v1", "Gateway", "b"),
                owner("apps/v1", "ReplicaSet", "c"),
            ],
        }});
        let found = made_object(&item).expect("an object");
        let expected = ("a", "u");
        let found = found.gateways.iter().map(|(name, uid)| (&**name, &**uid));
        assert_eq!(found.collect::<Vec<_>>(), [expected]);
        assert_eq!(made_object(&json!({"metadata": {"name": "a"}})), None);
    }
}
