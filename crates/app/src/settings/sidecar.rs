//! Settings of sidecars: how Pods get theirs, and what they answer.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use myriad_sidecar::inject::Sidecar;
use myriad_sidecar::probes::{self, Checks};

use super::address::address;
use super::names::blocks;
use crate::cli::inject::RawInjection;
use crate::cli::probes::RawProbes;

/// How Pods get a proxy on their way into the cluster.
#[derive(Clone, Debug)]
pub struct Injection {
    /// The address of the webhook, which API servers ask.
    pub webhook: SocketAddr,
    /// The MutatingWebhookConfiguration that leads them there.
    pub configuration: String,
    /// The settings of the proxies.
    pub sidecar: Sidecar,
}

/// The checks that a sidecar answers to those outside of the mesh.
#[derive(Clone, Debug)]
pub struct Probes {
    /// The address.
    pub address: SocketAddr,
    /// The checks of the workload in the kubelet's place.
    pub checks: Checks,
    /// The address of the workload.
    pub pod: IpAddr,
    /// Where metrics are told to; empty for everywhere.
    pub metrics_from: Vec<IpNet>,
}

impl Injection {
    pub(super) fn read(
        raw: &RawInjection,
        is_mesh: bool,
        problems: &mut Vec<String>,
    ) -> Option<Injection> {
        let webhook = address("--webhook", raw.webhook.as_deref()?, problems);
        if !is_mesh {
            problems.push("--webhook is given without --mesh: sidecars need identities".to_owned());
        }
        match Sidecar::check(&raw.sidecar) {
            Ok(sidecar) => Some(Injection {
                webhook,
                configuration: raw.webhook_configuration.clone(),
                sidecar,
            }),
            Err(error) => {
                problems.push(error.to_string());
                None
            }
        }
    }
}

impl Probes {
    pub(super) fn read(raw: &RawProbes, problems: &mut Vec<String>) -> Option<Probes> {
        let address = address("--probes", raw.probes.as_deref()?, problems);
        let checks = probes::read(&raw.workload_probes).unwrap_or_else(|error| {
            problems.push(format!("--workload-probes cannot be read: {error:#}"));
            Checks::new()
        });
        Some(Probes {
            address,
            checks,
            pod: raw.pod_ip,
            metrics_from: blocks("--probes-metrics-from", &raw.probes_metrics_from, problems),
        })
    }

    /// Whether metrics are told to somebody at an address.
    pub fn tells_metrics_to(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let blocks = &self.metrics_from;
        blocks.is_empty() || blocks.iter().any(|block| block.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use clap::Parser;

    use super::Probes;
    use crate::cli::probes::RawProbes;

    #[derive(Parser)]
    struct Raw {
        #[command(flatten)]
        probes: RawProbes,
    }

    fn read(arguments: &[&str]) -> (Option<Probes>, Vec<String>) {
        let all = ["test", "--probes=0.0.0.0:15020"].iter().chain(arguments);
        let raw = Raw::parse_from(all);
        let mut problems = Vec::new();
        (Probes::read(&raw.probes, &mut problems), problems)
    }

    #[test]
    fn metrics_are_told_to_the_blocks_that_are_given_and_to_all_where_none_is() {
        let tells = |probes: &Probes, address: &str| {
            let address: IpAddr = address.parse().unwrap();
            probes.tells_metrics_to(address)
        };
        let (open, problems) = read(&[]);
        assert!(problems.is_empty() && tells(&open.unwrap(), "10.9.9.9"));
        let (closed, problems) = read(&["--probes-metrics-from=10.1.0.0/16,2001:db8::1"]);
        let closed = closed.unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        assert!(tells(&closed, "10.1.2.3") && tells(&closed, "::ffff:10.1.2.3"));
        assert!(tells(&closed, "2001:db8::1"));
        assert!(!tells(&closed, "10.2.0.1") && !tells(&closed, "2001:db8::2"));
        let (_, problems) = read(&["--probes-metrics-from=monitoring"]);
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}
