//! The work of who writes statuses: pages of a review and writes take turns, within a budget.

use std::future::Future;
use std::time::Duration;

use myriad_base::backoff::random_seed;
use myriad_base::clock::{self, Instant};
use tokio::sync::Notify;

use super::super::backoff::backoff;
use super::super::budget::Budget;

/// The steps of the work.
pub(super) trait StatusWork: Sync {
    /// A page that is asked for.
    type Page: Send;

    /// How many objects are to be written now, and the page of a review to read next, if there is
    /// room for what it may show.
    fn next(&self) -> (usize, Option<Self::Page>);

    /// When the time comes of the first object that waits for it.
    fn next_wake(&self) -> Option<Instant>;

    /// The signal that there is more to do.
    fn wake(&self) -> &Notify;

    /// Reads a page. Returns how long to wait at least, if that failed.
    fn read_page(&self, page: Self::Page) -> impl Future<Output = Option<Duration>> + Send;

    /// Writes the object whose turn it is. Returns how long to wait at least, if that failed.
    fn write_next(&self) -> impl Future<Output = Option<Duration>> + Send;
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
            Some(page) => writer.read_page(page).await,
            None => writer.write_next().await,
        };
        match wait {
            None => backoff.reset(),
            Some(wait) => tokio::time::sleep(backoff.fail().max(wait)).await,
        }
    }
}

/// Waits for an object to write.
async fn wait(writer: &impl StatusWork) {
    let next = writer.next_wake();
    let due = async {
        match next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = writer.wake().notified() => {}
        () = due => {}
    }
}
