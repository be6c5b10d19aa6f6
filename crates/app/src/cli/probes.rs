//! Settings of what a sidecar is asked, as written.

use std::net::IpAddr;

use clap::Args;

/// The checks that a sidecar answers to those outside of the mesh, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sidecar")]
pub struct RawProbes {
    /// Where health, metrics and the checks of the workload are answered, beside `--admin`:
    /// ADDRESS:PORT, or a port on every IPv4 address.
    #[arg(long, env = "MYRIAD_PROBES", value_name = "ADDRESS")]
    pub probes: Option<String>,
    /// Blocks of addresses that metrics are told to there; all where none is given. They name the
    /// workloads that call this one, and those that it calls.
    #[arg(
        long,
        env = "MYRIAD_PROBES_METRICS_FROM",
        value_delimiter = ',',
        value_name = "CIDR,..."
    )]
    pub probes_metrics_from: Vec<String>,
    /// Checks of the workload in the kubelet's place, as injection writes them (JSON).
    #[arg(
        long,
        env = "MYRIAD_WORKLOAD_PROBES",
        default_value = "",
        hide_default_value = true,
        value_name = "JSON"
    )]
    pub workload_probes: String,
    /// The address of the Pod, where its workload listens.
    #[arg(
        long,
        env = "POD_IP",
        default_value = "127.0.0.1",
        value_name = "ADDRESS"
    )]
    pub pod_ip: IpAddr,
}
