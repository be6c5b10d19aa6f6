//! The gRPC server: one session per stream, each in a task of its own.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _, stream};
use myriad_base::clock::{self, Instant};
use myriad_base::drain::Drained;
use myriad_base::hold::{Holds, Loss};
use myriad_base::newcomers::Newcomers;
use myriad_base::task;
use myriad_model::Snapshot;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::{Request, Status, Streaming};

use super::accept::Door;
use super::connection;
use super::demanding::Demands;
pub use super::demanding::Obtain;
pub use super::event::{Event, Identity};
use super::late::{self, Late};
use super::lines::Lines;
pub use super::seats::Owner;
use super::seats::{Seat, Seats};
use super::service::{Outgoing, SyncService};
use super::views::{View, Views};
use super::{ALPN, Connection, Guest, KEEP_ALIVE_INTERVAL, TIMEOUT};
use crate::metrics::ServerCounters;
use crate::server::{Asked, ClaimRoom, Report, ServerSession};
use crate::signing::{Anchors, NotSigned, TOKEN_BYTES_MAX};
use crate::wire::{FromProxy, SessionError};

/// The most connections of proxies that wait for their turn to prove who they are.
pub const WAITING_MAX: usize = 4_096;

/// The most bytes of a stream, and of a connection, that wait to be read. A proxy says little, and
/// one whose stream is not read meanwhile must not leave much here.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// Why a token is not accepted, for the log of the server. The proxy is told nothing but that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Decides who a proxy is. It is asked once per stream.
pub trait Authenticate: Send + Sync + 'static {
    /// The identity that this bearer token proves.
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, Refused>>;
}

/// Signs certificates for proxies.
pub trait Sign: Send + Sync + 'static {
    /// The authorities of the mesh; `None` while there is none. A change has to be made before
    /// anything is signed that needs it.
    fn anchors(&self) -> watch::Receiver<Option<Arc<Anchors>>>;

    /// A certificate for this proxy and for no other, whatever the request says, as DER: its own
    /// first, without the root.
    fn sign<'a>(
        &'a self,
        identity: &'a Identity,
        request: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<Bytes>, NotSigned>>;
}

