//! The account of a request once it is over: counts, and a line of the access log.

use std::sync::Arc;

use myriad_base::clock::{self, Instant};

use super::answer::LocalReply;
use super::page::Form;
use super::plan::Forward;
use super::spans::RequestSpan;
use super::worker::Worker;
use crate::admission::bucket::Running;
use crate::admission::share::HeldShare;
use crate::admission::spaces::{NOBODY, Spots};
use crate::admission::waiting::Standing;
use crate::balance::Endpoint;
use crate::codec::field::KnownField;
use crate::codec::head::{Head, Version};
use crate::failure::{FailureKind, envoy_flag};
use crate::local::Local;
use crate::policy::client;
use crate::policy::trace::{self, Trace};
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::entry::RouteEntry;
use crate::route::tables::Tables;
use crate::telemetry::access_log::AccessLogLine;
use crate::telemetry::count::Count;
use crate::telemetry::live_trace::{LiveRecord, TraceEnd, TraceSubject, TracedRequest};
use crate::telemetry::recording::{AskedTags, Recording};
use crate::telemetry::request_id::{RequestId, RequestIds};
use crate::telemetry::standard::{Book, Labels, Reporter};
use crate::telemetry::top::TopRequest;
use crate::telemetry::workloads::WorkloadId;
use crate::upstream::entry::UpstreamEntry;

/// The version of an id that is made where nothing is traced: a random UUID.
const PLAIN: u8 = 0x40;

/// The most bytes of `User-Agent` that a line of the access log has.
const USER_AGENT_BYTES_MAX: usize = 256;

/// A request being served.
pub struct RequestAccount {
    /// The status of the response; 0 while there is none.
    pub status: u16,
    /// Bytes of the response body handed on.
    pub bytes_sent: u64,
    /// Bytes of the request body handed on.
    pub bytes_received: u64,
    /// The gRPC status of the response; empty for none.
    pub grpc_status: &'static str,
    /// The failure, where there was one.
    pub failure: Option<FailureKind>,
    /// Whether an access policy wants the request to be marked.
    pub is_audited: bool,
    /// Whether the request had to wait on purpose.
    pub is_delayed: bool,
    /// Only where there is an access log: nobody else needs copies of what the client sent.
    line: Option<Box<AccessLogLine>>,
    /// The time when it began.
    started: Instant,
    /// Its place in a trace.
    trace: Option<Trace>,
    /// The recording that wants a span of it.
    traced: Option<Arc<Recording>>,
    /// The labels that it is counted under; `None` if it is not counted.
    labels: Option<Labels>,
    /// The book where it is counted, once its upstream is known.
    book: Option<Arc<Book>>,
    /// The reporter: destination for requests that a sidecar's workload is sent, else source.
    reporter: Reporter,
    /// The workload at the other end.
    met: WorkloadId,
    /// The route that it took.
    route: Option<RouteEntry>,
    /// The record of it that somebody asked for; nearly always none.
    record: Option<LiveRecord>,
    /// Its id.
    id: RequestId,
    /// The form of a page that its client would read.
    form: Form,
    /// Its place among the requests of its host.
    pub held: Option<HeldShare>,
    /// Its place among the tunnels of its host, where it may become one.
    pub tunnel: Option<Box<HeldShare>>,
    /// Its places among the requests that are served at the same time; nearly always none.
    pub running: Vec<Running>,
}

