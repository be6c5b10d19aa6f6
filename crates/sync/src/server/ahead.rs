//! Proxies that have seen more than their server: what they wait for, and for how long.

use std::time::Duration;

use myriad_base::clock::Instant;
use myriad_model::Position;

/// How long a proxy waits for a replica that is behind it, before it is served nevertheless.
pub const AHEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How often is looked whether the replica has caught up: what moves its position alone wakes no
/// stream.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The position of a proxy that may be ahead.
pub(super) struct Ahead {
    position: Position,
    /// Since when something waits.
    since: Option<Instant>,
    look_at: Option<Instant>,
}

/// How it is with a proxy that may be ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The server has caught up.
    Level,
    /// Everything that there is to send waits.
    Waits,
    /// It has waited for long enough.
    Late,
}

impl Ahead {
    pub(super) fn new(position: Position) -> Self {
        Ahead {
            position,
            since: None,
            look_at: None,
        }
    }

    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// Whether a server with this position may send something now.
    pub(super) fn look(&mut self, ours: &Position, now: Instant) -> Standing {
        if !self.position.is_ahead_of(ours) {
            return Standing::Level;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= AHEAD_TIMEOUT {
            return Standing::Late;
        }
        self.look_at = Some((now + LOOK_INTERVAL).min(since + AHEAD_TIMEOUT));
        Standing::Waits
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }
}
