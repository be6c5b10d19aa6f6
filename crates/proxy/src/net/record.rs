//! The TLS record layer between a socket and who reads and writes plain bytes.
//!
//! Ciphertext passes through scratch memory of the thread; a connection itself keeps only what
//! could not be finished: half a record, plain bytes that nobody has read yet, ciphertext that
//! the socket would not take. An idle connection keeps none of them.

mod step;
mod waste;
mod whole;

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use step::{Next, close_notify, seal, step};
use waste::Waste;
use whole::{first_record, unfinished, whole_records};

/// Room for a few records, so that one read of the socket brings more than one.
const SCRATCH_BYTES: usize = 48 << 10;

/// The most plain bytes encrypted at once: one full record.
const PLAIN_BYTES_MAX: usize = 16 << 10;

/// The most ciphertext of an unfinished record or message (RFC 8446, section 5.2). That of a
/// message which comes as a whole is bounded by rustls, at 64 KiB.
const PARTIAL_BYTES_MAX: usize = 20 << 10;

/// A reader with no more room than this gets about as much at once.
const LITTLE_BYTES: usize = 4 << 10;

thread_local! {
    static INCOMING: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
    static OUTGOING: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
}

/// Either end of a TLS connection.
enum Session {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// A TLS connection over a socket.
pub struct Tls {
    tcp: TcpStream,
    session: Session,
    /// Ciphertext of a record that has not arrived whole.
    partial: Vec<u8>,
    /// How many bytes at its end are of records that no step of the session has looked at.
    fresh: u32,
    /// Plain bytes that nobody has read yet, from `plain_read` on.
    plain: Vec<u8>,
    plain_read: usize,
    /// Ciphertext that is not sent yet, from `cipher_sent` on.
    cipher: Vec<u8>,
    cipher_sent: usize,
    /// The peer said that it sends no more.
    is_finished: bool,
    /// Why nothing more is read: the socket is at its end, or something failed.
    failed: Option<io::ErrorKind>,
    /// The session has failed, and so does whatever is said by it.
    is_broken: bool,
    waste: Waste,
}

impl Tls {
    /// The server's end. `received` is what was read of the socket already.
    ///
    /// # Errors
    /// When the configuration is not usable.
    pub fn server(
        tcp: TcpStream,
        config: Arc<ServerConfig>,
        received: &[u8],
    ) -> Result<Self, rustls::Error> {
        let session = Session::Server(UnbufferedServerConnection::new(config)?);
        Ok(Tls::new(tcp, session, received))
    }

    /// The client's end.
    ///
    /// # Errors
    /// When the configuration is not usable.
    pub fn client(
        tcp: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let session = Session::Client(UnbufferedClientConnection::new(config, name)?);
        Ok(Tls::new(tcp, session, &[]))
    }

    fn new(tcp: TcpStream, session: Session, received: &[u8]) -> Self {
        Tls {
            tcp,
            session,
            partial: received.to_vec(),
            fresh: count(received.len()),
            plain: Vec::new(),
            plain_read: 0,
            cipher: Vec::new(),
            cipher_sent: 0,
            is_finished: false,
            failed: None,
            is_broken: false,
            waste: Waste::new(),
        }
    }

    /// The socket.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The protocol that both ends agreed on (ALPN).
    pub fn alpn(&self) -> Option<&[u8]> {
        match &self.session {
            Session::Server(session) => session.alpn_protocol(),
            Session::Client(session) => session.alpn_protocol(),
        }
    }

    /// The certificate of a client, once the handshake is done; none where it sent none.
    pub fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.client_chain().first()
    }

    /// The certificates of a client, its own first.
    pub fn client_chain(&self) -> &[CertificateDer<'static>] {
        match &self.session {
            Session::Server(session) => session.peer_certificates().unwrap_or_default(),
            Session::Client(_) => &[],
        }
    }

    /// The certificates of an endpoint, its own first; where a session was resumed, as it began.
    pub fn endpoint_chain(&self) -> &[CertificateDer<'static>] {
        match &self.session {
            Session::Client(session) => session.peer_certificates().unwrap_or_default(),
            Session::Server(_) => &[],
        }
    }

    /// The version spoken, once the handshake is done.
    pub fn version(&self) -> Option<rustls::ProtocolVersion> {
        match &self.session {
            Session::Server(session) => session.protocol_version(),
            Session::Client(session) => session.protocol_version(),
        }
    }

