//! The work of who writes statuses: pages of a review and writes take turns, within a budget. What
//! could not be written waits behind the others or rests, and who does not lead forgets everything.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_api::ObjectKey;
use myriad_base::backoff::random_seed;
use myriad_base::clock::{self, Instant};
use tokio::sync::Notify;

use super::super::backoff::backoff;
use super::super::budget::Budget;
use super::super::client::CallError;
use super::super::core::Failure;
use super::super::lease::Claim;
use super::StatusCounters;

/// The steps of the work.
pub(super) trait StatusWork: Sync {
    /// A page that is asked for.
    type Page: Send;
    /// The work that is left.
    type State: Waiting;

    /// The work that is left, and the claim without which nothing of it is done.
    fn shared(&self) -> &Shared<Self::State>;

    /// How many objects are to be written now, and the page of a review to read next, if there is
    /// room for what it may show.
    fn next(&self) -> (usize, Option<Self::Page>);

    /// Reads a page.
    ///
    /// # Errors
    /// See [`Failure`]; the same page is to be asked for again.
    fn read_page(&self, page: Self::Page) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Writes an object.
    ///
    /// # Errors
    /// See [`CallError`].
    fn write(
        &self,
        key: &ObjectKey,
        wish: &<Self::State as Waiting>::Wish,
    ) -> impl Future<Output = Result<Written, CallError>> + Send;

    /// Notes that an object was written.
    fn note_written(&self, _key: ObjectKey, _wish: <Self::State as Waiting>::Wish) {}
}

/// Objects that wait to be written.
pub(super) trait Waiting {
    /// The wish about an object, as far as it is known before its turn.
    type Wish;

    /// The object whose turn it is.
    fn pop(&mut self) -> Option<(ObjectKey, Self::Wish)>;

    /// When the time comes of the first object that waits for it.
    fn next_wake(&self) -> Option<Instant>;

    /// An object that others write time and again waits for its time.
    fn rest(&mut self, key: ObjectKey, wish: Self::Wish, now: Instant);

    /// An object that could not be written waits behind all others of its namespace.
    fn put_back(&mut self, key: ObjectKey, wish: Self::Wish);

    /// Forgets everything: another one leads.
    fn forget(&mut self);
}

/// The part of a writer that those who tell it what to write have as well.
pub(super) struct Shared<S> {
    state: Mutex<S>,
    pub(super) claim: Claim,
    /// The signal that there is more to do.
    pub(super) wake: Notify,
    /// Wakes whoever has to review everything, since something was forgotten.
    pub(super) overflow: Notify,
    pub(super) counters: StatusCounters,
}

/// How an attempt ended.
pub(super) enum Written {
    Changed,
    Unchanged,
    /// We do not lead any more.
    NotOurs,
}

impl<S> Shared<S> {
    /// A writer's, with what waits from the beginning.
    pub(super) fn new(state: S, claim: Claim, counters: StatusCounters) -> Self {
        Shared {
            state: Mutex::new(state),
            claim,
            wake: Notify::new(),
            overflow: Notify::new(),
            counters,
        }
    }

    /// The work that is left.
    pub(super) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether something was forgotten because too many waited.
    pub(super) fn note_forgotten(&self, has_forgotten: bool) {
        if has_forgotten {
            self.counters.dropped.inc();
            self.overflow.notify_one();
        }
    }
}

/// Works for ever.
pub(super) async fn work(writer: &impl StatusWork, writes_per_second: f64) {
    let mut budget = Budget::new(writes_per_second, clock::now());
    let mut backoff = backoff(random_seed());
    let mut is_page_turn = true;
    loop {
        let (waiting, page) = writer.next();
        if waiting == 0 && page.is_none() {
            wait(writer).await;
            continue;
        }
        if let Err(wait) = budget.take(clock::now()) {
            tokio::time::sleep(wait).await;
            continue;
        }
        // Pages and writes take turns, so that a change does not wait for all pages.
        let page = page.filter(|_| is_page_turn || waiting == 0);
        is_page_turn = page.is_none();
        let wait = match page {
            Some(page) => read(writer, page).await,
            None => write_next(writer).await,
        };
        match wait {
            None => backoff.reset(),
            Some(wait) => tokio::time::sleep(backoff.fail().max(wait)).await,
        }
    }
}

/// Reads a page. Returns how long to wait at least, if that failed.
async fn read<W: StatusWork>(writer: &W, page: W::Page) -> Option<Duration> {
    let shared = writer.shared();
    if !shared.claim.holds(clock::now()) {
        shared.lock().forget();
        return None;
    }
    match writer.read_page(page).await.err()? {
        Failure::Busy { after, .. } => Some(after),
        _ => Some(Duration::ZERO),
    }
}

/// Writes the object whose turn it is. Returns how long to wait at least, if that failed.
async fn write_next(writer: &impl StatusWork) -> Option<Duration> {
    let shared = writer.shared();
    // Taken after the wait, so that the newest is the newest.
    let (key, wish) = shared.lock().pop()?;
    match writer.write(&key, &wish).await {
        Ok(Written::Changed) => {
            shared.counters.written.inc();
            writer.note_written(key, wish);
        }
        Ok(Written::Unchanged) => drop(shared.counters.unchanged.inc()),
        Ok(Written::NotOurs) => shared.lock().forget(),
        // It is gone, or its kind is.
        Err(CallError::NotFound) => {}
        Err(error @ (CallError::Forbidden(_) | CallError::Rejected(_))) => {
            tracing::warn!(object = %key, %error, "the status cannot be written");
        }
        // Somebody writes this object time and again, which is nothing to others.
        Err(CallError::Conflict) => {
            let now = clock::now();
            shared.lock().rest(key, wish, now);
        }
        Err(error @ (CallError::Lost(_) | CallError::Busy { .. })) => {
            shared.lock().put_back(key, wish);
            return Some(error.retry_after());
        }
    }
    None
}

/// Waits for an object to write.
async fn wait(writer: &impl StatusWork) {
    let shared = writer.shared();
    let next = shared.lock().next_wake();
    let due = async {
        match next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = shared.wake.notified() => {}
        () = due => {}
    }
}
