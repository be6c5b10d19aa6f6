//! The records that proxies keep.

use super::policy::header_list;
use super::*;
use crate::{
    AccessLog, Attribute, Condition, ConditionStep, FormatPart, Literal, LogFormat, LogSink,
    Metric, MetricAction, MetricRule, Relation, SpanTag, TagValue, TextForm, TraceProtocol,
    Tracing, is_lower_token,
};

const PARTS_MAX: usize = Telemetry::PARTS_MAX;

const PARTS: &str = "number of parts";

message! {
    /// The records of requests and streams.
    Telemetry {
        /// Absent where the proxy's own setting decides.
        1 logs: some::<AccessLogs>();
        2 metrics: list_of(PARTS_MAX, PARTS, each::<MetricRule>());
        /// Absent where nothing is traced.
        3 tracing: boxed::<Tracing>();
    }
}

message! {
    /// The access logs.
    AccessLogs for Box<[AccessLog]>, logs {
        1 logs: list_of(Telemetry::LOGS_MAX, "number of access logs", each::<AccessLog>()),
            of *logs;
    } => logs.into()
}

message! {
    /// One access log.
    AccessLog, log {
        /// 1 standard output, 2 standard error.
        1 sink: choice::<LogSink>("access log");
        /// 1 the proxy's own, 2 text, 3 JSON.
        2 format: uint32(), of match &log.format {
            LogFormat::Own => 1,
            LogFormat::Text(_) => 2,
            LogFormat::Json(_) => 3,
        };
        3 text: list_of(PARTS_MAX, PARTS, each::<FormatPart>()), of *match &log.format {
            LogFormat::Text(parts) => &**parts,
            LogFormat::Own | LogFormat::Json(_) => &[],
        };
        4 json: list_of(PARTS_MAX, PARTS, each::<LogMember>()), of *match &log.format {
            LogFormat::Json(members) => &**members,
            LogFormat::Own | LogFormat::Text(_) => &[],
        };
        /// A condition, operands before operators; empty for every request.
        5 filter: list(each::<ConditionStep>()),
            of *log.filter.as_ref().map(|filter| &*filter.steps).unwrap_or_default();
    } => {
        let format = match format {
            1 => LogFormat::Own,
            2 => LogFormat::Text(text.into()),
            3 => LogFormat::Json(json.into()),
            _ => return Err(WireError::Invalid("log format")),
        };
        let filter = Condition { steps: filter.into() };
        let filter = match filter.steps.is_empty() {
            true => None,
            false if filter.is_whole() => Some(filter),
            false => return Err(WireError::Invalid("condition")),
        };
        AccessLog { sink, format, filter }
    }
}

choices! {
    LogSink { Output, Error }
}

message! {
    /// A piece of a line.
    FormatPart, part {
        /// The text, where there is no attribute.
        1 text: string(), of *match part {
            FormatPart::Text(text) => &**text,
            FormatPart::Value { .. } => "",
        };
        2 value: some::<Attribute>(), of match part {
            FormatPart::Text(_) => None,
            FormatPart::Value { attribute, .. } => Some(attribute.clone()),
        };
        /// 0 for no maximum.
        3 bytes_max: uint32(), of match part {
            FormatPart::Text(_) => 0,
            FormatPart::Value { bytes_max, .. } => *bytes_max,
        };
    } => match value {
        None => FormatPart::Text(text),
        Some(attribute) => FormatPart::Value { attribute, bytes_max },
    }
}

message! {
    /// A member of a line.
    LogMember for crate::LogMember, member {
        1 name: string(), of member.0;
        2 value: list_of(PARTS_MAX, PARTS, each::<FormatPart>()), of member.1;
    } => (name, value.into())
}

message! {
    /// Something that is known of a request; the numbers stand at Attribute in the source.
    Attribute, attribute {
        1 kind: uint32(), of attribute_number(attribute);
        /// The name of a header.
        2 name: string(), of *header_of(attribute).0;
        /// The header in its place; empty for none.
        3 otherwise: string(), of *header_of(attribute).1;
    } => match kind {
        REQUEST_HEADER => {
            if !is_lower_token(&name) || !otherwise.is_empty() && !is_lower_token(&otherwise) {
                return Err(WireError::Invalid("header name"));
            }
            Attribute::RequestHeader(name, (!otherwise.is_empty()).then_some(otherwise))
        }
        kind => {
            let at = (kind as usize).checked_sub(1);
            let known = at.and_then(|at| Attribute::ALL.get(at)).cloned();
            known.ok_or(WireError::Invalid("attribute"))?
        }
    }
}

