//! Istio's objects as people write them, and a world behind a Gateway for `a.test`.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use myriad_lab::port::free_port;

use crate::authority::{Authority, Pair};
use crate::world::World;

/// A destination of the Service `api`, as it stands in a rule.
pub const TO: &str = "route: [{destination: {host: api, port: {number: 80}}}]";

/// The file of a scene's VirtualService on `a.test`.
pub const RULES: &str = "rules.yaml";

/// The objects that are served, under construction: a Gateway `edge`, a Service `api` and the rest,
/// all in the namespace `default`.
pub struct Scene {
    authority: Authority,
    servers: Vec<String>,
    rules: String,
    own: String,
    objects: String,
    arguments: Vec<String>,
    mesh: Option<String>,
}

impl Default for Scene {
    fn default() -> Self {
        Scene::new()
    }
}

impl Scene {
    /// Both doors to `a.test`, with a certificate, and a rule that leads all to the Service `api`.
    pub fn new() -> Scene {
        let authority = Authority::new();
        let own = authority.issue(&["a.test"]);
        let servers = [
            "port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]",
            "port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.test], tls: {mode: \
             SIMPLE, credentialName: own}",
        ];
        Scene {
            authority,
            servers: servers.map(str::to_owned).to_vec(),
            rules: rules(&[TO]),
            own: credential("own", &own, &[]),
            objects: String::new(),
            arguments: Vec::new(),
            mesh: None,
        }
    }

    /// The authority that its clients trust.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The endpoints of the Service `api`.
    #[must_use]
    pub fn to(self, endpoints: &[SocketAddr]) -> Scene {
        let text = service("api", endpoints);
        self.with(&text)
    }

    /// Other servers of the Gateway than both doors to `a.test`, a flow mapping each.
    #[must_use]
    pub fn servers(mut self, servers: &[&str]) -> Scene {
        self.servers = servers.iter().map(|&it| it.to_owned()).collect();
        self
    }

    /// Another Secret `own` for its hosts: this certificate, and further entries.
    #[must_use]
    pub fn own(mut self, pair: &Pair, more: &[(&str, &str)]) -> Scene {
        self.own = credential("own", pair, more);
        self
    }

    /// Other rules, a flow mapping each.
    #[must_use]
    pub fn rules(mut self, written: &[&str]) -> Scene {
        self.rules = rules(written);
        self
    }

    /// Another object, or some.
    #[must_use]
    pub fn with(mut self, object: &str) -> Scene {
        self.objects += object;
        self
    }

    /// A further argument of the command line.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Scene {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Settings of the mesh, as the file of `--mesh-config` has them.
    #[must_use]
    pub fn mesh(mut self, text: &str) -> Scene {
        self.mesh = Some(text.to_owned());
        self
    }

    /// Serves it: the rules are in [`RULES`], the rest in `base.yaml`.
    ///
    /// # Panics
    /// Where the app does not start.
    pub async fn serve(mut self) -> World {
        let servers: Vec<&str> = self.servers.iter().map(String::as_str).collect();
        let base = gateway("edge", &servers) + &self.own + &self.objects;
        let files = [("base.yaml", base), (RULES, self.rules)];
        // Read once, at the start.
        let directory = tempfile::tempdir().expect("a directory");
        if let Some(mesh) = &self.mesh {
            let path = directory.path().join("mesh.yaml");
            std::fs::write(&path, mesh).expect("a file");
            let path = path.to_str().expect("a path in UTF-8");
            self.arguments.push(format!("--mesh-config={path}"));
        }
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        World::serve_with(self.authority, &files, &arguments).await
    }
}

/// A Gateway with these servers, a flow mapping each.
pub fn gateway(name: &str, servers: &[&str]) -> String {
    let servers: String = servers.iter().map(|it| format!("  - {{{it}}}\n")).collect();
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: {name}, \
         namespace: default}}\nspec:\n  selector: {{istio: ingressgateway}}\n  servers:\n{servers}"
    )
}

/// A VirtualService on `a.test` with these rules, a flow mapping each.
pub fn rules(written: &[&str]) -> String {
    virtual_service("a", "hosts: [a.test], gateways: [edge]", "http", written)
}

/// A VirtualService with rules of one kind: `http`, `tls` or `tcp`.
pub fn virtual_service(name: &str, spec: &str, kind: &str, written: &[&str]) -> String {
    object(
        "networking.istio.io/v1",
        "VirtualService",
        name,
        &format!("{spec}, {kind}: [{{{}}}]", written.join("}, {")),
    )
}

/// An object of the namespace `default`, its spec as the inside of a flow mapping.
pub fn object(version: &str, kind: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: \
         default}}\nspec: {{{spec}}}\n"
    )
}

/// A DestinationRule for a host.
pub fn destination_rule(host: &str, rest: &str) -> String {
    let spec = format!("host: {host}, {rest}");
    object("networking.istio.io/v1", "DestinationRule", host, &spec)
}

/// A policy of the gateway: an object of `istio-system`.
pub fn policy(kind: &str, name: &str, spec: &str) -> String {
    object("security.istio.io/v1", kind, name, spec)
        .replace("namespace: default", "namespace: istio-system")
}

/// A Service of port 80 with these endpoints.
pub fn service(name: &str, endpoints: &[SocketAddr]) -> String {
    service_speaking("http", name, endpoints)
}

/// A Service whose port has a name, which says what is spoken.
pub fn service_speaking(port: &str, name: &str, endpoints: &[SocketAddr]) -> String {
    let spec = format!("clusterIP: None, ports: [{{name: {port}, port: 80}}]");
    let mut text = object("v1", "Service", name, &spec);
    for (number, endpoint) in endpoints.iter().enumerate() {
        text += &format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: \
             {name}-{number}, namespace: default, labels: {{kubernetes.io/service-name: \
             {name}}}}}\naddressType: IPv4\nendpoints: [{{addresses: ['{}']}}]\nports: [{{name: \
             {port}, port: {}}}]\n",
            endpoint.ip(),
            endpoint.port()
        );
    }
    text
}

/// A Secret with a certificate and its key, and further entries.
pub fn credential(name: &str, pair: &Pair, more: &[(&str, &str)]) -> String {
    let own = [("tls.crt", &*pair.certificate), ("tls.key", &*pair.key)];
    let entries: Vec<_> = own.iter().chain(more).copied().collect();
    secret(name, "kubernetes.io/tls", &entries)
}

/// A Secret of a type with these entries.
pub fn secret(name: &str, kind: &str, entries: &[(&str, &str)]) -> String {
    let entries: String = entries
        .iter()
        .map(|(key, value)| format!("  {key}: {}\n", STANDARD.encode(value)))
        .collect();
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: \
         default}}\ntype: {kind}\ndata:\n{entries}"
    )
}
