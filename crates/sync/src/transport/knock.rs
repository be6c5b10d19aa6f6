//! The way to a server: connections, and the streams that begin on them.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Ready, ready};
use futures_util::stream;
use hyper_util::rt::TokioIo;
use myriad_base::hold::Holds;
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
use crate::client::ClientSession;
use crate::metrics::ClientCounters;
use crate::wire::{FromProxy, FromServer, MESSAGE_BYTES_MAX, SessionError};

/// Makes connections to a server.
pub trait Connect: Send + Sync + 'static {
    /// One connection, to another replica than the last one if there are several.
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>>;
}

/// How a client introduces itself.
#[derive(Clone)]
pub struct ClientSettings {
    /// The name of the process, for people.
    pub instance: String,
    /// The newest schema that is understood, at most that of this build.
    pub schema_max: u32,
    /// Makes connections.
    pub connect: Arc<dyn Connect>,
    /// The bearer token of now: such tokens expire, so it is asked for before every attempt.
    pub token: Arc<dyn Fn() -> io::Result<String> + Send + Sync>,
    /// The removals that are held here, and whether they were confirmed.
    pub holds: Holds,
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

/// A stream on which the hello is on its way.
pub(super) struct Opened {
    pub(super) outgoing: mpsc::Sender<FromProxy>,
    pub(super) incoming: Streaming<FromServer>,
    pub(super) session: ClientSession,
}

/// The parts of a client that one attempt to open a stream needs.
pub(super) struct Knock {
    pub(super) settings: ClientSettings,
    pub(super) counters: ClientCounters,
    pub(super) held: Snapshot,
    pub(super) key: Option<[u8; 32]>,
    pub(super) wants_identity: bool,
    pub(super) demands: bool,
}

impl Knock {
    /// Opens a stream.
    pub(super) async fn open(&self) -> Result<Opened, ClientError> {
        let mut session = ClientSession::new(
            &self.settings.instance,
            self.key,
            self.held.clone(),
            self.counters.clone(),
        )
        .within(self.settings.schema_max)
        .holding(self.settings.holds.limits());
        if self.wants_identity {
            session = session.wanting_identity();
        }
        if self.demands {
            session = session.demanding();
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
        Ok(Opened {
            outgoing,
            incoming: response.map_err(Box::new)?.into_inner(),
            session,
        })
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
