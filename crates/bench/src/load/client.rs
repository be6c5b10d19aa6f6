//! One keep-alive connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Trouble;
use crate::backend::BODY_BYTES;

/// How long a handshake or an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest head of a response.
const HEAD_BYTES_MAX: usize = 4 << 10;

/// The failure, and its description.
pub(crate) type Failure = (Trouble, String);

/// A connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) struct Client {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    /// The length that every body must have.
    body_bytes: usize,
}

impl Client {
    /// Connects by TCP and TLS.
    pub(crate) async fn connect(
        config: &Arc<ClientConfig>,
        address: SocketAddr,
        host: &str,
    ) -> Result<Client, Failure> {
        let connect = async {
            let socket = connect_tcp(address).await?;
            let name = ServerName::try_from(host.to_owned()).map_err(handshaking)?;
            let connector = TlsConnector::from(config.clone());
            connector.connect(name, socket).await.map_err(handshaking)
        };
        let stream = within(connect, Trouble::Handshake).await?;
        Ok(Client::over(stream, BODY_BYTES))
    }

    /// Connects by TCP alone.
    pub(crate) async fn connect_plain(address: SocketAddr) -> Result<Client, Failure> {
        Client::connect_for(address, BODY_BYTES).await
    }

    /// The same, for bodies of this length.
    pub(crate) async fn connect_for(
        address: SocketAddr,
        body_bytes: usize,
    ) -> Result<Client, Failure> {
        let stream = within(connect_tcp(address), Trouble::Connect).await?;
        Ok(Client::over(stream, body_bytes))
    }

    fn over(stream: impl Stream + 'static, body_bytes: usize) -> Client {
        Client {
            stream: Box::new(stream),
            buffer: vec![0; HEAD_BYTES_MAX + body_bytes],
            body_bytes,
        }
    }

    /// Sends a request and reads its answer, which must be the endpoint's; says how long it was.
    pub(crate) async fn ask(&mut self, request: &str) -> Result<usize, Failure> {
        within(self.exchange(request), Trouble::Connection).await
    }

    async fn exchange(&mut self, request: &str) -> Result<usize, Failure> {
        let sent = self.stream.write_all(request.as_bytes()).await;
        sent.map_err(breaking)?;
        let mut filled = 0;
        loop {
            let space = &mut self.buffer[filled..];
            if space.is_empty() {
                return Err((Trouble::Answer, "the response is too long".to_owned()));
            }
            let read = self.stream.read(space).await.map_err(breaking)?;
            if read == 0 {
                return Err((Trouble::Connection, "it ended in a response".to_owned()));
            }
            filled += read;
            if is_complete(&self.buffer[..filled], self.body_bytes)? {
                return Ok(filled);
            }
        }
    }
}

/// Whether these are the bytes of a whole answer with such a body; an error if they cannot become
/// one.
pub(crate) fn is_complete(bytes: &[u8], body_bytes: usize) -> Result<bool, Failure> {
    let wrong = |text: &str| Err((Trouble::Answer, text.to_owned()));
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
        return Ok(false);
    };
    let (head, body) = (&bytes[..end], &bytes[end + 4..]);
    if !head.starts_with(b"HTTP/1.1 200 ") {
        let line = head.split(|&byte| byte == b'\r').next().unwrap_or(head);
        return wrong(&String::from_utf8_lossy(line));
    }
    if body.len() > body_bytes {
        return wrong("the body is too long");
    }
    Ok(body.len() == body_bytes)
}

pub(super) async fn connect_tcp(address: SocketAddr) -> Result<TcpStream, Failure> {
    let socket = TcpStream::connect(address).await.map_err(connecting)?;
    socket.set_nodelay(true).map_err(connecting)?;
    Ok(socket)
}

pub(super) async fn within<T>(
    work: impl Future<Output = Result<T, Failure>>,
    late: Trouble,
) -> Result<T, Failure> {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err((late, format!("nothing for {TIMEOUT:?}"))),
    }
}

fn connecting(error: std::io::Error) -> Failure {
    (Trouble::Connect, error.to_string())
}

fn handshaking(error: impl std::fmt::Display) -> Failure {
    (Trouble::Handshake, error.to_string())
}

fn breaking(error: std::io::Error) -> Failure {
    (Trouble::Connection, error.to_string())
}