    /// Whether keys were agreed on with the peer, other than those of a session that is resumed.
    pub fn has_agreed_on_keys(&self) -> bool {
        let group = match &self.session {
            Session::Server(session) => session.negotiated_key_exchange_group(),
            Session::Client(session) => session.negotiated_key_exchange_group(),
        };
        group.is_some()
    }

    /// How the keys were agreed on, once the handshake is done.
    pub fn handshake_kind(&self) -> Option<rustls::HandshakeKind> {
        match &self.session {
            Session::Server(session) => session.handshake_kind(),
            Session::Client(session) => session.handshake_kind(),
        }
    }

    /// Goes on with the handshake until it is done. `around` is called around every step that
    /// may ask the configuration for a certificate.
    ///
    /// # Errors
    /// When the handshake fails; an alert has then been sent as far as the socket took it.
    pub fn poll_handshake(
        &mut self,
        context: &mut Context<'_>,
        around: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Poll<io::Result<()>> {
        loop {
            let mut blocked = Ok(false);
            around(&mut || blocked = self.process_partial());
            let blocked = match blocked {
                Ok(blocked) => blocked,
                Err(error) => {
                    self.fail(&error, context);
                    return Poll::Ready(Err(error));
                }
            };
            ready!(self.poll_send(context))?;
            if !blocked {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Reads on, in the middle of a handshake, until a record is whole that no step has looked at.
    ///
    /// # Errors
    /// The errors of the socket, its end, and more than any record has.
    pub(super) fn poll_record(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while whole_records(self.fresh()) == 0 {
            if ready!(self.poll_receive(context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The part of what has arrived that no step of the session has looked at.
    fn fresh(&self) -> &[u8] {
        let before = self.partial.len().saturating_sub(self.fresh as usize);
        self.partial.get(before..).unwrap_or_default()
    }

    /// Reads plain bytes; 0 at the end. Others have their turn after some bytes that carry none.
    ///
    /// # Errors
    /// The errors of the socket and of the record layer, an end that the peer did not announce, and
    /// too much that carries nothing.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let copied = self.take_plain(out);
            if copied > 0 || out.is_empty() {
                return Poll::Ready(Ok(copied));
            }
            if self.is_finished {
                return Poll::Ready(Ok(0));
            }
            if let Some(failed) = self.failed {
                return Poll::Ready(Err(failed.into()));
            }
            if self.waste.ends_turn() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let read = match ready!(self.poll_records(context, out)) {
                Ok(read) => read,
                Err(error) => {
                    self.fail(&error, context);
                    return Poll::Ready(Err(error));
                }
            };
            // Answers to key updates go out when they can; whoever writes next sends the rest.
            if self.has_cipher() {
                let _ = self.poll_send(context)?;
            }
            if read > 0 {
                return Poll::Ready(Ok(read));
            }
        }
    }

    /// Encrypts and writes plain bytes, and returns how many were taken. What the socket did not
    /// take is kept; see [`Tls::poll_flush`].
    ///
    /// # Errors
    /// The errors of the socket and of the record layer.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        plain: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(context))?;
        let plain = plain.get(..PLAIN_BYTES_MAX).unwrap_or(plain);
        OUTGOING.with_borrow_mut(|scratch| {
            let length = self.seal(plain, scratch)?;
            let sealed = scratch.get(..length).unwrap_or_default();
            let sent = match Pin::new(&mut self.tcp).poll_write(context, sealed) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => 0,
            };
            let rest = sealed.get(sent..).unwrap_or_default();
            self.cipher.extend_from_slice(rest);
            Poll::Ready(Ok(plain.len()))
        })
    }

    /// Sends what is still kept.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    /// Says that no more follows, and closes the sending half of the socket.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A second call queues nothing, since rustls sends the alert once.
        OUTGOING.with_borrow_mut(|scratch| {
            let length = self.close_notify(scratch);
            let alert = scratch.get(..length).unwrap_or_default();
            self.cipher.extend_from_slice(alert);
        });
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    /// Whether anything has arrived, or the peer has closed, without asking the kernel. May say
    /// so of nothing, which a read then tells.
    pub fn may_have_input(&self) -> bool {
        self.plain_read < self.plain.len() || !self.partial.is_empty() || may_have_input(&self.tcp)
    }

    /// How many bytes of memory it keeps of what is half read or half sent.
    pub fn buffered(&self) -> usize {
        self.partial.capacity() + self.plain.capacity() + self.cipher.capacity()
    }

    pub(super) fn has_cipher(&self) -> bool {
        self.cipher_sent < self.cipher.len()
    }

    fn take_plain(&mut self, out: &mut [u8]) -> usize {
        let rest = self.plain.get(self.plain_read..).unwrap_or_default();
        let count = rest.len().min(out.len());
        if let (Some(to), Some(from)) = (out.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        self.plain_read += count;
        if self.plain_read == self.plain.len() && self.plain.capacity() > 0 {
            self.plain = Vec::new();
            self.plain_read = 0;
        }
        count
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_cipher() {
            let rest = self.cipher.get(self.cipher_sent..).unwrap_or_default();
            let sent = ready!(Pin::new(&mut self.tcp).poll_write(context, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.cipher_sent += sent;
        }
        if self.cipher.capacity() > 0 {
            self.cipher = Vec::new();
            self.cipher_sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes note that the session has failed, and sends the alert that it left behind, as far as
    /// the socket takes it at once.
    fn fail(&mut self, error: &io::Error, context: &mut Context<'_>) {
        self.failed = Some(error.kind());
        // The socket says for itself what it does not take any more.
        self.is_broken = error.kind() == io::ErrorKind::InvalidData;
        let has_alert = match &self.session {
            Session::Server(session) => session.wants_write(),
            Session::Client(session) => session.wants_write(),
        };
        // Without one it would look for more records, of which nothing is kept any more.
        if has_alert {
            let _ = self.process(&mut [], &mut |_| {});
        }
        let _ = self.poll_send(context);
    }

    /// Reads ciphertext behind what is there already.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.partial.len() >= PARTIAL_BYTES_MAX {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        INCOMING.with_borrow_mut(|scratch| {
            let mut into = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.tcp).poll_read(context, &mut into))?;
            let received = into.filled();
            self.partial.extend_from_slice(received);
            self.fresh = self.fresh.saturating_add(count(received.len()));
            Poll::Ready(Ok(received.len()))
        })
    }

    /// Processes what was received of the handshake; true where more of it is needed. What comes
    /// behind it is left to those who read.
    fn process_partial(&mut self) -> io::Result<bool> {
        let mut received = std::mem::take(&mut self.partial);
        let mut early = Vec::new();
        let (mut used, mut known) = (0, received.len().saturating_sub(self.fresh as usize));
        let blocked = loop {
            let input = received.get_mut(used..known).unwrap_or_default();
            let (discard, next) = self.process(input, &mut |plain| early.extend(plain))?;
            used += discard;
            match next {
                Next::Again => {}
                Next::Blocked => match first_record(received.get(known..).unwrap_or_default()) {
                    0 => break true,
                    length => known += length,
                },
                Next::Idle => break false,
            }
        };
        self.fresh = count(received.len().saturating_sub(known));
        received.drain(..used.min(received.len()));
        // What a ClientHello has taken is not kept for as long as its connection lives.
        if !received.is_empty() {
            self.partial = received;
        }
        self.plain.append(&mut early);
        Ok(blocked)
    }

    /// Decrypts what is kept, or else reads the socket once, into `out`, and what does not fit
    /// beside it.
    fn poll_records(
        &mut self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        INCOMING.with_borrow_mut(|scratch| {
            let kept = self.partial.len();
            if kept > 0 {
                let room = scratch.get_mut(..kept);
                room.ok_or(io::ErrorKind::InvalidData)?
                    .copy_from_slice(&self.partial);
            }
            // What the last turn has left comes first.
            if first_record(self.fresh()) > 0 {
                return Poll::Ready(self.open_records(scratch.get_mut(..kept), out));
            }
            // Whoever has room for little shall not make this keep much.
            let end = match out.len() {
                0..=LITTLE_BYTES => (kept + LITTLE_BYTES).min(scratch.len()),
                _ => scratch.len(),
            };
            let mut into = ReadBuf::new(scratch.get_mut(kept..end).unwrap_or_default());
            ready!(Pin::new(&mut self.tcp).poll_read(context, &mut into))?;
            let received = into.filled().len();
            if received == 0 {
                self.failed = Some(io::ErrorKind::UnexpectedEof);
                return Poll::Ready(Ok(0));
            }
            self.fresh = self.fresh.saturating_add(count(received));
            Poll::Ready(self.open_records(scratch.get_mut(..kept + received), out))
        })
    }

    /// Decrypts records, one after the other, until a turn is over. At their beginning is what was
    /// kept, and what is left is kept again.
    fn open_records(&mut self, records: Option<&mut [u8]>, out: &mut [u8]) -> io::Result<usize> {
        let records = records.unwrap_or_default();
        let (mut copied, mut overflow) = (0, Vec::new());
        // Those before the first end are used up, those before the second the session knows.
        let (mut used, mut known) = (0, records.len().saturating_sub(self.fresh as usize));
        let mut record = first_record(records.get(known..).unwrap_or_default());
        let mut before = 0;
        known += record;
        loop {
            let input = records.get_mut(used..known).unwrap_or_default();
            let mut take = |plain: &[u8]| {
                let room = out.get_mut(copied..).unwrap_or_default();
                let count = plain.len().min(room.len());
                let (fits, rest) = plain.split_at(count);
                if let Some(room) = room.get_mut(..count) {
                    room.copy_from_slice(fits);
                }
                copied += count;
                overflow.extend_from_slice(rest);
            };
            let (discard, next) = self.process(input, &mut take)?;
            used += discard;
            let is_idle = !matches!(next, Next::Again);
            if !is_idle && used < known {
                continue;
            }
            let plain = copied + overflow.len();
            self.waste.count(record, plain - before)?;
            before = plain;
            // It is only left where the session has nothing more to do.
            record = match self.waste.is_turn_over() {
                true => 0,
                false => first_record(records.get(known..).unwrap_or_default()),
            };
            if record == 0 && is_idle {
                break;
            }
            known += record;
        }
        let rest = records.get(used..).unwrap_or_default();
        let fresh = records.get(known..).unwrap_or_default();
        // Whole records that are left for the next turn are no part of one that is unfinished.
        let whole = match first_record(fresh) {
            0 => 0,
            _ => fresh.len(),
        };
        if rest.len() - whole > PARTIAL_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.fresh = count(fresh.len());
        if !self.partial.is_empty() || !rest.is_empty() {
            self.partial = rest.to_vec();
        }
        self.plain = overflow;
        self.plain_read = 0;
        Ok(copied)
    }

    /// One step of the session: how many bytes of the input are used up, and what is next.
    fn process(
        &mut self,
        input: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<(usize, Next)> {
        let Tls {
            session,
            cipher,
            is_finished,
            ..
        } = self;
        match session {
            Session::Server(session) => step(
                session.process_tls_records(input),
                take,
                cipher,
                is_finished,
            ),
            Session::Client(session) => step(
                session.process_tls_records(input),
                take,
                cipher,
                is_finished,
            ),
        }
    }

    fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> io::Result<usize> {
        if self.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        loop {
            let kept = unfinished(&mut self.partial, self.fresh);
            let sealed = match &mut self.session {
                Session::Server(session) => seal(
                    session.process_tls_records(kept),
                    plain,
                    out,
                    &mut self.cipher,
                ),
                Session::Client(session) => seal(
                    session.process_tls_records(kept),
                    plain,
                    out,
                    &mut self.cipher,
                ),
            };
            if let Some(length) = sealed? {
                return Ok(length);
            }
        }
    }

    fn close_notify(&mut self, out: &mut [u8]) -> usize {
        if self.is_broken {
            return 0;
        }
        let kept = unfinished(&mut self.partial, self.fresh);
        match &mut self.session {
            Session::Server(session) => close_notify(session.process_tls_records(kept), out),
            Session::Client(session) => close_notify(session.process_tls_records(kept), out),
        }
    }
}

/// A number of bytes, which are never that many.
fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Whether anything has arrived at a socket, as far as the kernel has told. Unlike a poll it leaves
/// no waker behind, which whoever waits there next would have to take the place of.
pub(super) fn may_have_input(tcp: &TcpStream) -> bool {
    tcp.try_io(Interest::READABLE, || Ok(())).is_ok()
}

#[cfg(test)]
mod tests;
