//! The record of one request while it grows.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use myriad_base::clock::{self, Instant};

use super::held;
use super::record::{RequestTrace, StageOutcome, StageTrace, TracedHeader, TryTrace, WaitTrace};
use super::redact::Redactor;
use crate::codec::head::Head;
use crate::failure::{FailureKind, FaultSide};

/// The most bytes of texts of one record.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 10;

/// The most bytes of one text.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 10;

/// The most header fields of one record.
pub(super) const HEADERS_MAX: usize = 64;

/// The most stages of one record: a request may pass most of them twice.
pub(super) const STAGES_MAX: usize = 64;

/// The most tries of one record.
pub(super) const TRIES_MAX: usize = 16;

/// The most waits of one record.
pub(super) const WAITS_MAX: usize = 64;

/// A wait that is shorter is none.
const WAIT_MIN: Duration = Duration::from_micros(10);

/// The beginning of a request, beside its head.
pub struct TraceSubject<'a> {
    /// Its id.
    pub request_id: &'a str,
    /// The scheme, as its client speaks it.
    pub scheme: &'a str,
    /// The other end of its connection.
    pub client: SocketAddr,
    /// The listener.
    pub listener: &'a str,
}

/// The end of a request.
pub struct TraceEnd {
    /// The status of the answer; 0 for none.
    pub status: u16,
    /// The failure, where there was one.
    pub failure: Option<FailureKind>,
    /// Bytes of its body that were handed on.
    pub bytes_received: u64,
    /// Bytes of the body of its answer that were handed on.
    pub bytes_sent: u64,
}

/// A request that somebody wants to see, and what is known of it so far.
#[derive(Clone)]
pub struct TracedRequest(Arc<Growing>);

struct Growing {
    started: Instant,
    state: Mutex<TraceState>,
}

#[derive(Default)]
struct TraceState {
    record: RequestTrace,
    redactor: Redactor,
    /// The bytes of its texts.
    bytes: usize,
    /// The wait that it is in.
    wait: Option<(&'static str, Instant)>,
}

/// A traced request as long as it is served: it is over when this goes, however that comes.
pub struct LiveRecord(TracedRequest);

impl LiveRecord {
    /// The record of a request that is served from now on.
    pub fn new(traced: TracedRequest) -> Self {
        LiveRecord(traced)
    }

