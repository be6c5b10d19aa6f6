//! Settings of how many regexes objects may have.

use clap::Args;

/// Settings of regexes, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Objects")]
pub struct RawRegexes {
    /// The most different regexes of one host, in paths, conditions, rewrites and origins. What is
    /// beyond it has no effect or, where it restricts, closes what it may take, and a finding says
    /// so.
    #[arg(
        long,
        env = "MYRIAD_REGEXES_PER_HOST",
        default_value_t = 256,
        value_name = "COUNT"
    )]
    pub regexes_per_host: usize,
}
