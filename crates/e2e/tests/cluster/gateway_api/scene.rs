//! The scene that the stories share: a platform's Gateway, and tenants with hosts of their own.

use std::fmt::Write as _;
use std::time::Duration;

use myriad_e2e::Backend;
use myriad_e2e::cluster::{Api, Cluster, Process};
use myriad_e2e::world::eventually;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::site;

/// The group of the kinds.
pub(super) const GROUP: &str = "gateway.networking.k8s.io";

/// The condition that an object is served as it is.
pub(super) const LIVE: &str = "myriad.dev/Live";

/// The address of the Service of the proxies.
pub(super) const ADDRESS: &str = "192.0.2.9";

/// Between two looks at an object, so that the API server is left to the others.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The kinds of the stories.
const KINDS: [&str; 5] = [
    "gatewayclasses",
    "gateways",
    "httproutes",
    "listenersets",
    "referencegrants",
];

/// Definitions are of the whole cluster, so they are installed once, and stay.
static INSTALLED: OnceCell<()> = OnceCell::const_new();

/// A story's part of the cluster, with the endpoint of all its hosts and a class of its own.
pub(super) struct Scene {
    pub cluster: Cluster,
    pub api: Api,
    _endpoint: Backend,
}

impl Scene {
    /// Before any controller runs.
    pub(super) async fn set() -> Scene {
        let cluster = Cluster::join().await;
        INSTALLED.get_or_init(|| install(&cluster)).await;
        let endpoint = Backend::start_at("endpoint", cluster.endpoint()).await;
        let api = cluster.api().await;
        let (class, home) = (cluster.class(), cluster.home());
        let controller = cluster.controller_name();
        let objects = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: proxies\n  namespace: {home}\n\
             spec:\n  type: LoadBalancer\n  ports: [{{port: 443}}]\n---\n\
             apiVersion: {GROUP}/v1\nkind: GatewayClass\nmetadata:\n  name: {class}\n\
             spec:\n  controllerName: {controller}\n"
        );
        api.apply(&objects).await;
        let service = format!("/api/v1/namespaces/{home}/services/proxies");
        let status = json!({"loadBalancer": {"ingress": [{"ip": ADDRESS}]}});
        api.set_status(&service, &status).await;
        Scene {
            cluster,
            api,
            _endpoint: endpoint,
        }
    }

    /// A controller and one proxy that follows it, both ready.
    pub(super) async fn serve(&self) -> (Process, Process) {
        let controller = self.cluster.controller(0).await;
        let proxy = self.cluster.proxy(0, "proxy", "myriad").await;
        self.cluster.ready(&proxy).await;
        (controller, proxy)
    }

    /// The platform's Gateway `edge`, which takes ListenerSets of all, with listeners beside its
    /// own.
    pub(super) fn gateway(&self, further: &[&str]) -> String {
        let (class, home) = (self.cluster.class(), self.cluster.home());
        let mut text = format!(
            "apiVersion: {GROUP}/v1\nkind: Gateway\n\
             metadata:\n  name: edge\n  namespace: {home}\n\
             spec:\n  gatewayClassName: {class}\n  \
             allowedListeners: {{namespaces: {{from: All}}}}\n  listeners:\n  \
             - {{name: platform, hostname: platform.test, port: 80, protocol: HTTP}}\n"
        );
        for listener in further {
            let _ = writeln!(text, "  - {{{listener}}}");
        }
        text
    }

    /// A ListenerSet for that Gateway.
    pub(super) fn listener_set(&self, (namespace, name): (&str, &str), of: &[&str]) -> String {
        let home = self.cluster.home();
        let mut text = format!(
            "apiVersion: {GROUP}/v1\nkind: ListenerSet\n\
             metadata:\n  name: {name}\n  namespace: {namespace}\n\
             spec:\n  parentRef: {{name: edge, namespace: {home}}}\n  listeners:\n"
        );
        for listener in of {
            let _ = writeln!(text, "  - {{{listener}}}");
        }
        text
    }

    /// A Service of a host with its endpoint and its certificate, all named after it.
    pub(super) fn backend(&self, namespace: &str, host: &str) -> String {
        let site = site(&self.cluster, host).namespace(namespace);
        // The Ingress goes first.
        site.documents().split_off(1).join("---\n")
    }

    /// All that a tenant writes for one host: `shop.test` at the ListenerSet `shop`, and the route
    /// `web`.
    pub(super) fn shop(&self, word: &str) -> String {
        let tenant = self.cluster.tenant();
        let objects = [
            self.backend(&tenant, "shop.test"),
            self.listener_set((&tenant, "shop"), &[&https("https", "shop.test")]),
            self.web(word),
        ];
        objects.join("---\n")
    }

    /// The route `web` of the tenant, whose endpoint is told this word.
    pub(super) fn web(&self, word: &str) -> String {
        let rules = telling(word, "", "shop-test");
        route(
            &self.cluster.tenant(),
            "web",
            "kind: ListenerSet, name: shop",
            &rules,
        )
    }

    /// The object at a path once it is as wanted.
    ///
    /// # Panics
    /// At the deadline, with the object as it is then.
    pub(super) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = eventually(async || {
            let object = self.api.get(path).await;
            if wanted(&object) {
                return Some(object);
            }
            last = object;
            tokio::time::sleep(LOOK_INTERVAL).await;
            None
        });
        match found.await {
            Some(object) => object,
            None => panic!("{path} is never as wanted: {last:#}"),
        }
    }

    /// Waits as a pipeline does, for so many seconds.
    ///
    /// # Errors
    /// The complaint of kubectl, where it has waited in vain.
    pub(super) async fn wait(
        &self,
        (namespace, object): (&str, &str),
        wanted: &str,
        seconds: u32,
    ) -> Result<(), String> {
        let (wanted, timeout) = (format!("--for={wanted}"), format!("--timeout={seconds}s"));
        let line = ["wait", object, "--namespace", namespace, &wanted, &timeout];
        self.cluster.try_kubectl(&line, "").await.map(drop)
    }
}

