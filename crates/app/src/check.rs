//! `check`: all findings about objects in files, without serving them.

mod honoured;

use std::io::Write;
use std::process::ExitCode;

use myriad_api::{Change, Finding, ObjectKey, Severity};
use myriad_base::clock;
use myriad_model::{Form, Sealer, Writer};
use myriad_source::directory::{self, Limits, Loaded};
use myriad_translate::Engine;

use crate::cli::RawCheck;
use crate::settings::Meaning;

/// Runs the command: findings on standard output, exit code 1 where one is an error.
///
/// # Errors
/// Settings that do not hold, or paths that cannot be read.
pub fn run(raw: &RawCheck) -> anyhow::Result<ExitCode> {
    let meaning = Meaning::check(&raw.meaning)?;
    let Loaded { batch, locator, .. } = directory::load(&raw.paths, &Limits::default())?;
    let objects: Vec<ObjectKey> = batch.changes.iter().map(Change::key).cloned().collect();
    // Versions are compared with nothing here, so the key does not matter.
    let writer = Writer::new(Sealer::new([0; 32], Form::Value));
    let mut engine = Engine::new(meaning.translate(), writer);
    engine.apply(batch.changes, clock::unix_seconds());
    let mut findings: Vec<Finding> = batch
        .reports
        .into_iter()
        .flat_map(|report| report.findings)
        .collect();
    findings.extend(engine.findings().cloned());
    for finding in &mut findings {
        if finding.place.is_none() {
            finding.place = finding.object.as_ref().and_then(|key| locator.locate(key));
        }
    }
    findings.sort_by(|a, b| (&a.place, a).cmp(&(&b.place, b)));
    findings.dedup();
    let accounts = match raw.honoured {
        true => honoured::tell(objects.iter(), engine.snapshot(), &findings),
        false => Vec::new(),
    };
    print(&findings, &accounts, objects.len())?;
    let has_errors = findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    Ok(if has_errors {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn print(findings: &[Finding], accounts: &[String], objects: usize) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for finding in findings {
        writeln!(out, "{finding}")?;
    }
    for account in accounts {
        writeln!(out, "{account}")?;
    }
    let count = |severity| {
        findings
            .iter()
            .filter(|found| found.severity == severity)
            .count()
    };
    writeln!(
        out,
        "{objects} objects: {} errors, {} warnings, {} notes",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Info),
    )
}
