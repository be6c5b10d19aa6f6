//! Settings of where endpoints may be, as written.

use clap::Args;

/// Settings of endpoints as written.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Endpoints")]
pub struct RawEndpoints {
    /// Blocks of addresses that endpoints may have although they are of the gateway's own machine,
    /// its link or its cloud's metadata, which `controller` and `proxy` refuse; `serve`, `check`
    /// and `explain` allow them. Where the process itself listens no endpoint is.
    #[arg(
        long,
        env = "MYRIAD_ENDPOINT_ALLOW",
        value_delimiter = ',',
        value_name = "CIDR,..."
    )]
    pub endpoint_allow: Vec<String>,
    /// Blocks of addresses that no endpoint may have, although they are allowed otherwise.
    #[arg(
        long,
        env = "MYRIAD_ENDPOINT_DENY",
        value_delimiter = ',',
        value_name = "CIDR,..."
    )]
    pub endpoint_deny: Vec<String>,
}
