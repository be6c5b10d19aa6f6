//! The objects of scenarios, as a tenant writes them.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::cluster::api::Write;
use crate::cluster::gateway_api::{API, object};
use crate::domains::{Pair, pem};

/// The name of the Gateway.
pub(super) const GATEWAY: &str = "edge";

/// The kinds that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Secret,
    Service,
    EndpointSlice,
    Gateway,
    ListenerSet,
    HttpRoute,
}

impl Kind {
    /// The path of the list of its objects in a namespace.
    pub(super) fn list(self, namespace: &str) -> String {
        let (group, plural) = match self {
            Kind::Secret => ("/api/v1", "secrets"),
            Kind::Service => ("/api/v1", "services"),
            Kind::EndpointSlice => ("/apis/discovery.k8s.io/v1", "endpointslices"),
            Kind::Gateway => (API, "gateways"),
            Kind::ListenerSet => (API, "listenersets"),
            Kind::HttpRoute => (API, "httproutes"),
        };
        format!("{group}/namespaces/{namespace}/{plural}")
    }
}

/// Creates an object.
pub(super) fn post(kind: Kind, namespace: &str, object: &Value) -> Write {
    Write {
        method: Method::POST,
        path: kind.list(namespace),
        body: Some(object.to_string().into_bytes()),
    }
}

/// Merges a change into an object.
pub(super) fn patch(kind: Kind, namespace: &str, name: &str, change: &Value) -> Write {
    Write {
        method: Method::PATCH,
        path: format!("{}/{name}", kind.list(namespace)),
        body: Some(change.to_string().into_bytes()),
    }
}

/// Deletes an object.
pub(super) fn delete(kind: Kind, namespace: &str, name: &str) -> Write {
    Write {
        method: Method::DELETE,
        path: format!("{}/{name}", kind.list(namespace)),
        body: None,
    }
}

/// The Gateway, whose HTTP listener takes routes of all namespaces, and ListenerSets likewise.
pub(super) fn gateway(class: &str) -> Value {
    let all = json!({"namespaces": {"from": "All"}});
    let spec = json!({
        "gatewayClassName": class,
        "allowedListeners": all,
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": all}],
    });
    object("Gateway", GATEWAY, spec)
}

/// A Service with these ports, whose endpoints are said elsewhere.
pub(super) fn service(name: &str, ports: &[(&str, u16)]) -> Value {
    let ports = ports.iter();
    let ports = ports.map(|(name, port)| json!({"name": name, "port": port}));
    json!({
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "ports": ports.collect::<Vec<_>>()},
    })
}

/// A slice of a Service: where each of its ports is served, all at the address of the first.
pub(super) fn slice(name: &str, service: &str, ports: &[(&str, SocketAddr)]) -> Value {
    let address = ports.first().map(|(_, address)| address.ip());
    let ports = ports.iter();
    let ports = ports.map(|(name, address)| json!({"name": name, "port": address.port()}));
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": ports.collect::<Vec<_>>(),
    })
}

/// A reference to the Gateway from any namespace.
pub(super) fn gateway_reference(namespace: &str) -> Value {
    json!({"name": GATEWAY, "namespace": namespace})
}

/// An HTTPRoute of one host.
pub(super) fn route(name: &str, parent: &Value, host: &str, rules: &Value) -> Value {
    let spec = json!({"parentRefs": [parent], "hostnames": [host], "rules": rules});
    object("HTTPRoute", name, spec)
}

/// A rule that leads what begins with a path to a port of a Service.
pub(super) fn rule(path: &str, service: &str, port: u16) -> Value {
    json!({
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "backendRefs": [{"name": service, "port": port}],
    })
}

/// A ListenerSet with an HTTPS listener for one host.
pub(super) fn listener_set(name: &str, gateway: &Value, host: &str, secret: &str) -> Value {
    let listener = json!({
        "name": name,
        "hostname": host,
        "port": 443,
        "protocol": "HTTPS",
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": secret}]},
    });
    let spec = json!({"parentRef": gateway, "listeners": [listener]});
    object("ListenerSet", name, spec)
}

/// A Secret with a certificate.
pub(super) fn secret(name: &str, pair: &Pair, issuer: &[u8]) -> Value {
    let chain = pem("CERTIFICATE", &pair.leaf) + &pem("CERTIFICATE", issuer);
    let key = pem("PRIVATE KEY", &pair.key);
    json!({
        "metadata": {"name": name},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": STANDARD.encode(chain), "tls.key": STANDARD.encode(key)},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_go_to_the_lists_of_their_kinds() {
        let object = service("web", &[("http", 80)]);
        let write = post(Kind::Service, "space", &object);
        assert_eq!(write.path, "/api/v1/namespaces/space/services");
        let change = patch(Kind::HttpRoute, "space", "web", &json!({}));
        assert_eq!(change.method, Method::PATCH);
        assert!(
            change
                .path
                .starts_with("/apis/gateway.networking.k8s.io/v1/")
        );
        assert!(change.path.ends_with("/namespaces/space/httproutes/web"));
        assert!(delete(Kind::ListenerSet, "space", "web").body.is_none());
    }

    #[test]
    fn a_slice_has_the_ports_of_its_service() {
        let [near, far] = ["10.244.3.1:81", "10.244.3.1:82"].map(|it| it.parse().unwrap());
        let slice = slice("web-1", "web", &[("http", near), ("http-alt", far)]);
        let wanted = json!([{"name": "http", "port": 81}, {"name": "http-alt", "port": 82}]);
        assert_eq!(slice["ports"], wanted);
        assert_eq!(slice["endpoints"][0]["addresses"], json!(["10.244.3.1"]));
    }
}
