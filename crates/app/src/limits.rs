//! `myriad limits`: every limit with its default, range and count.

use std::io::Write;
use std::process::ExitCode;

use myriad_proxy::limits_markdown;

/// Writes the table to standard output.
///
/// # Errors
/// The errors of standard output.
pub fn run() -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(limits_markdown().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
