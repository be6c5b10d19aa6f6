//! The protocol of a connection, by its first bytes, which stay where they are.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

/// The most bytes that are looked at. A request line that is longer is known by its beginning.
pub const BYTES_MAX: usize = 1_024;

/// How an HTTP/2 connection begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest method that is taken for one.
const METHOD_BYTES_MAX: usize = 24;

/// The wait before what is too short to tell is looked at again: at first, and at most.
const WAITS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// A ClientHello comes first.
    Tls,
    /// Requests of HTTP/1.
    Http1,
    /// HTTP/2 by prior knowledge.
    Http2,
    /// Anything else, or nothing yet: the server may be the one who speaks first.
    Bytes,
}

/// The protocols that a connection may speak, before it has said anything.
#[derive(Clone, Copy, Debug)]
pub struct KnownProtocols {
    /// Whether a ClientHello would be told from what else is expected.
    pub may_be_tls: bool,
    /// The protocols that are possible beside TLS.
    pub expected: Expected,
}

/// The protocols that a connection may speak beside TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// HTTP of either version.
    Http,
    /// Anything.
    Bytes,
    /// HTTP of either version, or anything else.
    HttpOrBytes,
}

/// Looks at the first bytes, for so long at most. What says nothing until then is what it was
/// expected to be, and bytes where it may be.
///
/// # Errors
/// The errors of the socket.
pub async fn detect(
    tcp: &TcpStream,
    known: KnownProtocols,
    timeout: Duration,
) -> io::Result<Speech> {
    let looked = tokio::time::timeout(timeout, look(tcp, known)).await;
    looked.unwrap_or(Ok(known.silent()))
}

async fn look(tcp: &TcpStream, known: KnownProtocols) -> io::Result<Speech> {
    let [mut wait, wait_max] = WAITS;
    loop {
        // No memory is taken for who says nothing.
        let judged = poll_fn(|context| {
            let mut room = [0; BYTES_MAX];
            let mut into = ReadBuf::new(&mut room);
            let peeked = ready!(tcp.poll_peek(context, &mut into));
            let bytes = into.filled();
            let silent = bytes.is_empty().then(|| known.silent());
            Poll::Ready(peeked.map(|_| known.judge(bytes).or(silent)))
        });
        if let Some(speech) = judged.await? {
            return Ok(speech);
        }
        // The socket stays readable, so it cannot say that there is more.
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(wait_max);
    }
}

impl KnownProtocols {
    fn silent(self) -> Speech {
        match self.expected {
            Expected::Http => Speech::Http1,
            Expected::Bytes | Expected::HttpOrBytes => Speech::Bytes,
        }
    }

    /// The protocol that these first bytes begin; `None` where more are needed to tell.
    pub fn judge(self, bytes: &[u8]) -> Option<Speech> {
        let first = *bytes.first()?;
        // A record of a handshake (RFC 8446, section 5.1).
        if self.may_be_tls && first == 22 {
            match bytes.get(1) {
                None => return None,
                Some(3) => return Some(Speech::Tls),
                Some(_) => {}
            }
        }
        if self.expected == Expected::Bytes {
            return Some(Speech::Bytes);
        }
        if bytes.starts_with(PREFACE) {
            return Some(Speech::Http2);
        }
        if PREFACE.starts_with(bytes) {
            return None;
        }
        match self.expected {
            Expected::Http => Some(Speech::Http1),
            _ => judge_line(bytes),
        }
    }
}

