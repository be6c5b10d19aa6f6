//! The peer's pair of sidecars: Envoy with what Istio would send it for the same mesh.
//!
//! Certificates are signed by the authority of our mesh, with the same identities, and both ends
//! verify each other by them. What Istio's own build of Envoy adds (its statistics, the exchange
//! of metadata) is not in this one, which makes it cheaper than what Istio's users have.

use std::net::SocketAddr;

use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::{PORT, SERVER, SERVICE_PORT, Variant};
use crate::istio::{address, extend, typed};

/// The address that rules lead connections to.
const OUTBOUND: &str = "0.0.0.0:15001";
const INBOUND: &str = "0.0.0.0:15006";

/// The protocols by which Istio's proxies know each other.
const PROTOCOLS: [&str; 2] = ["istio-peer-exchange", "istio"];

/// The usual text of Istio's access log.
const LOG: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" \
    %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% \
    %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% \
    %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \
    \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" \
    %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% \
    %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";

/// The plan of the peers: identities, Services in scope, and what is recorded.
pub(super) struct PeerPlan<'a> {
    /// The namespace of the identities and of the Services.
    pub namespace: &'a str,
    /// The mesh's root: certificate and key in PEM.
    pub authority: &'a [String; 2],
    /// The address of the server.
    pub server: SocketAddr,
    /// The other Services in scope, with where they are.
    pub services: &'a [(String, SocketAddr)],
    /// The records that proxies keep.
    pub variant: Variant,
    /// The server that takes spans.
    pub sink: SocketAddr,
    /// The share of requests that are traced, in percent.
    pub sampling: f64,
}

