//! Requests of a watch to the server, and reasons why one gets no answer.

use std::sync::Arc;
use std::time::Duration;

/// The next request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) enum Request {
    /// A watch that begins with all objects.
    Stream,
    /// A page of a list.
    Page {
        /// Objects per page.
        limit: u32,
        /// The token of the page before.
        token: Option<Arc<str>>,
    },
    /// Asks where the server's history stands.
    Probe,
    /// How an object stood at a version: whether the history is still the one that was read.
    Check {
        /// The object.
        id: Arc<str>,
        /// The version.
        version: u64,
    },
    /// A watch of what came later than the version.
    Watch(u64),
}

/// Why a request did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) enum Failure {
    /// 410: the version or the list's continuation is older than what the server remembers.
    Gone,
    /// 400 or 422: the server does not know what was asked for.
    Unsupported(String),
    /// An answer longer than its limit.
    TooLarge,
    /// 401 or 403: the operator has to do something.
    Refused(String),
    /// 404: the server does not have the kind, or not any more.
    Missing(String),
    /// The connection, or a server in trouble.
    Lost(String),
    /// 429 or 503 of a server that says when to come back.
    Busy {
        /// How long to wait at least.
        after: Duration,
        /// The message.
        text: String,
    },
    /// Nothing came for too long.
    Idle,
}
