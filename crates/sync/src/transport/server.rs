//! The gRPC server: one session per stream, each in a task of its own.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _, stream};
use myriad_base::clock;
use myriad_base::drain::Drained;
use myriad_base::task;
use myriad_model::{Position, Snapshot};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::{Request, Status, Streaming};

use super::service::{Outgoing, SyncService};
use super::{ALPN, Connection, KEEP_ALIVE_INTERVAL, TIMEOUT};
use crate::metrics::ServerCounters;
use crate::server::{Receipt, Report, ServerSession};
use crate::wire::{FromProxy, FromServer, SessionError};

/// Connections beyond one per stream, for handshakes that are under way and for proxies that are
/// told to come back. Further ones wait in the listener's queue.
const CONNECTIONS_SPARE: usize = 256;
/// The most bytes of a token; a projected service-account token has about one thousand.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Who a proxy is, as its token proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The subject of the token, for instance a service account.
    pub subject: Arc<str>,
}

/// Why a token is not accepted, for the log of the server. The proxy is told nothing but that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Decides who a proxy is. It is asked once per stream.
pub trait Authenticate: Send + Sync + 'static {
    /// The identity that this bearer token proves.
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, Refused>>;
}

/// How a server serves.
pub struct ServerSettings {
    /// The cluster's key.
    pub key: [u8; 32],
    /// How TLS is done; none for plain text, which only tests should speak.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The most streams at once; further ones are told to come back.
    pub streams_max: usize,
}

/// Something that happened to one proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A proxy introduced itself.
    Connected {
        /// The number of the stream, unique in this process.
        stream: u64,
        /// Who it is.
        identity: Identity,
        /// What it calls itself; not proven.
        instance: String,
        /// The newest schema it understands.
        schema: u32,
        /// The position of what it holds.
        position: Position,
    },
    /// It has put a commit into service.
    Acked {
        /// The number of the stream.
        stream: u64,
        /// The position that it has reached.
        position: Position,
        /// Whether nothing newer is known here.
        is_in_step: bool,
    },
    /// It refused resources of a commit. Comes before the `Acked` of the same commit.
    Refused {
        /// The number of the stream.
        stream: u64,
        /// Which, and why.
        receipts: Vec<Receipt>,
        /// Refusals that were counted but not listed.
        receipts_omitted: u64,
    },
    /// The stream of a proxy that had been `Connected` has ended.
    Gone {
        /// The number of the stream.
        stream: u64,
        /// What it did wrong, if that is why.
        error: Option<SessionError>,
    },
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
#[error("the gRPC server failed: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// A server that is ready to serve.
pub struct Server {
    streams: Arc<Streams>,
    tls: Option<TlsAcceptor>,
}

/// What all streams share.
pub(super) struct Streams {
    key: [u8; 32],
    authenticate: Arc<dyn Authenticate>,
    newest: watch::Receiver<Snapshot>,
    events: mpsc::Sender<Event>,
    counters: ServerCounters,
    drained: Drained,
    room: Arc<Semaphore>,
    next: AtomicU64,
}

impl Server {
    /// A server of `newest`, which must come from behind the sync gate. What happens goes to
    /// `events`; a reader that is slow makes the streams slow.
    pub fn new(
        settings: ServerSettings,
        authenticate: Arc<dyn Authenticate>,
        newest: watch::Receiver<Snapshot>,
        events: mpsc::Sender<Event>,
        counters: ServerCounters,
        drained: Drained,
    ) -> Self {
        let tls = settings.tls.map(|config| {
            let mut config = (*config).clone();
            config.alpn_protocols = vec![ALPN.to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        let streams = Arc::new(Streams {
            key: settings.key,
            authenticate,
            newest,
            events,
            counters,
            drained,
            room: Arc::new(Semaphore::new(settings.streams_max)),
            next: AtomicU64::new(1),
        });
        Server { streams, tls }
    }

    /// Serves until the drain is asked for and the streams have ended.
    ///
    /// # Errors
    /// If the HTTP server cannot go on at all.
    pub async fn serve(self, listener: TcpListener) -> Result<(), ServeError> {
        let (ready, mut connections) = mpsc::channel(1);
        let tls = self.tls.clone();
        let drained = self.streams.drained.clone();
        let counters = self.streams.counters.clone();
        let places = self.streams.room.available_permits() + CONNECTIONS_SPARE;
        let accepting = task::spawn("sync accept", async move {
            tokio::select! {
                () = accept(listener, places, tls, ready, counters) => {}
                () = drained.signalled() => {}
            }
        });
        let connections = stream::poll_fn(move |context| connections.poll_recv(context));
        let result = self.serve_connections(connections).await;
        accepting.abort();
        result
    }

    /// The same over connections from elsewhere, for instance pipes in memory.
    ///
    /// # Errors
    /// If the HTTP server cannot go on at all.
    pub async fn serve_connections(
        self,
        connections: impl Stream<Item = Connection>,
    ) -> Result<(), ServeError> {
        let drained = self.streams.drained.clone();
        tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(TIMEOUT))
            .max_concurrent_streams(4)
            .http2_max_header_list_size(32 << 10)
            .serve_with_incoming_shutdown(
                SyncService(self.streams),
                connections.map(Ok::<_, std::io::Error>),
                async move { drained.signalled().await },
            )
            .await?;
        Ok(())
    }
}

/// Accepts connections for ever, and hands over those whose handshake succeeded.
async fn accept(
    listener: TcpListener,
    places: usize,
    tls: Option<TlsAcceptor>,
    ready: mpsc::Sender<Connection>,
    counters: ServerCounters,
) {
    let places = Arc::new(Semaphore::new(places));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, for instance: others have to end first.
                tracing::warn!(%error, "a connection of a proxy could not be accepted");
                tokio::time::sleep(KEEP_ALIVE_INTERVAL / 100).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (tls, ready, counters) = (tls.clone(), ready.clone(), counters.clone());
        let shake_hands = async move {
            let connection = match tls {
                None => Connection::new(stream),
                Some(tls) => match timeout(TIMEOUT, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Connection::new(stream),
                    Ok(Err(_)) | Err(_) => {
                        counters.refused.inc();
                        return;
                    }
                },
            };
            let _ = ready.send(connection.in_place(place)).await;
        };
        drop(task::spawn("sync handshake", shake_hands));
    }
}

impl Streams {
    /// Opens a stream: authenticates the proxy and starts its task.
    pub(super) async fn open(
        self: Arc<Self>,
        request: Request<Streaming<FromProxy>>,
    ) -> Result<Outgoing, Status> {
        let identity = self.identify(&request).await?;
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            self.counters.refused.inc();
            return Err(Status::resource_exhausted("too many streams"));
        };
        let (sender, mut receiver) = mpsc::channel(1);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let session = ServerSession::new(self.key, Snapshot::new(), self.counters.clone());
        let running = Running {
            number,
            identity,
            session,
            newest: self.newest.clone(),
            events: self.events.clone(),
            outgoing: sender,
            is_greeted: false,
            _room: room,
        };
        let (drained, counters) = (self.drained.clone(), self.counters.clone());
        let run = running.run(request.into_inner(), drained, counters);
        drop(task::spawn("sync stream", run));
        Ok(Box::pin(stream::poll_fn(move |context| {
            receiver.poll_recv(context)
        })))
    }

