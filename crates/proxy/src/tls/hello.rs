//! The first message of a handshake, read only as far as it takes to know whom it is for.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use rustls::server::{Acceptor, ClientHello};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::accept::HandshakeError;
use crate::net::buffer::Buffer;

/// What peers of a mesh offer to speak behind a handshake, as Istio has it.
const MESH_PROTOCOLS: [&[u8]; 5] = [
    b"istio",
    b"istio-peer-exchange",
    b"istio-http/1.0",
    b"istio-http/1.1",
    b"istio-h2",
];

/// The alert `unrecognized_name` (RFC 6066, section 3), fatal, in a record of its own.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// A ClientHello.
pub struct Hello {
    /// The bytes, for whoever goes on with the handshake.
    pub received: Buffer,
    /// The name it is for, in lower case.
    pub sni: Option<Box<str>>,
    /// Whether it offers a protocol of a mesh, as nobody does who is not part of one.
    pub is_mesh: bool,
}

/// What a ClientHello says of whom it is for.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    /// See [`Hello::sni`].
    pub sni: Option<Box<str>>,
    /// See [`Hello::is_mesh`].
    pub is_mesh: bool,
}

/// A ClientHello that arrives in pieces.
#[derive(Default)]
pub struct Arriving(Acceptor);

/// What comes is no ClientHello.
pub struct Refused {
    /// Why.
    pub error: HandshakeError,
    /// The alert that the client is owed.
    pub alert: Vec<u8>,
}

impl Arriving {
    /// Takes what has arrived; none while more has to come.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn take(&mut self, mut fresh: &[u8]) -> Result<Option<Told>, Refused> {
        while !fresh.is_empty() {
            let read = self.0.read_tls(&mut fresh);
            read.map_err(|error| Refused {
                error: error.into(),
                alert: Vec::new(),
            })?;
            match self.0.accept() {
                Ok(Some(accepted)) => return Ok(Some(told(&accepted.client_hello()))),
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let mut bytes = Vec::new();
                    // Writing into memory cannot fail.
                    let _ = alert.write_all(&mut bytes);
                    return Err(Refused {
                        error: error.into(),
                        alert: bytes,
                    });
                }
            }
        }
        Ok(None)
    }
}

fn told(hello: &ClientHello<'_>) -> Told {
    let sni = hello.server_name().map(|name| {
        let name = name.strip_suffix('.').unwrap_or(name);
        name.to_ascii_lowercase().into()
    });
    let is_mesh = hello
        .alpn()
        .is_some_and(|mut offered| offered.any(|protocol| MESH_PROTOCOLS.contains(&protocol)));
    Told { sni, is_mesh }
}

/// Reads a ClientHello.
///
/// # Errors
/// What is not one, is too long, or ends early.
pub async fn read(tcp: &mut TcpStream, bytes_max: usize) -> Result<Hello, HandshakeError> {
    let mut arriving = Arriving::default();
    let mut received = Buffer::take();
    loop {
        received.reserve(1_024);
        let before = received.len();
        let count = poll_fn(|context| {
            let mut into = ReadBuf::new(received.spare());
            let polled = Pin::new(&mut *tcp).poll_read(context, &mut into);
            polled.map_ok(|()| into.filled().len())
        })
        .await?;
        if count == 0 {
            return Err(HandshakeError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        received.advance(count);
        if received.len() > bytes_max {
            return Err(HandshakeError::TooLong);
        }
        let fresh = received.filled().get(before..).unwrap_or_default();
        match arriving.take(fresh) {
            Ok(Some(Told { sni, is_mesh })) => {
                return Ok(Hello {
                    received,
                    sni,
                    is_mesh,
                });
            }
            Ok(None) => {}
            Err(Refused { error, alert }) => {
                tcp.write_all(&alert).await?;
                return Err(error);
            }
        }
    }
}

/// Tells the client that nobody here has the name.
pub async fn refuse_name(tcp: &mut TcpStream) {
    // A client that is gone need not be told.
    let _ = tcp.write_all(&UNRECOGNIZED_NAME).await;
    let _ = tcp.shutdown().await;
}
