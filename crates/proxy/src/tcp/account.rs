//! The account of a stream once it is over: counts, and a line of the access log.

use std::sync::Arc;

use myriad_base::clock::{self, Instant};

use crate::balance::Endpoint;
use crate::failure::{FailureKind, FaultSide, envoy_flag};
use crate::local::Local;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::stream_route::StreamRouteEntry;
use crate::telemetry::access_log::AccessLogLine;
use crate::telemetry::count::Count;
use crate::telemetry::recording::Recording;
use crate::telemetry::standard::{Book, Labels, Reporter, SeriesPage};
use crate::telemetry::workloads::WorkloadId;
use crate::upstream::entry::UpstreamEntry;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both sides have ended it.
    Done,
    /// One side broke it off.
    Broken(FaultSide),
    /// Nobody said anything for too long.
    Idle,
    /// No stream route takes it any more.
    Removed,
    /// There was no endpoint, or it must not be handed on.
    Failed(FailureKind),
}

/// A stream being served.
pub(super) struct StreamAccount {
    started: Instant,
    is_counted: bool,
    /// The book where it is counted, once its upstream is known.
    book: Option<Arc<Book>>,
    reporter: Reporter,
    /// The workload at the other end.
    met: WorkloadId,
    /// Whether it was counted as opened.
    is_opened: bool,
    /// Bytes that were counted already.
    bytes_received: u64,
    bytes_sent: u64,
    /// Only where there is an access log.
    line: Option<Box<AccessLogLine>>,
}

impl StreamAccount {
    /// A stream that a stream route takes.
    pub(super) fn begin(
        local: &Local,
        recording: Option<&Arc<Recording>>,
        visit: &DownstreamConnection,
        sni: Option<&str>,
        entry: &StreamRouteEntry,
    ) -> Self {
        let recording = local.recording(recording);
        let mut line = visit.stream_line(local, recording, entry);
        if let Some(line) = &mut line {
            line.sni = sni.map(Into::into);
        }
        StreamAccount {
            started: clock::now(),
            is_counted: Recording::asked(recording.map(|it| &**it), local.counts_all).is_some(),
            book: None,
            reporter: visit.reporter(),
            met: visit.met,
            is_opened: false,
            bytes_received: 0,
            bytes_sent: 0,
            line,
        }
    }

    /// Sets the upstream that the stream is sent to.
    pub(super) fn set_upstream(&mut self, local: &Local, upstream: &UpstreamEntry) {
        if self.is_counted {
            self.book = Some(upstream.book(local, self.reporter).clone());
        }
        if let Some(line) = &mut self.line {
            line.upstream = Some(upstream.name.clone());
        }
    }

    /// The endpoint that is tried.
    pub(super) fn set_endpoint(&mut self, target: &Endpoint) {
        if let Some(line) = &mut self.line {
            line.endpoint = Some(target.address);
        }
    }

    /// The endpoint was reached.
    pub(super) fn open(&mut self, local: &Local, target: &Endpoint) {
        if self.reporter == Reporter::Source {
            self.met = target.met();
        }
        self.count_opened(local);
    }

    /// Notes the bytes that have been handed on by now. They are counted at once: a stream may last
    /// for days.
    pub(super) fn note_bytes(&mut self, local: &Local, bytes_received: u64, bytes_sent: u64) {
        let (received, sent) = (self.bytes_received, self.bytes_sent);
        (self.bytes_received, self.bytes_sent) = (bytes_received, bytes_sent);
        let received = bytes_received.saturating_sub(received);
        let sent = bytes_sent.saturating_sub(sent);
        local.counts.add_many(Count::StreamBytesReceived, received);
        local.counts.add_many(Count::StreamBytesSent, sent);
        if let Some(page) = self.page(local) {
            page.count_bytes(labels(None), received, sent);
        }
    }

    fn count_opened(&mut self, local: &Local) {
        if !self.is_opened
            && let Some(page) = self.page(local)
        {
            page.count_opened(labels(None));
            self.is_opened = true;
        }
    }

    fn page(&self, local: &Local) -> Option<&SeriesPage> {
        self.book.as_ref()?.page(local.number, self.met)
    }

    /// Tells what became of the stream.
    pub(super) fn finish(
        mut self,
        local: &Local,
        ending: Ending,
        bytes_received: u64,
        bytes_sent: u64,
    ) {
        self.count_opened(local);
        self.note_bytes(local, bytes_received, bytes_sent);
        let (count, flag) = match ending {
            Ending::Done => (Count::StreamEnded, None),
            Ending::Broken(FaultSide::Downstream) => (Count::StreamBroken, Some("client_gone")),
            Ending::Broken(_) => (Count::StreamBroken, Some("upstream_closed")),
            Ending::Idle => (Count::StreamIdle, Some("idle_timeout")),
            Ending::Removed => (Count::StreamRemoved, Some("passage_removed")),
            Ending::Failed(kind) => (Count::StreamFailed, Some(kind.verdict().flag)),
        };
        local.counts.add(count);
        if let Some(page) = self.page(local) {
            page.count_closed(labels(flag));
        }
        let Some(mut line) = self.line else {
            return;
        };
        line.duration = clock::now().duration_since(self.started);
        line.bytes_sent = bytes_sent;
        line.bytes_received = bytes_received;
        line.flag = flag;
        local.log(line);
    }
}

fn labels(flag: Option<&'static str>) -> Labels {
    Labels {
        flag: flag.and_then(envoy_flag).unwrap_or_default(),
        protocol: "tcp",
        ..Labels::default()
    }
}
