//! The hosts that the proxy of one stream tells, and whoever obtains certificates for them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use myriad_base::clock::Instant;
use tokio::sync::watch;

use crate::demand::DemandedHost;
use crate::server::ServerSession;

/// Obtains certificates for hosts that no object names.
pub trait Obtain: Send + Sync + 'static {
    /// Whether it does now.
    fn is_open(&self) -> watch::Receiver<bool>;

    /// The answer to a host that the proxy of a stream tells: how long it is refused; nothing where
    /// its certificate is there, or may come. It has to come in the end.
    fn demand(&self, stream: u64, demanded: DemandedHost) -> BoxFuture<'static, Duration>;
}

/// The answer to a host.
type Answered = (Arc<str>, Duration);

/// The hosts of one stream that wait for an answer: at most [`crate::demand::DEMANDS_OPEN_MAX`].
pub(super) struct Demands {
    stream: u64,
    /// Nobody where hosts are not for this proxy to tell.
    obtain: Option<Arc<dyn Obtain>>,
    is_open: Option<watch::Receiver<bool>>,
    waiting: FuturesUnordered<BoxFuture<'static, Answered>>,
}

impl Demands {
    /// None yet.
    pub(super) fn new(stream: u64, obtain: Option<Arc<dyn Obtain>>) -> Demands {
        Demands {
            stream,
            is_open: obtain.as_ref().map(|obtain| obtain.is_open()),
            obtain,
            waiting: FuturesUnordered::new(),
        }
    }

    /// Hands on what the proxy has told, and lets it know whether it may tell more.
    pub(super) fn hand_on(&mut self, session: &mut ServerSession, now: Instant) {
        let (Some(obtain), Some(is_open)) = (&self.obtain, &self.is_open) else {
            return;
        };
        session.set_open(*is_open.borrow());
        while let Some(demanded) = session.demanded(now) {
            let host = demanded.host.clone();
            let answer = obtain.demand(self.stream, demanded);
            self.waiting
                .push(Box::pin(async move { (host, answer.await) }));
        }
    }

    /// Waits for an answer, or until somebody begins to obtain certificates, or ends.
    pub(super) async fn next(&mut self) -> Option<Answered> {
        tokio::select! {
            Some(answered) = self.waiting.next() => Some(answered),
            Ok(()) = changed(&mut self.is_open) => None,
            else => std::future::pending().await,
        }
    }
}

async fn changed(
    is_open: &mut Option<watch::Receiver<bool>>,
) -> Result<(), watch::error::RecvError> {
    match is_open {
        Some(is_open) => is_open.changed().await,
        None => std::future::pending().await,
    }
}
