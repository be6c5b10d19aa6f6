//! The sender of spans, on a thread of its own.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use myriad_model::{Attribute, SpanTag, TraceProtocol, Tracing};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::{RequestSpan, Spans, otlp};
use crate::admission::spaces::NOBODY;
use crate::codec::buffer::Buffer;
use crate::http::keeper::Kept;
use crate::http::upstream::own::{ANSWER_BYTES_MAX, Own, converse};
use crate::http::worker::Worker;
use crate::local::Local;
use crate::net::deadline;
use crate::route::tables::Tables;
use crate::telemetry::count::Count;
use crate::telemetry::otlp::{Resource, key_value};

/// The most spans that wait for the sender.
const WAITING_MAX: usize = 8_192;

/// The most spans that are sent at once.
const BATCH_MAX: usize = 512;

/// How long a span waits for others.
const GATHER: Duration = Duration::from_millis(500);

/// The method that is called.
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

impl Spans {
    /// Starts the sender, unless it runs. It ends when the last of these is dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn open(
        &self,
        local: impl FnOnce() -> Local + Send + 'static,
        tables: Arc<ArcSwap<Tables>>,
    ) -> io::Result<()> {
        if self.waiting.get().is_some() {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .build()?;
        let (waiting, inbox) = mpsc::channel(WAITING_MAX);
        std::thread::Builder::new()
            .name("spans".to_owned())
            .spawn(move || {
                LocalSet::new().block_on(&runtime, async move {
                    myriad_base::task::spawn_local("deadlines", deadline::run());
                    let worker = Rc::new(Worker::new(Rc::new(local()), tables, Spans::default()));
                    myriad_base::task::spawn_local("turns", worker.clone().give_turns());
                    send_all(&worker, inbox).await;
                });
            })?;
        // There is one who opens.
        let _ = self.waiting.set(waiting);
        Ok(())
    }
}

async fn send_all(worker: &Rc<Worker>, mut inbox: mpsc::Receiver<Box<RequestSpan>>) {
    let mut batch: Vec<Box<RequestSpan>> = Vec::new();
    loop {
        batch.clear();
        if inbox.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        let end = tokio::time::sleep(GATHER);
        tokio::pin!(end);
        while batch.len() < BATCH_MAX {
            let room = BATCH_MAX - batch.len();
            tokio::select! {
                count = inbox.recv_many(&mut batch, room) => if count == 0 { break },
                () = &mut end => break,
            }
        }
        while let Some(first) = batch.last() {
            let recording = first.recording.clone();
            let is_its = |span: &mut Box<RequestSpan>| Arc::ptr_eq(&span.recording, &recording);
            let spans: Vec<Box<RequestSpan>> = batch.extract_if(.., is_its).collect();
            let count = spans.len() as u64;
            let is_sent = match &recording.told.tracing {
                Some(tracing) => send(worker, tracing, &spans).await,
                None => false,
            };
            let counted = if is_sent {
                Count::SpanSent
            } else {
                Count::SpanDropped
            };
            worker.local.counts.add_many(counted, count);
        }
        worker.h1_pool.sweep();
        worker.h2_pool.sweep();
    }
}

/// Sends spans; true once the collector has taken them.
async fn send(worker: &Rc<Worker>, tracing: &Tracing, spans: &[Box<RequestSpan>]) -> bool {
    let message = message(tracing, spans).encode_to_vec();
    let head = head(tracing, &message);
    let own = Own {
        upstream: &tracing.upstream,
        host: tracing.authority.split(':').next().unwrap_or_default(),
        head,
        is_head: false,
        timeout: tracing.timeout,
        space: NOBODY,
    };
    let asked = converse(worker, own, Kept::Head(ANSWER_BYTES_MAX));
    let Some(answered) = asked.await else {
        return false;
    };
    let status = answered
        .fields
        .iter()
        .find(|(name, _)| **name == *"grpc-status");
    let is_fine = status.is_none_or(|(_, value)| **value == *b"0");
    (200..300).contains(&answered.status) && is_fine
}

