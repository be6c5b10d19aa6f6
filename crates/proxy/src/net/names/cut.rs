//! Messages of servers, cut short before they are unpacked.
//!
//! A server may say 64 KiB at once, thousands of records with names of a hundred labels each, and
//! whoever unpacks them holds up the questions of all. Few of them are ever used, so that the rest
//! is left out where bytes come in: a record is passed over by its length, and what a name refers
//! to is not looked at.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{
    DnsUdpSocket, RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use myriad_base::metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};

use super::ADDRESSES_MAX;

/// The most records of a message that are unpacked: the addresses that are used, and a few others
/// that lead to them.
pub(super) const RECORDS_MAX: usize = ADDRESSES_MAX + 16;

/// The most bytes of a message that are read. What comes behind them is dropped.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The bytes of a message before its sections (RFC 1035, section 4.1.1).
const HEAD_BYTES: usize = 12;

/// The bytes that say how long a message is over TCP.
const LENGTH_BYTES: usize = 2;

/// The bytes that are read from a connection at a time.
const CHUNK_BYTES: usize = 2 << 10;

/// The code of a server that has failed.
const SERVER_FAILURE: u8 = 2;

/// A socket that is being opened.
type Opening<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// Sockets of which messages come cut short.
#[derive(Clone)]
pub(super) struct CuttingRuntime {
    inner: TokioRuntimeProvider,
    /// The messages that were longer than what is used of them.
    cuts: Counter,
}

/// A socket for one question.
pub(super) struct CutSocket {
    socket: UdpSocket,
    cuts: Counter,
}

/// A connection to a server.
pub(super) struct CutStream<T> {
    stream: T,
    cuts: Counter,
    /// The length of a message, and as many of its bytes as are used.
    inbox: Vec<u8>,
    /// The bytes of the message that were dropped.
    dropped: usize,
    /// The part of the inbox that is yet to be handed on; none as long as the message comes in.
    outbox: Range<usize>,
}

impl CuttingRuntime {
    /// Sockets on the runtime of the thread, which count what they cut.
    pub(super) fn new(cuts: Counter) -> Self {
        CuttingRuntime {
            inner: TokioRuntimeProvider::default(),
            cuts,
        }
    }
}

impl RuntimeProvider for CuttingRuntime {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = CutSocket;
    type Tcp = AsyncIoTokioAsStd<CutStream<TcpStream>>;

    fn create_handle(&self) -> Self::Handle {
        self.inner.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        own: Option<SocketAddr>,
        wait_for: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let connecting = self.inner.connect_tcp(server, own, wait_for);
        let cuts = self.cuts.clone();
        Box::pin(async move {
            let AsyncIoTokioAsStd(stream) = connecting.await?;
            Ok(AsyncIoTokioAsStd(CutStream::new(stream, cuts)))
        })
    }

    fn bind_udp(&self, own: SocketAddr, server: SocketAddr) -> Opening<Self::Udp> {
        let binding = self.inner.bind_udp(own, server);
        let cuts = self.cuts.clone();
        Box::pin(async move {
            let socket = binding.await?;
            Ok(CutSocket { socket, cuts })
        })
    }
}

impl DnsUdpSocket for CutSocket {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let received = DnsUdpSocket::poll_recv_from(&self.socket, context, buffer);
        let (length, from) = ready!(received)?;
        let kept = buffer.get_mut(..length).map_or(length, cut);
        if kept < length {
            self.cuts.inc();
        }
        Poll::Ready(Ok((kept, from)))
    }

    fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        server: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        DnsUdpSocket::poll_send_to(&self.socket, context, bytes, server)
    }
}

impl<T> CutStream<T> {
    fn new(stream: T, cuts: Counter) -> Self {
        CutStream {
            stream,
            cuts,
            inbox: Vec::new(),
            dropped: 0,
            outbox: 0..0,
        }
    }

    /// How many bytes of a message that are kept are yet to come, and how many behind them that are
    /// dropped.
    fn missing(&self) -> (usize, usize) {
        let Some(length) = number(&self.inbox, 0) else {
            return (LENGTH_BYTES.saturating_sub(self.inbox.len()), 0);
        };
        let kept = length.min(MESSAGE_BYTES_MAX);
        let excess = length - kept;
        (
            (LENGTH_BYTES + kept).saturating_sub(self.inbox.len()),
            excess.saturating_sub(self.dropped),
        )
    }

