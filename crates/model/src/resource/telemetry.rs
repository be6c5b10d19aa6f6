//! The records that proxies keep: lines of the access log, metrics, spans.

use std::time::Duration;

use super::traffic::Share;
use crate::Name;

/// The records of requests and streams. Without this resource, the proxy's own settings hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// The access logs; `None` leaves them to the proxy's setting.
    pub logs: Option<Box<[AccessLog]>>,
    /// Changes of the standard metrics, each over those before it.
    pub metrics: Box<[MetricRule]>,
    /// How requests are traced; none for not.
    pub tracing: Option<Box<Tracing>>,
}

impl Telemetry {
    /// The most access logs.
    pub const LOGS_MAX: usize = 8;

    /// The most members of a line in JSON, parts of a text, changes of metrics, or tags.
    pub const PARTS_MAX: usize = 256;
}

/// One access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The output that lines are written to.
    pub sink: LogSink,
    /// The format of a line.
    pub format: LogFormat,
    /// The condition on requests that get a line; `None` for all.
    pub filter: Option<Condition>,
}

/// An output that lines are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LogSink {
    /// Standard output.
    Output = 1,
    /// Standard error.
    Error = 2,
}

/// The format of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The proxy's own JSON.
    Own,
    /// Text, which ends its lines itself.
    Text(Box<[FormatPart]>),
    /// An object with these members. One that is a single number or truth stays one.
    Json(Box<[LogMember]>),
}

/// A member of a line, by name.
pub type LogMember = (Box<str>, Box<[FormatPart]>);

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatPart {
    /// Stands as it is.
    Text(Box<str>),
    /// A value of the request, or `-` where it is absent.
    Value {
        /// The attribute whose value is written.
        attribute: Attribute,
        /// The most bytes of it; 0 for all.
        bytes_max: u32,
    },
}

/// Something that is known of a request or stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// When its head had been read.
    StartTime,
    /// Until its response was sent; as a number in microseconds, as text in milliseconds.
    Duration,
    /// The method.
    Method,
    /// Path and query.
    Target,
    /// The path.
    Path,
    /// The query; absent without one.
    Query,
    /// The host asked for.
    Authority,
    /// `http` or `https`.
    Scheme,
    /// `HTTP/1.1` and the like.
    Protocol,
    /// The status of the response.
    Status,
    /// The failure, in the letters of Envoy.
    Flags,
    /// The failure, in the words of the proxy.
    Details,
    /// Bytes of the request's body.
    BytesReceived,
    /// Bytes of the response's body.
    BytesSent,
    /// Address and port of the client.
    ClientAddress,
    /// Its address alone.
    ClientIp,
    /// Its port.
    ClientPort,
    /// The port that it connected to.
    ListenerPort,
    /// The name in the TLS handshake.
    ServerName,
    /// `TLSv1.2` or `TLSv1.3`.
    TlsVersion,
    /// Whether the client showed a certificate that was verified.
    IsMutual,
    /// The first URI in it.
    Principal,
    /// The upstream.
    Upstream,
    /// Address and port of the endpoint.
    Endpoint,
    /// The object that the route came from.
    Route,
    /// The name of the machine.
    Hostname,
    /// The trace that the request belongs to.
    TraceId,
    /// A header of the request, or another where it is absent.
    RequestHeader(Box<str>, Option<Box<str>>),
}

impl Attribute {
    /// All that are not headers, in the order of their numbers, which begin at 1.
    pub const ALL: [Attribute; 27] = [
        Attribute::StartTime,
        Attribute::Duration,
        Attribute::Method,
        Attribute::Target,
        Attribute::Path,
        Attribute::Query,
        Attribute::Authority,
        Attribute::Scheme,
        Attribute::Protocol,
        Attribute::Status,
        Attribute::Flags,
        Attribute::Details,
        Attribute::BytesReceived,
        Attribute::BytesSent,
        Attribute::ClientAddress,
        Attribute::ClientIp,
        Attribute::ClientPort,
        Attribute::ListenerPort,
        Attribute::ServerName,
        Attribute::TlsVersion,
        Attribute::IsMutual,
        Attribute::Principal,
        Attribute::Upstream,
        Attribute::Endpoint,
        Attribute::Route,
        Attribute::Hostname,
        Attribute::TraceId,
    ];
}

/// A condition over what is known of a request: operands before operators. A test of what is
/// absent is neither true nor false, and so is what follows from it alone; then no line is
/// written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The steps, at most [`Condition::STEPS_MAX`], which leave one result.
    pub steps: Box<[ConditionStep]>,
}

impl Condition {
    /// The most steps.
    pub const STEPS_MAX: usize = 128;

    /// The most results that wait for an operator.
    pub const DEPTH_MAX: usize = 32;

    /// The longest text that is compared, or regex.
    pub const TEXT_BYTES_MAX: usize = 1_024;

