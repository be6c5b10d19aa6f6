//! The configuration that Envoy starts with: its control plane, the endpoints, and on demand the
//! one chain that all domains share.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::Told;
use crate::istio::{address, extend, typed};

/// The names of the cluster of the control plane, and of those of both endpoints.
pub(super) const XDS: &str = "xds";
pub(super) const CLUSTERS: [&str; 2] = ["first", "second"];

/// The names of the routes and of the listener.
pub(super) const ROUTES: &str = "domains";
pub(super) const LISTENER: &str = "https";

/// Envoy refuses above 1,024 without it.
const UNLIMITED: u32 = u32::MAX;

/// The configuration.
pub(super) fn config(
    told: Told,
    listen: SocketAddr,
    plane: SocketAddr,
    endpoints: [SocketAddr; 2],
) -> Value {
    let mut control = cluster(XDS, plane);
    let mut options = typed("upstreams.http.v3.HttpProtocolOptions");
    extend(
        &mut options,
        json!({"explicit_http_config": {"http2_protocol_options": {}}}),
    );
    let options = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
    });
    extend(
        &mut control,
        json!({"typed_extension_protocol_options": options}),
    );
    let clusters = CLUSTERS.into_iter().zip(endpoints);
    let clusters = clusters.map(|(name, endpoint)| cluster(name, endpoint));
    let clusters: Vec<Value> = clusters.chain([control]).collect();
    let mut dynamic = json!({
        "ads_config": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": XDS}}],
        },
    });
    let listeners = match told {
        Told::OnDemand => vec![listener(listen)],
        Told::Chains => {
            extend(&mut dynamic, json!({"lds_config": source()}));
            Vec::new()
        }
    };
    json!({
        "node": {"id": "bench", "cluster": "bench"},
        "dynamic_resources": dynamic,
        "static_resources": {"clusters": clusters, "listeners": listeners},
    })
}

/// The one stream of all that is asked for.
fn source() -> Value {
    json!({"ads": {}, "resource_api_version": "V3"})
}

fn cluster(name: &str, endpoint: SocketAddr) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "circuit_breakers": {"thresholds": [{
            "max_connections": UNLIMITED,
            "max_pending_requests": UNLIMITED,
            "max_requests": UNLIMITED,
            "max_retries": UNLIMITED,
        }]},
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(endpoint)}}]}],
        },
    })
}

/// The listener whose chain asks for certificates by the names of clients, and for hosts.
fn listener(listen: SocketAddr) -> Value {
    let mut mapper = typed("transport_sockets.tls.cert_mappers.sni.v3.SNI");
    extend(&mut mapper, json!({"default_value": "none"}));
    let mut selector = typed("transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config");
    let mapper = json!({
        "name": "envoy.tls.certificate_mappers.sni",
        "typed_config": mapper,
    });
    extend(
        &mut selector,
        json!({"config_source": source(), "certificate_mapper": mapper}),
    );
    let selector = json!({
        "name": "envoy.tls.certificate_selectors.on_demand_secret",
        "typed_config": selector,
    });
    let mut tls = typed("transport_sockets.tls.v3.DownstreamTlsContext");
    let more = json!({
        // Certificates on demand and resumption exclude each other there.
        "disable_stateless_session_resumption": true,
        "disable_stateful_session_resumption": true,
        "common_tls_context": {
            "alpn_protocols": ["http/1.1"],
            "custom_tls_certificate_selector": selector,
        },
    });
    extend(&mut tls, more);
    let mut manager = typed("filters.network.http_connection_manager.v3.HttpConnectionManager");
    let more = json!({
        "stat_prefix": "ingress",
        "generate_request_id": false,
        "rds": {"route_config_name": ROUTES, "config_source": source()},
        "http_filters": [{
            "name": "envoy.filters.http.on_demand",
            "typed_config": typed("filters.http.on_demand.v3.OnDemand"),
        }, {
            "name": "envoy.filters.http.router",
            "typed_config": typed("filters.http.router.v3.Router"),
        }],
    });
    extend(&mut manager, more);
    json!({
        "name": LISTENER,
        "address": address(listen),
        "filter_chains": [{
            "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": manager,
            }],
            "transport_socket": {
                "name": "envoy.transport_sockets.tls",
                "typed_config": tls,
            },
        }],
    })
}
