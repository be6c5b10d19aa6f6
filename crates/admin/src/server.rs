//! A small server of HTTP/1.1 for what operators, kubelets, Prometheus and API servers ask of us:
//! few callers, small questions, and a bound for everything that they can make grow.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use myriad_base::clock::{self, Instant};
use myriad_base::drain::Drained;
use myriad_base::newcomers::{Newcomer, Newcomers};
use myriad_base::readiness::Readiness;
use myriad_base::task;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bodies::{Bodies, Body};
use crate::guests::{Guests, Visit};
use crate::patient::Patient;

/// Connections at once; for one beyond that another goes, which has been idle or stuck longest.
const CONNECTIONS_MAX: usize = 128;

/// The most bytes of bodies in memory, of all connections together; beyond, the address that has
/// most of them loses its oldest.
pub const BODIES_BYTES_MAX: usize = 32 << 20;

/// Connections at once that have no place yet, shared by the addresses that they come from: a
/// handshake takes about a millisecond of the only thread, and whoever is let in waits for all of
/// them.
const NEWCOMERS_MAX: usize = 32;

/// Connections that wait for their turn; beyond, the address that has most of them loses its
/// newest.
const WAITING_MAX: usize = 1_024;

/// How long a connection may take for its first byte, once its turn has come: a client of TLS
/// speaks at once.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long connections are accepted, where many wait, before others have their turn.
const ACCEPT_TIME: Duration = Duration::from_millis(1);

/// How long a handshake, a head or a body may take.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection lives; the question that it is in is still answered.
const LIFE: Duration = Duration::from_secs(60);

/// The questions that a connection asks at most.
const QUESTIONS_MAX: u32 = 100;

/// How long is waited after an error of the listening socket, such as no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a drain waits for those who were let in and are not answered yet.
const LAST_CALL: Duration = Duration::from_secs(1);

/// A request, with its whole body in memory.
pub type Question = http::Request<Bytes>;

/// The address that a question came from, among its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub IpAddr);

/// The answer to a question.
pub type Answer = http::Response<Full<Bytes>>;

/// Answers questions. It bounds its own time.
pub type Answerer = Arc<dyn Fn(Question) -> Answering + Send + Sync>;

/// An answer on its way.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// How questions come in.
pub struct Server {
    /// Plain text where there is none.
    pub tls: Option<Arc<ServerConfig>>,
    /// The largest body in bytes.
    pub body_bytes_max: usize,
    /// The function that answers every question.
    pub answerer: Answerer,
}

/// A server that serves.
struct Serving {
    server: Server,
    bodies: Arc<Bodies>,
    /// The callers that wait to be let in.
    newcomers: Arc<Newcomers>,
    /// One for each connection that is let in.
    places: Arc<Semaphore>,
    guests: Arc<Guests>,
    ending: CancellationToken,
}

/// A byte stream that questions come over.
trait Bidirectional: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bidirectional for T {}

impl Server {
    /// Serves until the drain is asked for. Whoever has come by then is still answered, unless
    /// that takes too long.
    pub async fn serve(self, listener: TcpListener, drained: Drained) {
        let serving = Arc::new(Serving::new(self));
        let (connections, ending) = (TaskTracker::new(), serving.ending.clone());
        // By the runtime's bound on what a task does at a time a flood would stay in the queue of
        // the system, where turns are nobody's.
        let accept = coop::unconstrained(serving.accept(&listener, &connections));
        tokio::select! {
            () = accept => {}
            () = drained.signalled() => {}
        }
        ending.cancel();
        connections.close();
        let _ = tokio::time::timeout(LAST_CALL, connections.wait()).await;
    }
}

impl Serving {
    fn new(server: Server) -> Self {
        Serving {
            server,
            bodies: Arc::new(Bodies::new(BODIES_BYTES_MAX)),
            newcomers: Arc::new(Newcomers::new(NEWCOMERS_MAX, WAITING_MAX)),
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            guests: Arc::new(Guests::default()),
            ending: CancellationToken::new(),
        }
    }

