//! `networking.istio.io` DestinationRule.

pub mod balancer;
pub mod connection;

use self::balancer::LoadBalancer;
use self::connection::{
    ClientTls, ConnectionPool, OutlierDetection, ProxyProtocol, RetryBudget, Tunnel,
};
use super::object::Spec;
use super::reading::message;
use super::selector::{PortSelector, WorkloadSelector};
use super::{Labels, Names};
use crate::ObjectKind;

message! {
    /// The spec of a DestinationRule.
    pub struct DestinationRuleSpec {
        host: Box<str> = "host" required,
        traffic_policy: Option<Box<TrafficPolicy>> = "trafficPolicy" | "traffic_policy",
        subsets: Box<[Subset]> = "subsets",
        /// Namespaces that see it, `.` for its own, `*` or nothing for all.
        export_to: Names = "exportTo" | "export_to",
        /// Workloads of its own namespace that it is for; none means all.
        workload_selector: Option<WorkloadSelector> = "workloadSelector" | "workload_selector",
    }
}

message! {
    /// Some of the endpoints of the host.
    pub struct Subset {
        name: Box<str> = "name" required,
        /// Labels that the endpoints must have.
        labels: Labels = "labels",
        /// Settings of the subset. Each replaces the rule's own setting of the same name.
        traffic_policy: Option<Box<TrafficPolicy>> = "trafficPolicy" | "traffic_policy",
    }
}

message! {
    /// How endpoints are chosen and reached.
    pub struct TrafficPolicy {
        load_balancer: Option<Box<LoadBalancer>> = "loadBalancer" | "load_balancer",
        connection_pool: Option<Box<ConnectionPool>> = "connectionPool" | "connection_pool",
        outlier_detection: Option<Box<OutlierDetection>> =
            "outlierDetection" | "outlier_detection",
        tls: Option<Box<ClientTls>> = "tls",
        /// A port that is listed takes nothing over from the policy around it.
        port_level_settings: Box<[PortPolicy]> = "portLevelSettings" | "port_level_settings",
        tunnel: Option<Box<Tunnel>> = "tunnel",
        proxy_protocol: Option<ProxyProtocol> = "proxyProtocol" | "proxy_protocol",
        retry_budget: Option<Box<RetryBudget>> = "retryBudget" | "retry_budget",
    }
}

message! {
    /// A policy of one port.
    pub struct PortPolicy {
        port: PortSelector = "port",
        load_balancer: Option<Box<LoadBalancer>> = "loadBalancer" | "load_balancer",
        connection_pool: Option<Box<ConnectionPool>> = "connectionPool" | "connection_pool",
        outlier_detection: Option<Box<OutlierDetection>> =
            "outlierDetection" | "outlier_detection",
        tls: Option<Box<ClientTls>> = "tls",
    }
}

impl Spec for DestinationRuleSpec {
    const KIND: ObjectKind = ObjectKind::DestinationRule;
}
