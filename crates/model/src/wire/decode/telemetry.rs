//! What is recorded.

use super::super::encode::REQUEST_HEADER;
use super::super::{WireError, generated as wire};
use super::policy::{header_name, headers, milliseconds, share};
use super::{header_text, required};
use crate::{
    AccessLog, Attribute, Condition, ConditionStep, FormatPart, Literal, LogFormat, LogMember,
    LogSink, Metric, MetricAction, MetricRule, Relation, SpanTag, TagValue, Telemetry, TextForm,
    TraceProtocol, Tracing,
};

/// Reads what is recorded.
pub fn telemetry(message: wire::Telemetry) -> Result<Telemetry, WireError> {
    let logs = message.logs.map(|message| {
        if message.logs.len() > Telemetry::LOGS_MAX {
            return Err(WireError::Invalid("number of access logs"));
        }
        message.logs.into_iter().map(access_log).collect()
    });
    few(message.metrics.len())?;
    Ok(Telemetry {
        logs: logs.transpose()?,
        metrics: message
            .metrics
            .into_iter()
            .map(metric_rule)
            .collect::<Result<_, _>>()?,
        tracing: match message.tracing {
            Some(message) => Some(Box::new(tracing(message)?)),
            None => None,
        },
    })
}

fn few(parts: usize) -> Result<(), WireError> {
    match parts <= Telemetry::PARTS_MAX {
        true => Ok(()),
        false => Err(WireError::Invalid("number of parts")),
    }
}

fn access_log(message: wire::AccessLog) -> Result<AccessLog, WireError> {
    let steps = message.filter.into_iter().map(step);
    let filter = Condition {
        steps: steps.collect::<Result<_, _>>()?,
    };
    Ok(AccessLog {
        sink: match message.sink {
            1 => LogSink::Output,
            2 => LogSink::Error,
            _ => return Err(WireError::Invalid("access log")),
        },
        format: match message.format {
            1 => LogFormat::Own,
            2 => LogFormat::Text(parts(message.text)?),
            3 => LogFormat::Json(members(message.json)?),
            _ => return Err(WireError::Invalid("log format")),
        },
        filter: match filter.steps.is_empty() {
            true => None,
            false if filter.is_whole() => Some(filter),
            false => return Err(WireError::Invalid("condition")),
        },
    })
}

fn members(messages: Vec<wire::LogMember>) -> Result<Box<[LogMember]>, WireError> {
    few(messages.len())?;
    let member = |it: wire::LogMember| Ok((it.name.into(), parts(it.value)?));
    messages.into_iter().map(member).collect()
}

fn parts(messages: Vec<wire::FormatPart>) -> Result<Box<[FormatPart]>, WireError> {
    few(messages.len())?;
    let part = |message: wire::FormatPart| {
        Ok(match message.value {
            None => FormatPart::Text(message.text.into()),
            Some(value) => FormatPart::Value {
                attribute: attribute(value)?,
                bytes_max: message.bytes_max,
            },
        })
    };
    messages.into_iter().map(part).collect()
}

fn attribute(message: wire::Attribute) -> Result<Attribute, WireError> {
    if message.kind != REQUEST_HEADER {
        let at = (message.kind as usize).checked_sub(1);
        let known = at.and_then(|at| Attribute::ALL.get(at));
        return known.cloned().ok_or(WireError::Invalid("attribute"));
    }
    let name = header_name(message.name)?;
    let otherwise = match message.otherwise.is_empty() {
        true => None,
        false => Some(header_name(message.otherwise)?),
    };
    Ok(Attribute::RequestHeader(name, otherwise))
}

