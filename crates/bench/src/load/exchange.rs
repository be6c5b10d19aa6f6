//! Requests and responses of HTTP/1.1 on one connection, whatever the response: its status and its
//! size are what counts.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::destination::Destination;
use super::{Failure, Trouble};

/// The longest head of a response, and the most of a body that is read at once.
const BUFFER_BYTES: usize = 16 << 10;

/// The most header fields of a response.
const FIELDS_MAX: usize = 128;

/// A connection, with or without TLS.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A connection that takes one request after the other.
pub(crate) struct Exchange {
    stream: Box<dyn Duplex>,
    buffer: Vec<u8>,
    /// The part of the buffer that has come and was not read yet.
    start: usize,
    end: usize,
}

/// A response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub status: u16,
    pub head_bytes: u64,
    /// Bytes of the body, without its framing.
    pub body_bytes: u64,
    /// Whether the connection takes no further request.
    pub is_last: bool,
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(u64),
    Chunks,
    /// As long as the connection lasts.
    UntilEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    bytes: usize,
    length: Length,
    is_last: bool,
}

impl Exchange {
    /// Connects by TCP, and by TLS where the destination has it.
    pub(crate) async fn connect(
        destination: &Destination,
        timeout: Duration,
    ) -> Result<Exchange, Failure> {
        let socket = within(timeout, Trouble::Connect, async {
            let socket = TcpStream::connect(destination.address).await;
            let socket = socket.map_err(|error| (Trouble::Connect, error.to_string()))?;
            let set = socket.set_nodelay(true);
            set.map_err(|error| (Trouble::Connect, error.to_string()))?;
            Ok(socket)
        })
        .await?;
        let Some((config, name)) = &destination.tls else {
            return Ok(Exchange::over(socket));
        };
        let connector = TlsConnector::from(config.clone());
        let handshake = within(timeout, Trouble::Handshake, async {
            let session = connector.connect(name.clone(), socket).await;
            session.map_err(|error| (Trouble::Handshake, error.to_string()))
        });
        Ok(Exchange::over(handshake.await?))
    }

    fn over(stream: impl Duplex + 'static) -> Exchange {
        Exchange {
            stream: Box::new(stream),
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
        }
    }

    /// Sends a request, and reads the response to its end.
    pub(crate) async fn ask(
        &mut self,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Response, Failure> {
        within(timeout, Trouble::Connection, async {
            let sent = self.stream.write_all(request).await;
            sent.map_err(breaking)?;
            self.stream.flush().await.map_err(breaking)?;
            self.response().await
        })
        .await
    }

    async fn response(&mut self) -> Result<Response, Failure> {
        loop {
            let head = self.head().await?;
            // Something comes before the response.
            if (100..200).contains(&head.status) && head.status != 101 {
                continue;
            }
            let body_bytes = match head.length {
                Length::Bytes(bytes) => self.skip(bytes).await.map(|()| bytes)?,
                Length::Chunks => self.chunks().await?,
                Length::UntilEnd => self.rest().await?,
            };
            return Ok(Response {
                status: head.status,
                head_bytes: head.bytes as u64,
                body_bytes,
                is_last: head.is_last || head.length == Length::UntilEnd,
            });
        }
    }

    async fn head(&mut self) -> Result<Head, Failure> {
        loop {
            if let Some(head) = parse(&self.buffer[self.start..self.end])? {
                self.start += head.bytes;
                return Ok(head);
            }
            self.fill_or_fail().await?;
        }
    }

    /// Passes over so many bytes.
    async fn skip(&mut self, bytes: u64) -> Result<(), Failure> {
        let mut left = bytes;
        loop {
            let there = self.end - self.start;
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(there);
            self.start += taken;
            left -= taken as u64;
            if left == 0 {
                return Ok(());
            }
            self.fill_or_fail().await?;
        }
    }

    /// Passes over all chunks of a body, and says how long it was.
    async fn chunks(&mut self) -> Result<u64, Failure> {
        let mut total = 0;
        loop {
            let (from, to) = self.line().await?;
            let size = chunk_bytes(&self.buffer[from..to])?;
            if size == 0 {
                break;
            }
            self.skip(size).await?;
            total += size;
            self.line().await?;
        }
        // Trailers, up to the empty line.
        loop {
            let (from, to) = self.line().await?;
            if from == to {
                return Ok(total);
            }
        }
    }

    /// Passes over all that comes until the end of the connection.
    async fn rest(&mut self) -> Result<u64, Failure> {
        let mut total = 0;
        loop {
            total += (self.end - self.start) as u64;
            self.start = self.end;
            if self.fill().await? == 0 {
                return Ok(total);
            }
        }
    }

    /// Takes a line out of the buffer: where it is, without its end.
    async fn line(&mut self) -> Result<(usize, usize), Failure> {
        loop {
            let there = &self.buffer[self.start..self.end];
            if let Some(length) = memchr::memchr(b'\n', there) {
                let from = self.start;
                let line = there[..length].trim_ascii_end().len();
                self.start += length + 1;
                return Ok((from, from + line));
            }
            self.fill_or_fail().await?;
        }
    }

    async fn fill_or_fail(&mut self) -> Result<(), Failure> {
        match self.fill().await? {
            0 => Err((Trouble::Connection, "it ended in a response".to_owned())),
            _ => Ok(()),
        }
    }

    /// Reads more behind what is there; 0 at the end.
    async fn fill(&mut self) -> Result<usize, Failure> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let space = &mut self.buffer[self.end..];
        if space.is_empty() {
            let text = "the head of the response is too long".to_owned();
            return Err((Trouble::Answer, text));
        }
        let read = self.stream.read(space).await.map_err(breaking)?;
        self.end += read;
        Ok(read)
    }
}

