//! Settings of `explain`, as written.

use std::path::PathBuf;

use clap::Args;
use myriad_translate::MAIN;

use super::endpoints::RawEndpoints;
use super::{RawMeaning, RawQuestion};

/// Settings of `explain` as written.
#[derive(Clone, Debug, Args)]
pub struct RawExplain {
    /// The URL of the request: http://HOST[:PORT][/PATH] or https://..., and udp://HOST[:PORT] for
    /// datagrams.
    pub url: String,
    /// Files and directories to explain it from, instead of a running process.
    pub paths: Vec<PathBuf>,
    /// The method of the request.
    #[arg(long, default_value = "GET", value_name = "METHOD")]
    pub method: String,
    /// A header of the request; may be given more than once.
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// The gateway that it is sent to, of those that a controller has.
    #[arg(long, default_value = MAIN, value_name = "NAME")]
    pub view: String,
    /// The address of the client, which policies and source ranges are about; 127.0.0.1 if none is
    /// given.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "ADDRESS"
    )]
    pub client: String,
    /// The name in the TLS handshake, where it is not the host of the URL.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    pub sni: String,
    /// Explain what the request would have met at an earlier moment, of those that the history
    /// has: 14:03 (UTC), -10m, or 2026-01-31T14:03:00Z.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true,
        value_name = "TIME"
    )]
    pub at: String,
    /// The claims of a token, as JSON, which count as verified.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "JSON"
    )]
    pub claims: String,
    /// The process to ask.
    #[command(flatten)]
    pub question: RawQuestion,
    /// Addresses that endpoints in files may have.
    #[command(flatten)]
    pub endpoints: RawEndpoints,
    /// How objects in files are read.
    #[command(flatten)]
    pub meaning: RawMeaning,
}
