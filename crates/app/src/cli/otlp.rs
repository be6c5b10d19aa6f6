//! Settings of what is sent to a collector of OpenTelemetry.

use clap::Args;

/// Settings of what is sent to a collector of OpenTelemetry, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logs and metrics")]
pub struct RawOtlp {
    /// Send metrics to this collector by OTLP over HTTP, under /v1/metrics below its path. The port
    /// is 4318 where none is given.
    #[arg(
        long = "otlp",
        env = "MYRIAD_OTLP",
        value_name = "http://HOST[:PORT][/PATH]"
    )]
    pub collector: Option<String>,
    /// Seconds between two times that metrics are sent, 1 to 3600.
    #[arg(
        long = "otlp-interval",
        env = "MYRIAD_OTLP_INTERVAL",
        default_value_t = 60,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3_600)
    )]
    pub interval: u64,
}
