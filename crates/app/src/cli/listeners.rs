//! Settings of where listeners are, as written.

use clap::Args;

/// Settings of listeners as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Listeners")]
pub struct RawListeners {
    /// Where HTTP is served: ADDRESS:PORT, or a port on every IPv4 address.
    #[arg(
        long,
        env = "MYRIAD_HTTP",
        default_value = "8080",
        value_name = "ADDRESS"
    )]
    pub http: String,
    /// Where HTTPS is served: ADDRESS:PORT, or a port on every IPv4 address.
    #[arg(
        long,
        env = "MYRIAD_HTTPS",
        default_value = "8443",
        value_name = "ADDRESS"
    )]
    pub https: String,
    /// The port in redirects to HTTPS [default: the HTTPS port; for a controller 443].
    #[arg(long, env = "MYRIAD_REDIRECT_PORT", value_name = "PORT")]
    pub redirect_port: Option<u16>,
}
