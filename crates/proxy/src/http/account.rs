//! What is told of a request once it is over: counts, and a line of the access log.

use std::net::SocketAddr;

use myriad_base::clock::{self, Instant};

use super::worker::Worker;
use crate::net::count::Count;
use crate::net::failure::FailureKind;
use crate::net::head::{Head, Version};
use crate::net::journal::Line;
use crate::policy::client;
use crate::route::host::RouteEntry;
use crate::route::visit::Visit;

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
    line: Option<Box<(Instant, Line)>>,
}

impl Account {
    /// A request whose head was read.
    pub fn begin(worker: &Worker, visit: &Visit, head: &Head<'_>) -> Self {
        let mut account = Account::begin_unread(worker, visit, head.version);
        if let Some(line) = &mut account.line {
            let line = &mut line.1;
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
        let line = worker.local.journal.as_ref().map(|_| {
            let secured = visit.secured.as_ref();
            let line = Line {
                time: clock::since_epoch(),
                duration: std::time::Duration::ZERO,
                listener: visit.listener.clone(),
                client: visit.client.ip(),
                method: Box::default(),
                host: Box::default(),
                target: Box::default(),
                protocol: version.as_str(),
                status: 0,
                bytes_sent: 0,
                bytes_received: 0,
                upstream: None,
                endpoint: None,
                flag: None,
                is_audited: false,
                origin: None,
                sni: secured.and_then(|secured| secured.sni.clone()),
                tls: secured.map(|secured| secured.version),
            };
            Box::new((clock::now(), line))
        });
        Account {
            status: 0,
            bytes_sent: 0,
            bytes_received: 0,
            failure: None,
            is_audited: false,
            is_delayed: false,
            line,
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
        }
    }

    /// The route that was taken.
    pub fn set_route(&mut self, route: &RouteEntry) {
        if let Some(line) = &mut self.line {
            line.1.origin = route
                .sealed()
                .resource()
                .map(|resource| resource.origin.clone());
        }
    }

    /// Where the request was sent.
    pub fn set_endpoint(&mut self, upstream: &myriad_model::Name, address: SocketAddr) {
        if let Some(line) = &mut self.line {
            line.1.upstream = Some(upstream.clone());
            line.1.endpoint = Some(address);
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
        let (Some(line), Some(journal)) = (self.line, &worker.local.journal) else {
            return;
        };
        let (started, mut line) = *line;
        line.duration = clock::now().duration_since(started);
        line.status = self.status;
        line.is_audited = self.is_audited;
        line.bytes_sent = self.bytes_sent;
        line.bytes_received = self.bytes_received;
        let delayed = self.is_delayed.then_some("fault_delay");
        line.flag = self.failure.map(|kind| kind.verdict().flag).or(delayed);
        if !journal.write(line) {
            counts.add(Count::LogDropped);
        }
    }
}
