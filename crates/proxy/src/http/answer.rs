//! Answers that the proxy gives itself.

use std::borrow::Cow;

use crate::net::failure::FailureKind;
use crate::policy::cors::Additions;

/// An answer without an endpoint.
#[derive(Debug, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, in plain text.
    pub text: Cow<'static, str>,
    /// Where a redirect leads.
    pub location: Option<Box<str>>,
    /// Further fields.
    pub additions: Additions,
    /// What the answer is for, if not for what the route says.
    pub failure: Option<FailureKind>,
}

impl Answer {
    /// The answer to a failure.
    pub fn failed(kind: FailureKind) -> Self {
        let verdict = kind.verdict();
        Answer {
            status: verdict.status,
            text: verdict.text.into(),
            failure: Some(kind),
            ..Answer::default()
        }
    }

    /// A redirect.
    pub fn redirect(status: u16, location: impl Into<Box<str>>) -> Self {
        Answer {
            status,
            location: Some(location.into()),
            ..Answer::default()
        }
    }

    /// An answer with a text.
    pub fn text(status: u16, text: String) -> Self {
        Answer {
            status,
            text: text.into(),
            ..Answer::default()
        }
    }

    /// The same with further fields.
    pub fn with(mut self, additions: Additions) -> Self {
        self.additions = additions;
        self
    }

    /// The fields of the answer, but for its length and those of the connection.
    pub fn fields(&self, mut visit: impl FnMut(&str, &[u8])) {
        visit("date", &super::date::now());
        if !self.text.is_empty() {
            visit("content-type", b"text/plain; charset=utf-8");
        }
        if self.status == 405 {
            visit("allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        }
        if let Some(location) = &self.location {
            visit("location", location.as_bytes());
        }
        for (name, value) in &self.additions {
            visit(name, value);
        }
    }
}

/// The reason phrase of a status, for HTTP/1.
pub fn reason(status: u16) -> &'static str {
    // 499 is never sent, and a status that nobody registered has no phrase, which is allowed.
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("")
}
