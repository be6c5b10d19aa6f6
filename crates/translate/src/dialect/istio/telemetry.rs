//! Telemetry: what the proxies of a workload record.
//!
//! Istio's levels are the root namespace, the workload's namespace and its selectors, each of
//! which adds to the one before. All of them together are one resource for each view; what is
//! wrong with one object is told by its own unit.

mod expression;
pub mod format;
mod logs;
mod metrics;
mod tracing;

use std::sync::Arc;

use myriad_api::istio::Telemetry as Object;
use myriad_api::istio::telemetry::{ModeSelector, ProviderRef, TelemetrySpec, WorkloadMode};
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{
    AccessLog, LogFormat, LogSink, Name, Origin, OriginKind, Resource, Telemetry, Value,
};

use crate::engine::{Output, Reader, Unit};
use crate::resolve::notes;
use crate::settings::{MeshTelemetry, ProviderForm, Settings};

/// The name of the resource.
pub const NAME: &str = "gateway";

/// The access log that Istio has under the name `envoy`.
pub fn usual_log() -> AccessLog {
    let text = format::parse(format::USUAL, &mut Vec::new()).unwrap_or_default();
    AccessLog {
        sink: LogSink::Output,
        format: LogFormat::Text(text),
        filter: None,
    }
}

/// Whether there is something to record even without any Telemetry.
pub fn is_always(settings: &Settings) -> bool {
    settings.telemetry != MeshTelemetry::default()
}

/// Translates all of them together.
pub fn translate(reader: &mut Reader<'_>) -> Output {
    let mut output = Output::default();
    let settings = reader.settings();
    let found = find(reader);
    if found.is_empty() && !is_always(settings) {
        return output;
    }
    let levels = levels(&found, reader);
    let specs: Vec<&TelemetrySpec> = levels.iter().map(|level| &level.spec).collect();
    let mesh = &settings.telemetry;
    let mut deaf = |_: Severity, _: String, _: String, _: &'static str| {};
    let telemetry = Telemetry {
        logs: logs::merge(&specs, mesh, &mut deaf),
        metrics: metrics::merge(&specs, mesh, &mut deaf),
        tracing: tracing::merge(reader, &specs, &mut output).map(Box::new),
    };
    if telemetry == Telemetry::default() {
        return output;
    }
    let origin = levels.last().map_or_else(Origin::settings, |level| Origin {
        kind: OriginKind::Telemetry,
        id: level.meta.key.id().clone(),
    });
    let value = Value::Telemetry(Box::new(telemetry));
    let resource = Resource { origin, value };
    output.resources.push((Name::from(NAME), resource));
    output
}

/// Says what is wrong with one object.
pub fn judge(reader: &mut Reader<'_>, object: &Object) -> Output {
    let mut output = Output::default();
    let (key, spec) = (&object.meta.key, &object.spec);
    let settings = reader.settings();
    output.findings = notes(key, &object.notes);
    let findings = &mut output.findings;
    let mut tell = |severity, field: String, problem: String, remedy| {
        findings.push(Finding::new(severity, key, field, problem, remedy));
    };
    let (is_root, is_own) = places(reader, key);
    if !is_root && !reader.is_served(key.namespace()) {
        let remedy = "write it in the namespace of --gateway-namespace if it is for the gateway";
        let problem = "is for workloads of its own namespace, which are not served here";
        tell(Severity::Info, String::new(), problem.into(), remedy);
        output.doubts.append(&mut output.findings);
        return output;
    }
    if has_target(spec) {
        let problem = "is for an object of another API, so it has no effect here";
        let remedy = "name the gateway by spec.selector instead";
        tell(
            Severity::Error,
            "spec.targetRefs".into(),
            problem.into(),
            remedy,
        );
        return output;
    }
    if !(is_root || is_own) || !is_selected(spec, reader) {
        let problem = "selects other workloads, which are not served here";
        let remedy = "compare it with --gateway-labels if it is for the gateway";
        tell(
            Severity::Info,
            "spec.selector".into(),
            problem.into(),
            remedy,
        );
        output.doubts.append(&mut output.findings);
        return output;
    }
    output.is_concerned = true;
    output.needs.push(Unit::telemetry());
    let found = find(reader);
    let first = levels(&found, reader).into_iter().find(|level| {
        let is_same_place = level.meta.key.namespace() == key.namespace();
        is_same_place && has_selector(&level.spec) == has_selector(spec)
    });
    if let Some(first) = first.filter(|first| first.meta.key != *key) {
        let problem = format!(
            "has no effect beside the older Telemetry {}, which is for the same workloads",
            first.meta.key.id()
        );
        let remedy = "write both into one object";
        tell(Severity::Error, String::new(), problem, remedy);
        return output;
    }
    let mesh = &settings.telemetry;
    logs::merge(&[spec], mesh, &mut tell);
    metrics::merge(&[spec], mesh, &mut tell);
    tracing::read(&[spec], mesh, &mut tell);
    output
}

