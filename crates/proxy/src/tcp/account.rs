//! What is told of a stream once it is over: counts, and a line of the access log.

use std::net::SocketAddr;
use std::sync::Arc;

use myriad_base::clock::{self, Instant};

use crate::net::count::Count;
use crate::net::failure::{FailureKind, Side, envoy_flag};
use crate::net::journal::Line;
use crate::net::local::Local;
use crate::net::recording::Recording;
use crate::net::standard::{Labels, Page};
use crate::route::passage::PassageEntry;
use crate::route::visit::Visit;
use crate::upstream::entry::UpstreamEntry;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both sides have ended it.
    Done,
    /// One side broke it off.
    Broken(Side),
    /// Nobody said anything for too long.
    Idle,
    /// No passage takes it any more.
    Removed,
    /// There was no endpoint.
    Failed(FailureKind),
}

/// A stream being served.
pub struct Account {
    started: Instant,
    is_counted: bool,
    /// Where it is counted, once its upstream is known.
    page: Option<Arc<Page>>,
    /// Only where there is an access log.
    line: Option<Box<Line>>,
}

impl Account {
    /// A stream that a passage takes.
    pub fn begin(
        local: &Local,
        recording: Option<&Arc<Recording>>,
        visit: &Visit,
        sni: Option<&str>,
        entry: &PassageEntry,
    ) -> Self {
        let has_logs = recording.and_then(|recording| recording.has_logs());
        let line = has_logs.unwrap_or(local.logs_all).then(|| {
            let resource = entry.sealed().resource();
            let obeyed = recording.filter(|_| has_logs.is_some());
            Box::new(Line {
                time: clock::since_epoch(),
                origin: resource.map(|resource| resource.origin.clone()),
                sni: sni.map(Into::into),
                recording: obeyed.map(|recording| (recording.clone(), 0)),
                ..visit.line()
            })
        });
        Account {
            started: clock::now(),
            is_counted: Recording::asked(recording.map(|it| &**it), local.counts_all).is_some(),
            page: None,
            line,
        }
    }

    /// Where the stream leads.
    pub fn set_upstream(&mut self, local: &Local, upstream: &UpstreamEntry) {
        if self.is_counted {
            self.page = upstream.page(local);
        }
        if let Some(page) = &self.page {
            page.count_opened(labels(None));
        }
        if let Some(line) = &mut self.line {
            line.upstream = Some(upstream.name.clone());
        }
    }

    /// The endpoint that is tried.
    pub fn set_endpoint(&mut self, address: SocketAddr) {
        if let Some(line) = &mut self.line {
            line.endpoint = Some(address);
        }
    }

    /// Tells what became of the stream.
    pub fn finish(self, local: &Local, ending: Ending, bytes_received: u64, bytes_sent: u64) {
        let counts = &local.counts;
        counts.add_many(Count::StreamBytesReceived, bytes_received);
        counts.add_many(Count::StreamBytesSent, bytes_sent);
        let (count, flag) = match ending {
            Ending::Done => (Count::StreamEnded, None),
            Ending::Broken(Side::Downstream) => (Count::StreamBroken, Some("client_gone")),
            Ending::Broken(_) => (Count::StreamBroken, Some("upstream_closed")),
            Ending::Idle => (Count::StreamIdle, Some("idle_timeout")),
            Ending::Removed => (Count::StreamRemoved, Some("passage_removed")),
            Ending::Failed(kind) => (Count::StreamFailed, Some(kind.verdict().flag)),
        };
        counts.add(count);
        if let Some(page) = &self.page {
            page.count_closed(labels(flag), bytes_received, bytes_sent);
        }
        let Some(mut line) = self.line else {
            return;
        };
        line.duration = clock::now().duration_since(self.started);
        line.bytes_sent = bytes_sent;
        line.bytes_received = bytes_received;
        line.flag = flag;
        if line.find_takers(local.logs_all) && !local.journal.write(line) {
            counts.add(Count::LogDropped);
        }
    }
}

fn labels(flag: Option<&'static str>) -> Labels {
    Labels {
        flag: flag.and_then(envoy_flag).unwrap_or_default(),
        protocol: "tcp",
        ..Labels::default()
    }
}
