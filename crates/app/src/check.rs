//! `check`: all findings about objects in files, without serving them.

mod annotations;
mod config_maps;
mod form;
mod honoured;
mod passed;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use myriad_api::{Change, Finding, ObjectKey, ObjectKind};
use myriad_base::clock;
use myriad_model::{Form, Sealer, Writer};
use myriad_source::directory::{self, Limits, Loaded, Locator, Passed};
use myriad_translate::Engine;

use self::form::CheckReport;
use crate::cli::RawCheck;
use crate::settings::Meaning;

/// Runs the command: findings on standard output, exit code 1 where one is an error.
///
/// # Errors
/// Settings that do not hold, or paths that cannot be read.
pub fn run(raw: &RawCheck) -> anyhow::Result<ExitCode> {
    let meaning = Meaning::check(&raw.meaning, &raw.endpoints)?;
    let Loaded {
        batch,
        locator,
        mut passed,
        ..
    } = directory::load(&raw.paths, &Limits::default())?;
    let named = meaning.nginx_config_map.as_ref();
    let maps: BTreeSet<String> = batch.changes.iter().flat_map(config_maps::named).collect();
    // Others are looked at, and have no effect.
    let is_read = |key: &&ObjectKey| {
        let is_named = || Some(*key) == named || maps.contains(&**key.id());
        key.kind != ObjectKind::ConfigMap || is_named()
    };
    let keys = batch.changes.iter().map(Change::key);
    let objects: Vec<ObjectKey> = keys.filter(is_read).cloned().collect();
    pass_over(batch.changes.len() - objects.len(), &mut passed);
    let signs = upgrade::signs_of(&batch.changes);
    // Versions are compared with nothing here, so the key does not matter.
    let writer = Writer::new(Sealer::new([0; 32], Form::Value));
    let mut engine = Engine::new(meaning.translate(), writer);
    engine.apply(batch.changes, clock::unix_seconds());
    let mut findings: Vec<Finding> = batch
        .reports
        .into_iter()
        .flat_map(|report| report.findings)
        .collect();
    let of_files = findings.len();
    findings.extend(engine.findings().cloned());
    locate(&locator, findings.get_mut(of_files..).unwrap_or_default());
    findings.sort_by(|a, b| (&a.place, a).cmp(&(&b.place, b)));
    findings.dedup();
    let honoured = match raw.honoured {
        true => honoured::tell(objects.iter(), engine.snapshot(), &findings),
        false => Vec::new(),
    };
    let report = CheckReport {
        objects: objects.len(),
        annotations: annotations::sum_up(&findings),
        not_read: passed::kinds(&passed),
        upgrade: raw.upgrade.then(|| upgrade::judge(&signs, &findings)),
        honoured,
        findings: &findings,
    };
    report.print(raw.output, &mut std::io::stdout().lock())?;
    Ok(match report.has_errors() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Counts ConfigMaps that have no effect as objects that are not read.
fn pass_over(config_maps: usize, passed: &mut BTreeMap<Passed, usize>) {
    if config_maps > 0 {
        let kind = ObjectKind::ConfigMap;
        let kind = Passed {
            api_version: kind.api_version().into(),
            kind: kind.as_str().into(),
        };
        *passed.entry(kind).or_default() += config_maps;
    }
}

/// Gives findings the line of their field, in the order of their documents, each of which is then
/// read once.
fn locate(locator: &Locator, findings: &mut [Finding]) {
    findings.sort_by_cached_key(|finding| {
        let object = finding.object.as_ref();
        object.and_then(|key| locator.locate(key))
    });
    let mut fields = locator.fields();
    for finding in findings {
        if finding.place.is_none()
            && let Some(key) = &finding.object
        {
            finding.place = fields.locate(key, &finding.field);
        }
    }
}
