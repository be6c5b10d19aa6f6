//! Counts: one row of numbers per worker, summed when somebody asks.
//!
//! A worker is the only writer of its row, so counting is a load and a store that no other core
//! has in its cache.

mod family;
mod show;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::latency::Latency;
use super::top::TopDomains;
use crate::codec::body::MalformedMessage;
use crate::failure::FailureKind;
use crate::limits::Reached;

pub use show::register;

/// A thing that is counted beside failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Count {
    /// Connections accepted.
    Accepted,
    /// Connections ended.
    Closed,
    /// Connections closed at once because of a limit.
    Shed,
    /// Connections that had not said enough to be served, closed to make room.
    EvictedSilent,
    /// Connections between two requests, closed to make room.
    EvictedIdle,
    /// Connections whose handshake was under way, closed to make room.
    EvictedHandshake,
    /// Requests whose body did not come, ended to make room.
    EvictedBody,
    /// Requests whose response was not read, ended to make room.
    EvictedRead,
    /// Requests that waited for their endpoint, ended for what their namespace holds.
    EvictedEndpoint,
    /// Times that the system had no file descriptor or memory for a connection, which waits.
    AcceptFailed,
    /// Connections whose client a balancer has introduced.
    IntroductionTaken,
    /// Connections of a balancer's own, or of a client that it cannot tell.
    IntroductionEmpty,
    /// Connections closed because they came from no balancer that is believed.
    IntroductionUntrusted,
    /// Connections closed because they began with no header, or with a broken one.
    IntroductionMalformed,
    /// Connections closed because the header did not come in time.
    IntroductionTimeout,
    /// Handshakes not begun because their domain has more than its share.
    ShareHandshakes,
    /// Connections refused because their domain has more than its share.
    ShareConnections,
    /// Requests refused because their domain has more than its share.
    ShareRequests,
    /// Tunnels refused: their domain has more than its share, or the rest is for others.
    ShareTunnels,
    /// TLS handshakes that waited for one of those at a time.
    HandshakeQueued,
    /// TLS handshakes done with a full key exchange.
    HandshakeFull,
    /// TLS handshakes resumed.
    HandshakeResumed,
    /// TLS handshakes refused because no domain has the name.
    HandshakeUnknownName,
    /// TLS handshakes that took longer than the limit.
    HandshakeTimeout,
    /// TLS handshakes that failed otherwise.
    HandshakeFailed,
    /// Peers of the mesh that have shown no certificate.
    PeerAnonymous,
    /// Peers of the mesh whose certificate has ended.
    PeerEnded,
    /// Peers of the mesh whose certificate has not begun.
    PeerNotBegun,
    /// Peers whose certificate no authority of the mesh has signed.
    PeerAuthority,
    /// Peers of another trust domain, or not the expected ones.
    PeerIdentity,
    /// Peers of the mesh whose certificate is of X.509 version 1.
    PeerVersion,
    /// Peers whose certificate is wrong otherwise.
    PeerOther,
    /// Clients outside the mesh that were not believed.
    ClientRefused,
    /// Endpoints outside the mesh that were not believed.
    EndpointRefused,
    /// Requests answered with 1xx.
    Status1xx,
    /// Requests answered with 2xx.
    Status2xx,
    /// Requests answered with 3xx.
    Status3xx,
    /// Requests answered with 4xx.
    Status4xx,
    /// Requests answered with 5xx.
    Status5xx,
    /// Connections to endpoints opened.
    UpstreamOpened,
    /// Requests on connections to endpoints that had served before.
    UpstreamReused,
    /// Connections to endpoints that could not be opened.
    UpstreamFailed,
    /// Requests sent again on another connection.
    UpstreamRetried,
    /// Idle connections to endpoints closed because of a limit.
    UpstreamEvicted,
    /// Connections to endpoints closed because nobody used them for too long.
    UpstreamIdle,
    /// Connections that waited since no port was free to connect to their endpoint from.
    UpstreamCrowded,
    /// Endpoints left out for what they answered.
    UpstreamEjected,
    /// Requests refused because their upstream has as many in flight as it bears.
    OverflowRequests,
    /// Requests refused because as many wait for a connection to their upstream as may.
    OverflowPending,
    /// Requests refused because their endpoint takes no streams on several connections.
    OverflowStreams,
    /// Certificate keys parsed.
    KeyParsed,
    /// Parsed keys forgotten because of the limit.
    KeyEvicted,
    /// Repetitions left out because their upstream has as many in flight as it may.
    RetryRefused,
    /// Requests that waited on purpose.
    FaultDelayed,
    /// Copies of requests sent.
    MirrorSent,
    /// Copies of requests left out because of a limit.
    MirrorDropped,
    /// Copies of requests that were sent and had no complete response.
    MirrorFailed,
    /// Streams that lead to an endpoint.
    StreamOpened,
    /// Streams that both sides ended.
    StreamEnded,
    /// Streams that one side broke off.
    StreamBroken,
    /// Streams on which nobody said anything for too long.
    StreamIdle,
    /// Streams that no stream route takes any more.
    StreamRemoved,
    /// Streams without an endpoint.
    StreamFailed,
    /// Bytes of ended streams that clients have sent.
    StreamBytesReceived,
    /// Bytes of ended streams that endpoints have sent.
    StreamBytesSent,
    /// Flows of datagrams that lead to an endpoint.
    FlowOpened,
    /// Flows in which nobody said anything for too long, which is how they end.
    FlowIdle,
    /// Flows that nothing leads to their endpoint any more.
    FlowRemoved,
    /// Flows without an endpoint, or whose endpoint does not listen.
    FlowFailed,
    /// Flows ended to make room for others.
    FlowEvicted,
    /// Flows whose client is an endpoint of what they would lead to: datagrams go in a circle.
    FlowLooped,
    /// Flows that did not begin, since more came of a namespace than may in the time.
    FlowPaced,
    /// Datagrams that clients have sent.
    DatagramReceived,
    /// Datagrams that clients were sent.
    DatagramSent,
    /// Datagrams of either side that went nowhere.
    DatagramDropped,
    /// Bytes of datagrams that clients have sent.
    DatagramBytesReceived,
    /// Bytes of datagrams that clients were sent.
    DatagramBytesSent,
    /// Access policies on trial that would have admitted their request.
    DryRunAdmitted,
    /// Access policies on trial that would have refused it.
    DryRunRefused,
    /// Requests that an access policy wants to be marked.
    Audited,
    /// Requests that a provider let pass.
    CheckPassed,
    /// Requests that a provider refused.
    CheckRefused,
    /// Requests that passed because their provider did not answer.
    CheckFailedOpen,
    /// Requests that were refused because their provider did not answer.
    CheckFailedClosed,
    /// Requests refused because more came than are served in the time.
    RateLimited,
    /// Counts of requests forgotten because of the limit, while they still mattered.
    RateEvicted,
    /// Header fields dropped for the underscores, or other punctuation, in their names.
    UnderscoreDropped,
    /// Spans that a collector has taken.
    SpanSent,
    /// Spans dropped because their sender is behind or their collector is down.
    SpanDropped,
    /// Lines of the access log dropped because the writer is behind.
    LogDropped,
}