impl RequestAccount {
    /// A request whose head was read.
    pub fn begin(
        worker: &Worker,
        tables: &Tables,
        visit: &DownstreamConnection,
        head: &Head<'_>,
    ) -> Self {
        let recording = worker.local.recording(tables.recording());
        let mut account = RequestAccount::start(worker, recording, visit, head.version);
        account.trace = recording.and_then(|recording| {
            let tracing = recording.told.tracing.as_ref()?;
            let trace = trace::begin(tracing, head, &worker.local.dice);
            if trace.is_sampled && !tracing.is_silent {
                account.traced = Some(recording.clone());
                let line = || line(Some(recording), visit, head.version);
                account.line.get_or_insert_with(line);
            }
            Some(trace)
        });
        account.form = Form::of(head);
        let version = account.trace.map_or(PLAIN, |trace| trace.id_version);
        account.id = request_id(worker, head, version);
        if worker.local.live_traces.is_asked() {
            account.begin_record(worker, visit, head);
        }
        if let Some(labels) = &mut account.labels {
            labels.protocol = protocol(head);
            let [of_method, of_scheme, ..] = &mut labels.tags;
            if recording.is_some_and(|it| it.asked.is_some_and(|[method, ..]| method)) {
                *of_method = method(head.method);
            }
            if !of_scheme.is_empty() {
                *of_scheme = head.scheme;
            }
        }
        if let Some(line) = &mut account.line {
            if let Some((recording, _)) = &line.recording {
                let headers = recording.headers().iter();
                let told = headers.map(|name| match &**name {
                    "x-request-id" => Some(account.id.text(&mut [0; 36]).into()),
                    name => header(head, name),
                });
                line.headers = told.collect();
            }
            let trusted_hops = worker.local.trusted_hops;
            line.client = client::address(head, visit.client.ip(), trusted_hops);
            if let Some(scheme) = client::forwarded_scheme(head, visit, trusted_hops) {
                line.scheme = scheme;
            }
            line.trace = account.trace.map(|trace| trace.id);
            line.request_id = account.id.text(&mut [0; 36]).into();
            line.user_agent = header(head, "user-agent").map(|text| cut(&text));
            line.method = head.method.into();
            line.host = head.host.as_ref().into();
            line.target = match head.query {
                Some(query) => format!("{}?{query}", head.path).into(),
                None => head.path.as_ref().into(),
            };
        }
        account
    }

    /// A request whose head was refused.
    pub fn begin_unread(worker: &Worker, visit: &DownstreamConnection, version: Version) -> Self {
        let tables = worker.tables.load();
        let recording = worker.local.recording(tables.recording());
        let mut account = RequestAccount::start(worker, recording, visit, version);
        account.id = RequestId::made(trace::wide(&worker.local.dice), PLAIN);
        if let Some(line) = &mut account.line {
            line.request_id = account.id.text(&mut [0; 36]).into();
        }
        account
    }

    fn start(
        worker: &Worker,
        recording: Option<&Arc<Recording>>,
        visit: &DownstreamConnection,
        version: Version,
    ) -> Self {
        let has_logs = recording.and_then(|recording| recording.has_logs());
        let has_line = has_logs.unwrap_or(worker.local.logs_all);
        let line = has_line.then(|| line(recording, visit, version));
        RequestAccount {
            line,
            labels: Recording::asked(recording.map(|it| &**it), worker.local.counts_all)
                .map(|asked| labels(asked, visit, version)),
            reporter: visit.reporter(),
            met: visit.met,
            ..RequestAccount::untold()
        }
    }

    /// A request that nothing is told of.
    pub fn untold() -> Self {
        RequestAccount {
            status: 0,
            bytes_sent: 0,
            bytes_received: 0,
            grpc_status: "",
            failure: None,
            is_audited: false,
            is_delayed: false,
            line: None,
            started: clock::now(),
            trace: None,
            traced: None,
            labels: None,
            book: None,
            reporter: Reporter::Source,
            met: WorkloadId::UNKNOWN,
            route: None,
            record: None,
            id: RequestId::NONE,
            form: Form::Text,
            held: None,
            tunnel: None,
            running: Vec::new(),
        }
    }

    /// Begins the record that somebody may have asked for.
    #[cold]
    fn begin_record(&mut self, worker: &Worker, visit: &DownstreamConnection, head: &Head<'_>) {
        let mut room = [0; 36];
        let subject = TraceSubject {
            request_id: self.id.text(&mut room),
            scheme: head.scheme,
            client: visit.client,
            listener: &visit.listener,
        };
        let traced = worker.local.live_traces.begin(head, &subject);
        self.record = traced.map(LiveRecord::new);
    }

    /// The record of the request that somebody asked for.
    #[inline]
    pub fn record(&self) -> Option<&TracedRequest> {
        self.record.as_ref().map(LiveRecord::traced)
    }

