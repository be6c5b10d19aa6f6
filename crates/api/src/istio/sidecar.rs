//! `networking.istio.io` Sidecar.

use super::destination_rule::connection::ConnectionPool;
use super::gateway::ServerTls;
use super::object::Spec;
use super::reading::message;
use super::scalar::words;
use super::virtual_service::Destination;
use super::{Labels, Names};
use crate::ObjectKind;

message! {
    /// The spec of a Sidecar.
    pub struct SidecarSpec {
        /// None means all workloads of the namespace.
        workload_selector: Option<LabelSelector> = "workloadSelector" | "workload_selector",
        ingress: Box<[IngressListener]> = "ingress",
        egress: Box<[EgressListener]> = "egress",
        inbound_connection_pool: Option<Box<ConnectionPool>> =
            "inboundConnectionPool" | "inbound_connection_pool",
        outbound_traffic_policy: Option<OutboundTrafficPolicy> =
            "outboundTrafficPolicy" | "outbound_traffic_policy",
    }
}

message! {
    /// The workloads with all of these labels.
    #[derive(Eq)]
    pub struct LabelSelector {
        labels: Labels = "labels",
    }
}

message! {
    /// A port on which a workload accepts connections.
    pub struct IngressListener {
        port: SidecarPort = "port" required,
        bind: Box<str> = "bind",
        capture_mode: CaptureMode = "captureMode" | "capture_mode",
        /// Where it is sent to, as `127.0.0.1:port`, `0.0.0.0:port` or `unix:///path`.
        default_endpoint: Box<str> = "defaultEndpoint" | "default_endpoint",
        tls: Option<Box<ServerTls>> = "tls",
        connection_pool: Option<Box<ConnectionPool>> = "connectionPool" | "connection_pool",
    }
}

message! {
    /// The hosts that a workload can reach.
    pub struct EgressListener {
        port: Option<SidecarPort> = "port",
        bind: Box<str> = "bind",
        capture_mode: CaptureMode = "captureMode" | "capture_mode",
        /// `namespace/host`, where both may be `*`.
        hosts: Names = "hosts" required,
    }
}

message! {
    /// A port of a sidecar.
    #[derive(Eq)]
    pub struct SidecarPort {
        number: u16 = "number",
        protocol: Box<str> = "protocol",
        name: Box<str> = "name",
    }
    refused ["targetPort", "target_port"]
}

words! {
    /// How traffic gets to a listener.
    pub enum CaptureMode {
        Default = 0 "DEFAULT",
        Iptables = 1 "IPTABLES",
        None = 2 "NONE",
    }
}

message! {
    /// The treatment of traffic to unknown destinations.
    pub struct OutboundTrafficPolicy {
        mode: OutboundMode = "mode",
        egress_proxy: Option<Destination> = "egressProxy" | "egress_proxy",
    }
}

words! {
    /// Whether unknown places can be reached.
    pub enum OutboundMode {
        RegistryOnly = 0 "REGISTRY_ONLY",
        AllowAny = 1 "ALLOW_ANY",
    }
}

impl Spec for SidecarSpec {
    const KIND: ObjectKind = ObjectKind::Sidecar;
}