/// Judges a request line (RFC 9112, section 3); `None` where more bytes are needed to tell.
fn judge_line(bytes: &[u8]) -> Option<Speech> {
    let is_token = |byte: &&u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
    let method = bytes.iter().take_while(is_token).count();
    if method == 0 || method > METHOD_BYTES_MAX {
        return Some(Speech::Bytes);
    }
    let rest = bytes.get(method..).unwrap_or_default();
    match rest.first() {
        None => return None,
        Some(b' ') => {}
        Some(_) => return Some(Speech::Bytes),
    }
    let Some(end) = memchr::memchr(b'\n', rest) else {
        // So long a target is none of any other protocol's commands.
        let is_long = bytes.len() >= BYTES_MAX;
        return is_long.then_some(match rest.get(1) {
            Some(b'/' | b'h') => Speech::Http1,
            _ => Speech::Bytes,
        });
    };
    let line = rest.get(..end).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_http = line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0");
    Some(match is_http {
        true => Speech::Http1,
        false => Speech::Bytes,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::{BYTES_MAX, Expected, KnownProtocols, PREFACE, Speech, detect};

    const ANY: KnownProtocols = KnownProtocols {
        may_be_tls: true,
        expected: Expected::HttpOrBytes,
    };

    #[test]
    fn first_bytes_tell_what_is_spoken_as_soon_as_they_can() {
        let long = [b"GET /", &*vec![b'a'; BYTES_MAX]].concat();
        let other = [b"SET a", &*vec![b'a'; BYTES_MAX]].concat();
        for (bytes, speech) in [
            (&b"\x16\x03\x01\x02\x00\x01"[..], Some(Speech::Tls)),
            (b"\x16", None),
            (b"\x16\x04", Some(Speech::Bytes)),
            (b"", None),
            (b"P", None),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", None),
            (PREFACE, Some(Speech::Http2)),
            (b"GET / HTTP/1.1\r\n", Some(Speech::Http1)),
            (b"PROPFIND /a HTTP/1.0\n", Some(Speech::Http1)),
            (b"GET / HTTP/1.1", None),
            (b"GE", None),
            (b"GET key\r\n", Some(Speech::Bytes)),
            (b"get key\r\n", Some(Speech::Bytes)),
            (b"PING\r\n", Some(Speech::Bytes)),
            (b"SSH-2.0-OpenSSH\r\n", Some(Speech::Bytes)),
            (b"\0\x01", Some(Speech::Bytes)),
            (&long, Some(Speech::Http1)),
            (&other, Some(Speech::Bytes)),
        ] {
            assert_eq!(ANY.judge(bytes), speech, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_declared_needs_no_more_than_it_has_to() {
        let judge = |may_be_tls, expected, bytes: &[u8]| {
            let known = KnownProtocols {
                may_be_tls,
                expected,
            };
            known.judge(bytes)
        };
        assert_eq!(judge(true, Expected::Http, b"G"), Some(Speech::Http1));
        assert_eq!(judge(true, Expected::Http, b"P"), None);
        assert_eq!(judge(true, Expected::Http, PREFACE), Some(Speech::Http2));
        let tls = b"\x16\x03";
        assert_eq!(judge(false, Expected::Http, tls), Some(Speech::Http1));
        assert_eq!(judge(true, Expected::Bytes, b"GET"), Some(Speech::Bytes));
        assert_eq!(judge(true, Expected::Bytes, tls), Some(Speech::Tls));
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn bytes_that_come_one_by_one_are_waited_for_and_stay() {
        let (mut client, mut server) = pair().await;
        let text = b"GET / HTTP/1.1\r\n\r\n";
        let sending = async {
            for byte in text {
                client.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let patience = Duration::from_secs(10);
        let (speech, ()) = tokio::join!(detect(&server, ANY, patience), sending);
        assert_eq!(speech.unwrap(), Speech::Http1);
        let mut all = vec![0; text.len()];
        server.read_exact(&mut all).await.unwrap();
        assert_eq!(all, text);
    }

    #[tokio::test]
    async fn a_client_that_waits_for_the_server_speaks_bytes() {
        let (mut client, server) = pair().await;
        let short = Duration::from_millis(20);
        assert_eq!(detect(&server, ANY, short).await.unwrap(), Speech::Bytes);
        client.write_all(b"GET").await.unwrap();
        assert_eq!(detect(&server, ANY, short).await.unwrap(), Speech::Bytes);
        drop(client);
        let patience = Duration::from_millis(100);
        let speech = detect(&server, ANY, patience).await.unwrap();
        assert_eq!(speech, Speech::Bytes);
    }
}
