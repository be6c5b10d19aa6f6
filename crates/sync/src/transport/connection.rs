//! Any stream of bytes, so that sessions run over TLS, plain TCP or a pipe in memory.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// A connection to the other end, authenticated or not.
pub struct Connection {
    stream: Pin<Box<dyn Bytes>>,
    /// Its place among all connections, given back at its end.
    _place: Option<OwnedSemaphorePermit>,
    guest: Guest,
    /// When it ends, if nobody on it has proved who they are.
    patience: Option<Pin<Box<Sleep>>>,
}

/// Whether somebody on a connection has proved who they are.
#[derive(Clone, Default)]
pub struct Guest(Arc<Mutex<Stay>>);

#[derive(Default)]
struct Stay {
    is_admitted: bool,
    /// Its place among those who have proved nothing yet.
    place: Option<OwnedSemaphorePermit>,
}

/// A byte stream that a connection runs over.
trait Bytes: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Bytes for T {}

impl Connection {
    /// A connection over this stream.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        Connection {
            stream: Box::pin(stream),
            _place: None,
            guest: Guest::default(),
            patience: None,
        }
    }

    /// A connection that gives back its place among all connections at its end. Unless a proxy
    /// proves who it is within `patience`, that is then.
    pub(super) fn in_place(
        self,
        place: OwnedSemaphorePermit,
        guest: Guest,
        patience: Duration,
    ) -> Self {
        Connection {
            stream: self.stream,
            _place: Some(place),
            guest,
            patience: Some(Box::pin(sleep(patience))),
        }
    }

    /// Ends the connection of somebody who has had time enough.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(patience) = &mut self.patience else {
            return Poll::Pending;
        };
        if self.guest.is_admitted() {
            self.patience = None;
            return Poll::Pending;
        }
        ready!(patience.as_mut().poll(context));
        // It may have been admitted since it last read.
        Poll::Ready(())
    }
}

impl Guest {
    /// Somebody who holds a place among those who have proved nothing yet.
    pub(super) fn in_place(place: OwnedSemaphorePermit) -> Self {
        Guest(Arc::new(Mutex::new(Stay {
            is_admitted: false,
            place: Some(place),
        })))
    }

    /// They have proved who they are: the place is free for the next.
    pub(super) fn admit(&self) {
        let mut stay = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stay.is_admitted = true;
        stay.place = None;
    }

    fn is_admitted(&self) -> bool {
        let stay = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stay.is_admitted
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
