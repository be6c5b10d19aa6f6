//! The objects of the mesh: namespaces with Services, a Sidecar, and Pods of which nothing runs.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Value, json};

use super::sidecars::Told;
use crate::cluster::api::{Api, Write};
use crate::pods::mesh::Mesh;

/// The service account of all Pods of a namespace.
const ACCOUNT: &str = "app";

/// How long tokens hold, in seconds: longer than any run.
const TOKEN_SECONDS: u64 = 24 * 3_600;

/// The first port that is added to a Service; its number tells which change it was.
pub(super) const FIRST_PORT: u32 = 20_000;

/// The first byte of addresses whose others tell which change it was.
pub(super) const TELLING: u8 = 11;

/// How long a definition may take until it is served.
const SERVED_TIMEOUT: Duration = Duration::from_secs(30);

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The objects that exist.
pub(super) struct Setup {
    prefix: String,
    namespaces: usize,
    /// How many each namespace has.
    pub services_of_each: usize,
    pods: Vec<Pod>,
}

/// A Pod, of which there is a name alone.
#[derive(Clone)]
pub(super) struct Pod {
    /// The number of its namespace.
    pub namespace: usize,
    /// Its name.
    pub name: String,
    /// The token that its sidecar shows.
    pub token: String,
}

impl Setup {
    /// Creates namespaces and what they have, but for Pods.
    ///
    /// # Errors
    /// The API server refuses.
    pub(super) fn prepare(
        mesh: &Mesh,
        services: usize,
        namespaces: usize,
    ) -> anyhow::Result<Setup> {
        define(mesh)?;
        let setup = Setup {
            prefix: mesh.namespace.clone(),
            namespaces,
            services_of_each: services / namespaces,
            pods: Vec::new(),
        };
        let create = |api: Api, number: usize| {
            let writes = setup.namespace(number);
            async move {
                for (list, object) in writes {
                    api.call(Method::POST, &list, Some(&object)).await?;
                }
                Ok(())
            }
        };
        let created = mesh.api.for_each(0..namespaces, create);
        mesh.runtime.block_on(created)?;
        Ok(setup)
    }

    /// Creates so many Pods, through the namespaces in turn.
    ///
    /// # Errors
    /// The API server refuses.
    pub(super) fn add_pods(&mut self, mesh: &Mesh, count: usize) -> anyhow::Result<()> {
        let pods = std::sync::Mutex::new(Vec::new());
        let create = |api: Api, number: usize| {
            let (namespace, pod) = (number % self.namespaces, self.pod_object(number));
            let name = format!("w{number}");
            let core = format!("/api/v1/namespaces/{}", self.name(namespace));
            let pods = &pods;
            async move {
                let list = format!("{core}/pods");
                api.call(Method::POST, &list, Some(&pod)).await?;
                let spec = json!({
                    "audiences": ["myriad"],
                    "expirationSeconds": TOKEN_SECONDS,
                    "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name},
                });
                let path = format!("{core}/serviceaccounts/{ACCOUNT}/token");
                let request = json!({"spec": spec});
                let answer = api.call(Method::POST, &path, Some(&request)).await?;
                let token = answer.pointer("/status/token").and_then(Value::as_str);
                let token = token.context("there is a token")?.to_owned();
                let pod = Pod {
                    namespace,
                    name,
                    token,
                };
                if let Ok(mut pods) = pods.lock() {
                    pods.push((number, pod));
                }
                Ok(())
            }
        };
        let created = mesh.api.for_each(0..count, create);
        mesh.runtime.block_on(created)?;
        let mut pods = pods.into_inner().unwrap_or_default();
        pods.sort_by_key(|(number, _)| *number);
        self.pods = pods.into_iter().map(|(_, pod)| pod).collect();
        Ok(())
    }

    /// A Pod.
    ///
    /// # Errors
    /// There is none of this number.
    pub(super) fn pod(&self, number: usize) -> anyhow::Result<Pod> {
        let pod = self.pods.get(number);
        Ok(pod.context("there are so many Pods")?.clone())
    }

    /// The path of a Pod.
    pub(super) fn path(&self, pod: &Pod) -> String {
        let namespace = self.name(pod.namespace);
        format!("/api/v1/namespaces/{namespace}/pods/{}", pod.name)
    }