/// The number of a header of the request among attributes.
const REQUEST_HEADER: u32 = 1_000;

fn attribute_number(attribute: &Attribute) -> u32 {
    match attribute {
        Attribute::RequestHeader(..) => REQUEST_HEADER,
        attribute => {
            let at = Attribute::ALL.iter().position(|known| known == attribute);
            at.map_or(0, |at| at as u32 + 1)
        }
    }
}

fn header_of(attribute: &Attribute) -> (&str, &str) {
    match attribute {
        Attribute::RequestHeader(name, otherwise) => (name, otherwise.as_deref().unwrap_or("")),
        _ => ("", ""),
    }
}

message! {
    /// A step of a condition.
    ConditionStep, step {
        /// 1 and, 2 or, 3 not, 4 constant, 5 has, 6 compare, 7 contains, 8 start, 9 end, 10 regex.
        1 operation: uint32(), of match step {
            ConditionStep::And => 1,
            ConditionStep::Or => 2,
            ConditionStep::Not => 3,
            ConditionStep::Constant(_) => 4,
            ConditionStep::Has(_) => 5,
            ConditionStep::Compare(..) => 6,
            ConditionStep::Text(_, form, _) => form.number(),
        };
        2 attribute: some::<Attribute>(), of match step {
            ConditionStep::Has(attribute)
            | ConditionStep::Compare(attribute, ..)
            | ConditionStep::Text(attribute, ..) => Some(attribute.clone()),
            _ => None,
        };
        /// 1 equal, 2 unequal, 3 less, 4 at most, 5 greater, 6 at least.
        3 relation: optional_choice::<Relation>("relation"), of match step {
            ConditionStep::Compare(_, relation, _) => Some(*relation),
            _ => None,
        };
        4 literal: some_of::<Literal>(), of match step {
            ConditionStep::Constant(flag) => Some(Literal::Flag(*flag)),
            ConditionStep::Compare(_, _, literal) => Some(literal.clone()),
            ConditionStep::Text(_, _, text) => Some(Literal::Text(text.clone())),
            _ => None,
        };
    } => condition_step(operation, attribute, relation, literal)?
}

fn condition_step(
    operation: u32,
    attribute: Option<Attribute>,
    relation: Option<Relation>,
    literal: Option<Literal>,
) -> Result<ConditionStep, WireError> {
    if let Some(Literal::Text(text)) = &literal
        && text.len() > Condition::TEXT_BYTES_MAX
    {
        return Err(WireError::Invalid("length of a text"));
    }
    let attribute = || attribute.ok_or(WireError::Missing("attribute"));
    Ok(match (operation, literal) {
        (1, _) => ConditionStep::And,
        (2, _) => ConditionStep::Or,
        (3, _) => ConditionStep::Not,
        (4, Some(Literal::Flag(flag))) => ConditionStep::Constant(flag),
        (5, _) => ConditionStep::Has(attribute()?),
        (6, Some(literal)) => {
            let relation = relation.ok_or(WireError::Invalid("relation"))?;
            ConditionStep::Compare(attribute()?, relation, literal)
        }
        (7..=10, Some(Literal::Text(text))) => {
            let form = find(operation.into(), "condition")?;
            ConditionStep::Text(attribute()?, form, text)
        }
        _ => return Err(WireError::Invalid("condition")),
    })
}

choices! {
    TextForm { Contains, Start, End, Regex }
    Relation { Equal, Unequal, Less, AtMost, Greater, AtLeast }
}

forms! {
    Literal {
        4 text: string() => Text;
        5 number: sint64() => Number;
        6 flag: boolean() => Flag;
    }
}

/// A number that may be negative, where -1 is as short as 1.
fn sint64() -> impl Item<Value = i64, Out = i64> {
    number_as(
        "sint64",
        |it: &i64| ((it << 1) ^ (it >> 63)) as u64,
        |it| Ok((it >> 1) as i64 ^ -((it & 1) as i64)),
    )
}

