//! A client that asks over one connection, and one that goes on asking.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::load::Seen;

/// How long a connection may stand still.
const STALL: Duration = Duration::from_secs(5);

/// The longest response.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// The most header fields of a response.
const FIELDS_MAX: usize = 64;

/// The most failures whose times are remembered.
const FAILURES_MAX: usize = 100_000;

/// A connection, which is made anew where it ended.
pub(super) struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub status: u16,
    /// The head, as it came.
    pub head: String,
    pub body: Vec<u8>,
}

/// A client that goes on asking, on a thread of its own.
pub(super) struct Asker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Asked>>,
}

/// The findings of one.
pub(super) struct Asked {
    /// Latencies of responses, whatever their status.
    pub seen: Seen,
    pub requests: u64,
    /// Requests without a response, or with another status than 200.
    pub errors: u64,
    /// Responses with 200 that are not as they have to be.
    pub wrong_answers: u64,
    /// Responses by their status; `none` where there was none.
    pub statuses: BTreeMap<String, u64>,
    /// When those that failed were sent.
    pub failures: Vec<Instant>,
}

impl Client {
    /// A client of this address; no connection is made yet.
    pub(super) fn new(address: SocketAddr) -> Client {
        Client {
            address,
            stream: None,
        }
    }

    /// Sends a request, and reads its response.
    pub(super) fn ask(&mut self, host: &str, path: &str) -> io::Result<Reply> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(STALL))?;
                stream
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        let mut part = [0; 4 << 10];
        loop {
            if let Some((reply, is_last)) = parse(&bytes)? {
                self.stream = (!is_last).then_some(stream);
                return Ok(reply);
            }
            if bytes.len() > RESPONSE_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            let read = stream.read(&mut part)?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&part[..read]);
        }
    }
}

/// The response that these bytes are, if it is whole, and whether the connection ends with it.
fn parse(bytes: &[u8]) -> io::Result<Option<(Reply, bool)>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(bytes).map_err(io::Error::other)?;
    let httparse::Status::Complete(head_bytes) = parsed else {
        return Ok(None);
    };
    let field = |name: &str| {
        let mut fields = response.headers.iter();
        let field = fields.find(|field| field.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(field.value).ok()
    };
    // Nothing here answers without a length.
    let length = field("content-length").and_then(|text| text.trim().parse::<usize>().ok());
    let length = length.unwrap_or_default();
    let is_last = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let (head, rest) = bytes.split_at(head_bytes);
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let reply = Reply {
        status: response.code.unwrap_or_default(),
        head: String::from_utf8_lossy(head).into_owned(),
        body: body.to_vec(),
    };
    Ok(Some((reply, is_last)))
}

impl Asker {
    /// Starts to ask a host, one request after the other with so much time between their starts,
    /// each for the path that `path` says by its number. A response with 200 is judged.
    pub(super) fn start(
        address: SocketAddr,
        host: &str,
        interval: Duration,
        path: impl Fn(u64) -> String + Send + 'static,
        is_right: impl Fn(&Reply) -> bool + Send + 'static,
    ) -> anyhow::Result<Asker> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, host) = (stop.clone(), host.to_owned());
        let mut asked = Asked::new()?;
        let thread = std::thread::Builder::new().name("asker".to_owned());
        let thread = thread.spawn(move || {
            let mut client = Client::new(address);
            for number in 0_u64.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let start = Instant::now();
                let reply = client.ask(&host, &path(number));
                asked.take(start, &reply, &is_right);
                if let Some(rest) = interval.checked_sub(start.elapsed()) {
                    std::thread::sleep(rest);
                }
            }
            Ok(asked)
        })?;
        Ok(Asker { stop, thread })
    }

    /// Ends it, and says what it found.
    pub(super) fn stop(self) -> anyhow::Result<Asked> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the asker panicked")?
    }
}

impl Asked {
    fn new() -> anyhow::Result<Asked> {
        Ok(Asked {
            seen: Seen::new()?,
            requests: 0,
            errors: 0,
            wrong_answers: 0,
            statuses: BTreeMap::new(),
            failures: Vec::new(),
        })
    }

    fn take(
        &mut self,
        start: Instant,
        reply: &io::Result<Reply>,
        is_right: &impl Fn(&Reply) -> bool,
    ) {
        self.requests += 1;
        let status = match reply {
            Ok(reply) => {
                self.seen.record(start.elapsed());
                reply.status.to_string()
            }
            Err(_) => "none".to_owned(),
        };
        *self.statuses.entry(status).or_default() += 1;
        match reply {
            Ok(reply) if reply.status == 200 => {
                self.wrong_answers += u64::from(!is_right(reply));
            }
            _ => {
                self.errors += 1;
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(start);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::origin::Origin;
    use super::*;

    #[test]
    fn an_endpoint_answers_fails_and_comes_back() {
        let origin = Origin::start(Ipv4Addr::LOCALHOST.into(), "first").unwrap();
        let mut client = Client::new(origin.address);
        for _ in 0..3 {
            let reply = client.ask("a.test", "/any/path").unwrap();
            assert_eq!((reply.status, reply.body.as_slice()), (200, &b"first"[..]));
        }
        assert_eq!(origin.answered(), 3);
        origin.set_up(false).unwrap();
        assert!(client.ask("a.test", "/").is_err(), "its connection is cut");
        assert!(client.ask("a.test", "/").is_err(), "nobody listens");
        origin.set_up(true).unwrap();
        assert_eq!(client.ask("a.test", "/").unwrap().status, 200);
    }

    #[test]
    fn who_goes_on_asking_counts_what_failed_and_what_was_wrong() {
        let origin = Origin::start(Ipv4Addr::LOCALHOST.into(), "second").unwrap();
        let interval = Duration::from_millis(1);
        let asker = Asker::start(
            origin.address,
            "a.test",
            interval,
            |number| format!("/{number}"),
            |reply| reply.body == b"first",
        );
        let asker = asker.unwrap();
        let start = Instant::now();
        while origin.answered() < 5 && start.elapsed() < STALL {
            std::thread::sleep(interval);
        }
        origin.set_up(false).unwrap();
        std::thread::sleep(20 * interval);
        let asked = asker.stop().unwrap();
        assert!(asked.wrong_answers >= 4, "{}", asked.wrong_answers);
        assert!(asked.errors > 0 && asked.failures.len() as u64 == asked.errors);
        let counted: u64 = asked.statuses.values().sum();
        assert_eq!(counted, asked.requests);
        assert_eq!(asked.statuses.get("none"), Some(&asked.errors));
    }
}