/// The request that brings a message.
fn head(tracing: &Tracing, message: &[u8]) -> Buffer {
    let mut out = Buffer::take();
    out.append_str("POST ");
    out.append_str(match &tracing.protocol {
        TraceProtocol::Grpc => GRPC_PATH,
        TraceProtocol::Http(path) => path,
    });
    out.append_str(" HTTP/1.1\r\nhost: ");
    out.append_str(&tracing.authority);
    out.append_str("\r\n");
    for (name, value) in &tracing.headers {
        out.append_str(name);
        out.append_str(": ");
        out.append_str(value);
        out.append_str("\r\n");
    }
    match &tracing.protocol {
        TraceProtocol::Grpc => {
            let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
            out.append_str("content-type: application/grpc\r\nte: trailers\r\n\r\n");
            out.append(&[0]);
            out.append(&length.to_be_bytes());
        }
        TraceProtocol::Http(_) => {
            out.append_str("content-type: application/x-protobuf\r\ncontent-length: ");
            out.append_decimal(message.len() as u64);
            out.append_str("\r\n\r\n");
        }
    }
    out.append(message);
    out
}

fn message(tracing: &Tracing, spans: &[Box<RequestSpan>]) -> otlp::ExportTraceServiceRequest {
    let service = key_value("service.name", tracing.service_name.to_string());
    otlp::ExportTraceServiceRequest {
        resource_spans: vec![otlp::ResourceSpans {
            resource: Some(Resource {
                attributes: vec![service],
            }),
            scope_spans: vec![otlp::ScopeSpans {
                spans: spans
                    .iter()
                    .map(|span| span_message(tracing, span))
                    .collect(),
            }],
        }],
    }
}

/// The attributes of every span, by the names that Envoy's have.
const USUAL: [(&str, Attribute); 9] = [
    ("http.method", Attribute::Method),
    ("http.protocol", Attribute::Protocol),
    ("http.status_code", Attribute::Status),
    ("request_size", Attribute::BytesReceived),
    ("response_size", Attribute::BytesSent),
    ("response_flags", Attribute::Flags),
    ("upstream_cluster", Attribute::Upstream),
    ("upstream_address", Attribute::Endpoint),
    ("peer.address", Attribute::ClientIp),
];

fn span_message(tracing: &Tracing, span: &RequestSpan) -> otlp::OtlpSpan {
    let (line, trace) = (&span.line, &span.trace);
    let mut attributes = vec![key_value("component", "proxy".to_owned())];
    let scheme = line.text(&Attribute::Scheme);
    let scheme = scheme.as_deref().unwrap_or("http");
    let url = format!("{scheme}://{}{}", line.host, line.target);
    attributes.push(key_value("http.url", url));
    for (name, attribute) in &USUAL {
        let value = line.text(attribute);
        let value = value.map_or_else(|| "-".to_owned(), |value| value.into_owned());
        attributes.push(key_value(name, value));
    }
    for tag in &tracing.tags {
        let (name, value) = match tag {
            SpanTag::Text(name, value) => (name, value.to_string()),
            SpanTag::Attribute(name, attribute, otherwise) => {
                let value = line.text(attribute);
                let value = value.map(std::borrow::Cow::into_owned);
                (name, value.unwrap_or_else(|| otherwise.to_string()))
            }
            SpanTag::Variable(name, variable, otherwise) => {
                let value = std::env::var(&**variable).ok();
                (name, value.unwrap_or_else(|| otherwise.to_string()))
            }
        };
        if !value.is_empty() {
            attributes.push(key_value(name, value));
        }
    }
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    otlp::OtlpSpan {
        trace_id: trace.id.to_vec(),
        span_id: trace.span.to_vec(),
        parent_span_id: trace.parent.map(Vec::from).unwrap_or_default(),
        name: match &line.upstream {
            Some(upstream) => format!("{upstream}/*"),
            None => format!("{} {}", line.method, line.host),
        },
        kind: 3,
        start_time_unix_nano: nanos(line.time),
        end_time_unix_nano: nanos(line.time + line.duration),
        attributes,
        status: (line.status >= 500 || line.status == 0).then_some(otlp::SpanStatus { code: 2 }),
    }
}
