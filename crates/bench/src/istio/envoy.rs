//! The same routes as a static configuration of Envoy, in the form in which Istio sends them.
//!
//! A filter chain for each domain with its certificate, a virtual host in it, and a route for
//! each path. What costs Envoy more than the routes themselves (statistics by route, request ids,
//! access logs, retries) is left out, so that a comparison does not flatter us.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{Served, Setup, documents, path};

/// The whole bootstrap, but for the number of threads, which is an option of the command line.
pub fn bootstrap(setup: &Setup, all: &[Served], listen: SocketAddr, endpoint: SocketAddr) -> Value {
    let chains: Vec<_> = all.iter().map(|it| chain(it, setup.paths)).collect();
    let clusters: Vec<_> = (0..setup.workspaces)
        .map(|workspace| cluster(&documents::namespace(workspace), endpoint))
        .collect();
    json!({
        "static_resources": {
            "listeners": [{
                "name": "https",
                "address": address(listen),
                "listener_filters": [{
                    "name": "envoy.filters.listener.tls_inspector",
                    "typed_config": typed("filters.listener.tls_inspector.v3.TlsInspector"),
                }],
                "filter_chains": chains,
            }],
            "clusters": clusters,
        },
    })
}

fn chain(served: &Served, paths: u32) -> Value {
    let host = served.domain.host();
    let mut manager = typed("filters.network.http_connection_manager.v3.HttpConnectionManager");
    extend(
        &mut manager,
        self::manager(&host, &[virtual_host(served, paths)]),
    );
    let mut tls = typed("transport_sockets.tls.v3.DownstreamTlsContext");
    let more = json!({
        "common_tls_context": {
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_certificates": [{
                "certificate_chain": {"inline_string": served.credential.chain},
                "private_key": {"inline_string": served.credential.key},
            }],
        },
    });
    extend(&mut tls, more);
    let mut chain = secured(&manager, &tls);
    let names = json!({"filter_chain_match": {"server_names": [host]}});
    extend(&mut chain, names);
    chain
}

/// A filter chain that ends TLS in front of a connection manager.
pub fn secured(manager: &Value, tls: &Value) -> Value {
    json!({
        "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }],
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": tls,
        },
    })
}

/// The settings of a connection manager of these virtual hosts, beside its type.
pub fn manager(name: &str, hosts: &[Value]) -> Value {
    json!({
        "stat_prefix": "ingress",
        "codec_type": "AUTO",
        "use_remote_address": true,
        "generate_request_id": false,
        "route_config": {
            "name": name,
            "virtual_hosts": hosts,
        },
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": typed("filters.http.router.v3.Router"),
        }],
    })
}

/// A domain and its routes.
pub fn virtual_host(served: &Served, paths: u32) -> Value {
    let host = served.domain.host();
    let routes: Vec<_> = (0..paths).map(|number| route(served, number)).collect();
    json!({
        "name": host,
        "domains": [host, format!("{host}:*")],
        "routes": routes,
    })
}

fn route(served: &Served, number: u32) -> Value {
    json!({
        "match": {"path": path(number)},
        "route": {
            "cluster": documents::namespace(served.domain.workspace),
            "prefix_rewrite": "/",
            "timeout": "0s",
        },
    })
}

/// A cluster with one endpoint.
pub fn cluster(name: &str, endpoint: SocketAddr) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "circuit_breakers": unlimited(),
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(endpoint)}}]}],
        },
    })
}

/// Istio's setting of circuit breakers: without it, Envoy refuses above 1,024.
pub fn unlimited() -> Value {
    json!({"thresholds": [{
        "max_connections": u32::MAX,
        "max_pending_requests": u32::MAX,
        "max_requests": u32::MAX,
        "max_retries": u32::MAX,
    }]})
}

/// Makes a cluster's endpoints be spoken to by HTTP/2.
pub fn speak_http2(cluster: &mut Value) {
    let mut options = typed("upstreams.http.v3.HttpProtocolOptions");
    let explicit = json!({"explicit_http_config": {"http2_protocol_options": {}}});
    extend(&mut options, explicit);
    let options = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
    });
    extend(
        cluster,
        json!({"typed_extension_protocol_options": options}),
    );
}

/// An address, as Envoy writes it.
pub fn address(of: SocketAddr) -> Value {
    json!({"socket_address": {"address": of.ip().to_string(), "port_value": of.port()}})
}

/// An extension's message without fields, by the end of its type's name.
pub fn typed(kind: &str) -> Value {
    json!({"@type": format!("type.googleapis.com/envoy.extensions.{kind}")})
}

/// Adds fields to a message.
pub fn extend(message: &mut Value, more: Value) {
    if let (Some(fields), Value::Object(more)) = (message.as_object_mut(), more) {
        fields.extend(more);
    }
}
