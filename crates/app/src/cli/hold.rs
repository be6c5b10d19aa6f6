//! Settings of when much that is missing is held, as written.

use clap::Args;

use super::RawQuestion;

/// Settings of holds, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Holds")]
pub struct RawHold {
    /// Hold removals that nobody asked for, because objects are only missing, if they would take
    /// more than this part of the domains, in percent; 100 holds nothing.
    #[arg(
        long,
        env = "MYRIAD_HOLD_PERCENT",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(0..=100),
        value_name = "PERCENT"
    )]
    pub hold_percent: u32,
    /// Hold them only if they would take more than this many domains as well.
    #[arg(
        long,
        env = "MYRIAD_HOLD_DOMAINS",
        default_value_t = 50,
        value_name = "COUNT"
    )]
    pub hold_domains: u32,
    /// Let them take effect after so many seconds by themselves [default: not before `myriad
    /// confirm`].
    #[arg(long, env = "MYRIAD_HOLD_FOR", value_name = "SECONDS")]
    pub hold_for: Option<u32>,
}

/// Settings of a source that does not answer, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Process")]
pub struct RawContact {
    /// Be not ready, and let proxies move to another controller, when the API server has not
    /// answered for so many seconds.
    #[arg(
        long,
        env = "MYRIAD_LOST_AFTER",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..),
        value_name = "SECONDS"
    )]
    pub lost_after: u32,
}

/// Settings of `confirm` as written.
#[derive(Clone, Debug, Args)]
pub struct RawConfirm {
    /// The process to tell.
    #[command(flatten)]
    pub question: RawQuestion,
}