    /// Cuts the message that has come, and hands it on from now on.
    fn finish(&mut self) {
        let come = (self.inbox.len() + self.dropped).saturating_sub(LENGTH_BYTES);
        let kept = self.inbox.get_mut(LENGTH_BYTES..).map_or(0, cut);
        if kept < come {
            self.cuts.inc();
        }
        self.inbox.truncate(LENGTH_BYTES + kept);
        let length = u16::try_from(kept).unwrap_or(u16::MAX);
        if let Some(written) = self.inbox.first_chunk_mut() {
            *written = length.to_be_bytes();
        }
        self.dropped = 0;
        self.outbox = 0..self.inbox.len();
    }

    /// Hands on what fits.
    fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) {
        let end = self.outbox.end.min(self.outbox.start + buffer.remaining());
        if let Some(bytes) = self.inbox.get(self.outbox.start..end) {
            buffer.put_slice(bytes);
        }
        self.outbox.start = end;
        if self.outbox.is_empty() {
            self.inbox.clear();
        }
    }
}

impl<T: AsyncRead + Unpin> CutStream<T> {
    /// Reads until a message has come; false where the connection has ended.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            let (missing, excess) = self.missing();
            let wanted = match (missing, excess) {
                (0, 0) => {
                    self.finish();
                    return Poll::Ready(Ok(true));
                }
                (0, excess) => excess,
                (missing, _) => missing,
            };
            let room = chunk.get_mut(..wanted.min(CHUNK_BYTES));
            let mut read = ReadBuf::new(room.unwrap_or_default());
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            match read.filled() {
                [] => return Poll::Ready(Ok(false)),
                bytes if missing > 0 => self.inbox.extend_from_slice(bytes),
                bytes => self.dropped += bytes.len(),
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CutStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !stream.outbox.is_empty() || ready!(stream.poll_message(context))? {
            stream.hand_on(buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CutStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Cuts a message, of which the first bytes are here, behind the last record that is used, and
/// tells its length from then on. Of what is no message the head alone is left, as one of a server
/// that has failed.
fn cut(message: &mut [u8]) -> usize {
    let Some(head) = message.first_chunk::<HEAD_BYTES>().copied() else {
        return message.len();
    };
    let (end, head) = match kept(message) {
        Some((end, counts)) => (end, with_counts(head, counts)),
        None => (HEAD_BYTES, of_failure(head)),
    };
    if let Some(written) = message.first_chunk_mut() {
        *written = head;
    }
    end
}

/// Where the part of a message ends that is used, and how many records of each section are in it;
/// none where it has several questions, or ends within one.
fn kept(message: &[u8]) -> Option<(usize, [u16; 3])> {
    let mut end = match number(message, 4)? {
        0 => HEAD_BYTES,
        1 => name_end(message, HEAD_BYTES)? + 4,
        _ => return None,
    };
    if end > message.len() {
        return None;
    }
    let mut counts = [0; 3];
    let mut room = RECORDS_MAX;
    'sections: for (count, at) in counts.iter_mut().zip([6, 8, 10]) {
        for _ in 0..number(message, at)? {
            let next = record_end(message, end).filter(|_| room > 0);
            let Some(next) = next else {
                break 'sections;
            };
            (end, room) = (next, room - 1);
            *count += 1;
        }
    }
    Some((end, counts))
}

/// The head of a message with as many questions as before, and so many records.
fn with_counts(head: [u8; HEAD_BYTES], counts: [u16; 3]) -> [u8; HEAD_BYTES] {
    let [id_high, id_low, flags, code, high, low, ..] = head;
    let [[a, b], [c, d], [e, f]] = counts.map(u16::to_be_bytes);
    [id_high, id_low, flags, code, high, low, a, b, c, d, e, f]
}

/// The head of an answer without anything in it.
fn of_failure(head: [u8; HEAD_BYTES]) -> [u8; HEAD_BYTES] {
    let [id_high, id_low, flags, code, ..] = head;
    let code = (code & 0xf0) | SERVER_FAILURE;
    [id_high, id_low, flags, code, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Where a record ends that begins there; none where that is behind the end.
fn record_end(message: &[u8], start: usize) -> Option<usize> {
    // A type, a class and a time are between the name and the length of the data.
    let length = name_end(message, start)? + 8;
    let end = length + 2 + number(message, length)?;
    (end <= message.len()).then_some(end)
}

/// Where a name ends that begins there: behind its last label, or behind what refers to the rest.
fn name_end(message: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=0x3f => at += 1 + usize::from(length),
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// The number of two bytes at a place.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*number).into())
}

#[cfg(test)]
mod tests;
