//! The peer's pair of sidecars: Envoy with what Istio would send it for the same mesh.
//!
//! Certificates are signed by the authority of our mesh, with the same identities, and both ends
//! verify each other by them. What Istio's own build of Envoy adds (its statistics, the exchange
//! of metadata) is not in this one, which makes it cheaper than what Istio's users have.

use std::net::{IpAddr, SocketAddr};

use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::{Protocol, SERVER, SERVICE_PORT, Variant};
use crate::istio::{address, cluster, extend, speak_http2, typed, unlimited};

/// The address that rules lead connections to.
const OUTBOUND: &str = "0.0.0.0:15001";
const INBOUND: &str = "0.0.0.0:15006";

/// The protocols by which Istio's proxies know each other. For HTTP/2 `h2` is offered beside them,
/// and taken.
const PROTOCOLS: [&str; 2] = ["istio-peer-exchange", "istio"];
const H2_PROTOCOLS: [&str; 3] = ["istio-peer-exchange", "istio", "h2"];
const H2_TAKEN: [&str; 1] = ["h2"];

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
    pub server: IpAddr,
    /// The protocols that it serves, with a port each.
    pub protocols: &'a [Protocol],
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
        let credential = self.credential("client")?;
        let mut clusters = vec![original("PassthroughCluster", None)];
        let mut listeners = vec![json!({
            "name": "virtualOutbound",
            "address": address(parse(OUTBOUND)),
            "use_original_dst": true,
            "traffic_direction": "OUTBOUND",
            "filter_chains": [{"filters": [passing("PassthroughCluster")]}],
        })];
        for &protocol in self.protocols {
            let port = protocol.service_port();
            let at = SocketAddr::new(self.server, protocol.port());
            let mut own = cluster(&self.outbound(SERVER, port), at);
            extend(&mut own, self.mutual(&credential, protocol));
            if protocol.is_http2() {
                speak_http2(&mut own);
            }
            clusters.push(own);
            let mut hosts = vec![self.virtual_host(SERVER, port)];
            if port == SERVICE_PORT {
                for (name, at) in self.services {
                    clusters.push(cluster(&self.outbound(name, port), *at));
                    hosts.push(self.virtual_host(name, port));
                }
            }
            let manager = self.manager("outbound", &port.to_string(), &Value::Array(hosts));
            listeners.push(json!({
                "name": format!("0.0.0.0_{port}"),
                "address": address(SocketAddr::from(([0, 0, 0, 0], port))),
                "bind_to_port": false,
                "traffic_direction": "OUTBOUND",
                "filter_chains": [{"filters": [manager]}],
            }));
        }
        Ok(self.bootstrap("client", &Value::Array(listeners), clusters))
    }

    fn virtual_host(&self, name: &str, port: u16) -> Value {
        let full = self.host(name);
        json!({
            "name": format!("{full}:{port}"),
            "domains": [full, format!("{full}:{port}"), name, format!("{name}.{}", self.namespace),
                format!("{name}.{}.svc", self.namespace)],
            "routes": [{
                "name": "default",
                "match": {"prefix": "/"},
                "route": {"cluster": self.outbound(name, port), "timeout": "0s"},
            }],
        })
    }

    /// The name of the cluster of a Service.
    fn outbound(&self, name: &str, port: u16) -> String {
        format!("outbound|{port}||{}", self.host(name))
    }

    /// The whole configuration beside the server.
    ///
    /// # Errors
    /// The authority cannot be used.
    pub(super) fn of_server(&self) -> anyhow::Result<Value> {
        let services = self.services.iter();
        let services = services.map(|(name, at)| cluster(&self.outbound(name, SERVICE_PORT), *at));
        let mut clusters: Vec<_> = services.collect();
        let credential = self.credential(SERVER)?;
        let mut chains = Vec::new();
        for &protocol in self.protocols {
            let name = format!("inbound|{}||", protocol.port());
            let mut own = original(&name, Some("127.0.0.6"));
            if protocol.is_http2() {
                speak_http2(&mut own);
            }
            clusters.push(own);
            chains.push(self.inbound(&credential, protocol, &name));
        }
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
            "filter_chains": chains,
        });
        Ok(self.bootstrap(SERVER, &json!([inbound]), clusters))
    }

    /// The chain of the server's port of a protocol, which leads to this cluster.
    fn inbound(&self, credential: &[String; 2], protocol: Protocol, cluster: &str) -> Value {
        let routes = json!([{
            "name": format!("inbound|http|{}", protocol.service_port()),
            "domains": ["*"],
            "routes": [{
                "name": "default",
                "match": {"prefix": "/"},
                "route": {"cluster": cluster, "timeout": "0s"},
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
        let taken: &[&str] = match protocol.is_http2() {
            true => &H2_TAKEN,
            false => &PROTOCOLS,
        };
        let mut tls = typed("transport_sockets.tls.v3.DownstreamTlsContext");
        let trusted = json!({"prefix": format!("spiffe://cluster.local/ns/{}/", self.namespace)});
        let more = json!({
            "require_client_certificate": true,
            "common_tls_context": self.tls(credential, &trusted, taken),
        });
        extend(&mut tls, more);
        json!({
            "filter_chain_match": {
                "destination_port": protocol.port(),
                "transport_protocol": "tls",
                "application_protocols": PROTOCOLS,
            },
            "filters": [manager],
            "transport_socket": {
                "name": "envoy.transport_sockets.tls",
                "typed_config": tls,
            },
        })
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
    fn mutual(&self, credential: &[String; 2], protocol: Protocol) -> Value {
        let mut tls = typed("transport_sockets.tls.v3.UpstreamTlsContext");
        let identity = json!({"exact": self.identity(SERVER)});
        let offered: &[&str] = match protocol.is_http2() {
            true => &H2_PROTOCOLS,
            false => &PROTOCOLS,
        };
        let (port, full) = (protocol.service_port(), self.host(SERVER));
        let more = json!({
            "sni": format!("outbound_.{port}_._.{full}"),
            "common_tls_context": self.tls(credential, &identity, offered),
        });
        extend(&mut tls, more);
        json!({"transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": tls,
        }})
    }

    fn tls(&self, [chain, key]: &[String; 2], peer: &Value, protocols: &[&str]) -> Value {
        let [roots, _] = self.authority;
        json!({
            "alpn_protocols": protocols,
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

fn parse(address: &str) -> SocketAddr {
    address
        .parse()
        .unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
}
