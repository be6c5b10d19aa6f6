//! Any stream of bytes, so that sessions run over TLS, plain TCP or a pipe in memory.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use myriad_base::newcomers::Newcomer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;
use tonic::transport::server::Connected;

/// How long a connection lives on whose streams have all ended: proxies open none after them.
const LINGER: Duration = Duration::from_secs(1);

/// A connection to the other end, authenticated or not.
pub struct Connection {
    stream: Pin<Box<dyn Bytes>>,
    /// Its place among all connections, given back at its end; none where nobody counts them.
    place: Option<OwnedSemaphorePermit>,
    guest: Guest,
    /// When it ends, while it has no stream.
    patience: Option<Patience>,
}

/// The end of a connection without a stream: by time, or for somebody who has fewer of them.
type Patience = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whether somebody on a connection has proved who they are.
#[derive(Clone, Default)]
pub struct Guest(Arc<Mutex<Stay>>);

#[derive(Default)]
struct Stay {
    /// Its streams.
    streams: usize,
    /// Its place among those who have proved nothing yet.
    visit: Option<Newcomer>,
    /// Wakes the connection once its last stream has ended.
    waker: Option<Waker>,
}

/// A stream of a connection, for as long as it lives.
pub(super) struct Stream(Guest);

/// A byte stream that a connection runs over.
trait Bytes: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Bytes for T {}

impl Connection {
    /// A connection over this stream.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Connection {
            stream: Box::pin(stream),
            place: None,
            guest: Guest::default(),
            patience: None,
        }
    }

    /// A connection that gives back its place among all connections at its end. Unless a proxy
    /// proves who it is within `patience`, that is then, or earlier for somebody from elsewhere.
    pub(super) fn in_place(
        self,
        place: OwnedSemaphorePermit,
        guest: Guest,
        patience: Duration,
    ) -> Self {
        let evicted = guest.evicted();
        Connection {
            stream: self.stream,
            place: Some(place),
            guest,
            patience: Some(Box::pin(async move {
                tokio::select! {
                    () = sleep(patience) => {}
                    () = evicted => {}
                }
            })),
        }
    }

    /// Ends the connection of somebody who has had time enough.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.place.is_none() {
            return Poll::Pending;
        }
        if self.guest.has_streams(context) {
            self.patience = None;
            return Poll::Pending;
        }
        // It begins anew with the end of the last one.
        let linger = || -> Patience { Box::pin(sleep(LINGER)) };
        let patience = self.patience.get_or_insert_with(linger);
        patience.as_mut().poll(context)
    }
}

impl Guest {
    /// Somebody who has a place among those who have proved nothing yet.
    pub(super) fn of(visit: Newcomer) -> Self {
        Guest(Arc::new(Mutex::new(Stay {
            visit: Some(visit),
            ..Stay::default()
        })))
    }

    /// They have proved who they are, and have a stream: the place is free for the next.
    pub(super) fn admit(&self) -> Stream {
        let mut stay = self.lock();
        stay.streams += 1;
        let visit = stay.visit.take();
        drop(stay);
        drop(visit);
        Stream(self.clone())
    }

    /// Whether there are streams; the connection is woken once there are none.
    fn has_streams(&self, context: &Context<'_>) -> bool {
        let mut stay = self.lock();
        let has_streams = stay.streams > 0;
        if has_streams {
            stay.waker = Some(context.waker().clone());
        }
        has_streams
    }

    /// Waits until the place is for somebody else; for ever for who has none.
    fn evicted(&self) -> impl Future<Output = ()> + Send + use<> {
        let evicted = self.lock().visit.as_ref().map(Newcomer::evicted);
        async move {
            match evicted {
                Some(evicted) => evicted.await,
                None => std::future::pending().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut stay = self.0.lock();
        stay.streams -= 1;
        let waker = match stay.streams {
            0 => stay.waker.take(),
            _ => None,
        };
        drop(stay);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Guest;

    fn connect_info(&self) -> Guest {
        self.guest.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.poll_patience(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