/// How a server serves.
pub struct ServerSettings {
    /// The cluster's key.
    pub key: [u8; 32],
    /// How TLS is done; none for plain text, which only tests should speak.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The most streams at once. A tenth is kept for gateways, and of the rest each namespace has
    /// its share: further ones are told to come back.
    pub streams_max: usize,
    /// The most connections on which nobody has proved who they are; up to [`WAITING_MAX`] more
    /// wait for their turn, by the addresses that they come from.
    pub unauthenticated_max: usize,
    /// How long a TLS handshake may take, then a request with a token, and then a hello.
    pub greeting_timeout: Duration,
    /// How long a proxy may take for an answer or to take a frame; see
    /// [`crate::server::ANSWER_TIMEOUT`].
    pub answer_timeout: Duration,
    /// The removals that are held for proxies, and whether they were confirmed.
    pub holds: Holds,
    /// Whether the source of what is served is lost, where that can happen.
    pub lost: Option<watch::Receiver<bool>>,
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
#[error("the gRPC server failed: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// A server that is ready to serve.
pub struct Server {
    streams: Streams,
    tls: Option<TlsAcceptor>,
    unauthenticated_max: usize,
}

/// The state that all streams share.
pub(super) struct Streams {
    key: [u8; 32],
    authenticate: Arc<dyn Authenticate>,
    sign: Option<Arc<dyn Sign>>,
    obtain: Option<Arc<dyn Obtain>>,
    views: Views,
    events: mpsc::Sender<Event>,
    counters: ServerCounters,
    drained: Drained,
    streams_max: usize,
    seats: Arc<Seats>,
    claims: ClaimRoom,
    greeting_timeout: Duration,
    answer_timeout: Duration,
    holds: Holds,
    lost: Option<watch::Receiver<bool>>,
    next: AtomicU64,
    /// The lines of the log about proxies that are refused, and about streams that are ended or
    /// given no certificate.
    refusals: Lines,
    ends: Lines,
}

impl Server {
    /// A server of these views. What happens goes to `events`. Streams of proxies wait for its
    /// reader where they begin and end, and nowhere between.
    pub fn new(
        settings: ServerSettings,
        authenticate: Arc<dyn Authenticate>,
        views: Views,
        events: mpsc::Sender<Event>,
        counters: ServerCounters,
        drained: Drained,
    ) -> Self {
        let tls = settings.tls.map(|config| {
            let mut config = (*config).clone();
            config.alpn_protocols = vec![ALPN.to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        let streams = Streams {
            key: settings.key,
            authenticate,
            sign: None,
            obtain: None,
            views,
            events,
            counters,
            drained,
            streams_max: settings.streams_max,
            seats: Arc::new(Seats::new(settings.streams_max)),
            claims: ClaimRoom::default(),
            greeting_timeout: settings.greeting_timeout,
            answer_timeout: settings.answer_timeout,
            holds: settings.holds,
            lost: settings.lost,
            next: AtomicU64::new(1),
            refusals: Lines::default(),
            ends: Lines::default(),
        };
        Server {
            streams,
            tls,
            unauthenticated_max: settings.unauthenticated_max,
        }
    }

    /// This server, which also signs certificates for proxies.
    #[must_use]
    pub fn signing(mut self, sign: Arc<dyn Sign>) -> Self {
        self.streams.sign = Some(sign);
        self
    }

    /// This server, which also takes in the hosts that proxies of gateways tell, where somebody has
    /// a use for them.
    #[must_use]
    pub fn obtaining(mut self, obtain: Option<Arc<dyn Obtain>>) -> Self {
        self.streams.obtain = obtain;
        self
    }

    /// Serves until the drain is asked for and the streams have ended.
    ///
    /// # Errors
    /// If the HTTP server cannot go on at all.
    pub async fn serve(self, listener: TcpListener) -> Result<(), ServeError> {
        let (ready, mut connections) = mpsc::channel(1);
        let places = self.streams.streams_max + self.unauthenticated_max;
        let door = Door {
            tls: self.tls.clone(),
            places: Arc::new(Semaphore::new(places)),
            newcomers: Arc::new(Newcomers::new(self.unauthenticated_max, WAITING_MAX)),
            greeting_timeout: self.streams.greeting_timeout,
            ready,
            counters: self.streams.counters.clone(),
        };
        let drained = self.streams.drained.clone();
        let accepting = task::spawn("sync accept", async move {
            tokio::select! {
                () = door.accept(listener) => {}
                () = drained.signalled() => {}
            }
        });
        let connections = stream::poll_fn(move |context| connections.poll_recv(context));
        let result = self.serve_connections(connections).await;
        accepting.abort();
        result
    }

    /// Serves over connections from elsewhere, for instance pipes in memory.
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
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(4)
            .http2_max_header_list_size(32 << 10)
            .serve_with_incoming_shutdown(
                SyncService(Arc::new(self.streams)),
                connections.map(Ok::<_, std::io::Error>),
                async move { drained.signalled().await },
            )
            .await?;
        Ok(())
    }
}

impl Streams {
    /// Opens a stream: authenticates the proxy and starts its task.
    pub(super) async fn open(
        self: Arc<Self>,
        request: Request<Streaming<FromProxy>>,
    ) -> Result<Outgoing, Status> {
        let identity = self.identify(&request).await?;
        let owner = identity.owner.clone();
        let Some(seat) = self.seats.take(owner.clone(), clock::now()) else {
            self.counters.refused.inc();
            return Err(Status::resource_exhausted("too many streams"));
        };
        let Some(view) = self.views.find(&identity.view) else {
            self.counters.refused.inc();
            return Err(Status::unavailable("its view is not there yet"));
        };
        let guest = request.extensions().get::<Guest>();
        let stream = guest.map(Guest::admit);
        let (sender, mut receiver) = mpsc::channel(1);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (counters, steps) = (self.counters.clone(), view.steps.clone());
        let mut watched = view.watch();
        let newest = view.wake(&mut watched, &counters);
        let session = ServerSession::new(self.key, newest, steps, counters.clone());
        let session = session.answering_within(self.answer_timeout);
        let session = session.holding(self.holds.limits());
        let session = session.claiming(&self.claims, owner.namespace, owner.is_gateway);
        let late = Late::nothing(number, identity.owner.is_gateway);
        // A sidecar's hosts are its workload's, and no gateway's.
        let obtain = self.obtain.clone().filter(|_| identity.owner.is_gateway);
        let running = Running {
            number,
            identity,
            late,
            session,
            anchors: self.sign.as_ref().map(|sign| sign.anchors()),
            demands: Demands::new(number, obtain),
            confirmations: self.holds.confirmations(),
            lost: self.lost.clone(),
            held: None,
            streams: self.clone(),
            view,
            watched,
            events: self.events.clone(),
            outgoing: sender,
            is_greeted: false,
            greeting_due: clock::now() + self.greeting_timeout,
            counters,
            _stream: stream,
        };
        let run = running.run(request.into_inner(), self.drained.clone(), seat);
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
            if self.refusals.admit(clock::unix_seconds()) {
                tracing::warn!(reason = %refused, "a proxy was refused");
            }
            Err(Status::unauthenticated("the token is not accepted"))
        }
    }
}

/// One stream.
struct Running {
    number: u64,
    identity: Identity,
    late: Late,
    session: ServerSession,
    /// The authorities of the mesh, where somebody signs.
    anchors: Option<watch::Receiver<Option<Arc<Anchors>>>>,
    /// The hosts that the proxy tells, where that is for it to do.
    demands: Demands,
    confirmations: watch::Receiver<u64>,
    lost: Option<watch::Receiver<bool>>,
    /// The loss that was told to be held for this proxy.
    held: Option<Loss>,
    streams: Arc<Streams>,
    view: Arc<View>,
    watched: watch::Receiver<Snapshot>,
    events: mpsc::Sender<Event>,
    outgoing: mpsc::Sender<Result<Bytes, Status>>,
    is_greeted: bool,
    greeting_due: Instant,
    counters: ServerCounters,
    /// Its connection lives for as long as it has one.
    _stream: Option<connection::Stream>,
}

impl Running {
    async fn run(mut self, mut incoming: Streaming<FromProxy>, drained: Drained, mut seat: Seat) {
        let error = tokio::select! {
            error = self.follow(&mut incoming) => error,
            () = drained.signalled() => {
                let _ = self.outgoing.try_send(Err(Status::unavailable("it is stopping")));
                None
            }
            () = seat.lost() => {
                let lost = "another stream took its place";
                let _ = self.outgoing.try_send(Err(Status::resource_exhausted(lost)));
                None
            }
        };
        if let Some(error) = &error {
            self.counters.refused.inc();
            let subject = &self.identity.subject;
            if self.streams.ends.admit(clock::unix_seconds()) {
                tracing::warn!(%subject, %error, "the stream of a proxy was ended");
            }
            let _ = self
                .outgoing
                .try_send(Err(Status::invalid_argument(error.to_string())));
        }
        self.tell_held(None);
        if self.is_greeted {
            let stream = self.number;
            self.tell(Event::Gone { stream, error }).await;
        }
    }

