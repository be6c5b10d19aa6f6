//! Settings of sidecars: how Pods get theirs, and what they answer.

use std::net::{IpAddr, SocketAddr};

use myriad_sidecar::inject::Sidecar;
use myriad_sidecar::probes::{self, Checks};

use super::address::address;
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
        })
    }
}
