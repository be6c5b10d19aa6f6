//! Standard metrics.

use myriad_api::Severity;
use myriad_api::istio::telemetry::{
    IstioMetric, Metrics, MetricsOverride, ModeSelector, TagOperation, TagOverride, TelemetrySpec,
};
use myriad_model::{Metric, MetricAction, MetricRule, TagValue, Telemetry};

use super::{Tell, expression, is_for_client, judge_providers, provider_of};
use crate::settings::{MeshTelemetry, ProviderForm};

/// The changes of all levels.
pub(super) fn merge(
    levels: &[&TelemetrySpec],
    mesh: &MeshTelemetry,
    tell: Tell<'_>,
) -> Box<[MetricRule]> {
    let mut rules = Vec::new();
    let mut is_asked_for = false;
    let mut inherited: Vec<&str> = mesh.metrics.iter().map(|name| &**name).collect();
    for level in levels {
        for (at, metrics) in level.metrics.iter().enumerate() {
            let field = format!("spec.metrics[{at}]");
            let own: Vec<&str> = metrics.providers.iter().map(|it| &*it.name).collect();
            if !own.is_empty() {
                inherited = own;
            }
            let is_prometheus = |form: &ProviderForm| *form == ProviderForm::Prometheus;
            judge_providers(&metrics.providers, mesh, &field, is_prometheus, tell);
            if has_prometheus(&inherited, mesh) {
                is_asked_for = true;
                read(metrics, &field, &mut rules, tell);
            }
        }
    }
    if !has_prometheus(&inherited, mesh) {
        let action = MetricAction::Disable;
        rules = vec![MetricRule {
            metric: None,
            action,
        }];
    }
    // Whoever asks for metrics without changing them has to be heard as well.
    if rules.is_empty() && is_asked_for {
        let action = MetricAction::Enable;
        rules.push(MetricRule {
            metric: None,
            action,
        });
    }
    rules.truncate(Telemetry::PARTS_MAX);
    rules.into()
}

fn has_prometheus(names: &[&str], mesh: &MeshTelemetry) -> bool {
    let mut forms = names.iter().filter_map(|name| provider_of(name, mesh));
    forms.any(|form| form == ProviderForm::Prometheus)
}

fn read(metrics: &Metrics, field: &str, rules: &mut Vec<MetricRule>, tell: Tell<'_>) {
    if metrics.reporting_interval.is_some() {
        let problem = "has no effect: metrics are there whenever they are read".to_owned();
        let remedy = "set how often Prometheus reads them";
        let field = format!("{field}.reportingInterval");
        tell(Severity::Warning, field, problem, remedy);
    }
    for (at, change) in metrics.overrides.iter().enumerate() {
        let field = format!("{field}.overrides[{at}]");
        one(change, &field, rules, tell);
    }
}

fn one(change: &MetricsOverride, field: &str, rules: &mut Vec<MetricRule>, tell: Tell<'_>) {
    let mut metric = None;
    if let Some(selector) = &change.selector {
        let mode = ModeSelector {
            mode: selector.mode,
        };
        if !is_for_client(Some(mode), field, tell) {
            return;
        }
        let Ok(found) = metric_of(selector.metric, selector.custom_metric.as_deref()) else {
            let problem = "is a metric that is not counted here, so it has no effect".to_owned();
            let remedy = "name one of those in docs/istio-reference.md";
            tell(Severity::Error, format!("{field}.match"), problem, remedy);
            return;
        };
        metric = found;
    }
    match change.disabled {
        Some(true) => rules.push(MetricRule {
            metric,
            action: MetricAction::Disable,
        }),
        Some(false) => rules.push(MetricRule {
            metric,
            action: MetricAction::Enable,
        }),
        None => {}
    }
    for (tag, change) in change.tag_overrides.iter() {
        match action(tag, change) {
            Ok(action) => rules.push(MetricRule { metric, action }),
            Err(problem) => {
                let remedy = "remove the tag, or set it to a constant, request.method, \
                              request.scheme, request.protocol, connection.mtls or \
                              connection.tls_version";
                let field = format!("{field}.tagOverrides[{tag}]");
                tell(Severity::Error, field, problem, remedy);
            }
        }
    }
}

/// Which metric is meant; none for all.
fn metric_of(metric: Option<IstioMetric>, custom: Option<&str>) -> Result<Option<Metric>, ()> {
    if let Some(name) = custom {
        return Ok(Some(match name.trim_start_matches("istio_") {
            "requests_total" => Metric::Requests,
            "request_duration_milliseconds" => Metric::RequestDuration,
            "request_bytes" => Metric::RequestBytes,
            "response_bytes" => Metric::ResponseBytes,
            "tcp_connections_opened_total" => Metric::TcpOpened,
            "tcp_connections_closed_total" => Metric::TcpClosed,
            "tcp_sent_bytes_total" => Metric::TcpSent,
            "tcp_received_bytes_total" => Metric::TcpReceived,
            _ => return Err(()),
        }));
    }
    Ok(Some(match metric.unwrap_or(IstioMetric::AllMetrics) {
        IstioMetric::AllMetrics => return Ok(None),
        IstioMetric::RequestCount => Metric::Requests,
        IstioMetric::RequestDuration => Metric::RequestDuration,
        IstioMetric::RequestSize => Metric::RequestBytes,
        IstioMetric::ResponseSize => Metric::ResponseBytes,
        IstioMetric::TcpOpenedConnections => Metric::TcpOpened,
        IstioMetric::TcpClosedConnections => Metric::TcpClosed,
        IstioMetric::TcpSentBytes => Metric::TcpSent,
        IstioMetric::TcpReceivedBytes => Metric::TcpReceived,
        IstioMetric::GrpcRequestMessages | IstioMetric::GrpcResponseMessages => return Err(()),
    }))
}

fn action(tag: &str, change: &TagOverride) -> Result<MetricAction, String> {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_label = tag.bytes().next().is_some_and(is_letter)
        && tag
            .bytes()
            .all(|byte| is_letter(byte) || byte.is_ascii_digit());
    if !is_label {
        return Err("is no name of a label, so it has no effect".to_owned());
    }
    if change.operation == TagOperation::Remove {
        return Ok(MetricAction::Remove(tag.into()));
    }
    let text = change.value.trim();
    let quoted = ['\'', '"'].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains([quote, '\\'])).then_some(inner)
    });
    let value = match quoted {
        Some(inner) => TagValue::Text(inner.into()),
        None => match expression::attribute(text, None) {
            Some(few) if TagValue::BOUNDED.contains(&few) => TagValue::Attribute(few),
            Some(_) => {
                let problem = "has as many values as clients like, so it has no effect";
                return Err(problem.to_owned());
            }
            None => return Err(format!("has {text:?}, which is not understood")),
        },
    };
    Ok(MetricAction::Set(tag.into(), value))
}
