//! `completions`: what a shell needs to complete commands and flags.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::cli::completions::RawCompletions;

/// Runs the command: a script for the shell on standard output.
///
/// # Errors
/// Standard output cannot be written to.
pub fn run(raw: &RawCompletions) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(raw.shell, &mut Cli::command(), "myriad", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
