//! Settings of a controller's console, as written.

use clap::Args;

/// Settings of a controller's console, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Process")]
pub struct RawConsole {
    /// Show the console to those whom the API server knows by a token and allows to get
    /// /myriad/console: by TokenReview and SubjectAccessReview, beside `--console-token-file`.
    #[arg(long, env = "MYRIAD_CONSOLE_REVIEWS")]
    pub console_reviews: bool,
}
