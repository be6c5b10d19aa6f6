//! A server of HTTP/2 without TLS: plain requests, or unary calls of gRPC.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};

use crate::backend::{self, FILLING};
use crate::load::PREFIX_BYTES;

/// The answers, by paths.
struct Server {
    answers: Vec<(String, Bytes)>,
    is_grpc: bool,
    is_identified: Arc<AtomicBool>,
}

/// Answers on this listener with a body of the length that belongs to the path, on a thread of its
/// own, which ends with the process. Says whether a request came that bore the identity of its
/// caller.
///
/// # Errors
/// No thread is to be had, or a body is too long for a message.
pub(super) fn serve(
    listener: std::net::TcpListener,
    bodies: &[(String, usize)],
    is_grpc: bool,
) -> anyhow::Result<Arc<AtomicBool>> {
    listener.set_nonblocking(true)?;
    let is_identified = Arc::new(AtomicBool::new(false));
    let mut answers = Vec::new();
    for (path, bytes) in bodies {
        let mut body = Vec::with_capacity(PREFIX_BYTES + bytes);
        if is_grpc {
            body.push(0);
            body.extend_from_slice(&u32::try_from(*bytes)?.to_be_bytes());
        }
        body.resize(body.len() + bytes, FILLING);
        answers.push((path.clone(), Bytes::from(body)));
    }
    let server = Server {
        answers,
        is_grpc,
        is_identified: is_identified.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = std::thread::Builder::new().name("streams".to_owned());
    thread.spawn(move || runtime.block_on(accept(listener, Arc::new(server))))?;
    Ok(is_identified)
}

async fn accept(listener: std::net::TcpListener, server: Arc<Server>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(converse(stream, server.clone()));
    }
}

/// Serves a connection to its end.
async fn converse(stream: TcpStream, server: Arc<Server>) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(asked) = connection.accept().await {
        let (request, respond) = asked?;
        tokio::spawn(answer(server.clone(), request, respond));
    }
    Ok(())
}

/// Takes a request to its end, and answers it.
async fn answer(
    server: Arc<Server>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> anyhow::Result<()> {
    let (head, mut body) = request.into_parts();
    server.look(&head.headers);
    while let Some(part) = body.data().await {
        let part = part?.len();
        body.flow_control().release_capacity(part)?;
    }
    let mut answers = server.answers.iter();
    let Some((_, answer)) = answers.find(|(path, _)| path == head.uri.path()) else {
        let missing = Response::builder().status(StatusCode::NOT_FOUND).body(())?;
        respond.send_response(missing, true)?;
        return Ok(());
    };
    let mut response = Response::new(());
    if server.is_grpc {
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert("content-type", kind);
    }
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(answer.clone(), !server.is_grpc)?;
    if server.is_grpc {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        stream.send_trailers(trailers)?;
    }
    Ok(())
}

impl Server {
    /// Notes whether proxies state the identity of the caller.
    fn look(&self, headers: &HeaderMap) {
        let is_new = !self.is_identified.load(Ordering::Relaxed);
        let mut values = headers.values();
        if is_new && values.any(|value| backend::has_identity(value.as_bytes())) {
            self.is_identified.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::load::{AnyRequest, OpenLoop, Schedule, Seen, StreamRequest};

    const BODIES: [usize; 2] = [128, 131_072];

    fn server(is_grpc: bool) -> SocketAddr {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = BODIES.map(|bytes| (format!("/bytes/{bytes}"), bytes));
        serve(listener, &bodies, is_grpc).unwrap();
        address
    }

    fn ask(request: StreamRequest) -> Seen {
        let load = OpenLoop::start(AnyRequest::Stream(request), 2, || Ok(())).unwrap();
        let schedule = Schedule {
            rps: 200.0,
            connections: 2,
            requests: 20,
            has_jitter: false,
        };
        load.run(schedule).unwrap()
    }

    #[test]
    fn requests_and_calls_of_any_length_are_answered_over_kept_connections() {
        for is_grpc in [false, true] {
            let address = server(is_grpc);
            for body_bytes in BODIES {
                let seen = ask(StreamRequest {
                    address,
                    host: "a.test:81".to_owned(),
                    path: format!("/bytes/{body_bytes}"),
                    body_bytes,
                    is_grpc,
                });
                let counts = (seen.latency.len(), seen.errors);
                assert_eq!(counts, (20, 0), "{is_grpc}: {:?}", seen.last_error);
            }
        }
    }

    #[test]
    fn answers_of_another_length_status_or_protocol_are_errors() {
        let [plain, grpc] = [false, true].map(server);
        let request = |address, path: &str, is_grpc| StreamRequest {
            address,
            host: "a.test".to_owned(),
            path: path.to_owned(),
            body_bytes: 128,
            is_grpc,
        };
        for wrong in [
            request(plain, "/bytes/131072", false),
            request(plain, "/nothing", false),
            request(plain, "/bytes/128", true),
            request(grpc, "/bytes/128", false),
        ] {
            let seen = ask(wrong);
            assert_eq!((seen.latency.len(), seen.errors), (0, 20));
        }
    }

    #[test]
    fn the_identity_of_a_caller_is_noticed() {
        let server = Server {
            answers: Vec::new(),
            is_grpc: false,
            is_identified: Arc::default(),
        };
        let mut headers = HeaderMap::new();
        let by = "By=spiffe://a;URI=spiffe://cluster.local/ns/a/sa/client";
        server.look(&headers);
        assert!(!server.is_identified.load(Ordering::Relaxed));
        let field = "x-forwarded-client-cert";
        headers.insert(field, HeaderValue::from_static(by));
        server.look(&headers);
        assert!(server.is_identified.load(Ordering::Relaxed));
    }
}
