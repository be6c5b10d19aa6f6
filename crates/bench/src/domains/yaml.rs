//! The objects of a domain as people write them.

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Domain, NAMESPACE, Pair, SHARED_SECRET};

/// The documents of a domain: Ingress, Service, EndpointSlice, and Secret where it has a
/// certificate of its own. Each begins with its separator.
pub fn documents(domain: &Domain, issuer: &[u8]) -> String {
    let (name, host) = (domain.name(), &domain.host);
    let secret = match &domain.own {
        Some(_) => &name,
        None => SHARED_SECRET,
    };
    let (address, port) = (domain.endpoint.ip(), domain.endpoint.port());
    let mut text = format!(
        "---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {name}
  namespace: {NAMESPACE}
spec:
  tls:
  - hosts:
    - {host}
    secretName: {secret}
  rules:
  - host: {host}
    http:
      paths:
      - path: /
        pathType: Prefix
        backend:
          service:
            name: {name}
            port:
              number: 80
---
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: {NAMESPACE}
spec:
  ports:
  - name: http
    port: 80
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}-1
  namespace: {NAMESPACE}
  labels:
    kubernetes.io/service-name: {name}
addressType: IPv4
endpoints:
- addresses:
  - {address}
ports:
- name: http
  port: {port}
"
    );
    if let Some(pair) = &domain.own {
        text.push_str(&secret_document(&name, pair, issuer));
    }
    text
}

/// A TLS Secret, separator first.
pub fn secret_document(name: &str, pair: &Pair, issuer: &[u8]) -> String {
    let certificates = pem("CERTIFICATE", &pair.leaf) + &pem("CERTIFICATE", issuer);
    let key = pem("PRIVATE KEY", &pair.key);
    format!(
        "---
apiVersion: v1
kind: Secret
metadata:
  name: {name}
  namespace: {NAMESPACE}
type: kubernetes.io/tls
data:
  tls.crt: {}
  tls.key: {}
",
        STANDARD.encode(certificates),
        STANDARD.encode(key),
    )
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        rest = after;
        // Writing to a String does not fail.
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "-----END {label}-----");
    text
}
