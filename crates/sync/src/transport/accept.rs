//! Connections of proxies, and the bounds on those who have not proved who they are.

use std::sync::Arc;
use std::time::Duration;

use myriad_base::task;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Connection;
use super::connection::Guest;
use crate::metrics::ServerCounters;

/// How long nothing is accepted after that has failed: out of descriptors, for instance, of which
/// others have to give some back first.
const PAUSE: Duration = Duration::from_millis(100);

/// How connections are accepted.
pub(super) struct Door {
    pub(super) tls: Option<TlsAcceptor>,
    /// One place per connection.
    pub(super) places: Arc<Semaphore>,
    /// One place per connection on which nobody has proved who they are, so that many who never
    /// do, and many who return at once, leave room for the streams that there are. Further ones
    /// wait in the listener's queue.
    pub(super) guests: Arc<Semaphore>,
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
            let guest = door.guests.clone().acquire_owned().await;
            let place = door.places.clone().acquire_owned().await;
            let (Ok(guest), Ok(place)) = (guest, place) else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let greet = door.clone().greet(stream, Guest::in_place(guest), place);
                    drop(task::spawn("sync handshake", greet));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection of a proxy could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn greet(self: Arc<Self>, stream: TcpStream, guest: Guest, place: OwnedSemaphorePermit) {
        // Without it, answers are later and no worse.
        let _ = stream.set_nodelay(true);
        let connection = match &self.tls {
            None => Connection::new(stream),
            Some(tls) => match timeout(self.greeting_timeout, tls.accept(stream)).await {
                Ok(Ok(stream)) => Connection::new(stream),
                Ok(Err(_)) | Err(_) => {
                    self.counters.refused.inc();
                    return;
                }
            },
        };
        let connection = connection.in_place(place, guest, self.greeting_timeout);
        // Nobody takes it once the server stops.
        let _ = self.ready.send(connection).await;
    }
}
