//! The gRPC client: connects, follows, and connects again.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Ready, ready};
use futures_util::stream;
use hyper_util::rt::TokioIo;
use myriad_base::backoff::{Backoff, Waits, random_seed};
use myriad_base::drain::Drained;
use myriad_model::Snapshot;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::service::FOLLOW;
use super::{ALPN, CONNECT_TIMEOUT, Connection, KEEP_ALIVE_INTERVAL, TIMEOUT};
use crate::client::{ClientSession, Delivery, Received, Refusal};
use crate::metrics::ClientCounters;
use crate::signing::{Anchors, Issued, NotSigned};
use crate::wire::{FromProxy, FromServer, MESSAGE_BYTES_MAX, SessionError};

/// The interval at which the caller is asked whether it could now take what it refused.
const TICK: Duration = Duration::from_secs(1);

/// The waits before a proxy connects again. The first, after a connection that was of use, is
/// quick, since another replica is there already as a rule, and spread, since thousands lose theirs
/// at once. The longest, with the time that a connection may take, is how long after a server is
/// there again all its proxies are back.
static WAITS: Waits = Waits {
    first: Duration::ZERO..=Duration::from_millis(200),
    second: Duration::from_millis(200)..=Duration::from_millis(400),
    max: Duration::from_secs(2)..=Duration::from_secs(4),
};

/// Puts commits into service. Called by one task, one call at a time.
pub trait Apply: Send {
    /// Puts a commit into service, and returns what it cannot take: each such resource keeps its
    /// last good version, and so should the rest of its unit, which is then to be named as well.
    /// A commit that was put into service goes to the log after it.
    fn apply(&mut self, delivery: Delivery) -> impl Future<Output = Vec<Refusal>> + Send;

    /// The cluster's key is now this one; the next record of the log must say so.
    fn rekey(&mut self, key: [u8; 32]);

    /// This is in service now, and the server is about to be told.
    fn holds(&mut self, _held: &Snapshot) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Called about once a second while a server is followed. Returns whether something that was
    /// refused could be taken now, so that it is worth asking for it again.
    fn tick(&mut self) -> bool {
        false
    }

    /// Whether an identity of the mesh is wanted. Asked for once per connection.
    fn wants_identity(&self) -> bool {
        false
    }

    /// The mesh is known by these now.
    fn anchored(&mut self, _anchors: Anchors) {}

    /// A request for a certificate (PKCS#10 in DER), if one is due. Asked about once a second
    /// while a server is followed that signs, and not before an earlier one was answered.
    fn request(&mut self) -> Option<Bytes> {
        None
    }

    /// Hands over the answer to the request. A connection that ends leaves one unanswered.
    fn signed(&mut self, _outcome: Result<Issued, NotSigned>) {}

    /// A server has answered.
    fn connected(&mut self) {}

    /// The connection has ended, or none was made.
    fn disconnected(&mut self, _error: &ClientError) {}
}

/// Makes connections to a server.
pub trait Connect: Send + Sync + 'static {
    /// One connection, to another replica than the last one if there are several.
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>>;
}

/// How a client introduces itself.
pub struct ClientSettings {
    /// The name of the process, for people.
    pub instance: String,
    /// The newest schema that is understood, at most that of this build.
    pub schema_max: u32,
    /// Makes connections.
    pub connect: Arc<dyn Connect>,
    /// The bearer token of now: such tokens expire, so it is asked for before every attempt.
    pub token: Arc<dyn Fn() -> io::Result<String> + Send + Sync>,
}

/// TCP, with or without TLS.
pub struct TcpConnect {
    /// Host or address, and port. Every attempt resolves it anew.
    pub address: String,
    /// How TLS is done and whose name is verified; none for plain text, for tests.
    pub tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

/// Why a connection was not made, or has ended. Another attempt follows each of them.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The network, the TLS handshake or the file of the token.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// HTTP/2.
    #[error("the connection failed: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The server ended the stream.
    #[error("the server ended the stream: {}", .0.message())]
    Status(#[from] Box<Status>),
    /// The server sent what no server sends.
    #[error("the server {0}")]
    Session(#[from] SessionError),
    /// The refused resources could be taken now, and are asked for again.
    #[error("what was refused is asked for again")]
    Again,
    /// The server closed the stream without a reason.
    #[error("the server closed the stream")]
    Closed,
    /// The other end took too long.
    #[error("no answer in time")]
    Timeout,
}

impl Connect for TcpConnect {
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let Some((config, name)) = &self.tls else {
                return Ok(Connection::new(stream));
            };
            let mut config = (**config).clone();
            config.alpn_protocols = vec![ALPN.to_vec()];
            let connector = TlsConnector::from(Arc::new(config));
            let stream = connector.connect(name.clone(), stream).await?;
            Ok(Connection::new(stream))
        })
    }
}

/// A client that is ready to run.
pub struct Client {
    settings: ClientSettings,
    counters: ClientCounters,
    held: Snapshot,
    key: Option<[u8; 32]>,
    backoff: Backoff,
}

impl Client {
    /// A client that starts from what is in service already, for instance from the log, and the
    /// cluster's key as far as it is known from there.
    pub fn new(
        settings: ClientSettings,
        held: Snapshot,
        key: Option<[u8; 32]>,
        counters: ClientCounters,
    ) -> Self {
        Client {
            settings,
            counters,
            held,
            key,
            backoff: Backoff::new(&WAITS, random_seed()),
        }
    }