    /// A change of a Service, or of its endpoints, and the number of its namespace.
    pub(super) fn change(&self, turn: u32, what: Told) -> (usize, Write) {
        let at = turn as usize;
        let namespace = at % self.namespaces;
        let service = at / self.namespaces % self.services_of_each;
        let (list, object) = match what {
            Told::Endpoint => self.slice(namespace, service, turn),
            Told::Port => {
                let more = json!({"name": "http-more", "port": FIRST_PORT + turn});
                self.service(namespace, service, Some(more))
            }
        };
        let write = Write {
            method: Method::PUT,
            path: format!("{list}/s{service}"),
            body: Some(object.to_string().into_bytes()),
        };
        (namespace, write)
    }

    /// Deletes all namespaces; what is in them goes in its own time.
    ///
    /// # Errors
    /// The API server refuses.
    pub(super) fn leave(&self, mesh: &Mesh) -> anyhow::Result<()> {
        let mut names: Vec<String> = (0..self.namespaces).map(|it| self.name(it)).collect();
        names.push(mesh.namespace.clone());
        let delete = |api: Api, name: String| async move {
            let path = format!("/api/v1/namespaces/{name}");
            api.call(Method::DELETE, &path, None).await.map(drop)
        };
        let deleted = mesh.api.for_each(names.into_iter(), delete);
        mesh.runtime.block_on(deleted)
    }

    fn name(&self, namespace: usize) -> String {
        format!("{}-{namespace}", self.prefix)
    }

    /// Lists, and objects to create there, in order.
    fn namespace(&self, number: usize) -> Vec<(String, Value)> {
        let name = self.name(number);
        let sidecars = format!("/apis/networking.istio.io/v1/namespaces/{name}/sidecars");
        let mut all = vec![
            (
                "/api/v1/namespaces".to_owned(),
                json!({"metadata": {"name": name}}),
            ),
            (
                format!("/api/v1/namespaces/{name}/serviceaccounts"),
                json!({"metadata": {"name": ACCOUNT}}),
            ),
            (
                sidecars,
                json!({
                    "apiVersion": "networking.istio.io/v1",
                    "kind": "Sidecar",
                    "metadata": {"name": "default"},
                    "spec": {"egress": [{"hosts": ["./*"]}]},
                }),
            ),
        ];
        for service in 0..self.services_of_each {
            all.push(self.service(number, service, None));
            all.push(self.slice(number, service, 0));
        }
        all
    }

    fn service(&self, namespace: usize, number: usize, more: Option<Value>) -> (String, Value) {
        let name = format!("s{number}");
        let mut ports = vec![json!({"name": "http", "port": 80, "targetPort": 8080})];
        ports.extend(more);
        let object = json!({
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": ports},
        });
        let list = format!("/api/v1/namespaces/{}/services", self.name(namespace));
        (list, object)
    }

    /// Two endpoints; the address of the second tells which change it was.
    fn slice(&self, namespace: usize, number: usize, turn: u32) -> (String, Value) {
        let space = self.name(namespace);
        let name = format!("s{number}");
        // The first Pod of the Service, whose sidecar speaks mutual TLS.
        let pod = format!("w{}", namespace + number * self.namespaces);
        let [_, high, middle, low] = turn.to_be_bytes();
        let telling = Ipv4Addr::new(TELLING, high, middle, low);
        let object = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": ["10.200.0.1"],
                    "conditions": {"ready": true},
                    "targetRef": {"kind": "Pod", "name": pod, "namespace": space},
                },
                {"addresses": [telling], "conditions": {"ready": true}},
            ],
            "ports": [{"name": "http", "port": 8080}],
        });
        let list = format!("/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices");
        (list, object)
    }

    fn pod_object(&self, number: usize) -> Value {
        let service = number / self.namespaces % self.services_of_each;
        let name = format!("w{number}");
        let labels = json!({
            "app": format!("s{service}"),
            // One that parts views whatever selectors name.
            "app.kubernetes.io/name": name,
            "security.istio.io/tlsMode": "istio",
        });
        json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "serviceAccountName": ACCOUNT,
                "containers": [{"name": "app", "image": "app"}],
            },
        })
    }
}

/// Makes the API server know Sidecars, unless it does.
fn define(mesh: &Mesh) -> anyhow::Result<()> {
    let list = "/apis/networking.istio.io/v1/sidecars?limit=1";
    if mesh.call(Method::GET, list, None).is_ok() {
        return Ok(());
    }
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "sidecars.networking.istio.io"},
        "spec": {
            "group": "networking.istio.io",
            "scope": "Namespaced",
            "names": {"kind": "Sidecar", "plural": "sidecars", "singular": "sidecar"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    mesh.call(Method::POST, definitions, Some(&definition))?;
    let begun = Instant::now();
    while mesh.call(Method::GET, list, None).is_err() {
        if begun.elapsed() > SERVED_TIMEOUT {
            bail!("Sidecars are not served");
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}