impl PeerPlan<'_> {
    /// The whole configuration beside the client.
    ///
    /// # Errors
    /// The authority cannot be used.
    pub(super) fn of_client(&self) -> anyhow::Result<Value> {
        let all = std::iter::once((SERVER, self.server));
        let services = self.services.iter().map(|(name, at)| (&**name, *at));
        let mut clusters = Vec::new();
        let mut hosts = Vec::new();
        let credential = self.credential("client")?;
        for (name, at) in all.chain(services) {
            let full = self.host(name);
            let cluster_name = format!("outbound|{SERVICE_PORT}||{full}");
            let mut cluster = json!({
                "name": cluster_name,
                "type": "STATIC",
                "connect_timeout": "10s",
                "circuit_breakers": unlimited(),
                "load_assignment": {
                    "cluster_name": cluster_name,
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(at)}}]}],
                },
            });
            if name == SERVER {
                extend(&mut cluster, self.mutual(&credential, &full));
            }
            clusters.push(cluster);
            hosts.push(json!({
                "name": format!("{full}:{SERVICE_PORT}"),
                "domains": [full, name, format!("{name}.{}", self.namespace),
                    format!("{name}.{}.svc", self.namespace)],
                "routes": [{
                    "name": "default",
                    "match": {"prefix": "/"},
                    "route": {"cluster": cluster_name, "timeout": "0s"},
                }],
            }));
        }
        clusters.push(original("PassthroughCluster", None));
        let manager = self.manager("outbound", "80", &Value::Array(hosts));
        let catch_all = json!({
            "name": "virtualOutbound",
            "address": address(parse(OUTBOUND)),
            "use_original_dst": true,
            "traffic_direction": "OUTBOUND",
            "filter_chains": [{"filters": [passing("PassthroughCluster")]}],
        });
        let port = SocketAddr::from(([0, 0, 0, 0], SERVICE_PORT));
        let http = json!({
            "name": "0.0.0.0_80",
            "address": address(port),
            "bind_to_port": false,
            "traffic_direction": "OUTBOUND",
            "filter_chains": [{"filters": [manager]}],
        });
        Ok(self.bootstrap("client", &json!([catch_all, http]), clusters))
    }

    /// The whole configuration beside the server.
    ///
    /// # Errors
    /// The authority cannot be used.
    pub(super) fn of_server(&self) -> anyhow::Result<Value> {
        let name = format!("inbound|{PORT}||");
        let services = self.services.iter().map(|(service, at)| {
            let full = format!("outbound|{SERVICE_PORT}||{}", self.host(service));
            json!({
                "name": full,
                "type": "STATIC",
                "circuit_breakers": unlimited(),
                "load_assignment": {
                    "cluster_name": full,
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(*at)}}]}],
                },
            })
        });
        let mut clusters: Vec<_> = services.collect();
        clusters.push(original(&name, Some("127.0.0.6")));
        let routes = json!([{
            "name": "inbound|http|80",
            "domains": ["*"],
            "routes": [{
                "name": "default",
                "match": {"prefix": "/"},
                "route": {"cluster": name, "timeout": "0s"},
            }],
        }]);
        let mut manager = self.manager("inbound", "inbound", &routes);
        let told = json!({
            "forward_client_cert_details": "APPEND_FORWARD",
            "set_current_client_cert_details": {"subject": true, "dns": true, "uri": true},
        });
        if let Some(config) = manager.get_mut("typed_config") {
            extend(config, told);
        }
        let credential = self.credential(SERVER)?;
        let mut tls = typed("transport_sockets.tls.v3.DownstreamTlsContext");
        let trusted = format!("spiffe://cluster.local/ns/{}/", self.namespace);
        let more = json!({
            "require_client_certificate": true,
            "common_tls_context": self.tls(&credential, &json!({"prefix": trusted})),
        });
        extend(&mut tls, more);
        let inbound = json!({
            "name": "virtualInbound",
            "address": address(parse(INBOUND)),
            "traffic_direction": "INBOUND",
            "listener_filters": [
                {
                    "name": "envoy.filters.listener.original_dst",
                    "typed_config": typed("filters.listener.original_dst.v3.OriginalDst"),
                },
                {
                    "name": "envoy.filters.listener.tls_inspector",
                    "typed_config": typed("filters.listener.tls_inspector.v3.TlsInspector"),
                },
            ],
            "filter_chains": [{
                "filter_chain_match": {
                    "destination_port": PORT,
                    "transport_protocol": "tls",
                    "application_protocols": PROTOCOLS,
                },
                "filters": [manager],
                "transport_socket": {
                    "name": "envoy.transport_sockets.tls",
                    "typed_config": tls,
                },
            }],
        });
        Ok(self.bootstrap(SERVER, &json!([inbound]), clusters))
    }

    fn bootstrap(&self, node: &str, listeners: &Value, mut clusters: Vec<Value>) -> Value {
        if self.variant == Variant::Trace {
            clusters.push(json!({
                "name": "collector",
                "type": "STATIC",
                "connect_timeout": "5s",
                "load_assignment": {
                    "cluster_name": "collector",
                    "endpoints": [
                        {"lb_endpoints": [{"endpoint": {"address": address(self.sink)}}]}
                    ],
                },
            }));
        }
        let mut config = json!({
            "node": {"id": node, "cluster": node},
            "static_resources": {"listeners": listeners, "clusters": clusters},
        });
        if self.variant == Variant::None {
            let none = json!({"stats_config": {"stats_matcher": {"reject_all": true}}});
            extend(&mut config, none);
        }
        config
    }

    fn manager(&self, prefix: &str, routes: &str, hosts: &Value) -> Value {
        let mut manager = typed("filters.network.http_connection_manager.v3.HttpConnectionManager");
        let more = json!({
            "stat_prefix": prefix,
            "codec_type": "AUTO",
            "use_remote_address": false,
            // Whoever traces needs it, and it costs the others.
            "generate_request_id": self.variant == Variant::Trace,
            "route_config": {
                "name": routes,
                "validate_clusters": false,
                "virtual_hosts": hosts,
            },
            "http_filters": [{
                "name": "envoy.filters.http.router",
                "typed_config": typed("filters.http.router.v3.Router"),
            }],
        });
        extend(&mut manager, more);
        match self.variant {
            Variant::Log => extend(&mut manager, json!({"access_log": [log()]})),
            Variant::Trace => extend(&mut manager, json!({"tracing": self.tracing()})),
            _ => {}
        }
        json!({
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        })
    }

    fn tracing(&self) -> Value {
        let mut tracer =
            json!({"@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig"});
        let more = json!({
            "service_name": "bench",
            "http_service": {"http_uri": {
                "uri": format!("http://{}/v1/traces", self.sink),
                "cluster": "collector",
                "timeout": "5s",
            }},
        });
        extend(&mut tracer, more);
        json!({
            "random_sampling": {"value": self.sampling},
            "provider": {"name": "envoy.tracers.opentelemetry", "typed_config": tracer},
        })
    }

    /// Mutual TLS towards the server.
    fn mutual(&self, credential: &[String; 2], full: &str) -> Value {
        let mut tls = typed("transport_sockets.tls.v3.UpstreamTlsContext");
        let identity = self.identity(SERVER);
        let mut common = self.tls(credential, &json!({"exact": identity}));
        extend(&mut common, json!({"alpn_protocols": PROTOCOLS}));
        let more = json!({
            "sni": format!("outbound_.{SERVICE_PORT}_._.{full}"),
            "common_tls_context": common,
        });
        extend(&mut tls, more);
        json!({"transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": tls,
        }})
    }

    fn tls(&self, [chain, key]: &[String; 2], peer: &Value) -> Value {
        let [roots, _] = self.authority;
        json!({
            "alpn_protocols": PROTOCOLS,
            "tls_params": {
                "tls_minimum_protocol_version": "TLSv1_3",
                "tls_maximum_protocol_version": "TLSv1_3",
            },
            "tls_certificates": [{
                "certificate_chain": {"inline_string": chain},
                "private_key": {"inline_string": key},
            }],
            "validation_context": {
                "trusted_ca": {"inline_string": roots},
                "match_typed_subject_alt_names": [{"san_type": "URI", "matcher": peer}],
            },
        })
    }

    /// A certificate chain and its key in PEM, as a sidecar gets them.
    fn credential(&self, account: &str) -> anyhow::Result<[String; 2]> {
        let [certificate, key] = self.authority;
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
        let mut params = CertificateParams::new(Vec::new())?;
        let identity = self.identity(account);
        params.subject_alt_names = vec![SanType::URI(identity.as_str().try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let now = OffsetDateTime::now_utc();
        params.not_before = now - Duration::minutes(5);
        params.not_after = now + Duration::DAY;
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &issuer)?;
        Ok([leaf.pem() + certificate, key.serialize_pem()])
    }

    fn identity(&self, account: &str) -> String {
        format!("spiffe://cluster.local/ns/{}/sa/{account}", self.namespace)
    }

    fn host(&self, name: &str) -> String {
        format!("{name}.{}.svc.cluster.local", self.namespace)
    }
}

