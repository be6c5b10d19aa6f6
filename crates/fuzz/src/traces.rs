//! Contexts of traces.

use std::time::Duration;

use myriad_model::{Share, TraceProtocol, Tracing};
use myriad_proxy::codec::buffer::Buffer;
use myriad_proxy::codec::head::{self, Head, HeadFinder};
use myriad_proxy::limits::Limits;
use myriad_proxy::policy::trace::{Trace, begin, write};
use myriad_proxy::random::rng::Rng;

fn tracing(keeps_context: bool) -> Tracing {
    Tracing {
        upstream: "u".into(),
        authority: "u".into(),
        protocol: TraceProtocol::Grpc,
        timeout: Duration::from_secs(1),
        sampled: Share::from_ppm(500_000).unwrap_or(Share::ALL),
        service_name: "s".into(),
        tags: Box::default(),
        is_silent: false,
        keeps_context,
        ignores_request_id: true,
        headers: Box::default(),
    }
}

/// The receiver of a request goes on with the trace that it was in, one span further, and sees
/// one context; what is kept as it is stays the same to the byte.
pub(crate) fn trace_context(bytes: &[u8]) -> bool {
    let start: &[u8] = b"GET / HTTP/1.1\r\nhost: a.example\r\n";
    let text = [start, bytes, b"\r\n"].concat();
    let Some(head) = parse(&text) else {
        return false;
    };
    let trace = begin(&tracing(false), &head, &Rng::new(7));
    assert!(trace.id != [0; 16] && trace.span != [0; 8]);
    let mut request = Buffer::take();
    request.append(&text);
    request.append(b"body");
    let written = write(&request, &trace);
    let written = written.filled();
    let behind = written.strip_suffix(b"body").unwrap_or_default();
    let next =
        parse(behind).map(|head| (begin(&tracing(false), &head, &Rng::new(8)), count(&head)));
    let Some((next, contexts)) = next else {
        panic!("the head that is written is none");
    };
    assert_eq!((next.id, next.parent), (trace.id, Some(trace.span)));
    assert_eq!(next.is_sampled, trace.is_sampled);
    assert_eq!(contexts, 1);
    assert_untouched(&request, &head);
    trace.parent.is_some()
}

/// A head that these bytes are and nothing else.
fn parse(text: &[u8]) -> Option<Head<'_>> {
    let length = HeadFinder::default().find(text).ok().flatten()?;
    let head = head::parse(text, &Limits::default()).ok();
    head.filter(|_| length == text.len())
}

/// How many contexts there are.
fn count(head: &Head<'_>) -> usize {
    let names = ["traceparent", "b3", "x-b3-traceid"];
    let fields = head.fields.iter();
    let is_one = |name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    fields.filter(|field| is_one(field.name)).count()
}

fn assert_untouched(request: &Buffer, head: &Head<'_>) {
    let trace: Trace = begin(&tracing(true), head, &Rng::new(7));
    let written = write(request, &trace);
    assert_eq!(written.filled(), request.filled());
}
