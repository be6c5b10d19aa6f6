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

/// The timers of one request. Times are in milliseconds, since each request has this; 0 for none.
pub struct Timers {
    request_timeout_ms: u32,
    try_timeout_ms: u32,
    attempt_timeout_ms: u32,
    request: Option<Pin<Box<Sleep>>>,
    /// Runs until the response of a try begins.
    answer: Option<Pin<Box<Sleep>>>,
    /// Runs until a try is over.
    attempt: Option<Pin<Box<Sleep>>>,
    /// Bounds the waits for the body.
    pub patience: Patience,
}

impl Timers {
    /// Timers that do not run yet, of a request that stands in a line when it waits for its client.
    pub fn new(policy: Option<&Policy>, standing: Standing) -> Self {
        let retry = policy.and_then(|policy| policy.retry.as_ref());
        Timers {
            request_timeout_ms: policy.map_or(0, |policy| whole_ms(policy.request_timeout)),
            try_timeout_ms: retry.map_or(0, |retry| whole_ms(retry.try_timeout)),
            attempt_timeout_ms: policy.map_or(0, |policy| whole_ms(policy.attempt_timeout)),
            request: None,
            answer: None,
            attempt: None,
            patience: Patience::of(standing),
        }
    }

    /// A try begins, and may take so long as a whole.
    pub fn begin_try(&mut self) {
        start(&mut self.attempt, self.attempt_timeout_ms);
    }

    /// The request is complete: the timers of its end and of the answer run from now on, unless
    /// they do already. That of the answer does not where it has begun.
    pub fn run(&mut self, is_answered: bool) {
        start(&mut self.request, self.request_timeout_ms);
        if !is_answered {
            start(&mut self.answer, self.try_timeout_ms);
        }
    }

    /// The response of a try has begun.
    pub fn answer(&mut self) {
        self.answer = None;
    }

    /// A try is over.
    pub fn end_try(&mut self) {
        self.answer = None;
        self.attempt = None;
    }

    /// Ready once a timer has run out, with what that means.
    pub fn poll_passed(&mut self, context: &mut Context<'_>) -> Poll<FailureKind> {
        if let Some(timer) = &mut self.request
            && timer.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(FailureKind::RequestTimeout);
        }
        for timer in [&mut self.answer, &mut self.attempt].into_iter().flatten() {
            if timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(FailureKind::TryTimeout);
            }
        }
        Poll::Pending
    }
}

fn start(timer: &mut Option<Pin<Box<Sleep>>>, timeout_ms: u32) {
    if timer.is_none() && timeout_ms > 0 {
        let timeout = Duration::from_millis(timeout_ms.into());
        *timer = Some(Box::pin(tokio::time::sleep(timeout)));
    }
}

/// Milliseconds, with what is left of one counted as a whole.
fn whole_ms(timeout: Duration) -> u32 {
    let whole = timeout.as_nanos().div_ceil(1_000_000);
    u32::try_from(whole).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::whole_ms;

    #[test]
    fn what_is_left_of_a_millisecond_is_one() {
        for (timeout, whole) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_micros(1_500), 2),
            (Duration::from_secs(15), 15_000),
            (Duration::MAX, u32::MAX),
        ] {
            assert_eq!(whole_ms(timeout), whole, "{timeout:?}");
        }
    }
}