fn log() -> Value {
    let mut file = typed("access_loggers.file.v3.FileAccessLog");
    let format = json!({"text_format_source": {"inline_string": LOG}});
    extend(
        &mut file,
        json!({"path": "/dev/stdout", "log_format": format}),
    );
    json!({"name": "envoy.access_loggers.file", "typed_config": file})
}

/// The cluster of connections that go to their original destination.
fn original(name: &str, source: Option<&str>) -> Value {
    let mut cluster = json!({
        "name": name,
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "10s",
        "circuit_breakers": unlimited(),
    });
    if let Some(source) = source {
        let bind = json!({"source_address": {"address": source, "port_value": 0}});
        extend(&mut cluster, json!({"upstream_bind_config": bind}));
    }
    cluster
}

fn passing(cluster: &str) -> Value {
    let mut proxy = typed("filters.network.tcp_proxy.v3.TcpProxy");
    extend(
        &mut proxy,
        json!({"stat_prefix": cluster, "cluster": cluster}),
    );
    json!({"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy})
}

/// Istio's setting of circuit breakers: without it, Envoy refuses above 1,024.
fn unlimited() -> Value {
    json!({"thresholds": [{
        "max_connections": u32::MAX,
        "max_pending_requests": u32::MAX,
        "max_requests": u32::MAX,
        "max_retries": u32::MAX,
    }]})
}

fn parse(address: &str) -> SocketAddr {
    address
        .parse()
        .unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
}