    /// The request waits from now on.
    #[inline]
    pub fn wait(&self, what: &'static str) {
        if let Some(record) = self.record() {
            record.wait(what);
        }
    }

    /// The id that the request goes on with; none for what its client sent.
    pub fn passed_id(&self, worker: &Worker) -> Option<&RequestId> {
        (worker.local.request_ids != RequestIds::Pass).then_some(&self.id)
    }

    /// The line that it stands in while it waits for its client.
    pub fn standing(&self) -> Standing {
        self.held
            .as_ref()
            .map(HeldShare::standing)
            .unwrap_or_default()
    }

    /// The places of the namespace that it is of.
    pub fn space(&self) -> Spots {
        self.held.as_ref().map_or(NOBODY, HeldShare::space)
    }

    /// How many bytes of memory it takes beside what every account does, about.
    pub fn memory(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.memory())
    }

    /// Makes a page of the answer to a failure, in the form that the client reads.
    pub fn put_page(&self, answer: &mut LocalReply) {
        answer.put_page(self.form, self.id.text(&mut [0; 36]));
    }

    /// Puts the place in a trace into what goes to an endpoint.
    pub fn put_trace(&self, plan: &mut Forward) {
        if let Some(trace) = &self.trace {
            trace::put_into(&mut plan.head, trace);
        }
    }

    /// The route that was taken.
    pub fn set_route(&mut self, route: &RouteEntry) {
        self.route = Some(route.clone());
        if let (Some(record), Some(origin)) = (self.record(), route.origin()) {
            record.set_route(&origin.to_string());
        }
        if let Some(line) = &mut self.line {
            line.origin = route.origin().cloned();
        }
    }

    /// The upstream that the request would be sent to.
    pub fn set_upstream(&mut self, local: &Local, upstream: &UpstreamEntry) {
        if self.labels.is_some() && self.book.is_none() {
            self.book = Some(upstream.book(local, self.reporter).clone());
        }
    }

    /// Sets the endpoint that the request was sent to.
    pub fn set_endpoint(&mut self, local: &Local, upstream: &UpstreamEntry, target: &Endpoint) {
        self.set_upstream(local, upstream);
        self.set_met(target);
        if let Some(record) = self.record() {
            record.begin_try(&upstream.name, target.address);
        }
        if let Some(line) = &mut self.line {
            line.upstream = Some(upstream.name.clone());
            line.endpoint = Some(target.address);
        }
    }

    /// Notes a connection to the endpoint.
    pub fn set_connected(&mut self, target: &Endpoint, is_reused: bool) {
        self.set_met(target);
        if let Some(record) = self.record() {
            record.connected(is_reused);
            record.wait("the endpoint's answer");
        }
    }

    /// Notes the identity of the endpoint, as its last handshake has shown it.
    fn set_met(&mut self, target: &Endpoint) {
        if self.reporter == Reporter::Source {
            self.met = target.met();
        }
    }

    /// Tells what became of the request.
    pub fn finish(self, worker: &Worker) {
        let counts = &worker.local.counts;
        if let Some(record) = self.record() {
            record.finish(&TraceEnd {
                status: self.status,
                failure: self.failure,
                bytes_received: self.bytes_received,
                bytes_sent: self.bytes_sent,
            });
        }
        if let Some(kind) = self.failure {
            counts.add_failure(kind);
        }
        let now = clock::now();
        let duration = now.duration_since(self.started);
        if let Some((origin, host)) = self.route.as_ref().and_then(RouteEntry::owner) {
            counts.top.note_request(&TopRequest {
                origin,
                host,
                status: self.status,
                bytes: self.bytes_received.saturating_add(self.bytes_sent),
                now,
            });
        }
        if self.status != 0 {
            counts.add_status(self.status);
            counts.latency.add(self.status, duration);
        }
        let delayed = self.is_delayed.then_some("fault_delay");
        let flag = self.failure.map(|kind| kind.verdict().flag).or(delayed);
        if let Some(mut labels) = self.labels
            && let local = &worker.local
            && let nowhere = local.library.nowhere(self.reporter)
            && let book = self.book.as_ref().unwrap_or(nowhere)
            && let Some(page) = book.page(local.number, self.met)
        {
            labels.status = self.status;
            if labels.protocol == "grpc" {
                labels.grpc_status = self.grpc_status;
            }
            labels.flag = flag.and_then(envoy_flag).unwrap_or_default();
            page.count_request(labels, duration, self.bytes_received, self.bytes_sent);
        }
        let Some(mut line) = self.line else {
            return;
        };
        line.duration = duration;
        line.status = self.status;
        line.is_audited = self.is_audited;
        line.bytes_sent = self.bytes_sent;
        line.bytes_received = self.bytes_received;
        line.flag = flag;
        if let (Some(recording), Some(trace)) = (self.traced, self.trace) {
            let span = RequestSpan {
                line: AccessLogLine::clone(&line),
                trace,
                recording,
                room: None,
            };
            if !worker.spans.write(Box::new(span)) {
                counts.add(Count::SpanDropped);
            }
        }
        worker.local.log(line);
    }
}

