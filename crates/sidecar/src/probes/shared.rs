//! Checks that several ask for at once: one of each path is under way at a time, and whoever asks
//! meanwhile, or right after, is told what it said.
//!
//! Anybody may ask who reaches the Pod. However many there are, the workload has one check of each
//! path to answer, and a kubelet never finds that all places are taken. Those who wait are as many
//! as the server has connections, at most.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use tokio::sync::watch;

/// How long a result is good for others who ask.
pub(super) const FRESH_FOR: Duration = Duration::from_millis(250);

/// The result of a check: a status of HTTP, and what is said of it.
pub(super) type Outcome = (u16, Bytes);

/// The last check of each path that there is.
pub(super) struct SharedChecks {
    last: Mutex<HashMap<Arc<str>, watch::Receiver<Option<Told>>>>,
    fresh_for: Duration,
}

/// An outcome, and when it came.
struct Told {
    outcome: Outcome,
    at: Instant,
}

impl SharedChecks {
    /// No check yet. A result is good for others for this long.
    pub(super) fn new(fresh_for: Duration) -> Self {
        SharedChecks {
            last: Mutex::default(),
            fresh_for,
        }
    }

    /// The outcome of the check of a path, which there has to be, by this check if another has to
    /// be made. It goes on whoever goes meanwhile. None if it came to no end.
    pub(super) async fn outcome<F>(&self, path: &str, check: impl FnOnce() -> F) -> Option<Outcome>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut told = self.join(path, check);
        let told = told.wait_for(Option::is_some).await.ok()?;
        (*told).as_ref().map(|told| told.outcome.clone())
    }

    fn join<F>(&self, path: &str, check: impl FnOnce() -> F) -> watch::Receiver<Option<Told>>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.get(path)
            && self.is_good(known)
        {
            return known.clone();
        }
        let (sender, told) = watch::channel(None);
        last.insert(path.into(), told.clone());
        let check = check();
        drop(task::spawn("probe", async move {
            let outcome = check.await;
            let at = clock::now();
            sender.send_replace(Some(Told { outcome, at }));
        }));
        told
    }

    /// Whether a check is under way, or has just told something.
    fn is_good(&self, check: &watch::Receiver<Option<Told>>) -> bool {
        match &*check.borrow() {
            Some(told) => clock::now().saturating_duration_since(told.at) < self.fresh_for,
            // One whose task is gone tells nothing any more.
            None => check.has_changed().is_ok(),
        }
    }
}
