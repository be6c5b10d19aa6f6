//! Settings that say which namespace has a host or may use a certificate, as written.

use clap::Args;

/// The settings that say which namespace has a host or may use a certificate.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Objects")]
pub struct RawSharing {
    /// Reach of a host's sharing: its owner's `namespace`, or the whole `cluster`.
    #[arg(
        long,
        env = "MYRIAD_HOST_SHARING",
        default_value = "namespace",
        value_name = "SCOPE"
    )]
    pub host_sharing: String,
    /// Namespaces whose hosts below wildcards of others are served over HTTPS too, with the
    /// certificates of those; `*` for all [default: none].
    #[arg(
        long,
        env = "MYRIAD_WILDCARD_SHARING",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub wildcard_sharing: Vec<String>,
    /// Secrets of the gateway's namespace that Istio's Gateways and DestinationRules of other
    /// namespaces may use: `any`, or those `named`, whose annotation names their namespace
    /// [default: any; for a controller named].
    #[arg(
        long,
        env = "MYRIAD_GATEWAY_CREDENTIALS",
        value_name = "any|named",
        help_heading = "Gateways"
    )]
    pub gateway_credentials: Option<String>,
}
