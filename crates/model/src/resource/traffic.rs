//! Rules for requests on their way: retries, faults, copies, changed headers.

use std::time::Duration;

use crate::Name;

/// When a request is sent again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    /// The number of repetitions, at most [`Retry::ATTEMPTS_MAX`].
    pub attempts: u8,
    /// The longest that one try may take; zero for as long as the request may.
    pub try_timeout: Duration,
    /// The conditions on which a request is repeated.
    pub conditions: RetryConditions,
    /// Statuses on which it is repeated as well, sorted.
    pub statuses: Box<[u16]>,
    /// The wait before the first repetition; each later one waits up to twice as long as the one
    /// before, drawn at random.
    pub backoff: Duration,
}

impl Retry {
    /// The most repetitions: beyond, they make an outage worse.
    pub const ATTEMPTS_MAX: u8 = 32;
}

/// The conditions on which a request is repeated: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RetryConditions(pub u32);

impl RetryConditions {
    /// No connection to the endpoint.
    pub const CONNECT_FAILURE: RetryConditions = RetryConditions(1);
    /// A status of 500 to 599, or no response at all.
    pub const SERVER_ERROR: RetryConditions = RetryConditions(1 << 1);
    /// 502, 503 or 504.
    pub const GATEWAY_ERROR: RetryConditions = RetryConditions(1 << 2);
    /// The connection ended, or the try timed out, before the response.
    pub const RESET: RetryConditions = RetryConditions(1 << 3);
    /// The endpoint refused the stream (HTTP/2 REFUSED_STREAM).
    pub const REFUSED_STREAM: RetryConditions = RetryConditions(1 << 4);
    /// 409.
    pub const RETRIABLE_CLIENT_ERROR: RetryConditions = RetryConditions(1 << 5);
    /// The connection ended before any of the request was sent.
    pub const RESET_BEFORE_REQUEST: RetryConditions = RetryConditions(1 << 6);
    /// gRPC status CANCELLED.
    pub const GRPC_CANCELLED: RetryConditions = RetryConditions(1 << 7);
    /// gRPC status DEADLINE_EXCEEDED.
    pub const GRPC_DEADLINE_EXCEEDED: RetryConditions = RetryConditions(1 << 8);
    /// gRPC status INTERNAL.
    pub const GRPC_INTERNAL: RetryConditions = RetryConditions(1 << 9);
    /// gRPC status RESOURCE_EXHAUSTED.
    pub const GRPC_RESOURCE_EXHAUSTED: RetryConditions = RetryConditions(1 << 10);
    /// gRPC status UNAVAILABLE.
    pub const GRPC_UNAVAILABLE: RetryConditions = RetryConditions(1 << 11);
    /// All bits that have a meaning.
    pub const ALL: RetryConditions = RetryConditions((1 << 12) - 1);

    /// Whether any bit of another set is in this one.
    pub fn has(self, other: RetryConditions) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for RetryConditions {
    type Output = RetryConditions;

    fn bitor(self, other: RetryConditions) -> RetryConditions {
        RetryConditions(self.0 | other.0)
    }
}

/// A share of all requests, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share(u32);

impl Share {
    /// All requests.
    pub const ALL: Share = Share(1_000_000);

    /// A share of this many millionths; none above a million.
    pub fn from_ppm(millionths: u32) -> Option<Share> {
        (millionths <= Share::ALL.0).then_some(Share(millionths))
    }

    /// The share in millionths.
    pub fn ppm(self) -> u32 {
        self.0
    }
}

/// Trouble that is made on purpose. Both are drawn apart, and the delay comes first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Requests that wait before they are handled.
    pub delay: Option<Delay>,
    /// Requests that are answered instead.
    pub abort: Option<Abort>,
}

/// Requests that wait before they are handled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delay {
    /// The share of requests that are delayed.
    pub share: Share,
    /// The delay.
    pub delay: Duration,
}

/// Requests that are answered instead of handled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Abort {
    /// The share of requests that are aborted.
    pub share: Share,
    /// The answer.
    pub answer: AbortAnswer,
}

/// The answer to an aborted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AbortAnswer {
    /// A status, 200 to 599.
    Status(u16),
    /// A gRPC status, 1 to 16.
    Grpc(u8),
}

/// A destination of copies of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// The upstream.
    pub upstream: Name,
    /// The share of requests that are copied.
    pub share: Share,
    /// The authority that copies name; empty for the one that the endpoint sees, with a mark.
    pub authority: Box<str>,
    /// Whether copies come without their bodies.
    pub omits_body: bool,
}

/// The changes to the headers of requests and responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeaderEdits {
    /// The changes on the way to the endpoint.
    pub request: HeaderEdit,
    /// The changes on the way back.
    pub response: HeaderEdit,
}

/// The changes to the headers of one direction: removals come first, then values that replace all
/// fields of the name, then values that are added. Names are lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeaderEdit {
    /// Names.
    pub remove: Box<[Box<str>]>,
    /// Names and values.
    pub set: Box<[(Box<str>, Box<str>)]>,
    /// Names and values.
    pub add: Box<[(Box<str>, Box<str>)]>,
}

impl HeaderEdit {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}