    /// Follows a server, and then the next, until the drain is asked for. Returns what is in
    /// service then.
    pub async fn run(mut self, apply: &mut impl Apply, drained: Drained) -> Snapshot {
        loop {
            let error = tokio::select! {
                error = self.connect_and_follow(apply) => error,
                () = drained.signalled() => return self.held,
            };
            self.counters.disconnections.inc();
            apply.disconnected(&error);
            let wait = self.backoff.fail();
            tracing::info!(%error, ?wait, "no controller is followed");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = drained.signalled() => return self.held,
            }
        }
    }

    /// One connection from its beginning to its end.
    async fn connect_and_follow(&mut self, apply: &mut impl Apply) -> ClientError {
        match timeout(TIMEOUT, self.open(apply.wants_identity())).await {
            Err(_) => ClientError::Timeout,
            Ok(Err(error)) => error,
            Ok(Ok((outgoing, incoming, session))) => {
                self.counters.connections.inc();
                apply.connected();
                self.follow(session, &outgoing, incoming, apply).await
            }
        }
    }

    async fn open(
        &self,
        wants_identity: bool,
    ) -> Result<
        (
            mpsc::Sender<FromProxy>,
            Streaming<FromServer>,
            ClientSession,
        ),
        ClientError,
    > {
        let mut session = ClientSession::new(
            &self.settings.instance,
            self.key,
            self.held.clone(),
            self.counters.clone(),
        )
        .within(self.settings.schema_max);
        if wants_identity {
            session = session.wanting_identity();
        }
        // One answer and one request at a time are under way, beside the greeting.
        let (outgoing, mut answers) = mpsc::channel(3);
        let _ = outgoing.try_send(session.hello());
        let token = (self.settings.token)()?;
        let invalid = |_| io::Error::other("the token is no header");
        let header = format!("Bearer {}", token.trim());
        let mut header = MetadataValue::try_from(header).map_err(invalid)?;
        header.set_sensitive(true);
        let connection = timeout(CONNECT_TIMEOUT, self.settings.connect.connect()).await;
        let connection = connection.map_err(|_| ClientError::Timeout)??;
        // The address is that of the connection; this one only fills the header.
        let channel = Endpoint::from_static("http://controller")
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(TIMEOUT)
            .keep_alive_while_idle(true)
            .connect_with_connector(Once(Some(connection)))
            .await?;
        let mut grpc =
            tonic::client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await?;
        let answers = stream::poll_fn(move |context| answers.poll_recv(context));
        let mut request = Request::new(answers);
        request.metadata_mut().insert("authorization", header);
        let codec = ProstCodec::<FromProxy, FromServer>::default();
        let path = PathAndQuery::from_static(FOLLOW);
        let response = grpc.streaming(request, path, codec).await;
        Ok((outgoing, response.map_err(Box::new)?.into_inner(), session))
    }

    async fn follow(
        &mut self,
        mut session: ClientSession,
        outgoing: &mpsc::Sender<FromProxy>,
        mut incoming: Streaming<FromServer>,
        apply: &mut impl Apply,
    ) -> ClientError {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if let Some(asked) = self.ask(&mut session, apply)
                && outgoing.send(asked).await.is_err()
            {
                return ClientError::Closed;
            }
            let message = tokio::select! {
                message = incoming.message() => message,
                _ = ticks.tick() => match apply.tick() {
                    true => return ClientError::Again,
                    false => continue,
                },
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return ClientError::Closed,
                Err(status) => return Box::new(status).into(),
            };
            let answer = match session.receive(message) {
                Err(error) => return error.into(),
                Ok(Received::Nothing) => continue,
                Ok(Received::Answer(answer)) => answer,
                Ok(Received::Key(key, answer)) => {
                    self.key = Some(key);
                    self.held = session.held().clone();
                    apply.rekey(key);
                    answer
                }
                Ok(Received::Anchors(anchors)) => {
                    apply.anchored(anchors);
                    continue;
                }
                Ok(Received::Signed(outcome)) => {
                    apply.signed(outcome);
                    continue;
                }
                Ok(Received::Apply(delivery)) => {
                    let refusals = apply.apply(delivery).await;
                    let Some(ack) = session.applied(&refusals) else {
                        continue;
                    };
                    self.held = session.held().clone();
                    apply.holds(&self.held).await;
                    self.backoff.reset();
                    ack
                }
            };
            if outgoing.send(answer).await.is_err() {
                return ClientError::Closed;
            }
        }
    }

    /// Asks for a certificate, if one is due and may be asked for.
    fn ask(&self, session: &mut ClientSession, apply: &mut impl Apply) -> Option<FromProxy> {
        if !session.may_ask() {
            return None;
        }
        let request = apply.request()?;
        match (self.settings.token)() {
            Ok(token) => session.ask(request, token.trim().to_owned()),
            Err(error) => {
                apply.signed(Err(NotSigned {
                    reason: format!("the token cannot be read: {error}"),
                    retry_after: Duration::ZERO,
                }));
                None
            }
        }
    }
}

/// Hands out one connection that was made already.
struct Once(Option<Connection>);

impl tower_service::Service<Uri> for Once {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = Ready<io::Result<TokioIo<Connection>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "the connection has ended");
        ready(self.0.take().map(TokioIo::new).ok_or_else(gone))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::WAITS;

    #[test]
    fn the_first_attempt_is_quick_and_later_ones_wait_ever_longer_up_to_a_bound() {
        for (failures, low_ms, high_ms) in [
            (0, 0, 200),
            (1, 200, 400),
            (2, 400, 800),
            (5, 2_000, 4_000),
            (99, 2_000, 4_000),
        ] {
            let wait = |random| WAITS.after(failures, Duration::ZERO, random).as_millis();
            assert_eq!((wait(0), wait(u32::MAX)), (low_ms, high_ms), "{failures}");
        }
    }
}
