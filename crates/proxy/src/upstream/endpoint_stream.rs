//! The bytes of a connection to an endpoint, and how it ends.
//!
//! The side that closes first keeps the pair of addresses and ports for a minute, as the kernel has
//! it, and there are only so many ports. So a connection that is given up is reset: that keeps
//! nothing, and the endpoint learns that nobody waits for it any more. Only one on which all has
//! been said that was to be said is closed as usual.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::net::stream::Stream;

/// A byte stream to an endpoint, which is reset when it is dropped, unless it has come to its end.
pub struct EndpointStream {
    stream: Stream,
    is_over: bool,
}

impl EndpointStream {
    /// A stream over a socket that is reset when it is dropped, on which something is to be said.
    pub fn new(stream: Stream) -> Self {
        EndpointStream {
            stream,
            is_over: false,
        }
    }

    /// All has been said, and the stream may end as usual.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// There is more to say.
    pub fn go_on(&mut self) {
        self.is_over = false;
    }
}

/// Has a socket reset when it is dropped.
pub(super) fn reset_when_dropped(tcp: &TcpStream) {
    set_linger(tcp, Some(Duration::ZERO));
}

fn set_linger(tcp: &TcpStream, time: Option<Duration>) {
    // With an error it ends as it would have without.
    let _ = SockRef::from(tcp).set_linger(time);
}

impl Deref for EndpointStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl DerefMut for EndpointStream {
    fn deref_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }
}

impl Drop for EndpointStream {
    fn drop(&mut self) {
        if self.is_over {
            set_linger(self.stream.tcp(), None);
        }
    }
}