    /// The record.
    pub fn traced(&self) -> &TracedRequest {
        &self.0
    }
}

impl Drop for LiveRecord {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl TracedRequest {
    /// The record of a request whose head was read.
    pub(super) fn begin(head: &Head<'_>, subject: &TraceSubject<'_>) -> Self {
        let mut state = TraceState::default();
        // Secrets are looked for first, so that none of them stands anywhere.
        let headers = state.headers(head);
        let query = head.query.map(|query| state.redactor.query(query));
        let path = state.redactor.path(&head.path);
        let target = match query {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        state.record = RequestTrace {
            request_id: state.plain(subject.request_id),
            began_unix_ms: u64::try_from(clock::since_epoch().as_millis()).unwrap_or(u64::MAX),
            protocol: head.version.as_str().to_owned(),
            method: state.plain(head.method),
            scheme: subject.scheme.to_owned(),
            host: state.plain(&head.host),
            target: state.plain(&target),
            client: subject.client.to_string(),
            listener: state.plain(subject.listener),
            headers,
            // A text of it may have been cut already.
            is_cut: state.record.is_cut,
            ..RequestTrace::default()
        };
        TracedRequest(Arc::new(Growing {
            started: clock::now(),
            state: Mutex::new(state),
        }))
    }

    /// The record so far.
    pub fn record(&self) -> RequestTrace {
        let state = held(&self.0.state);
        let mut record = state.record.clone();
        if !record.is_over {
            record.micros = self.micros();
        }
        if let Some((what, since)) = state.wait
            && record.waits.len() < WAITS_MAX
        {
            record.waits.push(WaitTrace {
                what: what.to_owned(),
                from_micros: micros(since.duration_since(self.0.started)),
                micros: micros(clock::now().duration_since(since)),
                is_over: false,
            });
        }
        record
    }

    /// The object that the route came from.
    pub fn set_route(&self, origin: &str) {
        let mut state = held(&self.0.state);
        let text = state.text(origin);
        state.record.route = text;
    }

    /// The decision of a stage, in its words.
    pub fn stage(&self, name: &str, outcome: StageOutcome, text: &str, took: Duration) {
        let mut state = held(&self.0.state);
        if state.record.stages.len() >= STAGES_MAX {
            state.record.is_cut = true;
            return;
        }
        let text = state.text(text);
        state.record.stages.push(StageTrace {
            name: name.to_owned(),
            outcome,
            text,
            micros: micros(took),
        });
    }

    /// The request waits from now on; a wait that it was in is over.
    pub fn wait(&self, what: &'static str) {
        let mut state = held(&self.0.state);
        let now = clock::now();
        state.end_wait(self.0.started, now);
        state.wait = Some((what, now));
    }

    /// The wait that it was in is over.
    pub fn end_wait(&self) {
        held(&self.0.state).end_wait(self.0.started, clock::now());
    }

    /// An endpoint was picked.
    pub fn begin_try(&self, upstream: &str, endpoint: SocketAddr) {
        let from_micros = self.micros();
        let mut state = held(&self.0.state);
        if state.record.tries.len() >= TRIES_MAX {
            state.record.is_cut = true;
            return;
        }
        let upstream = state.text(upstream);
        state.record.tries.push(TryTrace {
            upstream,
            endpoint: endpoint.to_string(),
            from_micros,
            ..TryTrace::default()
        });
    }

    /// There is a connection to the endpoint.
    pub fn connected(&self, is_reused: bool) {
        if let Some(last) = held(&self.0.state).record.tries.last_mut() {
            last.is_reused = Some(is_reused);
        }
    }

    /// The endpoint has answered.
    pub fn answered(&self, status: u16) {
        if let Some(last) = held(&self.0.state).record.tries.last_mut() {
            last.status = status;
        }
    }

    /// The try has failed.
    pub fn fail_try(&self, kind: FailureKind) {
        let mut state = held(&self.0.state);
        state.end_wait(self.0.started, clock::now());
        if let Some(last) = state.record.tries.last_mut() {
            kind.verdict().flag.clone_into(&mut last.failure);
        }
    }

    /// The request is over.
    pub fn finish(&self, end: &TraceEnd) {
        let micros = self.micros();
        let mut state = held(&self.0.state);
        state.end_wait(self.0.started, clock::now());
        state.redactor.forget();
        let record = &mut state.record;
        record.status = end.status;
        if let Some(kind) = end.failure {
            let verdict = kind.verdict();
            verdict.flag.clone_into(&mut record.failure);
            record.why = why(kind);
        }
        (record.bytes_received, record.bytes_sent) = (end.bytes_received, end.bytes_sent);
        (record.micros, record.is_over) = (micros, true);
    }

    /// Nobody serves the request any more, and nobody has said how it ended.
    fn abandon(&self) {
        let micros = self.micros();
        let mut state = held(&self.0.state);
        if state.record.is_over {
            return;
        }
        state.end_wait(self.0.started, clock::now());
        state.redactor.forget();
        let record = &mut state.record;
        "its connection ended before it was answered".clone_into(&mut record.why);
        (record.micros, record.is_over) = (micros, true);
    }

    fn micros(&self) -> u64 {
        micros(clock::now().duration_since(self.0.started))
    }
}

impl TraceState {
    /// The header fields, as far as they may be shown. All are looked at for secrets.
    fn headers(&mut self, head: &Head<'_>) -> Vec<TracedHeader> {
        let mut headers = Vec::new();
        for field in &head.fields {
            let value = self.redactor.header(field.name, field.value);
            if headers.len() >= HEADERS_MAX {
                self.record.is_cut = true;
                continue;
            }
            let (name, value) = (self.plain(field.name), self.plain(&value));
            headers.push(TracedHeader { name, value });
        }
        headers
    }

    /// A text about the request, without its secrets, as far as there is room.
    fn text(&mut self, text: &str) -> String {
        match text.is_empty() {
            true => String::new(),
            false => {
                let text = self.redactor.text(text);
                self.plain(&text)
            }
        }
    }

    /// A text as it is, as far as there is room.
    fn plain(&mut self, text: &str) -> String {
        let room = RECORD_BYTES_MAX.saturating_sub(self.bytes);
        let length = text.floor_char_boundary(room.min(TEXT_BYTES_MAX));
        let kept = text.get(..length).unwrap_or_default();
        self.record.is_cut |= kept.len() < text.len();
        self.bytes += kept.len();
        kept.to_owned()
    }

    fn end_wait(&mut self, started: Instant, now: Instant) {
        let Some((what, since)) = self.wait.take() else {
            return;
        };
        let took = now.duration_since(since);
        if took < WAIT_MIN {
            return;
        }
        if self.record.waits.len() >= WAITS_MAX {
            self.record.is_cut = true;
            return;
        }
        self.record.waits.push(WaitTrace {
            what: what.to_owned(),
            from_micros: micros(since.duration_since(started)),
            micros: micros(took),
            is_over: true,
        });
    }
}

/// Why a request was answered as it was, where that is a failure.
fn why(kind: FailureKind) -> String {
    let verdict = kind.verdict();
    let text = verdict.text.trim_end();
    let side = match verdict.side {
        FaultSide::Downstream => "the client's side",
        FaultSide::Upstream => "the endpoint's side",
        FaultSide::Ours => "the proxy itself",
    };
    match text.is_empty() {
        true => format!("{}, on {side}", verdict.flag.replace('_', " ")),
        false => format!("{text}, on {side}"),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
