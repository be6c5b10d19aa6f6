//! Settings of `completions`.

use clap::Args;
use clap_complete::Shell;

/// Settings of `completions` as written.
#[derive(Clone, Debug, Args)]
pub struct RawCompletions {
    /// The shell. In bash: `source <(myriad completions bash)`.
    #[arg(value_enum)]
    pub shell: Shell,
}
