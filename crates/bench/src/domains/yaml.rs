//! The objects of a domain as people write them.

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::layout::{EDITED_PATH, Site};
use super::{Domain, NAMESPACE, Pair};

/// The documents of a domain: Ingress, Service, EndpointSlice, and Secret where it has a
/// certificate of its own. Each begins with its separator.
pub fn documents(domain: &Domain, issuer: &[u8]) -> String {
    ingress_document(&Site::of(domain), false) + &need_documents(domain, issuer)
}

/// The Ingress of a domain, separator first; an edited one has a path more.
pub(super) fn ingress_document(site: &Site, is_edited: bool) -> String {
    let Site {
        name, host, secret, ..
    } = site;
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
"
    );
    let edited = is_edited.then_some(EDITED_PATH);
    for path in ["/"].into_iter().chain(edited) {
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "      - path: {path}
        pathType: Prefix
        backend:
          service:
            name: {name}
            port:
              number: 80
"
        );
    }
    text
}

/// The documents that an Ingress or a route of a domain needs: Service, EndpointSlice, and Secret
/// where it has a certificate of its own.
pub(super) fn need_documents(domain: &Domain, issuer: &[u8]) -> String {
    let name = domain.name();
    let (address, port) = (domain.endpoint.ip(), domain.endpoint.port());
    let mut text = format!(
        "---
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
