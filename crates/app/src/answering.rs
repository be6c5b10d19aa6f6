//! A small server of HTTP/1.1 for what kubelets, Prometheus and API servers ask of us: few
//! callers, small questions, and a bound for everything that they can make grow.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use myriad_base::drain::Drained;
use myriad_base::task;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections at once; those beyond wait to be accepted.
const CONNECTIONS_MAX: usize = 128;

/// How long a handshake, a head or a body may take.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long is waited after an error of the listening socket, such as no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a drain waits for those who were let in and are not answered yet.
const LAST_CALL: Duration = Duration::from_secs(1);

/// What was asked, with its body as a whole.
pub type Question = http::Request<Bytes>;

/// What is answered.
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
    /// Who answers.
    pub answerer: Answerer,
}

impl Server {
    /// Serves until the drain is asked for. Whoever was let in by then is still answered, unless
    /// that takes too long.
    pub async fn serve(self, listener: TcpListener, drained: Drained) {
        let ending = CancellationToken::new();
        let (places, server) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(self));
        let accept = async {
            loop {
                let Ok(place) = places.clone().acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (server, ending) = (server.clone(), ending.clone());
                        drop(task::spawn("question", async move {
                            server.serve_connection(stream, &ending).await;
                            drop(place);
                        }));
                    }
                    Err(error) => {
                        tracing::debug!("no connection can be accepted: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accept => {}
            () = drained.signalled() => {}
        }
        ending.cancel();
        let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(LAST_CALL, places.acquire_many(all)).await;
    }

    async fn serve_connection(&self, stream: TcpStream, ending: &CancellationToken) {
        let Some(tls) = &self.tls else {
            return self.serve_stream(stream, ending).await;
        };
        let accept = TlsAcceptor::from(tls.clone()).accept(stream);
        match tokio::time::timeout(READ_TIMEOUT, accept).await {
            Ok(Ok(stream)) => self.serve_stream(stream, ending).await,
            Ok(Err(error)) => tracing::debug!("a handshake failed: {error}"),
            Err(_) => tracing::debug!("a handshake took too long"),
        }
    }

    async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        ending: &CancellationToken,
    ) {
        let has_asked = AtomicBool::new(false);
        let service = service_fn(|request| async {
            has_asked.store(true, Ordering::Relaxed);
            let mut answer = match self.read(request).await {
                Ok(question) => (self.answerer)(question).await,
                Err(refusal) => refusal,
            };
            if ending.is_cancelled() {
                let close = http::HeaderValue::from_static("close");
                answer.headers_mut().insert(http::header::CONNECTION, close);
            }
            Ok::<_, Infallible>(answer)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = ending.cancelled() => {
                // Of one that has just come a question is awaited.
                if has_asked.load(Ordering::Relaxed) {
                    connection.as_mut().graceful_shutdown();
                }
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("a connection broke: {error}");
        }
    }

    async fn read(&self, request: http::Request<Incoming>) -> Result<Question, Answer> {
        let (head, body) = request.into_parts();
        let read = Limited::new(body, self.body_bytes_max).collect();
        match tokio::time::timeout(READ_TIMEOUT, read).await {
            Ok(Ok(read)) => Ok(http::Request::from_parts(head, read.to_bytes())),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(text(413, "the body is too large\n"))
            }
            Ok(Err(_)) => Err(text(400, "the body broke off\n")),
            Err(_) => Err(text(408, "the body took too long\n")),
        }
    }
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

    /// What is answered to these bytes, to the end of the connection.
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
