//! The record of a request, as it is shown: bounded, and without secrets.

use serde::{Deserialize, Serialize};

/// The requests that an order has found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReport {
    /// The number of the order.
    pub id: u64,
    /// The host that requests are for.
    pub host: String,
    /// The start of their paths.
    pub path: String,
    /// The names of the headers that they have; the values are nobody else's.
    pub headers: Vec<String>,
    /// Whether no more requests are taken.
    pub is_over: bool,
    /// How many more are wanted.
    pub left: u32,
    /// How many seconds are left for that.
    pub seconds_left: u64,
    /// Requests that were wanted and came too fast after others.
    pub passed_over: u64,
    /// The requests, the oldest first.
    pub requests: Vec<RequestTrace>,
}

/// The way of one request, as far as it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTrace {
    /// Its id, as the access log and the endpoint know it.
    pub request_id: String,
    /// The time when its head had been read, in milliseconds since the epoch.
    pub began_unix_ms: u64,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub protocol: String,
    /// The method.
    pub method: String,
    /// The scheme, as its client speaks it.
    pub scheme: String,
    /// The host that it asks for.
    pub host: String,
    /// The path, and the query without secrets.
    pub target: String,
    /// The other end of its connection.
    pub client: String,
    /// The listener.
    pub listener: String,
    /// Its header fields.
    pub headers: Vec<TracedHeader>,
    /// The decisions of the stages, in their order.
    pub stages: Vec<StageTrace>,
    /// The object that its route came from; empty for none.
    pub route: String,
    /// The tries to have it answered by an endpoint.
    pub tries: Vec<TryTrace>,
    /// The times that it waited.
    pub waits: Vec<WaitTrace>,
    /// The status of its answer; 0 while there is none.
    pub status: u16,
    /// The flag of what went wrong, as the access log has it; empty for nothing.
    pub failure: String,
    /// The same in words: why it was answered so.
    pub why: String,
    /// Bytes of its body that were handed on.
    pub bytes_received: u64,
    /// Bytes of the body of its answer that were handed on.
    pub bytes_sent: u64,
    /// The time that it took, or has taken so far, in microseconds.
    pub micros: u64,
    /// Whether it is over.
    pub is_over: bool,
    /// Whether something was left out, because there was too much.
    pub is_cut: bool,
}

/// A header field of a traced request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedHeader {
    /// Its name.
    pub name: String,
    /// Its value, unless that may be a secret.
    pub value: String,
}

/// The decision of one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTrace {
    /// The stage, as `myriad explain` names it.
    pub name: String,
    /// Whether the stages ended here.
    pub outcome: StageOutcome,
    /// Its words about the request; empty where it had nothing to say.
    pub text: String,
    /// The time that it took, in microseconds.
    pub micros: u64,
}

/// Whether a request went on behind a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageOutcome {
    /// The next stage had its turn.
    #[default]
    Passed,
    /// The proxy answers.
    Answered,
    /// The proxy refuses it.
    Refused,
    /// An endpoint answers.
    Forwarded,
}

/// One try to have a request answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TryTrace {
    /// The upstream.
    pub upstream: String,
    /// The endpoint that was picked.
    pub endpoint: String,
    /// Whether a connection was there already; none before there is any.
    pub is_reused: Option<bool>,
    /// The status that the endpoint answered; 0 for none.
    pub status: u16,
    /// The flag of how it failed; empty for not.
    pub failure: String,
    /// When it began, in microseconds since the request did.
    pub from_micros: u64,
}

/// A time that a request waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitTrace {
    /// The event that it waited for.
    pub what: String,
    /// When it began, in microseconds since the request did.
    pub from_micros: u64,
    /// How long it was, or is so far, in microseconds.
    pub micros: u64,
    /// Whether it is over.
    pub is_over: bool,
}