const COUNTS: usize = Count::LogDropped as usize + 1;
const FAILURES: usize = FailureKind::ALL.len();
const REACHED: usize = Reached::ALL.len();

/// The counts of one worker.
pub struct Counts {
    row: [AtomicU64; COUNTS + FAILURES + REACHED],
    /// How long requests took.
    pub latency: Arc<Latency>,
    /// Which domains and objects they are of.
    pub top: Arc<TopDomains>,
}

impl Counts {
    /// Counts that are all zero.
    pub fn new() -> Self {
        Counts {
            row: std::array::from_fn(|_| AtomicU64::new(0)),
            latency: Arc::default(),
            top: Arc::default(),
        }
    }

    /// Adds one.
    pub fn add(&self, count: Count) {
        self.bump(count as usize);
    }

    /// Adds a number.
    pub fn add_many(&self, count: Count, number: u64) {
        if let Some(slot) = self.row.get(count as usize) {
            slot.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// Adds one to a failure.
    pub fn add_failure(&self, kind: FailureKind) {
        self.bump(COUNTS + kind as usize);
    }

    /// Adds one to a limit that was reached.
    pub fn add_reached(&self, limit: Reached) {
        self.bump(COUNTS + FAILURES + limit as usize);
    }

    /// Counts the limit that malformed input went beyond, and returns the failure.
    pub fn malformed(&self, malformed: MalformedMessage, kind: FailureKind) -> FailureKind {
        if let Some(limit) = malformed.reached {
            self.add_reached(limit);
        }
        kind
    }

    /// Adds one to the class of a status.
    pub fn add_status(&self, status: u16) {
        self.add(match status {
            0..200 => Count::Status1xx,
            200..300 => Count::Status2xx,
            300..400 => Count::Status3xx,
            400..500 => Count::Status4xx,
            _ => Count::Status5xx,
        });
    }

    /// The count so far.
    pub fn get(&self, count: Count) -> u64 {
        self.read(count as usize)
    }

    /// How often a limit was reached.
    pub fn get_reached(&self, limit: Reached) -> u64 {
        self.read(COUNTS + FAILURES + limit as usize)
    }

    fn bump(&self, index: usize) {
        if let Some(slot) = self.row.get(index) {
            slot.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self, index: usize) -> u64 {
        self.row
            .get(index)
            .map_or(0, |slot| slot.load(Ordering::Relaxed))
    }
}

impl Default for Counts {
    fn default() -> Self {
        Counts::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_base::metrics::Metrics;

    use super::{Count, Counts, register};
    use crate::failure::FailureKind;
    use crate::limits::Reached;
    use crate::telemetry::top::TopSeries;

    #[test]
    fn rows_of_workers_are_summed() {
        let metrics = Metrics::new();
        let rows = [Arc::new(Counts::new()), Arc::new(Counts::new())];
        register(&metrics, &rows, TopSeries::default());
        rows[0].add(Count::Accepted);
        rows[1].add(Count::Accepted);
        rows[1].add_status(503);
        rows[1].add_failure(FailureKind::NoRoute);
        let text = metrics.encode();
        assert!(
            text.contains("myriad_connections_accepted_total 2"),
            "{text}"
        );
        assert!(
            text.contains("myriad_requests_total{status=\"5xx\"} 1"),
            "{text}"
        );
        assert!(text.contains("reason=\"no_route\"} 1"), "{text}");
    }

    #[test]
    fn each_limit_has_its_own_number_and_label() {
        let metrics = Metrics::new();
        let row = Arc::new(Counts::new());
        register(&metrics, std::slice::from_ref(&row), TopSeries::default());
        for (number, limit) in Reached::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number);
            (0..=number).for_each(|_| row.add_reached(limit));
        }
        let text = metrics.encode();
        for (number, limit) in Reached::ALL.into_iter().enumerate() {
            let label = limit.label();
            let line = format!(
                "myriad_limits_reached_total{{limit=\"{label}\"}} {}\n",
                number + 1
            );
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}
