//! The search for another server, by a proxy whose own says that it has lost its source.
//!
//! The proxy stays where it is meanwhile: what an old server knows is better than nothing, and it
//! still signs.

use std::time::Duration;

use futures_util::future::BoxFuture;
use myriad_base::backoff::{Backoff, Waits, random_seed};
use myriad_model::Digest;
use tokio::time::timeout;

use super::TIMEOUT;
use super::knock::{Knock, Opened};
use crate::wire::{FromServer, from_server};

/// The waits before another server is looked for: spread, since all proxies of a server look at
/// once, and each look is a handshake at one that has to serve its own.
static WAITS: Waits = Waits {
    first: Duration::from_millis(100)..=Duration::from_secs(3),
    second: Duration::from_secs(3)..=Duration::from_secs(6),
    max: Duration::from_secs(15)..=Duration::from_secs(30),
};

/// A stream to a server that has its source, and the welcome that it began with.
pub(super) type Found = (Opened, FromServer);

/// Looks for another server. It starts anew when what is in service changes, since a stream begins
/// with what that is.
#[derive(Default)]
pub(super) struct Search {
    under_way: Option<(Digest, BoxFuture<'static, Found>)>,
}

impl Search {
    /// Waits until another server is found; for ever while none is looked for.
    pub(super) async fn found(&mut self) -> Found {
        match &mut self.under_way {
            Some((_, search)) => search.await,
            None => std::future::pending().await,
        }
    }

    /// Begins to look, goes on, or ends.
    pub(super) fn look(&mut self, is_wanted: bool, held: Digest, knock: impl FnOnce() -> Knock) {
        if !is_wanted {
            self.under_way = None;
            return;
        }
        let is_current = self.under_way.as_ref().is_some_and(|it| it.0 == held);
        if !is_current {
            self.under_way = Some((held, Box::pin(find(knock()))));
        }
    }
}

async fn find(knock: Knock) -> Found {
    let mut backoff = Backoff::new(&WAITS, random_seed());
    loop {
        tokio::time::sleep(backoff.fail()).await;
        // The longest that each of the two may take is one attempt's.
        if let Ok(Some(found)) = timeout(TIMEOUT, attempt(&knock)).await {
            return found;
        }
    }
}

async fn attempt(knock: &Knock) -> Option<Found> {
    let mut opened = knock.open().await.ok()?;
    let first = opened.incoming.message().await.ok()??;
    match &first.body {
        Some(from_server::Body::Welcome(welcome)) if !welcome.lost => Some((opened, first)),
        _ => None,
    }
}
