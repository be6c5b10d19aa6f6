//! The objects of domains as a tenant of the cluster writes them.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::api::Write;
use crate::domains::{Domain, Pair, SHARED_SECRET, pem};

/// A namespace with an ingress class.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The namespace of all objects.
    pub namespace: String,
    /// The class of all Ingresses.
    pub class: String,
    /// The issuer's certificate in DER, which is sent with each leaf.
    pub issuer: Vec<u8>,
}

/// The kinds of objects that a domain is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The certificate.
    Secret,
    /// A headless Service: others slow down as they grow many.
    Service,
    /// Its only slice.
    EndpointSlice,
    /// The Ingress, which makes the domain live.
    Ingress,
}

impl Kind {
    /// The objects that the Ingress needs, in the order in which they are written.
    pub const NEEDS: [Kind; 3] = [Kind::Secret, Kind::Service, Kind::EndpointSlice];

    fn list(self, namespace: &str) -> String {
        let (group, plural) = match self {
            Kind::Secret => ("/api/v1", "secrets"),
            Kind::Service => ("/api/v1", "services"),
            Kind::EndpointSlice => ("/apis/discovery.k8s.io/v1", "endpointslices"),
            Kind::Ingress => ("/apis/networking.k8s.io/v1", "ingresses"),
        };
        format!("{group}/namespaces/{namespace}/{plural}")
    }
}

impl Tenant {
    /// The path of the list of a kind.
    pub fn list(&self, kind: Kind) -> String {
        kind.list(&self.namespace)
    }

    /// Creates an object of a domain; `None` where a domain has no Secret of its own.
    pub fn create(&self, kind: Kind, domain: &Domain) -> Option<Write> {
        Some(Write {
            method: Method::POST,
            path: self.list(kind),
            body: Some(encode(&self.object(kind, domain)?)),
        })
    }

    /// Replaces an object of a domain, whatever its version.
    pub fn replace(&self, kind: Kind, domain: &Domain) -> Option<Write> {
        Some(Write {
            method: Method::PUT,
            path: format!("{}/{}", self.list(kind), domain.name()),
            body: Some(encode(&self.object(kind, domain)?)),
        })
    }

    /// Deletes an object of a domain.
    pub fn delete(&self, kind: Kind, domain: &Domain) -> Option<Write> {
        if kind == Kind::Secret && domain.own.is_none() {
            return None;
        }
        Some(Write {
            method: Method::DELETE,
            path: format!("{}/{}", self.list(kind), domain.name()),
            body: None,
        })
    }

    /// Creates the Secret of the certificate that domains without their own have.
    pub fn create_shared(&self, pair: &Pair) -> Write {
        Write {
            method: Method::POST,
            path: self.list(Kind::Secret),
            body: Some(encode(&self.secret(SHARED_SECRET, pair))),
        }
    }

    fn object(&self, kind: Kind, domain: &Domain) -> Option<Value> {
        let name = domain.name();
        Some(match kind {
            Kind::Secret => self.secret(&name, domain.own.as_ref()?),
            Kind::Service => json!({
                "metadata": {"name": name},
                "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]},
            }),
            Kind::EndpointSlice => slice(&name, domain.endpoint),
            Kind::Ingress => self.ingress(&name, domain),
        })
    }

    fn secret(&self, name: &str, pair: &Pair) -> Value {
        let chain = pem("CERTIFICATE", &pair.leaf) + &pem("CERTIFICATE", &self.issuer);
        let key = pem("PRIVATE KEY", &pair.key);
        json!({
            "metadata": {"name": name},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": STANDARD.encode(chain), "tls.key": STANDARD.encode(key)},
        })
    }

    fn ingress(&self, name: &str, domain: &Domain) -> Value {
        let host = &domain.host;
        let secret = domain.own.as_ref().map_or(SHARED_SECRET, |_| name);
        let service = json!({"name": name, "port": {"number": 80}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": service}});
        json!({
            "metadata": {"name": name},
            "spec": {
                "ingressClassName": self.class,
                "tls": [{"hosts": [host], "secretName": secret}],
                "rules": [{"host": host, "http": {"paths": [path]}}],
            },
        })
    }
}

fn slice(name: &str, endpoint: SocketAddr) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [endpoint.ip()]}],
        "ports": [{"name": "http", "port": endpoint.port()}],
    })
}

fn encode(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_without_its_own_certificate_names_the_shared_one() {
        let tenant = Tenant {
            namespace: "space".to_owned(),
            class: "class".to_owned(),
            issuer: vec![1],
        };
        let domain = Domain {
            number: 7,
            host: "www.example.com".to_owned(),
            endpoint: "10.244.3.1:9000".parse().unwrap(),
            own: None,
        };
        assert!(tenant.create(Kind::Secret, &domain).is_none());
        assert!(tenant.delete(Kind::Secret, &domain).is_none());
        let ingress = tenant.create(Kind::Ingress, &domain).unwrap();
        let list = "/apis/networking.k8s.io/v1/namespaces/space/ingresses";
        assert_eq!(ingress.path, list);
        let object: Value = serde_json::from_slice(&ingress.body.unwrap()).unwrap();
        let secret = object.pointer("/spec/tls/0/secretName");
        assert_eq!(secret, Some(&json!(SHARED_SECRET)));
        let slice = tenant.replace(Kind::EndpointSlice, &domain).unwrap();
        assert!(slice.path.ends_with("/endpointslices/d00000007"));
    }
}
