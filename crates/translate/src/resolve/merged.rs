//! The traffic policy that holds for one port of a host, part by part.

use myriad_api::istio::destination_rule::balancer::LoadBalancer;
use myriad_api::istio::destination_rule::connection::{
    ClientTls, ConnectionPool, H2Upgrade, OutlierDetection, ProxyProtocol, RetryBudget, Tunnel,
};
use myriad_api::istio::destination_rule::{PortPolicy, TrafficPolicy};

/// The parts of a traffic policy, each from the rule that sets it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Merged<'a> {
    /// The namespace of the rules, which are all of one; empty without any.
    pub namespace: &'a str,
    /// How endpoints are chosen.
    pub balancer: Option<&'a LoadBalancer>,
    /// Limits of connections.
    pub pool: Option<&'a ConnectionPool>,
    /// When an endpoint is left out.
    pub outlier: Option<&'a OutlierDetection>,
    /// How TLS is done.
    pub tls: Option<&'a ClientTls>,
    /// The header that connections begin with.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How many repetitions may be in flight.
    pub retry_budget: Option<&'a RetryBudget>,
    /// The target that endpoints, being proxies, are asked to connect streams to.
    pub tunnel: Option<&'a Tunnel>,
}

impl<'a> Merged<'a> {
    /// Whether HTTP/1.1 becomes HTTP/2.
    pub(crate) fn is_upgraded(&self) -> bool {
        let http = self.pool.and_then(|pool| pool.http.as_ref());
        http.is_some_and(|http| http.h2_upgrade_policy == H2Upgrade::Upgrade)
    }

    /// Whether endpoints are spoken to as their clients speak, and the port says nothing.
    pub(crate) fn follows_client(&self) -> bool {
        let http = self.pool.and_then(|pool| pool.http.as_ref());
        http.is_some_and(|http| http.use_client_protocol)
    }

    /// The settings with those of a policy in their place, part by part. A port that it lists takes
    /// over nothing of the parts that a port may set.
    pub(crate) fn overlay(
        self,
        policy: &'a TrafficPolicy,
        port: Option<&'a PortPolicy>,
    ) -> Merged<'a> {
        let merged = Merged {
            namespace: self.namespace,
            balancer: policy.load_balancer.as_deref().or(self.balancer),
            pool: policy.connection_pool.as_deref().or(self.pool),
            outlier: policy.outlier_detection.as_deref().or(self.outlier),
            tls: policy.tls.as_deref().or(self.tls),
            proxy_protocol: policy.proxy_protocol.or(self.proxy_protocol),
            retry_budget: policy.retry_budget.as_deref().or(self.retry_budget),
            tunnel: policy.tunnel.as_deref().or(self.tunnel),
        };
        match port {
            Some(port) => Merged {
                namespace: merged.namespace,
                proxy_protocol: merged.proxy_protocol,
                retry_budget: merged.retry_budget,
                tunnel: merged.tunnel,
                ..of_port(port)
            },
            None => merged,
        }
    }
}

/// The settings of a policy for one port alone.
pub(super) fn of_port(port: &PortPolicy) -> Merged<'_> {
    Merged {
        namespace: "",
        balancer: port.load_balancer.as_deref(),
        pool: port.connection_pool.as_deref(),
        outlier: port.outlier_detection.as_deref(),
        tls: port.tls.as_deref(),
        proxy_protocol: None,
        retry_budget: None,
        tunnel: None,
    }
}
