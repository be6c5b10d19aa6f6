//! Requests to authorities: over TLS, a few connections that are kept, and bounds on everything
//! that comes back.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use myriad_base::task;
use myriad_pki::acme::Millis;
use myriad_pki::acme::clerk::{BodyWrapper, Busy, BytesResponse, HttpClient, HttpError};
use myriad_proxy::Names;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections to one authority that are kept for later.
const IDLE_MAX: usize = 32;

/// The longest that an authority may want to be left alone, in seconds.
const RETRY_AFTER_MAX: u64 = 86_400;

type Body = BodyWrapper<Bytes>;
type Sender = SendRequest<Body>;
type Problem = Box<dyn std::error::Error + Send + Sync>;

/// A client. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub(super) struct Client(Arc<Inner>);

struct Inner {
    tls: TlsConnector,
    names: Names,
    idle: Mutex<HashMap<Place, Vec<Sender>>>,
}

/// Host and port.
type Place = (Box<str>, u16);

impl Client {
    /// A client that verifies servers by a configuration, and looks their names up.
    pub(super) fn new(config: Arc<ClientConfig>, names: Names) -> Client {
        Client(Arc::new(Inner {
            tls: TlsConnector::from(config),
            names,
            idle: Mutex::default(),
        }))
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, HttpError>> + Send>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let asked = tokio::time::timeout(TIMEOUT, inner.ask(request)).await;
            let answered = asked.unwrap_or_else(|_| Err("it did not answer in 30 s".into()));
            let response = answered.map_err(HttpError::Other)?;
            match busy(&response) {
                Some(busy) => Err(HttpError::Other(Box::new(busy))),
                None => {
                    let (parts, body) = response.into_parts();
                    Ok(BytesResponse {
                        parts,
                        body: Box::new(body),
                    })
                }
            }
        })
    }
}

impl Inner {
    async fn ask(&self, mut request: Request<Body>) -> Result<Response<Bytes>, Problem> {
        let uri = request.uri().clone();
        if uri.scheme_str() != Some("https") {
            return Err(format!("{uri} is no URL that begins with https://").into());
        }
        let host = uri.host().ok_or("a URL without a host")?;
        let place: Place = (host.into(), uri.port_u16().unwrap_or(443));
        let authority = uri.authority().map_or(host, |it| it.as_str());
        let field = HeaderValue::from_str(authority)?;
        request.headers_mut().insert(HOST, field);
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        *request.uri_mut() = path.parse()?;
        // One that was kept may have been closed meanwhile; then nothing was sent.
        while let Some(mut sender) = self.take(&place) {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return self.finish(place, sender, response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut sender = self.connect(&place).await?;
        let response = sender.send_request(request).await?;
        self.finish(place, sender, response).await
    }

    async fn finish(
        &self,
        place: Place,
        sender: Sender,
        response: Response<Incoming>,
    ) -> Result<Response<Bytes>, Problem> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
        self.keep(place, sender);
        Ok(Response::from_parts(parts, body.to_bytes()))
    }

    fn take(&self, place: &Place) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.get_mut(place)?.pop()
    }

    fn keep(&self, place: Place, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.entry(place).or_default();
        if kept.len() < IDLE_MAX && !sender.is_closed() {
            kept.push(sender);
        }
    }

    async fn connect(&self, (host, port): &Place) -> Result<Sender, Problem> {
        let connecting = async {
            let host = host.trim_matches(['[', ']']);
            let found = self.names.look_up(0, host).await;
            let found = found.map_err(|error| format!("{host}: {error}"))?;
            let mut problem: Problem = format!("{host} has no address").into();
            for ip in found.addresses {
                match TcpStream::connect((ip, *port)).await {
                    Ok(tcp) => {
                        let name = ServerName::try_from(host.to_owned())?;
                        let _ = tcp.set_nodelay(true);
                        return Ok(self.tls.connect(name, tcp).await?);
                    }
                    Err(error) => problem = format!("{ip}:{port}: {error}").into(),
                }
            }
            Err(problem)
        };
        let tls = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let tls = tls.unwrap_or_else(|_| Err("no connection in 10 s".into()))?;
        let (sender, connection) = handshake(TokioIo::new(tls)).await?;
        task::spawn("acme connection", async move {
            // Who waits for an answer on it is told as well.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// The words of an answer that is none to the question.
fn busy(response: &Response<Bytes>) -> Option<Busy> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let problem: Option<serde_json::Value> = serde_json::from_slice(response.body()).ok();
    let detail = problem.as_ref().and_then(|it| it.get("detail")?.as_str());
    let words = match detail {
        Some(detail) => format!("{detail} (status {status})"),
        None => format!("status {status}"),
    };
    let again = response.headers().get(RETRY_AFTER);
    let again = again.and_then(|it| it.to_str().ok()?.trim().parse::<u64>().ok());
    let again = again.unwrap_or(0).min(RETRY_AFTER_MAX) * 1_000;
    Some(Busy {
        status: status.as_u16(),
        words,
        again: Millis::try_from(again).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Response;

    use super::busy;

    #[test]
    fn an_authority_that_is_busy_is_left_alone_for_as_long_as_it_says() {
        let answer = |status: u16, again: &str, body: &'static str| {
            let response = Response::builder().status(status);
            let response = response.header("retry-after", again);
            busy(&response.body(Bytes::from_static(body.as_bytes())).unwrap())
        };
        assert!(answer(200, "5", "").is_none() && answer(400, "5", "").is_none());
        let limited = answer(429, "120", r#"{"detail":"too many"}"#).unwrap();
        assert_eq!((limited.status, limited.again), (429, 120_000));
        assert!(limited.words.starts_with("too many"));
        let broken = answer(503, "soon", "<html>").unwrap();
        assert_eq!((broken.again, broken.words.contains("503")), (0, true));
        let never = answer(503, "99999999999", "{}").unwrap();
        assert_eq!(never.again, 86_400_000);
    }
}