    /// Runs the session until the proxy goes, or errs.
    async fn follow(&mut self, incoming: &mut Streaming<FromProxy>) -> Option<SessionError> {
        self.anchor();
        loop {
            self.session.set_lost(self.is_lost());
            if let Some(asked) = self.session.asked(clock::now()) {
                let outcome = self.sign(&asked).await;
                self.anchor();
                self.session.signed(outcome);
            }
            self.demands.hand_on(&mut self.session, clock::now());
            if let Err(end) = self.send().await {
                return end;
            }
            self.tell_held(self.session.loss());
            let greeting = (!self.is_greeted).then_some(self.greeting_due);
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
                changed = self.watched.changed() => {
                    changed.ok()?;
                    let newest = self.view.wake(&mut self.watched, &self.counters);
                    self.counters.streams_woken.inc();
                    self.session.update(newest);
                }
                Some(place) = late::place(&self.events), if !self.late.is_nothing() => {
                    let event = self.late.pop();
                    drop(event.map(|event| place.send(event)));
                }
                () = changed(&mut self.anchors) => self.anchor(),
                () = changed(&mut self.lost) => {}
                answered = self.demands.next() => {
                    if let Some((host, refused_for)) = answered {
                        self.session.answer(&host, refused_for);
                    }
                }
                // The sender is part of `streams`, so it lives.
                Ok(()) = self.confirmations.changed() => self.session.confirm(),
                () = sleep_until(deadline.unwrap_or(self.greeting_due)), if deadline.is_some() => {
                    if !self.is_greeted {
                        return Some(SessionError::Unexpected("silence"));
                    }
                    // What has moved no more than the position has woken nobody.
                    self.session.update(self.view.newest());
                }
            }
        }
    }

