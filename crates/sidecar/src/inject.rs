//! `inject`: the proxy beside a workload, written into the Pods that people wrote without it.
//!
//! The same change is made to objects in files by the command, and to Pods on their way into a
//! cluster by the webhook of the controller.

mod annotation;
mod decision;
mod manifest;
mod pod;
mod probe;
mod sidecar;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

pub use decision::{Decision, Labels, Reason, decide};
pub use pod::{Injected, inject};
pub use sidecar::{RawSidecar, RawSidecarHold, Sidecar};

/// Settings of `inject` as written.
#[derive(Clone, Debug, Args)]
pub struct RawInject {
    /// A file of objects; `-` is standard input. May be given more than once.
    #[arg(short, long, required = true, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// The settings of the proxies.
    #[command(flatten)]
    pub sidecar: RawSidecar,
}

/// Runs the command: the objects of the files with proxies, on standard output.
///
/// # Errors
/// Settings that do not hold, files that cannot be read, a Pod whose annotations do not hold.
pub fn run(raw: &RawInject) -> anyhow::Result<ExitCode> {
    let sidecar = Sidecar::check(&raw.sidecar)?;
    manifest::inject_files(&raw.file, &sidecar)?;
    Ok(ExitCode::SUCCESS)
}
