//! The objects of the setup as its users write them.

use std::fmt::Write as _;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Domain, Served, path};

/// The namespace of a workspace.
pub(super) fn namespace(workspace: u32) -> String {
    format!("workspace-{workspace}")
}

/// The Service of a workspace and its endpoint.
pub(super) fn workspace(workspace: u32, endpoint: SocketAddr) -> String {
    let namespace = namespace(workspace);
    let (address, port) = (endpoint.ip(), endpoint.port());
    let family = if endpoint.is_ipv4() { "IPv4" } else { "IPv6" };
    format!(
        "apiVersion: v1
kind: Service
metadata:
  name: application
  namespace: {namespace}
spec:
  ports:
  - name: http
    port: 80
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: application-1
  namespace: {namespace}
  labels:
    kubernetes.io/service-name: application
addressType: {family}
endpoints:
- addresses:
  - {address}
ports:
- name: http
  port: {port}
"
    )
}

/// The Gateway, the VirtualService and the Secret of a domain, which is served without TLS as well
/// where that is wanted.
pub(super) fn domain(served: &Served, paths: u32, is_plain_too: bool) -> String {
    let domain = served.domain;
    let (namespace, name) = (namespace(domain.workspace), name(domain));
    let mut text = gateway(&namespace, &name, &[domain]);
    if is_plain_too {
        let host = domain.host();
        let _ = write!(
            text,
            "  - port:
      number: 80
      name: http
      protocol: HTTP
    hosts:
    - {host}
"
        );
    }
    text.push_str("---\n");
    text.push_str(&routes(served, paths, &name, "/"));
    text
}

/// A Gateway with a server for each of these domains.
pub(super) fn gateway(namespace: &str, name: &str, domains: &[Domain]) -> String {
    let mut text = format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata:
  name: {name}
  namespace: {namespace}
spec:
  selector:
    istio: ingressgateway
  servers:
"
    );
    for &domain in domains {
        let (host, credential) = (domain.host(), credential(domain));
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "  - port:
      number: 443
      name: https
      protocol: HTTPS
    hosts:
    - {host}
    tls:
      mode: SIMPLE
      credentialName: {credential}
"
        );
    }
    text
}

/// The VirtualService and the Secret of a domain. The first path is rewritten to `first`.
pub(super) fn routes(served: &Served, paths: u32, gateway: &str, first: &str) -> String {
    let domain = served.domain;
    let (namespace, name, host) = (namespace(domain.workspace), name(domain), domain.host());
    let mut text = format!(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: {name}
  namespace: {namespace}
spec:
  hosts:
  - {host}
  gateways:
  - {gateway}
  http:
"
    );
    for number in 0..paths {
        let rewrite = if number == 0 { first } else { "/" };
        push_route(&mut text, &path(number), rewrite, &namespace);
    }
    push_secret(&mut text, served);
    text
}

fn name(domain: Domain) -> String {
    format!("d{}", domain.number)
}

/// The name of a domain's Secret, which lies beside those of all other workspaces.
fn credential(domain: Domain) -> String {
    format!("{}-{}", namespace(domain.workspace), name(domain))
}

/// One rule: an exact path, for requests of the gateway's own workload.
fn push_route(text: &mut String, path: &str, rewrite: &str, namespace: &str) {
    let _ = write!(
        text,
        "  - match:
    - uri:
        exact: {path}
      sourceLabels:
        istio: ingressgateway
    rewrite:
      uri: {rewrite}
    route:
    - destination:
        host: application.{namespace}.svc.cluster.local
        port:
          number: 80
"
    );
}

/// The Secret, in the namespace of the gateway's workload, as Istio wants it.
fn push_secret(text: &mut String, served: &Served) {
    let (name, credential) = (credential(served.domain), &served.credential);
    let _ = write!(
        text,
        "---
apiVersion: v1
kind: Secret
metadata:
  name: {name}
  namespace: istio-system
type: kubernetes.io/tls
data:
  tls.crt: {}
  tls.key: {}
",
        STANDARD.encode(&credential.chain),
        STANDARD.encode(&credential.key),
    );
}
