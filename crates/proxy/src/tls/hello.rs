//! The first message of a handshake, read only as far as it takes to know the name it is for.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use rustls::server::{Acceptor, ClientHello};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::accept::HandshakeError;
use super::challenge;
use crate::codec::buffer::Buffer;

/// The protocols that peers of a mesh offer to speak behind a handshake, as Istio has it.
const MESH_PROTOCOLS: [&[u8]; 5] = [
    b"istio",
    b"istio-peer-exchange",
    b"istio-http/1.0",
    b"istio-http/1.1",
    b"istio-h2",
];

/// The alert `unrecognized_name` (RFC 6066, section 3), fatal, in a record of its own.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The header of a record (RFC 8446, section 5.1), and that of a message in it (section 4).
const RECORD_HEADER_BYTES: usize = 5;
const MESSAGE_HEADER_BYTES: usize = 4;

/// The type of a record with a part of the handshake, and of a message that is a ClientHello.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// A ClientHello.
pub struct Hello {
    /// The bytes, for going on with the handshake.
    pub received: Buffer,
    /// The name it is for, in lower case.
    pub sni: Option<Box<str>>,
    /// Whether it offers a protocol of a mesh, as nobody does who is not part of one.
    pub is_mesh: bool,
    /// Whether it offers nothing but the protocol of challenges (RFC 8737).
    pub is_challenge: bool,
}

/// The name that a ClientHello asks for, and whether it offers protocols of some use.
#[derive(Debug, PartialEq, Eq)]
pub struct HelloSummary {
    /// See [`Hello::sni`].
    pub sni: Option<Box<str>>,
    /// See [`Hello::is_mesh`].
    pub is_mesh: bool,
    /// See [`Hello::is_challenge`].
    pub is_challenge: bool,
}

/// A ClientHello that arrives in pieces.
#[derive(Default)]
pub struct Arriving(Acceptor);

/// The bytes are no ClientHello.
pub struct Refused {
    /// The error.
    pub error: HandshakeError,
    /// The alert that the client is owed.
    pub alert: Vec<u8>,
}

impl Arriving {
    /// Takes what has arrived; none while more has to come.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn take(&mut self, mut fresh: &[u8]) -> Result<Option<HelloSummary>, Refused> {
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

fn told(hello: &ClientHello<'_>) -> HelloSummary {
    let sni = hello.server_name().map(|name| {
        let name = name.strip_suffix('.').unwrap_or(name);
        name.to_ascii_lowercase().into()
    });
    let is_mesh = hello
        .alpn()
        .is_some_and(|mut offered| offered.any(|protocol| MESH_PROTOCOLS.contains(&protocol)));
    let is_challenge = hello
        .alpn()
        .is_some_and(|offered| offered.eq([challenge::PROTOCOL]));
    HelloSummary {
        sni,
        is_mesh,
        is_challenge,
    }
}

/// Looks for the end of a ClientHello without an eye for what it says, and without ever looking at
/// a record twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct HelloFinder {
    /// The offset of the next record.
    record: usize,
    /// The bytes of the message in the records before.
    found: usize,
    /// The length of the message with its own header, once that is known.
    wanted: Option<usize>,
}

impl HelloFinder {
    /// Whether the message is there as a whole, or is none, which is then for others to say.
    /// `bytes` are the same as before and more.
    pub fn is_whole(&mut self, bytes: &[u8]) -> bool {
        loop {
            let rest = bytes.get(self.record..).unwrap_or_default();
            let Some((header, body)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
                return rest.first().is_some_and(|kind| *kind != HANDSHAKE);
            };
            let [kind, _, _, high, low] = *header;
            let length = usize::from(u16::from_be_bytes([high, low]));
            if kind != HANDSHAKE || length == 0 {
                return true;
            }
            // A message whose own header comes in pieces is left to those who reassemble it.
            if self.found == 0 && self.wanted.is_none() {
                match *body {
                    [CLIENT_HELLO, ref rest @ ..] if length >= MESSAGE_HEADER_BYTES => {
                        if let [high, middle, low, ..] = *rest {
                            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
                            self.wanted = Some(length + MESSAGE_HEADER_BYTES);
                        }
                    }
                    [] => {}
                    _ => return true,
                }
            }
            if self
                .wanted
                .is_some_and(|wanted| self.found + length.min(body.len()) >= wanted)
            {
                return true;
            }
            if body.len() < length {
                return false;
            }
            self.found += length;
            self.record += RECORD_HEADER_BYTES + length;
        }
    }
}

/// Reads a ClientHello of which this has been read already.
///
/// # Errors
/// It is no ClientHello, is too long, or ends early.
pub async fn read(
    tcp: &mut TcpStream,
    mut received: Buffer,
    bytes_max: usize,
) -> Result<Hello, HandshakeError> {
    let mut arriving = Arriving::default();
    let mut before = 0;
    loop {
        if received.len() == before {
            received.reserve(1_024);
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
        }
        if received.len() > bytes_max {
            return Err(HandshakeError::TooLong);
        }
        let fresh = received.filled().get(before..).unwrap_or_default();
        before = received.len();
        match arriving.take(fresh) {
            Ok(Some(HelloSummary {
                sni,
                is_mesh,
                is_challenge,
            })) => {
                return Ok(Hello {
                    received,
                    sni,
                    is_mesh,
                    is_challenge,
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

/// Whether the client has closed its side already, so that no answer would reach it.
pub async fn is_gone(tcp: &TcpStream) -> bool {
    let mut byte = [0];
    poll_fn(|context| {
        let peeked = tcp.poll_peek(context, &mut ReadBuf::new(&mut byte));
        Poll::Ready(matches!(peeked, Poll::Ready(Ok(0) | Err(_))))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::HelloFinder;

    /// A message in records of these lengths.
    fn records(message: &[u8], lengths: &[usize]) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), message);
        for length in lengths {
            let (part, after) = rest.split_at(*length);
            bytes.extend([22, 3, 1, 0, *length as u8]);
            bytes.extend(part);
            rest = after;
        }
        bytes
    }

    fn message() -> Vec<u8> {
        [&[1, 0, 0, 40][..], &[7; 40]].concat()
    }

    #[test]
    fn a_hello_is_whole_with_its_last_byte_however_it_is_cut() {
        for lengths in [&[44][..], &[4, 40], &[30, 14], &[10, 1, 1, 32]] {
            let bytes = records(&message(), lengths);
            let mut finder = HelloFinder::default();
            let whole = (1..=bytes.len()).find(|end| finder.is_whole(&bytes[..*end]));
            assert_eq!(whole, Some(bytes.len()), "{lengths:?}");
            assert!(HelloFinder::default().is_whole(&bytes), "{lengths:?}");
        }
    }

    #[test]
    fn what_is_no_hello_is_left_to_others_at_once() {
        let cut = records(&message(), &[2, 42]);
        let other = records(&[&[2, 0, 0, 40][..], &[7; 40]].concat(), &[44]);
        for (bytes, end) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), 1),
            (vec![22, 3, 1, 0, 0], 5),
            (other, 6),
            (cut, 6),
        ] {
            let mut finder = HelloFinder::default();
            let whole = (1..=bytes.len()).find(|end| finder.is_whole(&bytes[..*end]));
            assert_eq!(whole, Some(end), "{bytes:?}");
        }
    }
}