    /// Whether the steps leave one result, and never more than may wait.
    pub fn is_whole(&self) -> bool {
        let mut depth = 0_usize;
        for step in &self.steps {
            depth = match step {
                ConditionStep::And | ConditionStep::Or if depth >= 2 => depth - 1,
                ConditionStep::Not if depth >= 1 => depth,
                ConditionStep::And | ConditionStep::Or | ConditionStep::Not => return false,
                _ => depth + 1,
            };
            if depth > Condition::DEPTH_MAX {
                return false;
            }
        }
        depth == 1 && self.steps.len() <= Condition::STEPS_MAX
    }
}

/// One step of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionStep {
    /// Both of the last two.
    And,
    /// One of the last two.
    Or,
    /// Not the last one.
    Not,
    /// Always so.
    Constant(bool),
    /// Whether an attribute is there.
    Has(Attribute),
    /// A comparison of an attribute with a literal.
    Compare(Attribute, Relation, Literal),
    /// A test of the text of an attribute.
    Text(Attribute, TextForm, Box<str>),
}

/// How one compares to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Relation {
    Equal = 1,
    Unequal = 2,
    Less = 3,
    AtMost = 4,
    Greater = 5,
    AtLeast = 6,
}

/// A literal that a value is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// A text.
    Text(Box<str>),
    /// A number; of a duration, microseconds.
    Number(i64),
    /// A truth.
    Flag(bool),
}

/// How a text is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TextForm {
    Contains = 7,
    Start = 8,
    End = 9,
    /// A regex, found anywhere.
    Regex = 10,
}

/// A change of standard metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRule {
    /// The metric; none for all.
    pub metric: Option<Metric>,
    /// The change to it.
    pub action: MetricAction,
}

/// A standard metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Metric {
    /// `istio_requests_total`.
    Requests = 1,
    /// `istio_request_duration_milliseconds`.
    RequestDuration = 2,
    /// `istio_request_bytes`.
    RequestBytes = 3,
    /// `istio_response_bytes`.
    ResponseBytes = 4,
    /// `istio_tcp_connections_opened_total`.
    TcpOpened = 5,
    /// `istio_tcp_connections_closed_total`.
    TcpClosed = 6,
    /// `istio_tcp_sent_bytes_total`.
    TcpSent = 7,
    /// `istio_tcp_received_bytes_total`.
    TcpReceived = 8,
}

impl Metric {
    /// All, in the order of their numbers.
    pub const ALL: [Metric; 8] = [
        Metric::Requests,
        Metric::RequestDuration,
        Metric::RequestBytes,
        Metric::ResponseBytes,
        Metric::TcpOpened,
        Metric::TcpClosed,
        Metric::TcpSent,
        Metric::TcpReceived,
    ];
}

/// A change to a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricAction {
    /// It is not shown.
    Disable,
    /// It is shown again.
    Enable,
    /// It loses a label.
    Remove(Box<str>),
    /// A label has this value, whether it was there or not.
    Set(Box<str>, TagValue),
}

/// The value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagValue {
    /// Always this.
    Text(Box<str>),
    /// One of the few that [`TagValue::BOUNDED`] has.
    Attribute(Attribute),
}

impl TagValue {
    /// The attributes whose values are few, whatever clients send.
    pub const BOUNDED: [Attribute; 5] = [
        Attribute::Method,
        Attribute::Scheme,
        Attribute::Protocol,
        Attribute::TlsVersion,
        Attribute::IsMutual,
    ];
}

/// How requests are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// The upstream that spans are sent to.
    pub upstream: Name,
    /// The host that is asked for there.
    pub authority: Box<str>,
    /// The protocol of the collector.
    pub protocol: TraceProtocol,
    /// The longest wait for an answer.
    pub timeout: Duration,
    /// The share of requests that begin a trace of their own accord.
    pub sampled: Share,
    /// The name of the service in spans.
    pub service_name: Box<str>,
    /// The tags of spans.
    pub tags: Box<[SpanTag]>,
    /// Whether no span is sent; the context goes on all the same.
    pub is_silent: bool,
    /// Whether the context of the client is left as it is, and none is sent where it has none.
    pub keeps_context: bool,
    /// Whether `x-request-id` stays as it is whatever is sampled.
    pub ignores_request_id: bool,
    /// Headers with which spans are sent.
    pub headers: Box<[(Box<str>, Box<str>)]>,
}

/// The protocol of a collector of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceProtocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP, to this path.
    Http(Box<str>),
}

/// A tag of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanTag {
    /// Always this, by name.
    Text(Box<str>, Box<str>),
    /// The value of an attribute, and the text in its place where it is absent; empty for no tag.
    Attribute(Box<str>, Attribute, Box<str>),
    /// A variable of the proxy's environment, and the text in its place where it is absent.
    Variable(Box<str>, Box<str>, Box<str>),
}
