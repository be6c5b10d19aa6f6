//! Settings of the history, and of the commands that ask it, as written.

use clap::Args;
use myriad_translate::MAIN;

use super::RawQuestion;

/// Settings of the history as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Process")]
pub struct RawHistory {
    /// The most memory of the history that `myriad why`, `myriad diff` and `myriad explain --at`
    /// ask: bytes with KiB, MiB or GiB; 0 keeps none.
    #[arg(
        long,
        env = "MYRIAD_HISTORY_BYTES",
        default_value = "16MiB",
        value_name = "BYTES"
    )]
    pub history_bytes: String,
    /// Hours after which a commit is let go from the history, at most 168.
    #[arg(
        long,
        env = "MYRIAD_HISTORY_HOURS",
        default_value_t = 24,
        value_parser = clap::value_parser!(u64).range(1..=168),
        value_name = "HOURS"
    )]
    pub history_hours: u64,
}

/// Settings of `why` as written.
#[derive(Clone, Debug, Args)]
pub struct RawWhy {
    /// The domain, or a URL: http://HOST[:PORT][/PATH] or https://...
    pub domain: String,
    /// Tell the story of an earlier moment: 14:03 (UTC), -10m, or 2026-01-31T14:03:00Z.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true,
        value_name = "TIME"
    )]
    pub at: String,
    /// The gateway, of those that a controller has.
    #[arg(long, default_value = MAIN, value_name = "NAME")]
    pub view: String,
    /// The process to ask.
    #[command(flatten)]
    pub question: RawQuestion,
}

/// Settings of `diff` as written.
#[derive(Clone, Debug, Args)]
pub struct RawDiff {
    /// A moment: 14:03 (UTC), -10m, or 2026-01-31T14:03:00Z.
    #[arg(allow_hyphen_values = true, value_name = "TIME")]
    pub from: String,
    /// Another moment.
    #[arg(default_value = "now", allow_hyphen_values = true, value_name = "TIME")]
    pub to: String,
    /// Compare only what concerns this host.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "HOST"
    )]
    pub host: String,
    /// The gateway, of those that a controller has.
    #[arg(long, default_value = MAIN, value_name = "NAME")]
    pub view: String,
    /// The process to ask.
    #[command(flatten)]
    pub question: RawQuestion,
}
