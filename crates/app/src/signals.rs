//! The signals that a process obeys, none of which ends it by surprise.
//!
//! SIGTERM, SIGINT and SIGQUIT ask for a drain, and once more for the end at once. SIGHUP looks
//! again at what the process reads, SIGUSR1 opens the file of the access log anew; whoever does
//! either listens to it by itself.

use std::time::Duration;

use myriad_base::task;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a process to end.
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Stop {
    /// Listens from now on. SIGHUP and SIGUSR1 no longer end the process either.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn listen() -> std::io::Result<Stop> {
        // Whoever has been listened to once is never ended by the system any more.
        drop((hangup()?, signal(SignalKind::user_defined1())?));
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for one, and returns its number.
    pub async fn asked(&mut self) -> i32 {
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.quit.recv() => SignalKind::quit(),
        };
        kind.as_raw_value()
    }

    /// From now on the next one ends the process at once, as shells expect of one that a signal
    /// has ended.
    pub fn end_at_next(mut self) {
        drop(task::spawn("second signal", async move {
            let number = self.asked().await;
            tracing::warn!("ended at once; what was under way is cut");
            std::process::exit(128 + number)
        }));
    }
}

/// SIGHUP, from now on.
///
/// # Errors
/// The errors of the system.
pub fn hangup() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Says how long a drain may take, and how it is cut short.
pub fn tell_drain(connections: u64, longest: Duration) {
    let seconds = longest.as_secs();
    tracing::info!(
        "draining {connections} connections, at most {seconds} s; the same signal again ends at \
         once"
    );
}
