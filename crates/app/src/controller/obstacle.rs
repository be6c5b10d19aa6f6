//! Obstacles that keep a Gateway from being programmed, and that only this process knows of.

/// Why a Gateway is not programmed, although translation has done what it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// One word.
    pub reason: &'static str,
    /// The same for people.
    pub message: String,
}

impl Obstacle {
    /// An obstacle.
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Obstacle { reason, message }
    }
}
