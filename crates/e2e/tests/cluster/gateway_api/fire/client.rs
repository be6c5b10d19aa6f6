//! A client that knows which answers there may be at which time.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

use super::{service_of_endpoint, weights};

/// A client gives up after this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Requests on one connection: both kept and new connections have to work all the time.
const REQUESTS_MAX: usize = 50;

/// The largest answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A revision that the API has had a successor of for this long is not served any more.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// How many of the faults are kept to be shown.
const SHOWN_MAX: usize = 8;

/// The revisions of the route so far, and the answers to all who asked.
#[derive(Default)]
pub(super) struct Revisions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many the API may have.
    begun: usize,
    /// Since when it has each.
    since: Vec<Instant>,
    tally: Tally,
}

/// The outcomes of all requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub asked: usize,
    pub faults: usize,
    /// The first faults, in words.
    pub shown: Vec<String>,
    /// The revisions that answers were by.
    pub served: BTreeSet<usize>,
    /// The names of the endpoints that answered.
    pub endpoints: BTreeSet<String>,
}

/// An answer as a client gets it.
struct Answer {
    head: String,
    body: String,
    is_last: bool,
}

struct Kept {
    stream: TcpStream,
    requests: usize,
}

impl Revisions {
    /// The number of the next revision, which the API may have from now on.
    pub(super) fn begin(&self) -> usize {
        let mut state = self.lock();
        state.begun += 1;
        state.begun - 1
    }

    /// The API has it.
    pub(super) fn end(&self) {
        self.lock().since.push(Instant::now());
    }

    /// The outcomes so far.
    pub(super) fn tally(&self) -> Tally {
        self.lock().tally.clone()
    }

    /// Counts the outcome of a request that was sent at `asked`, by one who has had an answer of
    /// the revision `newest` before. Returns the revision that it is by.
    fn count(&self, outcome: Result<Answer, String>, asked: Instant, newest: usize) -> usize {
        let mut state = self.lock();
        state.tally.asked += 1;
        let judged = outcome.and_then(|answer| state.judge(&answer, asked, newest));
        match judged {
            Ok((revision, endpoint)) => {
                state.tally.served.insert(revision);
                state.tally.endpoints.insert(endpoint);
                revision
            }
            Err(fault) => {
                state.tally.faults += 1;
                if state.tally.shown.len() < SHOWN_MAX {
                    let number = state.tally.asked;
                    state.tally.shown.push(format!("request {number}: {fault}"));
                }
                newest
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The one revision that an answer is by, and the endpoint.
    fn judge(
        &self,
        answer: &Answer,
        asked: Instant,
        newest: usize,
    ) -> Result<(usize, String), String> {
        let wrong = |why: &str| Err(format!("{why}: {} {}", answer.head, answer.body));
        if !answer.head.starts_with("http/1.1 200 ") {
            return wrong("another status");
        }
        let revision = answer.field("x-answer:");
        let Some(revision) = revision.and_then(|it| it.parse::<usize>().ok()) else {
            return wrong("no revision");
        };
        let told: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let endpoint = told["backend"].as_str().unwrap_or_default();
        let service = service_of_endpoint(endpoint);
        let fields = &told["headers"];
        let text = revision.to_string();
        let is_by_one = fields["x-revision"] == *text
            && fields["x-share"] == format!("{service}-{revision}")
            && told["uri"] == format!("/at-{revision}");
        let mut backends = weights(revision).into_iter();
        if !is_by_one || !backends.any(|(name, weight)| name == service && weight > 0) {
            return wrong("it is of several revisions");
        }
        if revision >= self.begun {
            return wrong("nobody has written it yet");
        }
        if revision < newest {
            return wrong("there was a newer one before");
        }
        let successor = self.since.get(revision + 1);
        if successor.is_some_and(|since| *since + STALE_AFTER < asked) {
            return wrong("it is an old one");
        }
        Ok((revision, endpoint.to_owned()))
    }
}

impl Answer {
    /// The value of a field, by its name in lower case with a colon.
    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    }
}

/// Asks so often a second. What it could not ask in time, it asks as soon as it can.
pub(super) async fn ask_for_ever(address: SocketAddr, per_second: u32, revisions: Arc<Revisions>) {
    let mut pace = interval(Duration::from_secs(1) / per_second);
    let (mut kept, mut newest) = (None, 0);
    loop {
        pace.tick().await;
        let asked = Instant::now();
        let outcome = timeout(PATIENCE, ask(&mut kept, address)).await;
        let outcome = outcome.map_err(io::Error::from).flatten();
        let outcome = outcome.map_err(|error| error.to_string());
        newest = revisions.count(outcome, asked, newest);
    }
}

/// Asks on the connection that is kept, or a new one.
async fn ask(kept: &mut Option<Kept>, address: SocketAddr) -> io::Result<Answer> {
    let mut used = match kept.take() {
        Some(used) => used,
        None => Kept {
            stream: TcpStream::connect(address).await?,
            requests: 0,
        },
    };
    let request = b"GET /asked HTTP/1.1\r\nhost: fire.test\r\n\r\n";
    used.stream.write_all(request).await?;
    let answer = read(&mut used.stream).await?;
    used.requests += 1;
    if !answer.is_last && used.requests < REQUESTS_MAX {
        *kept = Some(used);
    }
    Ok(answer)
}

async fn read(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the answer is too long"));
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let mut answer = Answer {
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
            is_last: false,
        };
        answer.is_last = answer.field("connection:") == Some("close");
        let length = answer
            .field("content-length:")
            .and_then(|it| it.parse().ok());
        let length: usize = length.ok_or_else(|| io::Error::other("the answer has no length"))?;
        if body.len() >= length {
            return Ok(answer);
        }
    }
}
