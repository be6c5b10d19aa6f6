//! Whether this controller still hears of what changes: the API server is asked every few seconds.
//!
//! A controller that has lost it is not ready, so that new proxies go to others, and tells those
//! that it has, which move if another replica has not lost it.

use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Gauge, Metrics};
use myriad_base::readiness::Condition;
use myriad_base::task;
use myriad_source::kubernetes::Client;
use tokio::sync::watch;

/// How often the API server is asked.
const INTERVAL: Duration = Duration::from_secs(5);

/// The state of the contact with the API server.
struct Contact {
    /// How long it may not answer.
    patience: Duration,
    answered_at: Instant,
    ready: Condition,
    lost: watch::Sender<bool>,
    gauge: Gauge,
}

/// Begins to ask. Returns whether the API server is lost.
pub(super) fn keep(
    client: Client,
    patience: Duration,
    ready: Condition,
    metrics: &Metrics,
) -> watch::Receiver<bool> {
    let (lost, told) = watch::channel(false);
    let gauge = Gauge::default();
    let help = "Whether the API server has not answered for longer than --lost-after";
    metrics.register("kubernetes_lost", help, gauge.clone());
    let mut contact = Contact {
        patience,
        answered_at: clock::now(),
        ready,
        lost,
        gauge,
    };
    drop(task::spawn("contact", async move {
        loop {
            let asked = tokio::time::timeout(contact.patience, client.reach()).await;
            let late = || Err("it takes longer than --lost-after".to_owned());
            contact.note(asked.unwrap_or_else(|_| late()), clock::now());
            tokio::time::sleep(INTERVAL).await;
        }
    }));
    told
}

impl Contact {
    /// Notes an answer, or that there was none.
    fn note(&mut self, answer: Result<(), String>, now: Instant) {
        match answer {
            Ok(()) => {
                self.answered_at = now;
                self.ready.meet();
                if self.set(false) {
                    tracing::info!("the API server answers again");
                }
            }
            Err(reason) => {
                let silence = now.saturating_duration_since(self.answered_at);
                if silence >= self.patience && self.set(true) {
                    self.ready.revoke();
                    let seconds = silence.as_secs();
                    tracing::error!(
                        reason,
                        "the API server has not answered for {seconds} s: this controller is not \
                         ready, and its proxies look for another"
                    );
                }
            }
        }
    }

    /// Tells whether it is lost. Returns whether that is news.
    fn set(&self, is_lost: bool) -> bool {
        self.gauge.set(is_lost.into());
        self.lost.send_if_modified(|known| {
            let is_news = *known != is_lost;
            *known = is_lost;
            is_news
        })
    }
}

#[cfg(test)]
mod tests {
    use myriad_base::readiness::Readiness;

    use super::*;

    #[test]
    fn a_server_that_is_silent_for_too_long_is_lost_until_it_answers() {
        let readiness = Readiness::new();
        let (lost, told) = watch::channel(false);
        let start = clock::now();
        let mut contact = Contact {
            patience: Duration::from_secs(60),
            answered_at: start,
            ready: readiness.require("the API server"),
            lost,
            gauge: Gauge::default(),
        };
        let silent = || Err("refused".to_owned());
        let at = |seconds| start + Duration::from_secs(seconds);
        contact.note(Ok(()), at(5));
        assert!(readiness.pending().is_empty());
        contact.note(silent(), at(10));
        contact.note(silent(), at(60));
        assert!(readiness.pending().is_empty() && !*told.borrow());
        contact.note(silent(), at(65));
        assert_eq!(readiness.pending(), ["the API server"]);
        assert!(*told.borrow());
        contact.note(Ok(()), at(70));
        assert!(readiness.pending().is_empty() && !*told.borrow());
        contact.note(silent(), at(100));
        assert!(!*told.borrow(), "counted from the last answer");
    }
}
