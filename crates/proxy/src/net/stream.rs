//! A byte stream with a peer, in plain text or over TLS.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::record::{self, Tls};
use crate::codec::buffer::{BUFFER_BYTES, Buffer};

/// The bytes of a session of TLS beside its buffers, about.
const SESSION_BYTES: usize = 16 << 10;

/// A byte stream.
pub enum Stream {
    /// Plain text.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<Tls>),
}

impl Stream {
    /// Reads; 0 at the end.
    ///
    /// # Errors
    /// The errors of the socket and of TLS.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(tcp) => {
                let mut into = ReadBuf::new(out);
                ready!(Pin::new(tcp).poll_read(context, &mut into))?;
                Poll::Ready(Ok(into.filled().len()))
            }
            Stream::Tls(tls) => tls.poll_read(context, out),
        }
    }

    /// Reads into a buffer that is taken only when there is something to put in; 0 at the end.
    ///
    /// # Errors
    /// The errors of [`Stream::poll_read`].
    pub fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Option<Buffer>,
    ) -> Poll<io::Result<usize>> {
        self.poll_fill_part(context, buffer, BUFFER_BYTES)
    }

    /// The same into a buffer of this size, where there is none yet.
    ///
    /// # Errors
    /// The errors of [`Stream::poll_read`].
    pub fn poll_fill_part(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Option<Buffer>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let mut filling = buffer.take().unwrap_or_else(|| Buffer::with_room(room));
        filling.reserve(room / 4);
        let polled = self.poll_read(context, filling.spare());
        if let Poll::Ready(Ok(count)) = polled {
            filling.advance(count);
        }
        if !filling.is_empty() {
            *buffer = Some(filling);
        }
        polled
    }

    /// Writes, and returns how many bytes were taken.
    ///
    /// # Errors
    /// The errors of the socket and of TLS.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Stream::Tls(tls) => tls.poll_write(context, bytes),
        }
    }

    /// Writes all of a buffer and sends what TLS kept of it.
    ///
    /// # Errors
    /// The errors of the socket and of TLS.
    pub fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<()>> {
        while !buffer.is_empty() {
            let written = ready!(self.poll_write(context, buffer.filled()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            buffer.consume(written);
        }
        self.poll_send(context)
    }

    /// Sends what TLS kept of earlier writes.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(tls) => tls.poll_flush(context),
        }
    }

    /// Whether TLS keeps nothing of earlier writes: a record that the socket took only in part is
    /// not sent, though all of its bytes were taken.
    pub fn is_sent(&self) -> bool {
        match self {
            Stream::Plain(_) => true,
            Stream::Tls(tls) => !tls.has_cipher(),
        }
    }

    /// How many bytes of memory TLS keeps of what is half read or half sent.
    pub fn buffered(&self) -> usize {
        match self {
            Stream::Plain(_) => 0,
            Stream::Tls(tls) => tls.buffered(),
        }
    }

    /// How many bytes of memory there are below it, about.
    pub fn memory(&self) -> usize {
        match self {
            Stream::Plain(_) => 0,
            Stream::Tls(tls) => SESSION_BYTES + tls.buffered(),
        }
    }

    /// Closes the sending half.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Stream::Tls(tls) => tls.poll_shutdown(context),
        }
    }

    /// Whether anything has arrived, or the peer has closed, without asking the kernel. May say
    /// so of nothing, which a read then tells.
    pub fn may_have_input(&self) -> bool {
        match self {
            Stream::Plain(tcp) => record::may_have_input(tcp),
            Stream::Tls(tls) => tls.may_have_input(),
        }
    }

    /// The socket.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.tcp(),
        }
    }

    /// Whether the peer has reset the connection. The end of what it says is none: it may still
    /// read. The kernel is asked where something may have arrived; nobody is woken once
    /// something is there to be read.
    pub fn is_reset(&self, context: &mut Context<'_>) -> bool {
        let mut byte = [0; 1];
        let peeked = self.tcp().poll_peek(context, &mut ReadBuf::new(&mut byte));
        matches!(peeked, Poll::Ready(Err(_)))
    }
}

/// Sends what is left of this end's part of a handshake; where nothing is, waits until the peer has
/// said more of its own, or has closed. Nothing of that is read.
///
/// # Errors
/// The errors of the socket.
pub(crate) async fn hear(tls: &mut Tls) -> io::Result<()> {
    poll_fn(|context| {
        let had_more = tls.has_cipher();
        ready!(tls.poll_flush(context))?;
        // That may have been the last of the handshake, to which the peer has nothing to say.
        if had_more {
            return Poll::Ready(Ok(()));
        }
        tls.tcp().poll_read_ready(context)
    })
    .await
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(context, into),
            Stream::Tls(tls) => {
                let count = ready!(tls.poll_read(context, into.initialize_unfilled()))?;
                into.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_close(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(context, parts),
            Stream::Tls(tls) => {
                // One record for all parts that fit into one, instead of one for each.
                let mut joined = Buffer::take();
                for part in parts {
                    let room = BUFFER_BYTES - joined.len();
                    let fits = part.get(..room).unwrap_or(part);
                    joined.append(fits);
                    if fits.len() < part.len() {
                        break;
                    }
                }
                tls.poll_write(context, joined.filled())
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io;
    use std::sync::Arc;

    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio::net::{TcpListener, TcpStream};

    use super::Stream;
    use crate::net::record::Tls;

    /// Both ends of a connection over TLS, the server's first.
    async fn shaken() -> (Tls, Tls) {
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let chain = vec![made.cert.der().clone()];
        let mut roots = RootCertStore::empty();
        roots.add(chain[0].clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connected = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let mut server = Tls::server(accepted, Arc::new(server), &[]).unwrap();
        let name = ServerName::try_from("a.example").unwrap();
        let mut client = Tls::client(connected, Arc::new(client), name).unwrap();
        let (of_server, of_client) = tokio::join!(shake(&mut server), shake(&mut client));
        of_server.and(of_client).unwrap();
        (server, client)
    }

    async fn shake(tls: &mut Tls) -> io::Result<()> {
        poll_fn(|context| tls.poll_handshake(context, &mut |step| step())).await
    }

    #[tokio::test]
    async fn a_stream_that_has_failed_is_not_read_again() {
        let (server, client) = shaken().await;
        let mut server = Stream::Tls(Box::new(server));
        // A record of no type that there is.
        let garbage = [0xff; 64];
        for _ in 0..2 {
            client.tcp().writable().await.unwrap();
            assert_eq!(client.tcp().try_write(&garbage).unwrap(), garbage.len());
            let mut room = [0; 64];
            let read = poll_fn(|context| server.poll_read(context, &mut room)).await;
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        // What came behind the failure is where it was.
        let mut room = [0; 128];
        let left = server.tcp().peek(&mut room).await.unwrap();
        assert_eq!(left, garbage.len());
    }
}
