//! What is told of a request once it is over: counts, and a line of the access log.

use std::net::SocketAddr;
use std::sync::Arc;

use myriad_base::clock::{self, Instant};

use super::worker::Worker;
use crate::net::count::Count;
use crate::net::failure::{FailureKind, envoy_flag};
use crate::net::head::{Head, Version};
use crate::net::journal::Line;
use crate::net::local::Local;
use crate::net::recording::Recording;
use crate::net::standard::{Asked, Labels, Page};
use crate::policy::client;
use crate::route::host::RouteEntry;
use crate::route::tables::Tables;
use crate::route::visit::Visit;
use crate::upstream::entry::UpstreamEntry;

/// A request being served.
pub struct Account {
    /// The status of the response; 0 while there is none.
    pub status: u16,
    /// Bytes of the response body handed on.
    pub bytes_sent: u64,
    /// Bytes of the request body handed on.
    pub bytes_received: u64,
    /// What failed.
    pub failure: Option<FailureKind>,
    /// Whether a guard wants the request to be marked.
    pub is_audited: bool,
    /// Whether the request had to wait on purpose.
    pub is_delayed: bool,
    /// Only where there is an access log: nobody else needs copies of what the client sent.
    line: Option<Box<Line>>,
    /// When it began.
    started: Instant,
    /// By what it is counted; none for not.
    labels: Option<Labels>,
    /// Where it is counted, once its upstream is known.
    page: Option<Arc<Page>>,
}

impl Account {
    /// A request whose head was read.
    pub fn begin(worker: &Worker, tables: &Tables, visit: &Visit, head: &Head<'_>) -> Self {
        let recording = tables.recording();
        let mut account = Account::start(worker, recording, visit, head.version);
        if let Some(labels) = &mut account.labels {
            labels.protocol = protocol(head);
            if recording.is_some_and(|it| it.asked.is_some_and(|[method, ..]| method)) {
                let [first, ..] = &mut labels.tags;
                *first = method(head.method);
            }
        }
        if let Some(line) = &mut account.line {
            if let Some((recording, _)) = &line.recording {
                let headers = recording.headers().iter();
                line.headers = headers.map(|name| header(head, name)).collect();
            }
            let trusted_hops = worker.local.trusted_hops;
            line.client = client::address(head, visit.client.ip(), trusted_hops);
            line.method = head.method.into();
            line.host = head.host.as_ref().into();
            line.target = match head.query {
                Some(query) => format!("{}?{query}", head.path).into(),
                None => head.path.into(),
            };
        }
        account
    }

    /// A request whose head was refused.
    pub fn begin_unread(worker: &Worker, visit: &Visit, version: Version) -> Self {
        let tables = worker.tables.load();
        Account::start(worker, tables.recording(), visit, version)
    }

    fn start(
        worker: &Worker,
        recording: Option<&Arc<Recording>>,
        visit: &Visit,
        version: Version,
    ) -> Self {
        let has_logs = recording.and_then(|recording| recording.has_logs());
        let line = has_logs.unwrap_or(worker.local.logs_all).then(|| {
            let mut line = visit.line();
            line.time = clock::since_epoch();
            line.protocol = version.as_str();
            let obeyed = recording.filter(|_| has_logs.is_some());
            line.recording = obeyed.map(|recording| (recording.clone(), 0));
            Box::new(line)
        });
        Account {
            line,
            labels: labels(recording, visit, version),
            ..Account::untold()
        }
    }

    /// A request that nothing is told of.
    pub fn untold() -> Self {
        Account {
            status: 0,
            bytes_sent: 0,
            bytes_received: 0,
            failure: None,
            is_audited: false,
            is_delayed: false,
            line: None,
            started: clock::now(),
            labels: None,
            page: None,
        }
    }

    /// The route that was taken.
    pub fn set_route(&mut self, route: &RouteEntry) {
        if let Some(line) = &mut self.line {
            line.origin = route
                .sealed()
                .resource()
                .map(|resource| resource.origin.clone());
        }
    }

    /// Where the request was sent.
    pub fn set_endpoint(&mut self, local: &Local, upstream: &UpstreamEntry, address: SocketAddr) {
        if self.labels.is_some() && self.page.is_none() {
            self.page = upstream.page(local);
        }
        if let Some(line) = &mut self.line {
            line.upstream = Some(upstream.name.clone());
            line.endpoint = Some(address);
        }
    }

    /// Tells what became of the request.
    pub fn finish(self, worker: &Worker) {
        let counts = &worker.local.counts;
        if let Some(kind) = self.failure {
            counts.add_failure(kind);
        }
        if self.status != 0 {
            counts.add_status(self.status);
        }
        let delayed = self.is_delayed.then_some("fault_delay");
        let flag = self.failure.map(|kind| kind.verdict().flag).or(delayed);
        let duration = clock::now().duration_since(self.started);
        if let Some(mut labels) = self.labels
            && let Some(page) = self.page.as_ref().or(worker.local.nowhere.as_ref())
        {
            labels.status = self.status;
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
        if line.find_takers() && !worker.local.journal.write(line) {
            counts.add(Count::LogDropped);
        }
    }
}

/// By what a request is counted, as far as its connection tells; none where nothing is.
fn labels(recording: Option<&Arc<Recording>>, visit: &Visit, version: Version) -> Option<Labels> {
    let asked = match recording {
        Some(recording) => recording.asked?,
        None => Asked::default(),
    };
    let [_, scheme, protocol, tls, mutual] = asked;
    let secured = visit.secured.as_ref();
    let of = |is_asked: bool, value: &'static str| if is_asked { value } else { "" };
    Some(Labels {
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
    })
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