    /// Sends what there is to send.
    ///
    /// # Errors
    /// The stream is over: the proxy is gone, or errs.
    async fn send(&mut self) -> Result<(), Option<SessionError>> {
        while let Some(frame) = self.session.poll(clock::now()) {
            match timeout(self.streams.answer_timeout, self.outgoing.send(Ok(frame))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(None),
                Err(_) => return Err(Some(self.overdue())),
            }
            // Whoever takes frames slowly falls behind meanwhile, and nothing else tells of that.
            self.session.update(self.view.newest());
            self.judge()?;
        }
        self.judge()
    }

    /// Whether the stream may go on.
    fn judge(&self) -> Result<(), Option<SessionError>> {
        match self.session.is_overdue(clock::now()) {
            true => Err(Some(self.overdue())),
            false => Ok(()),
        }
    }

    fn overdue(&self) -> SessionError {
        self.counters.unanswered.inc();
        SessionError::NoAnswer
    }

    fn is_lost(&self) -> bool {
        self.lost.as_ref().is_some_and(|lost| *lost.borrow())
    }

    /// Tells people what is held for this proxy.
    fn tell_held(&mut self, loss: Option<Loss>) {
        if self.held != loss {
            self.held = loss;
            let (subject, number) = (&self.identity.subject, self.number);
            let holds = &self.streams.holds;
            match self.identity.owner.is_gateway {
                true => holds.set(&format!("proxy {subject}, stream {number}"), loss),
                // Whoever may run a Pod may have it say so, whatever it holds.
                false => holds.set_unproven(&format!("sidecar {subject}, stream {number}"), loss),
            }
        }
    }

    /// Tells the session what the mesh is known by now.
    fn anchor(&mut self) {
        let newest = self
            .anchors
            .as_mut()
            .map(watch::Receiver::borrow_and_update);
        if let Some(anchors) = newest.and_then(|it| it.clone()) {
            self.session.anchor(anchors);
        }
    }

    /// Signs for the proxy of this stream, if the token that came with the request is still good
    /// and names the same one.
    async fn sign(&mut self, asked: &Asked) -> Result<Vec<Bytes>, NotSigned> {
        let not = |reason: &str| NotSigned {
            reason: reason.to_owned(),
            retry_after: Duration::ZERO,
        };
        let Some(sign) = &self.streams.sign else {
            return Err(not("nobody signs here"));
        };
        let identity = self.streams.authenticate.authenticate(&asked.token).await;
        let outcome = match identity {
            Ok(identity) if identity == self.identity => sign.sign(&identity, &asked.request).await,
            Ok(_) => Err(not(
                "the token is another's than at the beginning of the stream",
            )),
            // Nobody can give out another token meanwhile, and who asks has proved who it is.
            Err(_) if self.is_lost() => sign.sign(&self.identity, &asked.request).await,
            Err(_) => Err(not("the token is not accepted")),
        };
        if let Err(NotSigned { reason, .. }) = &outcome {
            let subject = &self.identity.subject;
            if self.streams.ends.admit(clock::unix_seconds()) {
                tracing::warn!(%subject, reason, "a proxy was given no certificate");
            }
        }
        outcome
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
                root,
                is_in_step,
                receipts,
                receipts_omitted,
            } => {
                let acked = Event::Acked {
                    stream,
                    position,
                    root,
                    is_in_step,
                };
                let refused = (receipts, receipts_omitted);
                let dropped = self.late.tell(refused, acked, &self.events);
                self.counters.receipts_dropped.inc_by(dropped);
            }
        }
    }

    /// Nobody may be listening any more; the proxy is served nevertheless.
    async fn tell(&mut self, event: Event) {
        let _ = self.events.send(event).await;
    }
}

/// Waits for another value; for ever where there is none.
async fn changed<T>(watched: &mut Option<watch::Receiver<T>>) {
    if let Some(watched) = watched
        && watched.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
