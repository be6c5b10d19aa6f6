//! The context of a trace: read from a request, and written into what goes to the endpoint.
//!
//! Contexts are W3C's `traceparent`, or Zipkin's B3 in one field or in several; whoever sent one
//! form gets it back in that form. Nothing in here allocates but the head that is written anew.

use myriad_model::Tracing;
use smallvec::SmallVec;

use crate::codec::buffer::Buffer;
use crate::codec::endpoint_head::{EndpointHead, change};
use crate::codec::head::Head;
use crate::policy::fault;
use crate::random::rng::Rng;

/// The place of a request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace.
    pub id: [u8; 16],
    /// The span of the sender; `None` where the trace begins here.
    pub parent: Option<[u8; 8]>,
    /// The span of this request.
    pub span: [u8; 8],
    /// Whether the span is recorded.
    pub is_sampled: bool,
    form: Form,
    /// The version of an id of the request that is made here: Istio's proxies mark
    /// those of requests that are sampled.
    pub id_version: u8,
    /// Whether the client's context goes on as it is.
    keeps_context: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    W3c,
    B3,
    B3Single,
}

/// The trace that a client tells of.
struct Told {
    form: Form,
    id: [u8; 16],
    parent: [u8; 8],
    is_sampled: Option<bool>,
}

/// Places a request in a trace, which may begin with it.
pub fn begin(tracing: &Tracing, head: &Head<'_>, dice: &Rng) -> Trace {
    let told = told(head);
    let request_id = field(head, "x-request-id");
    // Istio's proxies mark ids of requests that are sampled where UUIDs have their version.
    let marks = !tracing.ignores_request_id;
    let is_marked = marks && request_id.is_some_and(|id| matches!(id.get(14), Some(b'9'..=b'b')));
    let is_sampled = told.as_ref().and_then(|told| told.is_sampled);
    let is_sampled = is_sampled.unwrap_or_else(|| is_marked || fault::is_in(tracing.sampled, dice));
    let version = if marks && is_sampled { 0x90 } else { 0x40 };
    Trace {
        id: told.as_ref().map_or_else(|| wide(dice), |told| told.id),
        parent: told.as_ref().map(|told| told.parent),
        span: narrow(dice),
        is_sampled,
        form: told.as_ref().map_or(Form::W3c, |told| told.form),
        id_version: version,
        keeps_context: tracing.keeps_context,
    }
}

/// Puts the context into the head of a request.
pub fn put_into(head: &mut EndpointHead, trace: &Trace) {
    match head {
        EndpointHead::Http1(text) => *text = write(text, trace),
        EndpointHead::Http2(_) if trace.keeps_context => {}
        EndpointHead::Http2(request) => change(
            request,
            |name| is_context(name.as_bytes()),
            |add| fields(trace, add),
        ),
    }
}

/// The text of a request with the context in its head.
pub fn write(request: &Buffer, trace: &Trace) -> Buffer {
    let bytes = request.filled();
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 2);
    let (head, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    let mut out = Buffer::take();
    for (at, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if at == 0 || trace.keeps_context || !is_context(line) {
            out.append(line);
        }
    }
    if !trace.keeps_context {
        put(trace, &mut out);
    }
    out.append(rest);
    out
}

