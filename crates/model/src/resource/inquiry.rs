//! Inquiries: a service that a route has asked whether a request may pass.

use std::time::Duration;

use crate::Name;

/// A service that is asked about each request of a route before it goes on: 2xx lets it pass, 401
/// and 403 are the client's, and everything else refuses it. Texts may have
/// [variables](crate::variables).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inquiry {
    /// The upstream of the service; one that does not exist counts as a service that is down.
    pub upstream: Name,
    /// The method of the question, a token.
    pub method: Box<str>,
    /// The authority that the service is asked by, with variables.
    pub authority: Box<str>,
    /// Path and query of the question, with variables.
    pub target: Box<str>,
    /// The `X-Auth-Request-Redirect` of the question, with variables.
    pub redirect: Box<str>,
    /// Fields of the question in place of the client's, with variables in their values; empty ones
    /// only take the client's away. At most [`Inquiry::FIELDS_MAX`].
    pub fields: Box<[(Box<str>, Box<str>)]>,
    /// The longest wait for the answer, connecting included.
    pub timeout: Duration,
    /// Fields of the answer that the endpoint gets, and by which clients can tell it nothing; at
    /// most [`Inquiry::FIELDS_MAX`].
    pub passed: Box<[Box<str>]>,
    /// The location that clients are led to in place of 401, with variables; empty for none.
    pub signin: Box<str>,
    /// Whether cookies of the answer reach the client whatever the status of the response is, and
    /// not only where that succeeds or leads elsewhere.
    pub always_sets_cookies: bool,
    /// Which answers are remembered; none remembers nothing.
    pub memory: Option<Box<AnswerMemory>>,
}

impl Inquiry {
    /// The most fields of either sort.
    pub const FIELDS_MAX: usize = 64;

    /// The most bytes of a text with variables.
    pub const TEXT_BYTES_MAX: usize = 4_096;
}

/// Answers that are remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnswerMemory {
    /// The text by which requests have the same answer, with variables.
    pub key: Box<str>,
    /// Statuses of answers and how long each is remembered; at most [`AnswerMemory::AGES_MAX`].
    pub ages: Box<[(u16, Duration)]>,
}

impl AnswerMemory {
    /// The most statuses.
    pub const AGES_MAX: usize = 32;
}
