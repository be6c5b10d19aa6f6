//! Settings of what is told of requests, to endpoints and to people.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Settings of what is told of requests, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logs and metrics")]
pub struct RawRequests {
    /// Write the access log to this file, which SIGUSR1 opens anew, and not to standard output.
    #[arg(long, env = "MYRIAD_ACCESS_LOG_FILE", value_name = "FILE")]
    pub access_log_file: Option<PathBuf>,
    /// Send the access log to the collector that --otlp names, under /v1/logs, and not to standard
    /// output.
    #[arg(long, env = "MYRIAD_ACCESS_LOG_OTLP")]
    pub access_log_otlp: bool,
    /// The format of the access log: `json`, `text`, a line with operators of Envoy, as
    /// '%START_TIME% %RESPONSE_CODE%', or an object of such, as '{"status": "%RESPONSE_CODE%"}'.
    /// Istio's Telemetry may say otherwise.
    #[arg(
        long,
        env = "MYRIAD_ACCESS_LOG_FORMAT",
        default_value = "json",
        value_name = "FORMAT"
    )]
    pub access_log_format: String,
    /// How many domains, and how many objects with routes, have series of metrics of their own, at
    /// most 100: those that have most. All others are counted together.
    #[arg(
        long,
        env = "MYRIAD_TOP_SERIES",
        default_value_t = 10,
        value_name = "N"
    )]
    pub top_series: usize,
    /// The X-Request-ID that endpoints and the access log get: `keep` takes that of the client
    /// where it is well formed and makes one otherwise, `replace` always makes one, `pass` passes
    /// on what was sent and makes none.
    #[arg(
        long,
        env = "MYRIAD_REQUEST_ID",
        default_value = "keep",
        value_name = "RULE",
        value_enum
    )]
    pub request_id: RequestId,
}

/// The treatment of clients' request ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RequestId {
    /// One that a client sent is kept.
    Keep,
    /// One is always made.
    Replace,
    /// An id that was sent is passed on, and none made.
    Pass,
}
