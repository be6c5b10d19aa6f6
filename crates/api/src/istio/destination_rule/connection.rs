//! How a DestinationRule connects to endpoints, and when it gives up on one.

use std::time::Duration;

use crate::istio::Names;
use crate::istio::reading::message;
use crate::istio::scalar::words;

message! {
    /// Limits of connections.
    #[derive(Eq)]
    pub struct ConnectionPool {
        tcp: Option<TcpPool> = "tcp",
        http: Option<HttpPool> = "http",
    }
}

message! {
    /// Limits for all protocols. Numbers of 0 mean the default.
    #[derive(Eq)]
    pub struct TcpPool {
        max_connections: u32 = "maxConnections" | "max_connections",
        /// None means 10 s.
        connect_timeout: Option<Duration> = "connectTimeout" | "connect_timeout",
        tcp_keepalive: Option<TcpKeepalive> = "tcpKeepalive" | "tcp_keepalive",
        max_connection_duration: Option<Duration> =
            "maxConnectionDuration" | "max_connection_duration",
        idle_timeout: Option<Duration> = "idleTimeout" | "idle_timeout",
    }
}

message! {
    /// Probes of the kernel.
    #[derive(Eq)]
    pub struct TcpKeepalive {
        probes: u32 = "probes",
        time: Option<Duration> = "time",
        interval: Option<Duration> = "interval",
    }
}

message! {
    /// Limits for HTTP. Numbers of 0 mean the default.
    #[derive(Eq)]
    pub struct HttpPool {
        http1_max_pending_requests: u32 =
            "http1MaxPendingRequests" | "http1_max_pending_requests",
        http2_max_requests: u32 = "http2MaxRequests" | "http2_max_requests",
        max_requests_per_connection: u32 =
            "maxRequestsPerConnection" | "max_requests_per_connection",
        max_retries: u32 = "maxRetries" | "max_retries",
        idle_timeout: Option<Duration> = "idleTimeout" | "idle_timeout",
        h2_upgrade_policy: H2Upgrade = "h2UpgradePolicy" | "h2_upgrade_policy",
        use_client_protocol: bool = "useClientProtocol" | "use_client_protocol",
        max_concurrent_streams: u32 = "maxConcurrentStreams" | "max_concurrent_streams",
        http2_keep_alive: Option<Http2KeepAlive> = "http2KeepAlive" | "http2_keep_alive",
    }
}

words! {
    /// Whether HTTP/1 is turned into HTTP/2.
    pub enum H2Upgrade {
        Default = 0 "DEFAULT",
        DoNotUpgrade = 1 "DO_NOT_UPGRADE",
        Upgrade = 2 "UPGRADE",
    }
}

message! {
    /// Pings on HTTP/2.
    #[derive(Eq)]
    pub struct Http2KeepAlive {
        interval: Option<Duration> = "interval",
        timeout: Option<Duration> = "timeout",
    }
}

message! {
    /// When an endpoint is left out for a while.
    #[derive(Eq)]
    pub struct OutlierDetection {
        /// The former form of `consecutiveGatewayErrors`.
        consecutive_errors: u32 = "consecutiveErrors" | "consecutive_errors",
        split_external_local_origin_errors: bool =
            "splitExternalLocalOriginErrors" | "split_external_local_origin_errors",
        consecutive_local_origin_failures: Option<u32> =
            "consecutiveLocalOriginFailures" | "consecutive_local_origin_failures",
        consecutive_gateway_errors: Option<u32> =
            "consecutiveGatewayErrors" | "consecutive_gateway_errors",
        /// None means 5, 0 means never.
        consecutive_5xx_errors: Option<u32> =
            "consecutive5xxErrors" | "consecutive_5xx_errors",
        /// None means 10 s.
        interval: Option<Duration> = "interval",
        /// None means 30 s.
        base_ejection_time: Option<Duration> = "baseEjectionTime" | "base_ejection_time",
        /// 0 means 10.
        max_ejection_percent: u32 = "maxEjectionPercent" | "max_ejection_percent",
        min_health_percent: u32 = "minHealthPercent" | "min_health_percent",
        http_error_codes: Box<[u32]> =
            "outlierDetectionHttpErrorCodes" | "outlier_detection_http_error_codes",
    }
}

words! {
    /// How connections to endpoints are encrypted.
    pub enum ClientTlsMode {
        Disable = 0 "DISABLE",
        Simple = 1 "SIMPLE",
        Mutual = 2 "MUTUAL",
        IstioMutual = 3 "ISTIO_MUTUAL",
    }
}

message! {
    /// TLS towards endpoints.
    #[derive(Eq)]
    pub struct ClientTls {
        mode: ClientTlsMode = "mode",
        /// Path of a file.
        client_certificate: Box<str> = "clientCertificate" | "client_certificate",
        /// Path of a file.
        private_key: Box<str> = "privateKey" | "private_key",
        /// Path of a file.
        ca_certificates: Box<str> = "caCertificates" | "ca_certificates",
        credential_name: Box<str> = "credentialName" | "credential_name",
        subject_alt_names: Names = "subjectAltNames" | "subject_alt_names",
        sni: Box<str> = "sni",
        insecure_skip_verify: Option<bool> = "insecureSkipVerify" | "insecure_skip_verify",
        /// Path of a file.
        ca_crl: Box<str> = "caCrl" | "ca_crl",
    }
}

message! {
    /// A tunnel through the endpoint.
    #[derive(Eq)]
    pub struct Tunnel {
        /// CONNECT or POST; empty means CONNECT.
        protocol: Box<str> = "protocol",
        target_host: Box<str> = "targetHost" | "target_host" required,
        target_port: u16 = "targetPort" | "target_port" required,
    }
}

message! {
    /// A PROXY protocol header towards endpoints.
    #[derive(Copy, Eq)]
    pub struct ProxyProtocol {
        version: ProxyProtocolVersion = "version",
    }
}

words! {
    /// A version of the PROXY protocol.
    pub enum ProxyProtocolVersion {
        V1 = 0 "V1",
        V2 = 1 "V2",
    }
}

message! {
    /// How much of the traffic may be retries.
    pub struct RetryBudget {
        /// Percent of active requests, from 0.0 to 100.0; none means 20.
        percent: Option<f64> = "percent",
        /// 0 means 3.
        min_retry_concurrency: u32 = "minRetryConcurrency" | "min_retry_concurrency",
        budget_interval: Option<Duration> = "budgetInterval" | "budget_interval",
    }
}
