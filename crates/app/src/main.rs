//! The binary: parses, runs, maps errors to exit codes.

use std::process::ExitCode;

use clap::Parser;
use myriad::cli::{Cli, Command};

/// Tight size classes and few arenas: millions of small values live long here.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(raw) => myriad::serve::run(&raw),
        Command::Controller(raw) => myriad::controller::run(&raw),
        Command::Proxy(raw) => myriad::follower::run(&raw),
        Command::Check(raw) => myriad::check::run(&raw),
        Command::Status(raw) => myriad::status::run(&raw),
        Command::Confirm(raw) => myriad::confirm::run(&raw),
        Command::Explain(raw) => myriad::explain::run(&raw),
        Command::Trace(raw) => myriad::trace::run(&raw),
        Command::Why(raw) => myriad::why::run(&raw),
        Command::Diff(raw) => myriad::diff::run(&raw),
        Command::Inject(raw) => myriad_sidecar::inject::run(&raw),
        Command::Redirect(raw) => myriad_sidecar::redirect::run(&raw),
        Command::Limits => myriad::limits::run(),
        Command::Metrics => myriad::metrics::run(),
        Command::Completions(raw) => myriad::completions::run(&raw),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            tracing::debug!(?error, "stopped by an error");
            myriad::cli::complain(&error);
            ExitCode::from(2)
        }
    }
}
