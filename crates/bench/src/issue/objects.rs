//! The objects of domains whose certificates an issuer provides: an Ingress each, and one Service
//! for all.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// The name of the Service, and of its only slice.
const SERVICE: &str = "issued";

/// The Ingress of a domain; its Secret is not there.
pub(super) fn ingress(namespace: &str, class: Option<&str>, name: &str, host: &str) -> Value {
    let service = json!({"name": SERVICE, "port": {"number": 80}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": service}});
    let mut spec = json!({
        "tls": [{"hosts": [host], "secretName": name}],
        "rules": [{"host": host, "http": {"paths": [path]}}],
    });
    if let Some(class) = class {
        spec["ingressClassName"] = class.into();
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"myriad.dev/issuer": "default"},
        },
        "spec": spec,
    })
}

/// The Service of all domains.
pub(super) fn service(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": namespace},
        "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]},
    })
}

/// Its slice.
pub(super) fn slice(namespace: &str, endpoint: SocketAddr) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": SERVICE,
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": SERVICE},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [endpoint.ip()]}],
        "ports": [{"name": "http", "port": endpoint.port()}],
    })
}

/// The text of a file with objects: whatever is JSON is YAML.
pub(super) fn documents(objects: &[Value]) -> String {
    let documents = objects.iter().map(|object| format!("---\n{object}\n"));
    documents.collect()
}

#[cfg(test)]
mod tests {
    use super::{documents, ingress, service};

    #[test]
    fn a_domain_asks_the_issuer_for_its_certificate() {
        let object = ingress("bench", Some("c"), "i7", "a.test");
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["myriad.dev/issuer"], "default");
        assert_eq!(object["spec"]["tls"][0]["secretName"], "i7");
        assert_eq!(object["spec"]["ingressClassName"], "c");
        let text = documents(&[object, service("bench")]);
        assert_eq!(text.matches("---\n{").count(), 2);
    }
}
