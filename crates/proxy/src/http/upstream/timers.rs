//! How long a request, and one try of it, may take, where a route says so.
//!
//! Unlike other deadlines these are told by people in milliseconds, so they have timers of their
//! own; a route without them has none.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use myriad_model::Policy;
use tokio::time::Sleep;

use crate::admission::waiting::Standing;
use crate::failure::FailureKind;
use crate::http::patience::Patience;

/// The timers of one request.
pub struct Timers {
    request_timeout: Duration,
    try_timeout: Duration,
    request: Option<Pin<Box<Sleep>>>,
    attempt: Option<Pin<Box<Sleep>>>,
    /// Bounds the waits for the body.
    pub patience: Patience,
}

impl Timers {
    /// Timers that do not run yet, of a request that stands in a line when it waits for its client.
    pub fn new(policy: Option<&Policy>, standing: Standing) -> Self {
        let retry = policy.and_then(|policy| policy.retry.as_ref());
        Timers {
            request_timeout: policy.map_or(Duration::ZERO, |policy| policy.request_timeout),
            try_timeout: retry.map_or(Duration::ZERO, |retry| retry.try_timeout),
            request: None,
            attempt: None,
            patience: Patience::of(standing),
        }
    }

    /// The request is complete: both timers run from now on, unless they do already. That of the
    /// try does not where the response has begun.
    pub fn run(&mut self, is_answered: bool) {
        start(&mut self.request, self.request_timeout);
        if !is_answered {
            start(&mut self.attempt, self.try_timeout);
        }
    }

    /// A try is over, or its response has begun.
    pub fn end_try(&mut self) {
        self.attempt = None;
    }

    /// Ready once a timer has run out, with what that means.
    pub fn poll_passed(&mut self, context: &mut Context<'_>) -> Poll<FailureKind> {
        if let Some(timer) = &mut self.request
            && timer.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(FailureKind::RequestTimeout);
        }
        if let Some(timer) = &mut self.attempt
            && timer.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(FailureKind::TryTimeout);
        }
        Poll::Pending
    }
}

fn start(timer: &mut Option<Pin<Box<Sleep>>>, timeout: Duration) {
    if timer.is_none() && !timeout.is_zero() {
        *timer = Some(Box::pin(tokio::time::sleep(timeout)));
    }
}
