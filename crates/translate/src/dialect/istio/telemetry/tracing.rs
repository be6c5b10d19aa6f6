//! Tracing.

use std::sync::Arc;

use myriad_api::istio::telemetry::{CustomTag, TelemetrySpec, Tracing as Rule};
use myriad_api::{BackendPort, ObjectKey, ObjectKind, Severity};
use myriad_model::{
    Attribute, Name, Protocol, Share, SpanTag, Telemetry, TraceProtocol, Tracing, is_token,
};

use super::{Tell, format, is_for_client, judge_providers, lost, provider_of};
use crate::engine::{Output, Reader, Unit};
use crate::resolve::names;
use crate::resolve::upstream::{self, PortFound};
use crate::settings::{MeshTelemetry, ProviderForm, SpanService};

/// The tracing that all levels ask for together.
pub(super) struct TracingPlan {
    provider: Box<str>,
    service: SpanService,
    sampled: Share,
    tags: Vec<SpanTag>,
    is_silent: bool,
    keeps_context: bool,
    ignores_request_id: bool,
}

/// How requests are traced; none for not.
pub(super) fn merge(
    reader: &mut Reader<'_>,
    levels: &[&TelemetrySpec],
    output: &mut Output,
) -> Option<Tracing> {
    let settings = reader.settings();
    let mut deaf = |_: Severity, _: String, _: String, _: &'static str| {};
    let plan = read(levels, &settings.telemetry, &mut deaf)?;
    let upstream = match find(reader, &plan.service) {
        Ok(unit) => {
            output.needs.push(Unit::upstream(unit.clone()));
            Name::new(unit)
        }
        Err((id, problem)) => {
            let (namespace, name) = id.split_once('/').unwrap_or(("", &id));
            let key = ObjectKey::new(ObjectKind::Service, namespace, name);
            output.findings.push(lost(&key, &problem, &plan.provider));
            Name::new(format!("{id}:{}", plan.service.port))
        }
    };
    let host = plan.service.service.rsplit('/').next().unwrap_or_default();
    Some(Tracing {
        upstream,
        authority: format!("{host}:{}", plan.service.port).into(),
        protocol: plan.service.protocol,
        timeout: plan.service.timeout,
        sampled: plan.sampled,
        service_name: service_name(reader).into(),
        tags: plan.tags.into(),
        is_silent: plan.is_silent,
        keeps_context: plan.keeps_context,
        ignores_request_id: plan.ignores_request_id,
        headers: plan.service.headers,
    })
}

/// Reads all levels; none where nothing is traced.
pub(super) fn read(
    levels: &[&TelemetrySpec],
    mesh: &MeshTelemetry,
    tell: Tell<'_>,
) -> Option<TracingPlan> {
    let mut provider = mesh.tracing.first().cloned();
    let mut plan = TracingPlan {
        provider: Box::default(),
        service: SpanService {
            service: Box::default(),
            port: 0,
            protocol: TraceProtocol::Grpc,
            timeout: std::time::Duration::ZERO,
            headers: Box::default(),
        },
        sampled: mesh.sampled,
        tags: Vec::new(),
        is_silent: false,
        keeps_context: false,
        ignores_request_id: false,
    };
    for level in levels {
        for (at, rule) in level.tracing.iter().enumerate() {
            let field = format!("spec.tracing[{at}]");
            if !is_for_client(rule.selector, &field, tell) {
                continue;
            }
            let is_spans = |form: &ProviderForm| matches!(form, ProviderForm::Spans(_));
            judge_providers(&rule.providers, mesh, &field, is_spans, tell);
            if let Some(named) = rule.providers.first() {
                provider = Some(named.name.clone());
            }
            if rule.providers.len() > 1 {
                let problem = "has more than one provider, of which the first is taken";
                let remedy = "name one provider";
                let field = format!("{field}.providers");
                tell(Severity::Warning, field, problem.to_owned(), remedy);
            }
            apply(rule, &field, &mut plan, tell);
        }
    }
    let provider = provider?;
    let Some(ProviderForm::Spans(service)) = provider_of(&provider, mesh) else {
        return None;
    };
    plan.provider = provider;
    plan.service = service;
    plan.tags.truncate(Telemetry::PARTS_MAX);
    Some(plan)
}