    /// Accepts all that come, for ever: they wait for their turns here.
    async fn accept(self: Arc<Self>, listener: &TcpListener, connections: &TaskTracker) {
        let mut began: Option<Instant> = None;
        loop {
            let next = poll_fn(|context| {
                let polled = listener.poll_accept(context);
                if polled.is_pending() {
                    began = None;
                }
                polled
            });
            match next.await {
                Ok((stream, peer)) => {
                    let address = peer.ip().to_canonical();
                    let newcomer = self.newcomers.enter(address);
                    let greet = self.clone().greet(stream, address, newcomer);
                    drop(task::spawn("question", connections.track_future(greet)));
                }
                Err(error) => {
                    tracing::debug!("no connection can be accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            let now = clock::now();
            let since = *began.get_or_insert(now);
            if now.saturating_duration_since(since) >= ACCEPT_TIME {
                began = None;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Serves a connection, once its turn has come and it has a place.
    async fn greet(self: Arc<Self>, stream: TcpStream, address: IpAddr, mut newcomer: Newcomer) {
        if !newcomer.comes_in().await {
            tracing::debug!("a connection that waited made room for another");
            return;
        }
        let let_in = tokio::select! {
            let_in = self.let_in(stream, address) => let_in,
            () = newcomer.evicted() => None,
        };
        let Some((stream, place)) = let_in else {
            return;
        };
        let visit = self.guests.enter(address);
        drop(newcomer);
        tokio::select! {
            () = self.serve_stream(stream, &visit) => {}
            () = visit.evicted() => {
                tracing::debug!("a connection made room for another");
            }
        }
        drop(place);
    }

    /// A connection whose handshake is done, and its place; none where that failed or took too
    /// long.
    async fn let_in(
        &self,
        stream: TcpStream,
        address: IpAddr,
    ) -> Option<(Box<dyn Bidirectional>, OwnedSemaphorePermit)> {
        let stream: Box<dyn Bidirectional> = match &self.server.tls {
            Some(tls) => Box::new(shake(tls, stream).await?),
            None => Box::new(stream),
        };
        let place = place(&self.places, &self.guests, address).await?;
        Some((stream, place))
    }

    async fn serve_stream(&self, stream: Box<dyn Bidirectional>, visit: &Visit) {
        let ending = &self.ending;
        let asked = AtomicU32::new(0);
        let service = service_fn(|request| async {
            let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
            visit.rest();
            let body = self.bodies.begin(visit.address());
            let mut answer = match self.read(request, &body).await {
                Ok(mut question) => {
                    question.extensions_mut().insert(Source(visit.address()));
                    visit.work();
                    let answer = tokio::select! {
                        answer = (self.server.answerer)(question) => answer,
                        () = body.evicted() => crowded(),
                    };
                    visit.rest();
                    answer
                }
                Err(refusal) => refusal,
            };
            if ending.is_cancelled() || number >= QUESTIONS_MAX {
                let close = http::HeaderValue::from_static("close");
                answer.headers_mut().insert(http::header::CONNECTION, close);
            }
            Ok::<_, Infallible>(answer)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIMEOUT)
            .serve_connection(TokioIo::new(Patient::new(stream)), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = ending.cancelled() => {
                // Of one that has just come a question is awaited.
                if asked.load(Ordering::Relaxed) > 0 {
                    connection.as_mut().graceful_shutdown();
                }
                connection.await
            }
            () = tokio::time::sleep(LIFE) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("a connection broke: {error}");
        }
    }

    async fn read(
        &self,
        request: http::Request<Incoming>,
        body: &Body,
    ) -> Result<Question, Answer> {
        let (head, incoming) = request.into_parts();
        let incoming = Limited::new(incoming, self.server.body_bytes_max);
        let read = tokio::select! {
            read = gather(incoming, body) => read?,
            () = body.evicted() => return Err(crowded()),
            () = tokio::time::sleep(READ_TIMEOUT) => {
                return Err(text(408, "the body took too long\n"));
            }
        };
        Ok(http::Request::from_parts(head, read))
    }
}

/// A stream after its handshake; none where that failed or took too long.
async fn shake(tls: &Arc<ServerConfig>, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let mut first = [0];
    let spoken = tokio::time::timeout(FIRST_BYTE_TIMEOUT, stream.peek(&mut first)).await;
    spoken.ok()?.ok()?;
    let accept = TlsAcceptor::from(tls.clone()).accept(stream);
    match tokio::time::timeout(READ_TIMEOUT, accept).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::debug!("a handshake failed: {error}"),
        Err(_) => tracing::debug!("a handshake took too long"),
    }
    None
}

/// A whole body, whose bytes take room as they come.
async fn gather(mut incoming: Limited<Incoming>, body: &Body) -> Result<Bytes, Answer> {
    let mut read = Vec::new();
    while let Some(frame) = incoming.frame().await {
        let data = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(text(413, "the body is too large\n"));
            }
            Err(_) => return Err(text(400, "the body broke off\n")),
        };
        if !body.grow(data.len()) {
            return Err(crowded());
        }
        read.extend_from_slice(&data);
    }
    Ok(read.into())
}

/// The answer to a question for whose body there is no room.
fn crowded() -> Answer {
    text(503, "there is too much to answer at once; come again\n")
}

/// A place for a connection that was accepted; where there is none, others go for it.
async fn place(
    places: &Arc<Semaphore>,
    guests: &Guests,
    address: IpAddr,
) -> Option<OwnedSemaphorePermit> {
    let mut place = pin!(places.clone().acquire_owned());
    // It is not waited for before one is asked to go.
    let mut pause = Duration::ZERO;
    loop {
        match tokio::time::timeout(pause, place.as_mut()).await {
            Ok(place) => return place.ok(),
            Err(_) => guests.evict(address),
        };
        pause = ACCEPT_PAUSE;
    }
}

/// The address that a question came from; the unspecified one where nobody says.
pub fn source(question: &Question) -> IpAddr {
    let source = question.extensions().get::<Source>();
    source.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |source| source.0)
}

/// The media types that a question asks for; empty for any.
pub fn accept(question: &Question) -> &str {
    let accept = question.headers().get(http::header::ACCEPT);
    accept.and_then(|it| it.to_str().ok()).unwrap_or_default()
}

/// Whether the process is ready, and what it waits for.
pub fn readiness(readiness: &Readiness) -> Answer {
    let pending = readiness.pending();
    match pending.is_empty() {
        true => text(200, "ready\n"),
        false => text(503, format!("waiting for {}\n", pending.join(", "))),
    }
}

/// An answer without a body.
pub fn status(status: http::StatusCode) -> Answer {
    let mut answer = http::Response::default();
    *answer.status_mut() = status;
    answer
}

/// An answer of a few words.
pub fn text(status: u16, text: impl Into<Bytes>) -> Answer {
    typed(status, "text/plain; charset=utf-8", text)
}

/// An answer of another type.
pub fn typed(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = http::Response::new(Full::new(body.into()));
    *answer.status_mut() =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let value = http::HeaderValue::from_static(content_type);
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, value);
    answer
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests may start tasks and read to the end"
)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_base::drain::Drain;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::{Server, text};

    /// Says what it was asked.
    fn repeating() -> Server {
        Server {
            tls: None,
            body_bytes_max: 8,
            answerer: Arc::new(|question| {
                let said = format!("{} {}", question.uri().path(), question.body().len());
                Box::pin(async move { text(200, said) })
            }),
        }
    }

    /// The whole answer to these bytes, to the end of the connection.
    async fn ask(request: &str) -> String {
        let drain = Drain::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = repeating();
        let serving = tokio::spawn(server.serve(listener, drain.holder()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        drain.start();
        serving.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn questions_are_answered_and_large_bodies_are_not_read() {
        let head = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: ";
        let answer = ask(&format!("POST /a?b {head}3\r\n\r\nabc")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n/a 3"), "{answer}");
        let answer = ask(&format!("POST / {head}9\r\n\r\n123456789")).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }

    /// A connection that has asked for this and does not read the answer, but for its start.
    async fn deaf(address: std::net::SocketAddr, path: &str) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let question = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(question.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        stream
    }

    #[tokio::test]
    async fn connections_that_do_not_read_keep_no_place_from_a_newcomer() {
        let drain = Drain::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let large = bytes::Bytes::from(vec![b'x'; 8 << 20]);
        let server = Server {
            answerer: Arc::new(move |question| {
                let said = match question.uri().path() {
                    "/large" => large.clone(),
                    _ => bytes::Bytes::from_static(b"ok"),
                };
                Box::pin(async move { text(200, said) })
            }),
            ..repeating()
        };
        let serving = tokio::spawn(server.serve(listener, drain.holder()));
        let mut held = Vec::new();
        for _ in 0..super::CONNECTIONS_MAX {
            held.push(deaf(address, "/large").await);
        }
        for _ in 0..3 {
            // The time that a write may take is longer.
            let alive = tokio::time::timeout(Duration::from_secs(8), deaf(address, "/healthz"));
            held.push(alive.await.expect("an answer"));
        }
        drop(held);
        drain.start();
        serving.await.unwrap();
    }

    /// TLS without a certificate: nobody gets as far as that.
    fn bare_tls() -> Arc<rustls::ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let none = rustls::server::ResolvesServerCertUsingSni::new();
        let config = config.with_no_client_auth();
        Arc::new(config.with_cert_resolver(Arc::new(none)))
    }

    #[tokio::test]
    async fn a_flood_of_handshakes_waits_for_its_turns_and_holds_up_nobody_else() {
        let drain = Drain::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server {
            tls: Some(bare_tls()),
            ..repeating()
        };
        let serving = tokio::spawn(server.serve(listener, drain.holder()));
        let mut flood = Vec::new();
        for _ in 0..2 * super::CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // The first byte of a handshake, of which no other comes.
            stream.write_all(&[0x16]).await.unwrap();
            flood.push(stream);
        }
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(address).await.unwrap();
        other.write_all(b"no TLS\r\n").await.unwrap();
        let mut told = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(8), other.read_to_end(&mut told));
        assert!(ended.await.is_ok(), "it is told at once that this is none");
        let is_open = |stream: &&TcpStream| {
            let read = stream.try_read(&mut [0]);
            read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        // One gave its turn away, and the others wait for theirs or for more bytes.
        let open = flood.iter().filter(is_open).count();
        assert!(open >= flood.len() - 1, "{open} are open");
        drop(flood);
        drain.start();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_hundredth_question() {
        let question = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let answers = ask(&question.repeat(100)).await.to_lowercase();
        assert_eq!(answers.matches("http/1.1 200").count(), 100);
        assert_eq!(answers.matches("connection: close").count(), 1);
    }

    #[tokio::test]
    async fn who_was_let_in_before_a_drain_is_answered() {
        let drain = Drain::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(repeating().serve(listener, drain.holder()));
        let question = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(question).await.unwrap();
        let mut answer = [0; 12];
        idle.read_exact(&mut answer).await.unwrap();
        // Accepted one after the other, so that it is in once the last one is answered.
        let mut late = TcpStream::connect(address).await.unwrap();
        let mut last = TcpStream::connect(address).await.unwrap();
        last.write_all(question).await.unwrap();
        last.read_exact(&mut answer).await.unwrap();
        drain.start();
        let mut rest = String::new();
        idle.read_to_string(&mut rest).await.unwrap();
        late.write_all(question).await.unwrap();
        let mut answer = String::new();
        late.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        serving.await.unwrap();
        // Nobody is let in any more, nor waited for.
        assert!(TcpStream::connect(address).await.is_err());
    }
}