/// The definitions of all kinds, as the project has them.
async fn install(cluster: &Cluster) {
    let definitions = std::env::var("MYRIAD_GATEWAY_API_DEFINITIONS").expect(
        "MYRIAD_GATEWAY_API_DEFINITIONS is a file; `cargo xtask test --stage cluster` sets it",
    );
    let file = format!("--filename={definitions}");
    let line = ["apply", "--server-side", "--force-conflicts", &file];
    cluster.kubectl(&line).await;
    let names = KINDS.map(|kind| format!("customresourcedefinition/{kind}.{GROUP}"));
    let mut line = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    line.extend(names.iter().map(String::as_str));
    cluster.kubectl(&line).await;
}

/// An HTTPRoute at a parent, with all further lines of its `spec`.
pub(super) fn route(namespace: &str, name: &str, parent: &str, spec: &str) -> String {
    format!(
        "apiVersion: {GROUP}/v1\nkind: HTTPRoute\n\
         metadata:\n  name: {name}\n  namespace: {namespace}\n\
         spec:\n  parentRefs: [{{{parent}}}]\n{spec}"
    )
}

/// The rule that sends what is below a path to a Service, and tells it a word.
pub(super) fn telling(word: &str, path: &str, service: &str) -> String {
    format!(
        "  rules:\n  - matches: [{{path: {{value: /{path}}}}}]\n    filters:\n    \
         - type: RequestHeaderModifier\n      \
         requestHeaderModifier: {{set: [{{name: x-word, value: '{word}'}}]}}\n    \
         backendRefs: [{{name: {service}, port: 80}}]\n"
    )
}

/// A listener that ends TLS for a host, with the certificate that is named after it.
pub(super) fn https(name: &str, host: &str) -> String {
    https_by(name, host, &format!("name: {}", host.replace('.', "-")))
}

/// The same with a certificate by its reference.
pub(super) fn https_by(name: &str, host: &str, reference: &str) -> String {
    format!(
        "name: {name}, hostname: {host}, port: 443, protocol: HTTPS, \
         tls: {{certificateRefs: [{{{reference}}}]}}"
    )
}

/// The path of an object.
pub(super) fn at(plural: &str, namespace: &str, name: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/{namespace}/{plural}/{name}")
}

/// A condition of a list as `status/reason@generation`; empty where it is not there.
pub(super) fn told(conditions: &Value, kind: &str) -> String {
    let conditions = conditions.as_array().into_iter().flatten();
    let mut found = conditions.filter(|it| it["type"] == kind);
    let Some(found) = found.next() else {
        return String::new();
    };
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    let generation = found["observedGeneration"].as_i64().unwrap_or(0);
    format!("{}/{}@{generation}", text("status"), text("reason"))
}

/// `metadata.generation` of an object.
pub(super) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().expect("a number")
}

/// Whether an object, or a route at its only parent, is served as it is, and says so.
pub(super) fn is_live(object: &Value) -> bool {
    let status = &object["status"];
    let of_route = &status["parents"][0]["conditions"];
    let conditions = match of_route.is_null() {
        true => &status["conditions"],
        false => of_route,
    };
    let wanted = format!("True/Served@{}", generation(object));
    told(conditions, LIVE) == wanted
}

/// The version of an object, which every write changes.
pub(super) fn version(object: &Value) -> String {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.expect("a version").to_owned()
}
