//! Drain: from the wish to stop until nothing is left.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The side that asks for the drain and waits for its end.
#[derive(Clone, Default)]
pub struct Drain {
    signal: CancellationToken,
    tracker: TaskTracker,
}

/// The side that is drained: it hears the signal, and holds the drain open while it lives.
#[derive(Clone)]
pub struct Drained {
    signal: CancellationToken,
    _hold: TaskTrackerToken,
}

impl Drain {
    /// A drain that nobody has asked for yet.
    pub fn new() -> Self {
        Drain::default()
    }

    /// One more holder; the drain ends when all are dropped.
    pub fn holder(&self) -> Drained {
        Drained {
            signal: self.signal.clone(),
            _hold: self.tracker.token(),
        }
    }

    /// Asks every holder to finish.
    pub fn start(&self) {
        self.signal.cancel();
        self.tracker.close();
    }

    /// Waits until the drain was asked for and no holder is left.
    pub async fn finished(&self) {
        self.tracker.wait().await;
    }

    /// How many holders are left.
    pub fn remaining(&self) -> usize {
        self.tracker.len()
    }
}

impl Drained {
    /// Whether the drain was asked for.
    pub fn is_signalled(&self) -> bool {
        self.signal.is_cancelled()
    }

    /// Waits until the drain is asked for.
    pub async fn signalled(&self) {
        self.signal.cancelled().await;
    }
}