fn step(message: wire::ConditionStep) -> Result<ConditionStep, WireError> {
    use wire::condition_step::Literal as Form;
    let value =
        |value: Option<wire::Attribute>| attribute(value.ok_or(WireError::Missing("attribute"))?);
    let short = |text: String| match text.len() <= Condition::TEXT_BYTES_MAX {
        true => Ok(text.into_boxed_str()),
        false => Err(WireError::Invalid("length of a text")),
    };
    Ok(match (message.operation, message.literal) {
        (1, _) => ConditionStep::And,
        (2, _) => ConditionStep::Or,
        (3, _) => ConditionStep::Not,
        (4, Some(Form::Flag(flag))) => ConditionStep::Constant(flag),
        (5, _) => ConditionStep::Has(value(message.attribute)?),
        (6, Some(literal)) => ConditionStep::Compare(
            value(message.attribute)?,
            relation(message.relation)?,
            match literal {
                Form::Text(text) => Literal::Text(short(text)?),
                Form::Number(number) => Literal::Number(number),
                Form::Flag(flag) => Literal::Flag(flag),
            },
        ),
        (form @ 7..=10, Some(Form::Text(text))) => {
            let form = match form {
                7 => TextForm::Contains,
                8 => TextForm::Start,
                9 => TextForm::End,
                _ => TextForm::Regex,
            };
            ConditionStep::Text(value(message.attribute)?, form, short(text)?)
        }
        _ => return Err(WireError::Invalid("condition")),
    })
}

fn relation(number: u32) -> Result<Relation, WireError> {
    Ok(match number {
        1 => Relation::Equal,
        2 => Relation::Unequal,
        3 => Relation::Less,
        4 => Relation::AtMost,
        5 => Relation::Greater,
        6 => Relation::AtLeast,
        _ => return Err(WireError::Invalid("relation")),
    })
}

fn metric_rule(message: wire::MetricRule) -> Result<MetricRule, WireError> {
    let at = message.metric.checked_sub(1);
    let metric = match at {
        None => None,
        Some(at) => Some(
            *Metric::ALL
                .get(at as usize)
                .ok_or(WireError::Invalid("metric"))?,
        ),
    };
    let tag = || match is_label(&message.tag) {
        true => Ok(message.tag.as_str().into()),
        false => Err(WireError::Invalid("tag")),
    };
    let action = match message.action {
        1 => MetricAction::Disable,
        2 => MetricAction::Enable,
        3 => MetricAction::Remove(tag()?),
        4 => MetricAction::Set(
            tag()?,
            match message.value {
                None => TagValue::Text(message.text.as_str().into()),
                Some(value) => match attribute(value)? {
                    few if TagValue::BOUNDED.contains(&few) => TagValue::Attribute(few),
                    _ => return Err(WireError::Invalid("tag")),
                },
            },
        ),
        _ => return Err(WireError::Invalid("metric")),
    };
    Ok(MetricRule { metric, action })
}

/// Whether a text can be the name of a label (Prometheus' data model).
fn is_label(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_letter)
        && text
            .bytes()
            .all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

fn tracing(message: wire::Tracing) -> Result<Tracing, WireError> {
    let path = message.http_path;
    let is_path = |byte: u8| byte > b' ' && byte != 0x7f;
    let protocol = match path.is_empty() {
        true => TraceProtocol::Grpc,
        false if path.starts_with('/') && path.bytes().all(is_path) => {
            TraceProtocol::Http(path.into())
        }
        false => return Err(WireError::Invalid("path")),
    };
    if message.timeout_ms == 0 {
        return Err(WireError::Invalid("timeout"));
    }
    few(message.tags.len())?;
    few(message.headers.len())?;
    Ok(Tracing {
        upstream: required(message.upstream, "upstream")?,
        authority: header_text(message.authority, "authority")?,
        protocol,
        timeout: milliseconds(message.timeout_ms),
        sampled: share(message.sampled)?,
        service_name: message.service_name.into(),
        tags: message
            .tags
            .into_iter()
            .map(span_tag)
            .collect::<Result<_, _>>()?,
        is_silent: message.is_silent,
        keeps_context: message.keeps_context,
        ignores_request_id: message.ignores_request_id,
        headers: headers(message.headers)?,
    })
}

fn span_tag(message: wire::SpanTag) -> Result<SpanTag, WireError> {
    let (name, otherwise) = (message.name.into(), message.otherwise.into());
    Ok(match message.value {
        Some(value) => SpanTag::Attribute(name, attribute(value)?, otherwise),
        None if !message.variable.is_empty() => {
            SpanTag::Variable(name, message.variable.into(), otherwise)
        }
        None => SpanTag::Text(name, message.text.into()),
    })
}
