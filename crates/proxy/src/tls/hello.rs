//! The first message of a handshake, read only as far as it takes to know the name it is for.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use rustls::server::{Acceptor, ClientHello};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
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

/// The alert `unexpected_message` (RFC 8446, section 6.2), in the same way.
const UNEXPECTED_MESSAGE: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

/// The header of a record (RFC 8446, section 5.1), and that of a message in it (section 4).
const RECORD_HEADER_BYTES: usize = 5;
const MESSAGE_HEADER_BYTES: usize = 4;

/// The version of a record, of which the second byte may be any (RFC 8446, section 5.1).
const VERSION_MAJOR: u8 = 3;

/// The lengths of a record and of a message from which on rustls takes none.
const RECORD_LENGTH_END: usize = 18 << 10;
const MESSAGE_LENGTH_END: usize = 64 << 10;

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
    /// The header of the message, as far as it is in the records before.
    header: [u8; MESSAGE_HEADER_BYTES],
}

/// These bytes will never be a ClientHello, whatever comes behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHello;

impl HelloFinder {
    /// Whether the message is there as a whole, and so is the record that it ends in: nobody who
    /// reads it has to wait for more. `bytes` are the same as before and more.
    ///
    /// # Errors
    /// See [`NoHello`].
    pub fn find(&mut self, bytes: &[u8]) -> Result<bool, NoHello> {
        loop {
            let rest = bytes.get(self.record..).unwrap_or_default();
            // As much of it as is there is looked at, for there may be no more.
            let mut start = rest.iter().zip([HANDSHAKE, VERSION_MAJOR]);
            if start.any(|(is, due)| *is != due) {
                return Err(NoHello);
            }
            let Some((header, body)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
                return Ok(false);
            };
            let [_, _, _, high, low] = *header;
            let length = usize::from(u16::from_be_bytes([high, low]));
            if length == 0 || length >= RECORD_LENGTH_END {
                return Err(NoHello);
            }
            let part = body.get(..length).unwrap_or(body);
            let wanted = self.wanted(part)?;
            if body.len() < length {
                return Ok(false);
            }
            let place = self.header.iter_mut().skip(self.found);
            place.zip(part).for_each(|(to, from)| *to = *from);
            self.found += length;
            self.record += RECORD_HEADER_BYTES + length;
            if wanted.is_some_and(|wanted| self.found >= wanted) {
                return Ok(true);
            }
        }
    }

    /// The length of the message with its header, once that is there, with this part of the record
    /// behind those before.
    fn wanted(&self, part: &[u8]) -> Result<Option<usize>, NoHello> {
        let mut header = self.header;
        let place = header.iter_mut().skip(self.found);
        place.zip(part).for_each(|(to, from)| *to = *from);
        let there = self.found + part.len();
        let [kind, high, middle, low] = header;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        match there {
            0 => Ok(None),
            _ if kind != CLIENT_HELLO => Err(NoHello),
            1..MESSAGE_HEADER_BYTES => Ok(None),
            _ if length >= MESSAGE_LENGTH_END => Err(NoHello),
            _ => Ok(Some(length + MESSAGE_HEADER_BYTES)),
        }
    }
}

/// Tells a client that this is no ClientHello, as far as the socket takes it at once.
pub fn refuse(tcp: &TcpStream) {
    // A client that is gone need not be told.
    let _ = tcp.try_write(&UNEXPECTED_MESSAGE);
}

/// Reads a ClientHello of which this has been read already, from a socket or from within TLS.
///
/// # Errors
/// It is no ClientHello, is too long, or ends early.
pub async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
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
                let polled = Pin::new(&mut *stream).poll_read(context, &mut into);
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
                stream.write_all(&alert).await?;
                stream.flush().await?;
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
    use super::{HelloFinder, NoHello};

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

    /// How many of these bytes have to come until there is an answer, and the answer.
    fn found(bytes: &[u8]) -> Option<(usize, Result<(), NoHello>)> {
        let mut finder = HelloFinder::default();
        let answer = (1..=bytes.len()).find_map(|end| match finder.find(&bytes[..end]) {
            Ok(false) => None,
            answer => Some((end, answer.map(|_| ()))),
        });
        // All at once is no different.
        let at_once = HelloFinder::default().find(bytes);
        let expected = match answer {
            None => Ok(false),
            Some((_, answer)) => answer.map(|()| true),
        };
        assert_eq!(at_once, expected, "{bytes:?}");
        answer
    }

    #[test]
    fn a_hello_is_whole_with_its_last_byte_however_it_is_cut() {
        for lengths in [
            &[44][..],
            &[4, 40],
            &[2, 42],
            &[1, 1, 1, 1, 40],
            &[3, 41],
            &[30, 14],
            &[10, 1, 1, 32],
        ] {
            let bytes = records(&message(), lengths);
            assert_eq!(found(&bytes), Some((bytes.len(), Ok(()))), "{lengths:?}");
        }
    }

    /// The one that reads it waits for the whole record, and is not to wait.
    #[test]
    fn a_hello_in_a_record_that_is_longer_is_whole_with_the_record() {
        let bytes = records(&[&message()[..], &[9; 6]].concat(), &[50]);
        assert_eq!(found(&bytes), Some((bytes.len(), Ok(()))));
        assert_eq!(found(&[22, 3, 1, 0x40, 0, 1, 0, 0, 0]), None);
    }

    #[test]
    fn what_will_be_no_hello_is_told_as_soon_as_it_is_there() {
        let cut = records(&[&[1, 1, 0, 0][..], &[7; 40]].concat(), &[2, 42]);
        let other = records(&[&[2, 0, 0, 40][..], &[7; 40]].concat(), &[44]);
        for (bytes, end) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), 1),
            (vec![23, 3, 3, 0x40, 0], 1),
            (vec![22, 2, 0, 0, 1], 2),
            (vec![22, 3, 1, 0, 0], 5),
            (vec![22, 3, 1, 0x48, 0], 5),
            (vec![22, 3, 1, 0x40, 0, 2], 6),
            (vec![22, 3, 1, 0, 1, 1, 21], 7),
            (other, 6),
            // The length is in the second record.
            (cut, 14),
        ] {
            assert_eq!(found(&bytes), Some((end, Err(NoHello))), "{bytes:?}");
        }
    }

    #[test]
    fn what_may_become_a_hello_is_waited_for() {
        for bytes in [
            &[22, 3, 1, 0, 2, 1, 0][..],
            &[22, 3, 1, 0, 1, 1],
            &[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff],
        ] {
            assert_eq!(found(bytes), None, "{bytes:?}");
        }
    }
}
