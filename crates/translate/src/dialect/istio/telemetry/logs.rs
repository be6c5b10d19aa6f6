//! Access logs.

use myriad_api::Severity;
use myriad_api::istio::telemetry::{AccessLogging, TelemetrySpec};
use myriad_model::{AccessLog, Condition};

use super::{Tell, expression, is_for_client, judge_providers, provider_of, usual_log};
use crate::settings::{MeshTelemetry, ProviderForm};

/// The access logs of all levels; none leaves the log to the proxy's setting.
pub(super) fn merge(
    levels: &[&TelemetrySpec],
    mesh: &MeshTelemetry,
    tell: Tell<'_>,
) -> Option<Box<[AccessLog]>> {
    let read = levels.iter().map(|level| read(level, mesh, tell));
    let read: Vec<Vec<(&AccessLogging, Option<Condition>)>> = read.collect();
    if read.iter().all(Vec::is_empty) && mesh.logging.is_empty() {
        return mesh.access_log.clone().map(|log| [log].into());
    }
    let mut usual: Vec<&str> = mesh.logging.iter().map(|name| &**name).collect();
    if usual.is_empty() {
        usual.push(NAMELESS);
    }
    // The last level that names providers says which are meant at all.
    let mut meant = usual.clone();
    for level in &read {
        let named: Vec<&str> = level.iter().flat_map(|(rule, _)| named(rule)).collect();
        if !named.is_empty() {
            meant = named;
        }
    }
    let mut logs: Vec<(&str, Option<Condition>)> = Vec::new();
    if read.iter().all(Vec::is_empty) {
        logs.extend(usual.iter().map(|name| (*name, None)));
    }
    let mut inherited = usual;
    for (rule, filter) in read.iter().flatten() {
        let own: Vec<&str> = named(rule).collect();
        if !own.is_empty() {
            inherited = own;
        }
        for name in inherited.iter().filter(|name| meant.contains(name)) {
            logs.retain(|(known, _)| known != name);
            if rule.disabled != Some(true) {
                logs.push((name, filter.clone()));
            }
        }
    }
    let logs = logs.into_iter().filter_map(|(name, filter)| {
        let log = match name {
            NAMELESS => Some(mesh.access_log.clone().unwrap_or_else(usual_log)),
            name => match provider_of(name, mesh) {
                Some(ProviderForm::Log(log)) => Some(log),
                _ => None,
            },
        };
        log.map(|log| AccessLog { filter, ..log })
    });
    Some(logs.take(myriad_model::Telemetry::LOGS_MAX).collect())
}

/// Stands for the log that is there where nobody names a provider.
const NAMELESS: &str = "";

fn named(rule: &AccessLogging) -> impl Iterator<Item = &str> {
    rule.providers.iter().map(|provider| &*provider.name)
}

/// The rules of a level that are for the gateway, with their conditions.
fn read<'a>(
    level: &'a TelemetrySpec,
    mesh: &MeshTelemetry,
    tell: Tell<'_>,
) -> Vec<(&'a AccessLogging, Option<Condition>)> {
    let mut rules = Vec::new();
    for (at, rule) in level.access_logging.iter().enumerate() {
        let field = format!("spec.accessLogging[{at}]");
        if !is_for_client(rule.selector, &field, tell) {
            continue;
        }
        let is_log = |form: &ProviderForm| matches!(form, ProviderForm::Log(_));
        judge_providers(&rule.providers, mesh, &field, is_log, tell);
        let parsed = rule
            .filter
            .as_ref()
            .map(|filter| expression::parse(&filter.expression))
            .transpose();
        let filter = parsed.unwrap_or_else(|problem| {
            let problem = format!("{problem}, so there is a line for every request");
            let remedy = "write it with what docs/istio-reference.md has of CEL";
            let field = format!("{field}.filter.expression");
            tell(Severity::Error, field, problem, remedy);
            None
        });
        rules.push((rule, filter));
    }
    rules
}
