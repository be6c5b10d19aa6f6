//! Settings of injection as written.

use clap::Args;
use myriad_sidecar::inject::RawSidecar;

/// Settings of the webhook as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Injection")]
pub struct RawInjection {
    /// Where API servers ask what becomes of Pods: ADDRESS:PORT, or a port on every IPv4 address.
    /// Without it no Pod gets a proxy on its way into the cluster.
    #[arg(long, env = "MYRIAD_WEBHOOK", value_name = "ADDRESS")]
    pub webhook: Option<String>,
    /// The MutatingWebhookConfiguration that leads API servers there.
    #[arg(
        long,
        env = "MYRIAD_WEBHOOK_CONFIGURATION",
        default_value = "myriad",
        value_name = "NAME"
    )]
    pub webhook_configuration: String,
    /// Settings of the proxies.
    #[command(flatten)]
    pub sidecar: RawSidecar,
}
