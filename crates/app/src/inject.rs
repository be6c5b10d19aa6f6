//! `inject`: the proxy beside a workload, written into the Pods that people wrote without it.
//!
//! The same change is made to objects in files by the command, and to Pods on their way into a
//! cluster by the webhook of the controller.

mod annotation;
mod decision;
mod manifest;
mod pod;
mod probe;

use std::process::ExitCode;

use anyhow::ensure;

use crate::cli::inject::{RawInject, RawSidecar};

pub use decision::{Decision, Labels, Reason, decide};
pub use pod::{Injected, inject};

/// What every injected proxy is like, unless a Pod says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The image of Myriad.
    pub image: String,
    /// When the image is pulled: Always, IfNotPresent or Never.
    pub pull_policy: String,
    /// The controllers, as HOST:PORT.
    pub controller: String,
    /// The ConfigMap with the roots that controllers are known by; it is in every namespace.
    pub ca_config_map: String,
    /// What a proxy asks for: quantities of Kubernetes.
    pub cpu: String,
    /// See `cpu`.
    pub memory: String,
    /// The most memory that it may have; empty for no limit.
    pub memory_limit: String,
    /// What it logs.
    pub log: String,
    /// Seconds that it still accepts connections after it was told to end, and those after which
    /// it cuts what is left.
    pub drain_delay: u64,
    /// See `drain_delay`.
    pub drain_timeout: u64,
    /// What becomes of paths that servers understand differently, as MeshConfig says.
    pub path_normalization: Option<Box<str>>,
}

impl Sidecar {
    /// From settings as written.
    ///
    /// # Errors
    /// A setting that does not hold; all are named.
    pub fn check(raw: &RawSidecar) -> anyhow::Result<Sidecar> {
        let mut problems = Vec::new();
        let required = [
            ("sidecar-image", &raw.sidecar_image),
            ("sidecar-controller", &raw.sidecar_controller),
        ];
        for (name, value) in required {
            if value.is_empty() || value.chars().any(char::is_whitespace) {
                problems.push(format!("--{name} is empty or has a space in it"));
            }
        }
        let port = raw.sidecar_controller.rsplit_once(':');
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            problems.push("--sidecar-controller is not HOST:PORT".to_owned());
        }
        let policies = ["Always", "IfNotPresent", "Never"];
        if !policies.contains(&&*raw.sidecar_pull_policy) {
            let policies = policies.join(", ");
            problems.push(format!("--sidecar-pull-policy is none of {policies}"));
        }
        let quantities = [
            ("sidecar-cpu", &raw.sidecar_cpu, false),
            ("sidecar-memory", &raw.sidecar_memory, false),
            ("sidecar-memory-limit", &raw.sidecar_memory_limit, true),
        ];
        for (name, value, may_be_empty) in quantities {
            if !(may_be_empty && value.is_empty() || annotation::is_quantity(value)) {
                problems.push(format!(
                    "--{name}: {value:?} is no quantity, such as 100m or 64Mi"
                ));
            }
        }
        ensure!(problems.is_empty(), "{}", problems.join("; "));
        Ok(Sidecar {
            image: raw.sidecar_image.clone(),
            pull_policy: raw.sidecar_pull_policy.clone(),
            controller: raw.sidecar_controller.clone(),
            ca_config_map: raw.sidecar_ca_config_map.clone(),
            cpu: raw.sidecar_cpu.clone(),
            memory: raw.sidecar_memory.clone(),
            memory_limit: raw.sidecar_memory_limit.clone(),
            log: raw.sidecar_log.clone(),
            drain_delay: raw.sidecar_drain_delay,
            drain_timeout: raw.sidecar_drain_timeout,
            path_normalization: None,
        })
    }
}

/// Runs the command: the objects of the files with proxies, on standard output.
///
/// # Errors
/// Settings that do not hold, files that cannot be read, a Pod whose annotations do not hold.
pub fn run(raw: &RawInject) -> anyhow::Result<ExitCode> {
    let sidecar = Sidecar::check(&raw.sidecar)?;
    manifest::inject_files(&raw.file, &sidecar)?;
    Ok(ExitCode::SUCCESS)
}
