//! `status`: how a process is, who follows it, and where an Ingress is live.

pub mod report;
#[cfg(test)]
mod tests;
mod text;

use std::process::ExitCode;

use anyhow::Context as _;

use crate::ask;
use crate::cli::{RawStatus, StatusSubject};
use report::{IngressReport, ProcessReport};

/// Runs the command: exit code 1 where the process is not ready, or the Ingress is not live on
/// every proxy.
///
/// # Errors
/// Nobody answers, or standard output takes nothing.
pub fn run(raw: &RawStatus) -> anyhow::Result<ExitCode> {
    let is_well = match &raw.subject {
        None => {
            let report: ProcessReport = ask::ask(&raw.question, report::PATH, &[])?;
            ask::print(&raw.question, &report)?;
            report.waiting_for.is_empty()
        }
        Some(StatusSubject::Ingress { name }) => {
            let (namespace, name) = name
                .split_once('/')
                .with_context(|| format!("{name:?} is not NAMESPACE/NAME"))?;
            let parameters = [("namespace", namespace), ("name", name)];
            let report: IngressReport = ask::ask(&raw.question, report::INGRESS_PATH, &parameters)?;
            ask::print(&raw.question, &report)?;
            report.is_live()
        }
    };
    Ok(match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