    fn identify<T>(
        &self,
        request: &Request<T>,
    ) -> impl Future<Output = Result<Identity, Status>> + use<'_, T> {
        let header = request.metadata().get("authorization");
        let token = header
            .and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "))
            .filter(|token| token.len() <= TOKEN_BYTES_MAX)
            .map(str::to_owned);
        async move {
            let refused = match token {
                None => Refused("no bearer token".to_owned()),
                Some(token) => match self.authenticate.authenticate(&token).await {
                    Ok(identity) => return Ok(identity),
                    Err(refused) => refused,
                },
            };
            self.counters.refused.inc();
            tracing::warn!(reason = %refused, "a proxy was refused");
            Err(Status::unauthenticated("the token is not accepted"))
        }
    }
}

/// One stream.
struct Running {
    number: u64,
    identity: Identity,
    session: ServerSession,
    newest: watch::Receiver<Snapshot>,
    events: mpsc::Sender<Event>,
    outgoing: mpsc::Sender<Result<FromServer, Status>>,
    is_greeted: bool,
    _room: OwnedSemaphorePermit,
}

impl Running {
    async fn run(
        mut self,
        mut incoming: Streaming<FromProxy>,
        drained: Drained,
        counters: ServerCounters,
    ) {
        let newest = self.newest.borrow_and_update().clone();
        self.session.update(newest);
        let error = tokio::select! {
            error = self.follow(&mut incoming) => error,
            () = drained.signalled() => {
                let _ = self.outgoing.try_send(Err(Status::unavailable("it is stopping")));
                None
            }
        };
        if let Some(error) = &error {
            counters.refused.inc();
            let subject = &self.identity.subject;
            tracing::warn!(%subject, %error, "the stream of a proxy was ended");
            let _ = self
                .outgoing
                .try_send(Err(Status::invalid_argument(error.to_string())));
        }
        if self.is_greeted {
            let stream = self.number;
            self.tell(Event::Gone { stream, error }).await;
        }
    }

    /// Runs the session until the proxy goes, or errs.
    async fn follow(&mut self, incoming: &mut Streaming<FromProxy>) -> Option<SessionError> {
        let greeting_due = clock::now() + TIMEOUT;
        loop {
            while let Some(frame) = self.session.poll(clock::now()) {
                if self.outgoing.send(Ok(frame)).await.is_err() {
                    return None;
                }
            }
            let greeting = (!self.is_greeted).then_some(greeting_due);
            let deadline = self.session.deadline().or(greeting);
            tokio::select! {
                message = incoming.message() => {
                    let Ok(Some(message)) = message else {
                        return None;
                    };
                    match self.session.receive(message) {
                        Ok(report) => self.report(report).await,
                        Err(error) => return Some(error),
                    }
                }
                changed = self.newest.changed() => {
                    changed.ok()?;
                    let newest = self.newest.borrow_and_update().clone();
                    self.session.update(newest);
                }
                () = sleep_until(deadline.unwrap_or(greeting_due)), if deadline.is_some() => {
                    if !self.is_greeted {
                        return Some(SessionError::Unexpected("silence"));
                    }
                }
            }
        }
    }

    async fn report(&mut self, report: Report) {
        let stream = self.number;
        match report {
            Report::Nothing => {}
            Report::Greeted {
                instance,
                schema,
                position,
                ..
            } => {
                self.is_greeted = true;
                let identity = self.identity.clone();
                self.tell(Event::Connected {
                    stream,
                    identity,
                    instance,
                    schema,
                    position,
                })
                .await;
            }
            Report::Acked {
                position,
                is_in_step,
                receipts,
                receipts_omitted,
            } => {
                if !receipts.is_empty() || receipts_omitted > 0 {
                    self.tell(Event::Refused {
                        stream,
                        receipts,
                        receipts_omitted,
                    })
                    .await;
                }
                self.tell(Event::Acked {
                    stream,
                    position,
                    is_in_step,
                })
                .await;
            }
        }
    }

    /// Nobody may be listening any more; the proxy is served nevertheless.
    async fn tell(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