/// Whether a line is of a context that is written anew. What vendors say beside one passes.
fn is_context(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    const NAMES: [&[u8]; 7] = [
        b"traceparent",
        b"b3",
        b"x-b3-traceid",
        b"x-b3-spanid",
        b"x-b3-parentspanid",
        b"x-b3-sampled",
        b"x-b3-flags",
    ];
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn put(trace: &Trace, out: &mut Buffer) {
    fields(trace, &mut |name, value| {
        out.append_str(name);
        out.append(b": ");
        out.append(value);
        out.append(b"\r\n");
    });
}

/// The fields of the context.
fn fields(trace: &Trace, add: &mut dyn FnMut(&str, &[u8])) {
    let flag: &[u8] = if trace.is_sampled { b"1" } else { b"0" };
    match trace.form {
        Form::W3c => {
            let mut value = Value::from_slice(b"00-");
            put_hex(&trace.id, &mut value);
            value.push(b'-');
            put_hex(&trace.span, &mut value);
            value.extend_from_slice(b"-0");
            value.extend_from_slice(flag);
            add("traceparent", &value);
        }
        Form::B3Single => {
            let mut value = hex(&trace.id);
            value.push(b'-');
            put_hex(&trace.span, &mut value);
            value.push(b'-');
            value.extend_from_slice(flag);
            if let Some(parent) = &trace.parent {
                value.push(b'-');
                put_hex(parent, &mut value);
            }
            add("b3", &value);
        }
        Form::B3 => {
            add("x-b3-traceid", &hex(&trace.id));
            add("x-b3-spanid", &hex(&trace.span));
            if let Some(parent) = &trace.parent {
                add("x-b3-parentspanid", &hex(parent));
            }
            add("x-b3-sampled", flag);
        }
    }
}

/// The longest value of a context.
type Value = SmallVec<[u8; 72]>;

fn hex(bytes: &[u8]) -> Value {
    let mut value = Value::new();
    put_hex(bytes, &mut value);
    value
}

fn put_hex(bytes: &[u8], out: &mut Value) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    for byte in bytes {
        let digit = |at: u8| DIGITS.get(usize::from(at)).copied().unwrap_or_default();
        out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

fn told(head: &Head<'_>) -> Option<Told> {
    if let Some(value) = field(head, "traceparent") {
        return w3c(value);
    }
    if let Some(value) = field(head, "b3") {
        return b3_single(value);
    }
    let id = b3_id(field(head, "x-b3-traceid")?)?;
    let debug = field(head, "x-b3-flags") == Some(b"1");
    let sampled = field(head, "x-b3-sampled").and_then(b3_flag);
    Some(Told {
        form: Form::B3,
        id,
        parent: parse(field(head, "x-b3-spanid")?)?,
        is_sampled: if debug { Some(true) } else { sampled },
    })
}

/// `00-TRACE-SPAN-FLAGS` (W3C Trace Context, section 3.2); of later versions, what this one has.
fn w3c(value: &[u8]) -> Option<Told> {
    let mut parts = value.split(|byte| *byte == b'-');
    let version: [u8; 1] = parse(parts.next()?)?;
    let id = parse(parts.next()?)?;
    let parent = parse(parts.next()?)?;
    let [flags] = parse(parts.next()?)?;
    let is_over = version != [0] || parts.next().is_none();
    let is_valid = version != [0xff] && id != [0; 16] && parent != [0; 8] && is_over;
    is_valid.then_some(Told {
        form: Form::W3c,
        id,
        parent,
        is_sampled: Some(flags & 1 == 1),
    })
}

/// `TRACE-SPAN[-FLAG[-PARENT]]`.
fn b3_single(value: &[u8]) -> Option<Told> {
    let mut parts = value.split(|byte| *byte == b'-');
    Some(Told {
        form: Form::B3Single,
        id: b3_id(parts.next()?)?,
        parent: parse(parts.next()?)?,
        is_sampled: parts.next().and_then(b3_flag),
    })
}

/// An id of B3 may be half as long.
fn b3_id(value: &[u8]) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    match value.len() {
        16 => {
            let half: [u8; 8] = parse(value)?;
            id[8..].copy_from_slice(&half);
        }
        _ => id = parse(value)?,
    }
    (id != [0; 16]).then_some(id)
}

fn b3_flag(value: &[u8]) -> Option<bool> {
    match value {
        b"1" | b"d" | b"true" => Some(true),
        b"0" | b"false" => Some(false),
        _ => None,
    }
}

/// Exactly so many bytes as digits.
fn parse<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if value.len() != 2 * N {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(value.chunks(2)) {
        // A sign is no digit.
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn field<'h>(head: &Head<'h>, name: &str) -> Option<&'h [u8]> {
    let mut fields = head.fields.iter();
    let found = fields.find(|field| field.name.eq_ignore_ascii_case(name));
    found.map(|field| field.value)
}

/// Random bytes.
pub fn wide(dice: &Rng) -> [u8; 16] {
    let number = (u128::from(dice.roll()) << 64) | u128::from(dice.roll());
    number.max(1).to_be_bytes()
}

fn narrow(dice: &Rng) -> [u8; 8] {
    dice.roll().max(1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_model::{Share, TraceProtocol, Tracing};

    use super::{Trace, begin, write};
    use crate::codec::buffer::Buffer;
    use crate::codec::head;
    use crate::limits::Limits;
    use crate::random::rng::Rng;

    fn tracing(ppm: u32) -> Tracing {
        Tracing {
            upstream: "u".into(),
            authority: "u".into(),
            protocol: TraceProtocol::Grpc,
            timeout: Duration::from_secs(1),
            sampled: Share::from_ppm(ppm).unwrap(),
            service_name: "s".into(),
            tags: Box::default(),
            is_silent: false,
            keeps_context: false,
            ignores_request_id: false,
            headers: Box::default(),
        }
    }

    /// The place of a request with these fields, and its head with the context.
    fn traced(tracing: &Tracing, fields: &str) -> (Trace, String) {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let trace = begin(tracing, &head, &Rng::new(7));
        let mut request = Buffer::take();
        request.append_str(&text);
        request.append(b"body");
        let written = write(&request, &trace);
        (trace, String::from_utf8(written.filled().to_vec()).unwrap())
    }

    const ID: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn a_context_goes_on_in_the_form_it_came_in() {
        let span = "b7ad6b7169203331";
        for (fields, start, end) in [
            (
                format!("traceparent: 00-{ID}-{span}-01\r\ntracestate: a=b\r\n"),
                format!("\r\ntraceparent: 00-{ID}-"),
                "-01\r\n\r\nbody".to_owned(),
            ),
            (
                format!("b3: {ID}-{span}-1\r\n"),
                format!("\r\nb3: {ID}-"),
                format!("-1-{span}\r\n\r\nbody"),
            ),
            (
                format!("X-B3-TraceId: {ID}\r\nX-B3-SpanId: {span}\r\nX-B3-Sampled: 1\r\n"),
                format!("\r\nx-b3-traceid: {ID}\r\nx-b3-spanid: "),
                "\r\nx-b3-sampled: 1\r\n\r\nbody".to_owned(),
            ),
        ] {
            let (trace, text) = traced(&tracing(0), &fields);
            assert!(trace.is_sampled && trace.parent.is_some(), "{fields}");
            assert!(text.contains(&start) && text.ends_with(&end), "{text}");
            let ids = text.to_ascii_lowercase().matches(ID).count();
            assert_eq!(ids, 1, "{text}");
            assert_eq!(
                text.contains("tracestate: a=b"),
                fields.contains("tracestate")
            );
        }
    }

    #[test]
    fn what_is_no_context_begins_a_trace() {
        let zero = "0".repeat(32);
        for fields in [
            String::new(),
            format!("traceparent: 00-{zero}-b7ad6b7169203331-01\r\n"),
            format!("traceparent: ff-{ID}-b7ad6b7169203331-01\r\n"),
            format!("traceparent: 00-{ID}-b7ad6b7169203331-01-more\r\n"),
            format!(
                "traceparent: 00-{}-b7ad6b7169203331-01\r\n",
                "+1".repeat(16)
            ),
            "b3: 0\r\n".to_owned(),
        ] {
            let (trace, text) = traced(&tracing(1_000_000), &fields);
            assert!(trace.is_sampled && trace.parent.is_none(), "{fields}");
            assert!(!text.contains(ID), "{text}");
            assert_eq!(text.matches("\r\ntraceparent: 00-").count(), 1, "{text}");
        }
        assert!(!traced(&tracing(0), "").0.is_sampled);
    }

    #[test]
    fn an_id_of_the_request_is_marked_where_it_is_sampled() {
        let version = |tracing: &Tracing, fields: &str| traced(tracing, fields).0.id_version;
        assert_eq!(
            (version(&tracing(0), ""), version(&tracing(1_000_000), "")),
            (0x40, 0x90)
        );
        let marked = "X-Request-Id: 01234567-0123-9123-8123-0123456789ab\r\n";
        assert!(traced(&tracing(0), marked).0.is_sampled);
        let ignoring = Tracing {
            ignores_request_id: true,
            ..tracing(0)
        };
        assert!(!traced(&ignoring, marked).0.is_sampled);
        assert_eq!(version(&ignoring, ""), 0x40);
    }

    #[test]
    fn a_context_may_be_left_as_it_is() {
        let kept = Tracing {
            keeps_context: true,
            ..tracing(0)
        };
        let fields = format!("traceparent: 00-{ID}-b7ad6b7169203331-01\r\nX-Request-Id: a\r\n");
        let (_, text) = traced(&kept, &fields);
        assert!(text.contains(&fields), "{text}");
        assert_eq!(text.matches("traceparent").count(), 1);
    }
}
