//! A byte stream with a peer, in plain text or over TLS.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::record::{self, Tls};
use crate::codec::buffer::{BUFFER_BYTES, Buffer};

/// The most parts in which a peer may bring its side of a handshake, each of which takes a turn.
pub(crate) const PARTS_MAX: usize = 32;

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

    /// Whether the connection has failed, though bytes that came before may still be there to be
    /// read. It is told once, by the kernel.
    pub fn has_failed(&self) -> bool {
        !matches!(self.tcp().take_error(), Ok(None))
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
/// said something of its own that can be looked at: a whole record.
///
/// # Errors
/// The errors of the socket, its end, and more than any record has.
pub(crate) async fn hear(tls: &mut Tls) -> io::Result<()> {
    poll_fn(|context| poll_hear(tls, context)).await
}

/// The same, for whoever has an eye on what is kept of it meanwhile.
///
/// # Errors
/// The same.
pub(crate) fn poll_hear(tls: &mut Tls, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    let had_more = tls.has_cipher();
    ready!(tls.poll_flush(context))?;
    // That may have been the last of the handshake, to which the peer has nothing to say.
    if had_more {
        return Poll::Ready(Ok(()));
    }
    tls.poll_record(context)
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
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::{Stream, hear, poll_hear};
    use crate::net::record::Tls;

    /// The configurations of both ends, the server's first.
    fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
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
        (Arc::new(server), Arc::new(client))
    }

    /// Both ends of a connection, the server's first.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connected = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        (accepted, connected)
    }

    /// Both ends of a connection over TLS, the server's first.
    async fn shaken() -> (Tls, Tls) {
        let ((server, client), (accepted, connected)) = (configs(), connected().await);
        let mut server = Tls::server(accepted, server, &[]).unwrap();
        let name = ServerName::try_from("a.example").unwrap();
        let mut client = Tls::client(connected, client, name).unwrap();
        let (of_server, of_client) = tokio::join!(shake(&mut server), shake(&mut client));
        of_server.and(of_client).unwrap();
        (server, client)
    }

    async fn shake(tls: &mut Tls) -> io::Result<()> {
        poll_fn(|context| tls.poll_handshake(context, &mut |step| step())).await
    }

    /// Reads, and says nothing, for as long as it is polled.
    async fn read_on(tls: &mut Tls) -> io::Error {
        let mut room = vec![0; 64 << 10];
        loop {
            let read = poll_fn(|context| tls.poll_read(context, &mut room)).await;
            if let Err(error) = read {
                return error;
            }
        }
    }

    #[tokio::test]
    async fn whoever_has_sent_its_last_part_waits_for_no_word_of_the_peer() {
        let (mut server, mut client) = shaken().await;
        let record = vec![7; 16 << 10];
        // Until the socket takes only a part.
        while !server.has_cipher() {
            let written = poll_fn(|context| server.poll_write(context, &record)).await;
            assert_eq!(written.unwrap(), record.len());
        }
        let heard = tokio::time::timeout(Duration::from_secs(10), async {
            tokio::select! {
                heard = hear(&mut server) => heard,
                error = read_on(&mut client) => Err(error),
            }
        });
        heard.await.unwrap().unwrap();
        assert!(!server.has_cipher());
        // With nothing left to send, the peer is waited for.
        let mut hearing = Box::pin(hear(&mut server));
        let polled = poll_fn(|context| Poll::Ready(hearing.as_mut().poll(context))).await;
        assert!(polled.is_pending());
        let said = poll_fn(|context| client.poll_write(context, b"x")).await;
        assert_eq!(said.unwrap(), 1);
        let heard = tokio::time::timeout(Duration::from_secs(10), hearing);
        heard.await.unwrap().unwrap();
    }

    /// Looks whether a peer is heard, until so many bytes are kept.
    async fn is_heard(tls: &mut Tls, kept: usize) -> bool {
        loop {
            let polled = poll_fn(|context| Poll::Ready(poll_hear(tls, context))).await;
            if polled.is_ready() || tls.buffered() >= kept {
                return polled.is_ready();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Every byte was something to look at.
    #[tokio::test]
    async fn a_peer_is_heard_once_for_each_record_that_is_whole() {
        let (accepted, mut peer) = connected().await;
        let mut server = Tls::server(accepted, configs().0, &[]).unwrap();
        // A hello of which most does not come.
        let first = [22, 3, 1, 0, 4, 1, 0, 2, 0];
        peer.write_all(&first[..8]).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(10), is_heard(&mut server, 8));
        assert!(!heard.await.unwrap());
        for rest in [&first[8..], &[22, 3, 1, 0, 1, 3]] {
            peer.write_all(rest).await.unwrap();
            let heard = tokio::time::timeout(Duration::from_secs(10), hear(&mut server));
            heard.await.unwrap().unwrap();
            let context = &mut Context::from_waker(Waker::noop());
            let polled = server.poll_handshake(context, &mut |step| step());
            assert!(polled.is_pending());
            // It is kept until the message is whole, and was looked at.
            assert!(server.buffered() >= first.len());
            assert!(!is_heard(&mut server, 0).await);
        }
        drop(peer);
        let heard = tokio::time::timeout(Duration::from_secs(10), hear(&mut server));
        let error = heard.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
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