/// The id that a request goes on with.
fn request_id(worker: &Worker, head: &Head<'_>, version: u8) -> RequestId {
    let sent = match worker.local.request_ids {
        RequestIds::Replace => None,
        RequestIds::Keep | RequestIds::Pass => head.first(KnownField::RequestId),
    };
    let kept = sent.and_then(RequestId::read);
    kept.unwrap_or_else(|| RequestId::made(trace::wide(&worker.local.dice), version))
}

/// The part of a text that a line has room for.
fn cut(text: &str) -> Box<str> {
    text.get(..text.floor_char_boundary(USER_AGENT_BYTES_MAX))
        .unwrap_or_default()
        .into()
}

fn line(
    recording: Option<&Arc<Recording>>,
    visit: &DownstreamConnection,
    version: Version,
) -> Box<AccessLogLine> {
    Box::new(AccessLogLine {
        time: clock::since_epoch(),
        protocol: version.as_str(),
        recording: recording.map(|recording| (recording.clone(), 0)),
        ..visit.line()
    })
}

/// The labels that a request is counted under, as far as its connection tells.
fn labels(asked: AskedTags, visit: &DownstreamConnection, version: Version) -> Labels {
    let [_, scheme, protocol, tls, mutual] = asked;
    let secured = visit.secured.as_ref();
    let of = |is_asked: bool, value: &'static str| if is_asked { value } else { "" };
    Labels {
        protocol: "http",
        tags: [
            "",
            of(scheme, visit.scheme()),
            of(protocol, version.as_str()),
            of(tls, secured.map_or("", |secured| secured.version)),
            of(
                mutual,
                match secured.is_some_and(|it| it.peer.is_some()) {
                    true => "true",
                    false => "false",
                },
            ),
        ],
        ..Labels::default()
    }
}

fn protocol(head: &Head<'_>) -> &'static str {
    // gRPC is always POST, so that others need no look at their fields.
    let is_grpc = head.method == "POST"
        && head.fields.iter().any(|field| {
            field.name.eq_ignore_ascii_case("content-type")
                && field.value.starts_with(b"application/grpc")
        });
    if is_grpc { "grpc" } else { "http" }
}

/// A method of those that are few; clients may send any.
fn method(written: &str) -> &'static str {
    const KNOWN: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ];
    let mut known = KNOWN.into_iter();
    known.find(|it| *it == written).unwrap_or("other")
}

/// The value of a header, the values of several joined.
fn header(head: &Head<'_>, name: &str) -> Option<Box<str>> {
    let fields = head.fields.iter();
    let values = fields.filter(|field| field.name.eq_ignore_ascii_case(name));
    let mut text: Option<String> = None;
    for field in values {
        let value = String::from_utf8_lossy(field.value);
        match &mut text {
            Some(text) => {
                text.push(',');
                text.push_str(&value);
            }
            None => text = Some(value.into_owned()),
        }
    }
    text.map(String::into_boxed_str)
}