/// The head that these bytes begin with, if all of it is there.
fn parse(bytes: &[u8]) -> Result<Option<Head>, Failure> {
    let wrong = |text: String| (Trouble::Answer, text);
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(bytes);
    let parsed = parsed.map_err(|error| wrong(error.to_string()))?;
    let httparse::Status::Complete(head_bytes) = parsed else {
        return Ok(None);
    };
    let status = response.code.unwrap_or_default();
    let mut is_last = response.version == Some(0);
    let (mut length, mut is_chunked) = (Length::UntilEnd, false);
    for field in response.headers.iter() {
        let value = field.value.trim_ascii();
        if field.name.eq_ignore_ascii_case("content-length") {
            let bytes = std::str::from_utf8(value).ok();
            let bytes = bytes.and_then(|text| text.parse().ok());
            let bytes = bytes.ok_or_else(|| wrong("a length that is none".to_owned()))?;
            length = Length::Bytes(bytes);
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if field.name.eq_ignore_ascii_case("connection") {
            is_last |= value.eq_ignore_ascii_case(b"close");
        }
    }
    if is_chunked {
        length = Length::Chunks;
    }
    if status < 200 || matches!(status, 204 | 304) {
        length = Length::Bytes(0);
    }
    Ok(Some(Head {
        status,
        bytes: head_bytes,
        length,
        is_last,
    }))
}

fn chunk_bytes(line: &[u8]) -> Result<u64, Failure> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or(line);
    let digits = std::str::from_utf8(digits.trim_ascii()).ok();
    let size = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    size.ok_or_else(|| (Trouble::Answer, "a chunk without a size".to_owned()))
}

fn breaking(error: std::io::Error) -> Failure {
    (Trouble::Connection, error.to_string())
}

async fn within<T>(
    timeout: Duration,
    late: Trouble,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(timeout, work).await {
        Ok(done) => done,
        Err(_) => Err((late, format!("nothing for {timeout:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Answers one request with these bytes, in parts of this length, and ends.
    async fn ask(answer: &[u8], part_bytes: usize) -> Result<Response, Failure> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let mut exchange = Exchange::over(near);
        let server = async move {
            let mut request = [0; 7];
            far.read_exact(&mut request).await.unwrap();
            for part in answer.chunks(part_bytes) {
                far.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(exchange.ask(b"request", TIMEOUT), server).0
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn a_response_is_read_to_its_end_however_it_is_framed_and_cut() {
        for (answer, status, head, body, is_last) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
                200,
                38,
                3,
                false,
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204, 27, 0, false),
            (
                "HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\nabcd",
                503,
                40,
                4,
                true,
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
                200,
                38,
                1,
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nab\r\n\
                 10\r\n0123456789abcdef\r\n0\r\nTrailer: 1\r\n\r\n",
                200,
                47,
                18,
                false,
            ),
            (
                "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                200,
                38,
                0,
                false,
            ),
        ] {
            for part_bytes in [1, 2, 7, 1_000] {
                let response = run(ask(answer.as_bytes(), part_bytes)).unwrap();
                let wanted = Response {
                    status,
                    head_bytes: head,
                    body_bytes: body,
                    is_last,
                };
                assert_eq!(response, wanted, "{answer:?} in parts of {part_bytes}");
            }
        }
    }

    #[test]
    fn a_body_longer_than_the_buffer_is_counted() {
        let body = "x".repeat(3 * BUFFER_BYTES);
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        let response = run(ask(answer.as_bytes(), 5_000)).unwrap();
        assert_eq!(response.body_bytes, length as u64);
    }

    #[test]
    fn what_is_no_response_fails_by_kind() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(BUFFER_BYTES));
        for (answer, trouble) in [
            ("", Trouble::Connection),
            ("HTTP/1.1 200 OK\r\nContent-Le", Trouble::Connection),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
                Trouble::Connection,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                Trouble::Answer,
            ),
            ("SSH-2.0 hello\r\n\r\n", Trouble::Answer),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                Trouble::Answer,
            ),
            (long.as_str(), Trouble::Answer),
        ] {
            let failed = run(ask(answer.as_bytes(), 1_000)).unwrap_err();
            assert_eq!(failed.0, trouble, "{answer:?}: {failed:?}");
        }
    }
}