fn apply(rule: &Rule, field: &str, plan: &mut TracingPlan, tell: Tell<'_>) {
    if let Some(percent) = rule.random_sampling_percentage {
        match (0.0..=100.0).contains(&percent) {
            true => {
                let ppm = (percent * 10_000.0).round() as u32;
                plan.sampled = Share::from_ppm(ppm).unwrap_or(plan.sampled);
            }
            false => {
                let problem = "is not from 0.0 to 100.0, so it has no effect".to_owned();
                let field = format!("{field}.randomSamplingPercentage");
                tell(Severity::Error, field, problem, "write a percentage");
            }
        }
    }
    plan.is_silent = rule.disable_span_reporting.unwrap_or(plan.is_silent);
    let keeps = rule.disable_context_propagation;
    plan.keeps_context = keeps.unwrap_or(plan.keeps_context);
    if let Some(uses) = rule.use_request_id_for_trace_sampling {
        plan.ignores_request_id = !uses;
    }
    if rule.enable_istio_tags == Some(true) {
        let problem = "has no effect: spans say what this proxy knows".to_owned();
        let remedy = "remove it, or write customTags";
        let field = format!("{field}.enableIstioTags");
        tell(Severity::Warning, field, problem, remedy);
    }
    // Tags of a level take the place of those before.
    if !rule.custom_tags.is_empty() {
        plan.tags.clear();
    }
    for (name, tag) in rule.custom_tags.iter() {
        match span_tag(name, tag) {
            Ok(tag) => plan.tags.push(tag),
            Err(problem) => {
                let remedy = "write a literal, environment, header, or one operator such as \
                              %REQ(:METHOD)%";
                let field = format!("{field}.customTags[{name}]");
                tell(Severity::Error, field, problem, remedy);
            }
        }
    }
}

fn span_tag(name: &str, tag: &CustomTag) -> Result<SpanTag, String> {
    let name = Box::from(name);
    if let Some(literal) = &tag.literal {
        return Ok(SpanTag::Text(name, literal.value.clone()));
    }
    if let Some(variable) = &tag.environment {
        let (source, otherwise) = (variable.name.clone(), variable.default_value.clone());
        return Ok(SpanTag::Variable(name, source, otherwise));
    }
    if let Some(header) = &tag.header {
        let attribute = match &*header.name.to_ascii_lowercase() {
            ":method" => Attribute::Method,
            ":path" => Attribute::Target,
            ":authority" => Attribute::Authority,
            ":scheme" => Attribute::Scheme,
            text if is_token(text) => Attribute::RequestHeader(text.into(), None),
            _ => return Err("is no name of a header, so there is no tag".to_owned()),
        };
        return Ok(SpanTag::Attribute(
            name,
            attribute,
            header.default_value.clone(),
        ));
    }
    let formatter = tag.formatter.as_ref().map(|it| &*it.value);
    let attribute = formatter.and_then(format::single);
    let attribute = attribute.ok_or("is not understood, so there is no tag")?;
    Ok(SpanTag::Attribute(name, attribute, Box::default()))
}

/// The name of the service in spans: workload and namespace.
fn service_name(reader: &Reader<'_>) -> String {
    let (labels, view) = (&reader.settings().gateway_labels, reader.view());
    let mut known = ["app", "app.kubernetes.io/name", "istio"]
        .into_iter()
        .filter_map(|label| Some((label, labels.get(label)?)));
    let app = known.find(|(label, app)| view.has_label(label, app));
    let app = app.map_or("gateway", |(_, app)| app.as_str());
    format!("{app}.{}", view.namespace())
}

/// The unit of the upstream, or the Service that was meant and what is wrong with it.
fn find(reader: &mut Reader<'_>, service: &SpanService) -> Result<Arc<str>, (String, String)> {
    let settings = reader.settings();
    let root = settings.root_namespace();
    let written = &*service.service;
    let (namespace, host) = written.split_once('/').unwrap_or((root, written));
    let host = host.to_ascii_lowercase();
    let Some(id) = names::service(&host, namespace, &settings.cluster_domain) else {
        let problem = format!("{host} is no Service of the cluster");
        return Err((format!("{namespace}/{host}"), problem));
    };
    let protocol = match service.protocol {
        TraceProtocol::Http(_) => Protocol::Http1,
        TraceProtocol::Grpc => Protocol::H2c,
    };
    match reader.service_port(&id, &BackendPort::Number(service.port)) {
        PortFound::Listed(number) | PortFound::Implied(number) => {
            Ok(upstream::name(&id, number, protocol))
        }
        PortFound::NoService => Err((id.to_string(), "is not there".into())),
        PortFound::NoPort => {
            let problem = format!("has no TCP port {}", service.port);
            Err((id.to_string(), problem))
        }
    }
}
