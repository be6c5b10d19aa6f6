//! Connections of proxies, and the bounds on those who have not proved who they are.

use std::sync::Arc;
use std::time::Duration;

use myriad_base::newcomers::{Newcomer, Newcomers};
use myriad_base::task;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Connection;
use super::connection::Guest;
use crate::metrics::ServerCounters;

/// How long nothing is accepted after that has failed: out of descriptors, for instance, of which
/// others have to give some back first.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a connection may take for its first byte, once its turn has come: a client of TLS
/// speaks at once.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(1);

/// How connections are accepted.
pub(super) struct Door {
    pub(super) tls: Option<TlsAcceptor>,
    /// One place per connection.
    pub(super) places: Arc<Semaphore>,
    /// The connections on which nobody has proved who they are, so that many who never do, and
    /// many who return at once, leave room for the streams that there are, and for each other.
    pub(super) newcomers: Arc<Newcomers>,
    /// How long a handshake may take, and then the first request with a token.
    pub(super) greeting_timeout: Duration,
    pub(super) ready: mpsc::Sender<Connection>,
    pub(super) counters: ServerCounters,
}

impl Door {
    /// Accepts connections for ever, and hands over those whose handshake succeeded.
    pub(super) async fn accept(self, listener: TcpListener) {
        let door = Arc::new(self);
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let visit = door.newcomers.enter(peer.ip());
                    let greet = door.clone().greet(stream, visit);
                    drop(task::spawn("sync handshake", greet));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection of a proxy could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn greet(self: Arc<Self>, stream: TcpStream, mut visit: Newcomer) {
        if !visit.comes_in().await {
            self.counters.refused.inc();
            return;
        }
        let evicted = visit.evicted();
        let connection = tokio::select! {
            connection = self.shake(stream) => connection,
            () = evicted => None,
        };
        let Some(connection) = connection else {
            self.counters.refused.inc();
            return;
        };
        let place = timeout(self.greeting_timeout, self.places.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            self.counters.refused.inc();
            return;
        };
        let guest = Guest::of(visit);
        let connection = connection.in_place(place, guest, self.greeting_timeout);
        // Nobody takes it once the server stops.
        let _ = self.ready.send(connection).await;
    }

    /// A connection whose handshake is done; none where that failed or took too long.
    async fn shake(&self, stream: TcpStream) -> Option<Connection> {
        // Without it, answers are later and no worse.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return Some(Connection::new(stream));
        };
        let patience = FIRST_BYTE_TIMEOUT.min(self.greeting_timeout);
        let mut first = [0];
        let spoken = timeout(patience, stream.peek(&mut first)).await;
        spoken.ok()?.ok()?;
        let stream = timeout(self.greeting_timeout, tls.accept(stream)).await;
        stream.ok()?.ok().map(Connection::new)
    }
}
