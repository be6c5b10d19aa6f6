//! The state that all connections of one worker share.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::rc::Rc;
use std::sync::Arc;

use crate::admission::bucket::Buckets;
use crate::admission::room::ConnectionRoom;
use crate::admission::share::Fairness;
use crate::admission::turns::HandshakeTurns;
use crate::codec::proxy_header::Introductions;
use crate::limits::Limits;
use crate::net::names::Names;
use crate::random::rng::Rng;
use crate::telemetry::access_log::{AccessLogLine, AccessLogWriter};
use crate::telemetry::count::{Count, Counts};
use crate::telemetry::live_trace::LiveTraces;
use crate::telemetry::recording::Recording;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::standard::Library;

/// The belongings of one worker.
pub struct Local {
    /// The limits, the same for all workers.
    pub limits: Arc<Limits>,
    /// The buckets of rate limits, the same for all workers.
    pub buckets: Arc<Buckets>,
    /// Which worker it is.
    pub number: usize,
    /// The books where traffic is counted by its upstream, the same for all workers.
    pub library: Arc<Library>,
    /// Whether standard metrics are counted where nothing says otherwise.
    pub counts_all: bool,
    /// The resolver of names, the same for all workers.
    pub names: Names,
    /// The worker's counts.
    pub counts: Arc<Counts>,
    /// The shares of domains in the worker's room, and how little memory is left.
    pub fairness: Fairness,
    /// The turns in which handshakes are done, with clients and with endpoints.
    pub turns: HandshakeTurns,
    /// The room that there is for connections.
    pub room: Rc<ConnectionRoom>,
    /// The worker's pseudo-random numbers.
    pub dice: Rng,
    /// The access log, open or not.
    pub access_log: AccessLogWriter,
    /// The requests that somebody wants to see, the same for all workers.
    pub live_traces: LiveTraces,
    /// Whether all requests are logged where nothing says otherwise.
    pub logs_all: bool,
    /// How many proxies in front of this one are trusted to tell the client's address.
    pub trusted_hops: usize,
    /// The treatment of clients' request ids.
    pub request_ids: RequestIds,
    /// The listeners where a balancer in front introduces clients; `None` for no listener.
    pub introductions: Option<Arc<Introductions>>,
}

impl Local {
    /// The recording that holds: that of the tables, or the format of the proxy's own setting.
    pub fn recording<'a>(
        &'a self,
        of_tables: Option<&'a Arc<Recording>>,
    ) -> Option<&'a Arc<Recording>> {
        of_tables.or(self.access_log.recording())
    }

    /// Hands a line of the access log over, where anybody takes it. One that there is no room for
    /// is counted.
    pub fn log(&self, mut line: Box<AccessLogLine>) {
        if line.find_takers(self.logs_all) && !self.access_log.write(line) {
            self.counts.add(Count::LogDropped);
        }
    }
}

/// A worker's belongings, held by its tasks.
pub(crate) type Shared = Rc<Local>;
