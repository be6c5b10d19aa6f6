//! Settings of what a controller makes and writes for objects of tenants, as written.

use std::path::PathBuf;

use clap::Args;

/// Settings of what is made and written for objects of tenants, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Gateways")]
pub struct RawDeployments {
    /// A file that says how the proxies of a Gateway of Gateway API are deployed that has some of
    /// its own, in the Gateway's namespace. Without it none are. Read once, at the start.
    #[arg(long, env = "MYRIAD_GATEWAY_DEPLOYMENTS", value_name = "FILE")]
    pub gateway_deployments: Option<PathBuf>,
    /// Give each Ingress the annotation myriad.dev/live: the generation that all ready proxies
    /// serve, and since when. Needs the right to change Ingresses.
    #[arg(long, env = "MYRIAD_LIVE_ANNOTATIONS")]
    pub live_annotations: bool,
}
