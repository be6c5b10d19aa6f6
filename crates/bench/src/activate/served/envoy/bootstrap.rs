//! The configuration that Envoy starts with: its control plane, the endpoints, and on demand the
//! one chain that all domains share.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::Told;
use crate::istio::{address, cluster, extend, secured, speak_http2, typed};

/// The names of the cluster of the control plane, and of those of both endpoints.
pub(super) const XDS: &str = "xds";
pub(super) const CLUSTERS: [&str; 2] = ["first", "second"];

/// The names of the routes and of the listener.
pub(super) const ROUTES: &str = "domains";
pub(super) const LISTENER: &str = "https";

/// The configuration.
pub(super) fn config(
    told: Told,
    listen: SocketAddr,
    plane: SocketAddr,
    endpoints: [SocketAddr; 2],
) -> Value {
    let mut control = cluster(XDS, plane);
    speak_http2(&mut control);
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
        "filter_chains": [secured(&manager, &tls)],
    })
}