message! {
    /// A change of standard metrics.
    MetricRule, rule {
        /// 0 for all; otherwise as Metric in the source.
        1 metric: optional_choice::<Metric>("metric");
        /// 1 disable, 2 enable, 3 remove the tag, 4 set the tag.
        2 action: uint32(), of match rule.action {
            MetricAction::Disable => 1,
            MetricAction::Enable => 2,
            MetricAction::Remove(_) => 3,
            MetricAction::Set(..) => 4,
        };
        3 tag: string(), of *match &rule.action {
            MetricAction::Remove(tag) | MetricAction::Set(tag, _) => &**tag,
            MetricAction::Disable | MetricAction::Enable => "",
        };
        /// The tag's value where it is no attribute.
        4 text: string(), of *match &rule.action {
            MetricAction::Set(_, TagValue::Text(text)) => &**text,
            _ => "",
        };
        5 value: some::<Attribute>(), of match &rule.action {
            MetricAction::Set(_, TagValue::Attribute(attribute)) => Some(attribute.clone()),
            _ => None,
        };
    } => {
        let value = match value {
            None => TagValue::Text(text),
            Some(few) if TagValue::BOUNDED.contains(&few) => TagValue::Attribute(few),
            Some(_) => return Err(WireError::Invalid("tag")),
        };
        let action = match action {
            1 => MetricAction::Disable,
            2 => MetricAction::Enable,
            3 | 4 if !is_label(&tag) => return Err(WireError::Invalid("tag")),
            3 => MetricAction::Remove(tag),
            4 => MetricAction::Set(tag, value),
            _ => return Err(WireError::Invalid("metric")),
        };
        MetricRule { metric, action }
    }
}

choices! {
    Metric {
        Requests, RequestDuration, RequestBytes, ResponseBytes, TcpOpened, TcpClosed, TcpSent,
        TcpReceived
    }
}

/// Whether a text can be the name of a label (Prometheus' data model).
fn is_label(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_letter)
        && text
            .bytes()
            .all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

message! {
    /// How requests are traced.
    Tracing, tracing {
        1 upstream: resource_name("upstream");
        2 authority: header_text("authority");
        /// The path over HTTP; empty for gRPC.
        3 http_path: string(), of *match &tracing.protocol {
            TraceProtocol::Grpc => "",
            TraceProtocol::Http(path) => &**path,
        };
        4 timeout as timeout_ms: positive("timeout");
        /// The share that is sampled, in millionths.
        5 sampled: millionths();
        6 service_name: string();
        7 tags: list_of(PARTS_MAX, PARTS, each::<SpanTag>());
        8 is_silent: boolean();
        9 keeps_context: boolean();
        10 ignores_request_id: boolean();
        11 headers: header_list();
    } => {
        if headers.len() > PARTS_MAX {
            return Err(WireError::Invalid(PARTS));
        }
        let is_path = |byte: u8| byte > b' ' && byte != 0x7f;
        let protocol = match http_path.is_empty() {
            true => TraceProtocol::Grpc,
            false if http_path.starts_with('/') && http_path.bytes().all(is_path) => {
                TraceProtocol::Http(http_path)
            }
            false => return Err(WireError::Invalid("path")),
        };
        Tracing {
            upstream,
            authority,
            protocol,
            timeout,
            sampled,
            service_name,
            tags: tags.into(),
            is_silent,
            keeps_context,
            ignores_request_id,
            headers: headers.into(),
        }
    }
}

message! {
    /// A tag of spans.
    SpanTag, tag {
        1 name: string(), of *match tag {
            SpanTag::Text(name, _)
            | SpanTag::Attribute(name, ..)
            | SpanTag::Variable(name, ..) => &**name,
        };
        /// The text, where there is no attribute.
        2 text: string(), of *match tag {
            SpanTag::Text(_, text) => &**text,
            SpanTag::Attribute(..) | SpanTag::Variable(..) => "",
        };
        3 value: some::<Attribute>(), of match tag {
            SpanTag::Attribute(_, attribute, _) => Some(attribute.clone()),
            SpanTag::Text(..) | SpanTag::Variable(..) => None,
        };
        /// The text in place of an attribute that is absent; empty for no tag.
        4 otherwise: string(), of *match tag {
            SpanTag::Attribute(.., otherwise) | SpanTag::Variable(.., otherwise) => &**otherwise,
            SpanTag::Text(..) => "",
        };
        /// A variable of the proxy's environment.
        5 variable: string(), of *match tag {
            SpanTag::Variable(_, variable, _) => &**variable,
            SpanTag::Text(..) | SpanTag::Attribute(..) => "",
        };
    } => match value {
        Some(value) => SpanTag::Attribute(name, value, otherwise),
        None if !variable.is_empty() => SpanTag::Variable(name, variable, otherwise),
        None => SpanTag::Text(name, text),
    }
}
