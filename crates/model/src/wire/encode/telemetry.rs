//! What is recorded.

use super::super::generated as wire;
use super::milliseconds;
use super::policy::headers;
use crate::{
    AccessLog, Attribute, ConditionStep, FormatPart, Literal, LogFormat, LogMember, MetricAction,
    MetricRule, SpanTag, TagValue, Telemetry, TraceProtocol, Tracing,
};

/// The message of what is recorded.
pub fn telemetry(value: &Telemetry) -> wire::Telemetry {
    wire::Telemetry {
        logs: value.logs.as_ref().map(|logs| wire::AccessLogs {
            logs: logs.iter().map(access_log).collect(),
        }),
        metrics: value.metrics.iter().map(metric_rule).collect(),
        tracing: value.tracing.as_deref().map(tracing),
    }
}

fn access_log(value: &AccessLog) -> wire::AccessLog {
    let mut message = wire::AccessLog {
        sink: value.sink as u32,
        format: 1,
        ..wire::AccessLog::default()
    };
    match &value.format {
        LogFormat::Own => {}
        LogFormat::Text(text) => {
            message.format = 2;
            message.text = parts(text);
        }
        LogFormat::Json(members) => {
            message.format = 3;
            let member = |(name, value): &LogMember| wire::LogMember {
                name: name.to_string(),
                value: parts(value),
            };
            message.json = members.iter().map(member).collect();
        }
    }
    let steps = value.filter.iter().flat_map(|filter| &filter.steps);
    message.filter = steps.map(step).collect();
    message
}

fn parts(values: &[FormatPart]) -> Vec<wire::FormatPart> {
    let part = |value: &FormatPart| match value {
        FormatPart::Text(text) => wire::FormatPart {
            text: text.to_string(),
            ..wire::FormatPart::default()
        },
        FormatPart::Value {
            attribute: value,
            bytes_max,
        } => wire::FormatPart {
            value: Some(attribute(value)),
            bytes_max: *bytes_max,
            ..wire::FormatPart::default()
        },
    };
    values.iter().map(part).collect()
}

fn attribute(value: &Attribute) -> wire::Attribute {
    let (kind, name, otherwise) = match value {
        Attribute::RequestHeader(name, otherwise) => (REQUEST_HEADER, Some(name), otherwise),
        value => {
            let at = Attribute::ALL.iter().position(|known| known == value);
            (at.map_or(0, |at| at as u32 + 1), None, &None)
        }
    };
    let text = |text: Option<&Box<str>>| text.map_or_else(String::new, ToString::to_string);
    wire::Attribute {
        kind,
        name: text(name),
        otherwise: text(otherwise.as_ref()),
    }
}

/// The number of a header of the request among attributes.
pub const REQUEST_HEADER: u32 = 1_000;

fn step(value: &ConditionStep) -> wire::ConditionStep {
    use wire::condition_step::Literal as Form;
    let of = |operation: u32, value: Option<&Attribute>, literal| wire::ConditionStep {
        operation,
        attribute: value.map(attribute),
        relation: 0,
        literal,
    };
    match value {
        ConditionStep::And => of(1, None, None),
        ConditionStep::Or => of(2, None, None),
        ConditionStep::Not => of(3, None, None),
        ConditionStep::Constant(flag) => of(4, None, Some(Form::Flag(*flag))),
        ConditionStep::Has(value) => of(5, Some(value), None),
        ConditionStep::Compare(value, relation, literal) => wire::ConditionStep {
            relation: *relation as u32,
            ..of(
                6,
                Some(value),
                Some(match literal {
                    Literal::Text(text) => Form::Text(text.to_string()),
                    Literal::Number(number) => Form::Number(*number),
                    Literal::Flag(flag) => Form::Flag(*flag),
                }),
            )
        },
        ConditionStep::Text(value, form, text) => of(
            *form as u32,
            Some(value),
            Some(Form::Text(text.to_string())),
        ),
    }
}

fn metric_rule(value: &MetricRule) -> wire::MetricRule {
    let mut message = wire::MetricRule {
        metric: value.metric.map_or(0, |metric| metric as u32),
        ..wire::MetricRule::default()
    };
    match &value.action {
        MetricAction::Disable => message.action = 1,
        MetricAction::Enable => message.action = 2,
        MetricAction::Remove(tag) => {
            message.action = 3;
            message.tag = tag.to_string();
        }
        MetricAction::Set(tag, value) => {
            message.action = 4;
            message.tag = tag.to_string();
            match value {
                TagValue::Text(text) => message.text = text.to_string(),
                TagValue::Attribute(value) => message.value = Some(attribute(value)),
            }
        }
    }
    message
}

fn tracing(value: &Tracing) -> wire::Tracing {
    wire::Tracing {
        upstream: value.upstream.to_string(),
        authority: value.authority.to_string(),
        http_path: match &value.protocol {
            TraceProtocol::Grpc => String::new(),
            TraceProtocol::Http(path) => path.to_string(),
        },
        timeout_ms: milliseconds(value.timeout),
        sampled: value.sampled.ppm(),
        service_name: value.service_name.to_string(),
        tags: value.tags.iter().map(span_tag).collect(),
        is_silent: value.is_silent,
        keeps_context: value.keeps_context,
        ignores_request_id: value.ignores_request_id,
        headers: headers(&value.headers),
    }
}

fn span_tag(value: &SpanTag) -> wire::SpanTag {
    let mut message = wire::SpanTag::default();
    let name = match value {
        SpanTag::Text(name, text) => {
            message.text = text.to_string();
            name
        }
        SpanTag::Attribute(name, value, otherwise) => {
            message.value = Some(attribute(value));
            message.otherwise = otherwise.to_string();
            name
        }
        SpanTag::Variable(name, variable, otherwise) => {
            message.variable = variable.to_string();
            message.otherwise = otherwise.to_string();
            name
        }
    };
    message.name = name.to_string();
    message
}
