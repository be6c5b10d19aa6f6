//! Settings of what is believed of requests, as written.

use clap::Args;

/// Settings of what is believed of requests, as written.
#[derive(Clone, Debug, Args)]
pub struct RawTrust {
    /// Pass header fields on whose names have underscores or other punctuation than dashes.
    /// Without it hosts of Ingresses drop them all, as nginx does, and others those that servers
    /// take for fields that the proxy sets, verifies or frames by.
    #[arg(long, env = "MYRIAD_UNDERSCORES_IN_HEADERS")]
    pub underscores_in_headers: bool,
}