/// Reports a problem: how bad it is, its field, the problem, and the remedy.
type Tell<'a> = &'a mut dyn FnMut(Severity, String, String, &'static str);

/// The objects of the root namespace and of that of the view.
fn find(reader: &mut Reader<'_>) -> Vec<Arc<Object>> {
    let root = reader.settings().root_namespace();
    let own = reader.view().namespace();
    let mut found = reader.telemetries(root);
    if own != root {
        found.extend(reader.telemetries(own));
    }
    found
}

/// Whether an object is of the root namespace, and whether of that of the view.
fn places(reader: &Reader<'_>, key: &ObjectKey) -> (bool, bool) {
    let is_root = key.namespace() == reader.settings().root_namespace();
    (is_root, reader.view().is_of(key.namespace()))
}

/// The objects that hold for the view, the broadest first: of each level the oldest.
fn levels<'a>(found: &'a [Arc<Object>], reader: &Reader<'_>) -> Vec<&'a Arc<Object>> {
    let mut found: Vec<&Arc<Object>> = found
        .iter()
        .filter(|it| !has_target(&it.spec) && is_selected(&it.spec, reader))
        .collect();
    found.sort_by(|a, b| (a.meta.created, &a.meta.key).cmp(&(b.meta.created, &b.meta.key)));
    let root = reader.settings().root_namespace();
    let of = |is_root: bool, has: bool| {
        let mut found = found.iter();
        found.find(|it| {
            (it.meta.key.namespace() == root) == is_root && has_selector(&it.spec) == has
        })
    };
    // Without selector before those with one, and the root namespace before the own one.
    [(true, false), (false, false), (true, true), (false, true)]
        .into_iter()
        .filter_map(|(is_root, has)| of(is_root, has).copied())
        .collect()
}

fn has_target(spec: &TelemetrySpec) -> bool {
    spec.target_ref.is_some() || !spec.target_refs.is_empty()
}

fn has_selector(spec: &TelemetrySpec) -> bool {
    let selector = spec.selector.as_ref();
    selector.is_some_and(|selector| !selector.match_labels.is_empty())
}

fn is_selected(spec: &TelemetrySpec, reader: &Reader<'_>) -> bool {
    let selector = spec.selector.as_ref();
    selector.is_none_or(|selector| reader.view().has_labels(&selector.match_labels))
}

/// Whether a rule is for what a gateway does, which is to make requests.
fn is_for_client(selector: Option<ModeSelector>, field: &str, tell: Tell<'_>) -> bool {
    let is_server = selector.is_some_and(|selector| selector.mode == WorkloadMode::Server);
    if is_server {
        let problem = "is for requests that a workload serves, and a gateway counts as a client";
        let remedy = "write CLIENT or CLIENT_AND_SERVER if it is for the gateway";
        let field = format!("{field}.match.mode");
        tell(Severity::Info, field, problem.to_owned(), remedy);
    }
    !is_server
}

/// Names providers that are not there, or not of the form that is wanted.
fn judge_providers(
    providers: &[ProviderRef],
    mesh: &MeshTelemetry,
    field: &str,
    is_it: impl Fn(&ProviderForm) -> bool,
    tell: Tell<'_>,
) {
    for (at, provider) in providers.iter().enumerate() {
        let problem = match provider_of(&provider.name, mesh) {
            Some(form) if is_it(&form) => continue,
            Some(ProviderForm::Other(field)) => {
                format!("names a provider of the form {field}, which is not honoured")
            }
            Some(_) => "names a provider of another form, so it has no effect".to_owned(),
            None => format!("names the provider {}, which is not defined", provider.name),
        };
        let remedy = "define it in extensionProviders of --mesh-config, in a form that \
                      docs/istio-reference.md has";
        let field = format!("{field}.providers[{at}]");
        tell(Severity::Error, field, problem, remedy);
    }
}

/// The provider of a name. Istio has two where nobody defines them.
fn provider_of(name: &str, mesh: &MeshTelemetry) -> Option<ProviderForm> {
    let mut written = mesh.providers.iter();
    let written = written.find(|it| *it.name == *name);
    match (written, name) {
        (Some(provider), _) => Some(provider.form.clone()),
        (None, "envoy") => Some(ProviderForm::Log(usual_log())),
        (None, "prometheus") => Some(ProviderForm::Prometheus),
        (None, _) => None,
    }
}

/// The finding of a collector that is not there.
fn lost(key: &ObjectKey, problem: &str, provider: &str) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        "",
        format!("{problem}, so no spans reach the extension provider {provider}"),
        "create the Service, or correct service and port in --mesh-config",
    )
}
