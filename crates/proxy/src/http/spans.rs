//! Spans on their way to collectors: gathered from all workers, and sent by a thread of its own.
//!
//! A worker never waits for it. Where the sender is behind, or a collector is down, spans are
//! dropped and counted.

#[allow(missing_docs, reason = "fields are named by OpenTelemetry's protocol")]
pub mod otlp;
mod sender;

use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc;

use crate::policy::trace::Trace;
use crate::telemetry::access_log::AccessLogLine;
use crate::telemetry::queue::{QueueRoom, QueuedBytes};
use crate::telemetry::recording::Recording;

/// A request that is over, and its place in a trace.
pub struct RequestSpan {
    /// The facts about the request.
    pub line: AccessLogLine,
    /// Its place.
    pub trace: Trace,
    /// The recording that asks for it.
    pub recording: Arc<Recording>,
    /// Its room among those that wait, once it does.
    pub room: Option<QueuedBytes>,
}

/// The end that workers write to. Nothing can be written before it is opened.
#[derive(Clone, Default)]
pub struct Spans {
    waiting: Arc<OnceLock<mpsc::Sender<Box<RequestSpan>>>>,
    room: QueueRoom,
}

impl Spans {
    /// Hands a span over; false where it had to be dropped.
    pub fn write(&self, mut span: Box<RequestSpan>) -> bool {
        let Some(waiting) = self.waiting.get() else {
            return false;
        };
        span.room = self.room.take(span.line.memory());
        span.room.is_some() && waiting.try_send(span).is_ok()
    }
}
