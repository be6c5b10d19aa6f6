//! Rules for requests on their way: retries, faults, copies, changed headers.

use std::cmp::Ordering;
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
    /// Whether copies that name no other authority name the one that the endpoint sees without a
    /// mark.
    pub keeps_authority: bool,
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
/// fields of the name, then values that are added. Names are lower case. What is removed or set is
/// in [`HeaderEdit::order`], by which names are looked for.
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
    /// The changes, in order; each name is removed once.
    pub fn new(
        mut remove: Vec<Box<str>>,
        mut set: Vec<(Box<str>, Box<str>)>,
        add: Vec<(Box<str>, Box<str>)>,
    ) -> Self {
        remove.sort_unstable_by(|one, other| {
            HeaderEdit::order(one, other).then_with(|| one.cmp(other))
        });
        remove.dedup();
        set.sort_by(|(one, _), (other, _)| HeaderEdit::order(one, other));
        HeaderEdit {
            remove: remove.into(),
            set: set.into(),
            add: add.into(),
        }
    }

    /// These changes, and further removals.
    pub fn removing(self, names: impl IntoIterator<Item = Box<str>>) -> Self {
        let mut remove = self.remove.into_vec();
        remove.extend(names);
        HeaderEdit::new(remove, self.set.into_vec(), self.add.into_vec())
    }

    /// Whether names are in the order in which they are looked for.
    pub fn is_in_order(&self) -> bool {
        let goes_first =
            |one: &str, other: &str| HeaderEdit::order(one, other) != Ordering::Greater;
        self.remove
            .is_sorted_by(|one, other| goes_first(one, other))
            && self
                .set
                .is_sorted_by(|(one, _), (other, _)| goes_first(one, other))
    }

    /// The order of names, in which those are equal that servers may read as the same: in any case,
    /// and with any punctuation.
    pub fn order(one: &str, other: &str) -> Ordering {
        let read = |byte: u8| match byte.is_ascii_alphanumeric() {
            true => byte.to_ascii_lowercase(),
            false => b'-',
        };
        one.bytes().map(read).cmp(other.bytes().map(read))
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::HeaderEdit;

    #[test]
    fn names_that_servers_may_read_as_the_same_stand_together() {
        let text = |name: &str| -> Box<str> { name.into() };
        let names = ["x-b", "x_a", "X-C", "a", "x-a", "x_a"].map(text).to_vec();
        let pairs = ["x-b", "b", "X_B"].map(|name| (text(name), text("1")));
        let edit = HeaderEdit::new(names, pairs.to_vec(), Vec::new());
        let removed: Vec<&str> = edit.remove.iter().map(|name| &**name).collect();
        assert_eq!(removed, ["a", "x-a", "x_a", "x-b", "X-C"]);
        let set: Vec<&str> = edit.set.iter().map(|(name, _)| &**name).collect();
        assert_eq!(set, ["b", "x-b", "X_B"]);
        assert!(edit.is_in_order());
        let more = edit.removing(["b", "a"].map(text));
        assert_eq!(more.remove.len(), 6);
        assert!(more.is_in_order());
        let reversed = HeaderEdit {
            remove: ["b", "a"].map(text).into(),
            ..HeaderEdit::default()
        };
        assert!(!reversed.is_in_order());
    }
}
