//! How far the proxy of a Pod may be behind.
//!
//! A stream holds what it has sent for as long as its proxy is on the way to something newer, even
//! where nobody else has it any more. A proxy that takes frames, or acknowledges commits, one by
//! one and each just in time is on the way for days, and many of them would each hold another past
//! of the view. So a stream ends that is behind for long while much is replaced. Its proxy comes
//! back with what it has got, which is compared, and held no more.

use std::time::Duration;

use myriad_base::clock::Instant;

use super::{Ahead, ServerSession, State};

/// The most encoded bytes of a view that are replaced while a sidecar is on its way to what was
/// newest before, once it has had its time.
pub(crate) const LAG_BYTES_MAX: u64 = 64 << 20;

/// How long a sidecar may be on its way, however much is replaced meanwhile.
pub(crate) const LAG_TIMEOUT: Duration = Duration::from_secs(60);

/// How far a proxy is behind, in bytes of its view that were replaced.
#[derive(Default)]
pub(super) struct Lag {
    /// How many had been when what the proxy has was newest.
    had: u64,
    /// The same for what it is on its way to, and since when it is.
    way: Option<(u64, Instant)>,
}

impl Lag {
    /// The proxy's resources are compared with the newest, so that nothing else is held.
    pub(super) fn compare(&mut self, replaced: u64, now: Instant) {
        self.had = replaced;
        self.way = Some((replaced, now));
    }

    /// A commit is sent; if none was before, it begins a way to what is newest.
    pub(super) fn begin(&mut self, replaced: u64, now: Instant) {
        self.way.get_or_insert((replaced, now));
    }

    /// The proxy has all that it was on its way to.
    pub(super) fn arrive(&mut self) {
        if let Some((replaced, _)) = self.way.take() {
            self.had = replaced;
        }
    }

    /// Whether it is too far behind.
    fn is_too_far(&self, replaced: u64, now: Instant) -> bool {
        let is_long = |since| now.saturating_duration_since(since) >= LAG_TIMEOUT;
        self.way.is_some_and(|(_, since)| is_long(since))
            && replaced.saturating_sub(self.had) > LAG_BYTES_MAX
    }
}

impl ServerSession {
    /// When to poll again even if nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        let own = match &self.state {
            State::Ahead { ahead, .. } => ahead.deadline(),
            State::Following if self.awaited.is_none() => {
                let ahead = self.ahead.as_ref().and_then(Ahead::deadline);
                let held = ahead.into_iter().chain(self.hold.deadline());
                held.chain(self.way_due).min()
            }
            State::Walking(_) => self.way_due,
            _ => None,
        };
        let answer = self.waits_since.map(|since| since + self.answer_timeout);
        let demanded = self.demanding.deadline();
        own.into_iter().chain(answer).chain(demanded).min()
    }

    /// Whether the proxy has not answered in time, or is one of a Pod that is too far behind, or
    /// takes long on a way of its own that others wait for: the stream is of no use then. To be
    /// asked after every frame and every update.
    pub fn is_overdue(&self, now: Instant) -> bool {
        let waits = |since| now.saturating_duration_since(since) >= self.answer_timeout;
        let replaced = self.newest.bytes_replaced();
        let is_behind = !self.share.is_gateway() && self.lag.is_too_far(replaced, now);
        let is_behind = is_behind || self.share.holds_up_others(now);
        is_behind || self.waits_since.is_some_and(waits)
    }
}
