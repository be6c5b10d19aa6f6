//! Settings of every process that goes on, as written.

use std::path::PathBuf;

use clap::Args;

use super::otlp::RawOtlp;

/// Settings of every process that goes on, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Process")]
pub struct RawProcess {
    /// Address of health, metrics and the configuration dump.
    #[arg(
        long,
        env = "MYRIAD_ADMIN",
        default_value = "127.0.0.1:9901",
        value_name = "ADDRESS"
    )]
    pub admin: String,
    /// Names by which the admin address may be called, beside IP addresses and localhost. Requests
    /// with another Host are refused, as they may come from a page of a stranger.
    #[arg(
        long,
        env = "MYRIAD_ADMIN_HOSTS",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub admin_hosts: Vec<String>,
    /// Show a console under /console of the admin address, to those who know the token in this
    /// file: one word of at least 16 characters. It is off without.
    #[arg(long, env = "MYRIAD_CONSOLE_TOKEN_FILE", value_name = "FILE")]
    pub console_token_file: Option<PathBuf>,
    /// Log level of standard error: a level, or a list of target=level.
    #[arg(
        long,
        env = "MYRIAD_LOG",
        default_value = "info",
        value_name = "FILTER",
        help_heading = "Logs and metrics"
    )]
    pub log: String,
    /// A collector of metrics.
    #[command(flatten)]
    pub otlp: RawOtlp,
}
