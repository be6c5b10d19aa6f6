//! Requests to authorities, and to webhooks: over TLS, a few connections that are kept, and bounds
//! on everything that comes back.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::checked::{DOCUMENT_BYTES_MAX, RETRY_AFTER_MAX, checked, is_url};

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections to one authority that are kept for later.
const IDLE_MAX: usize = 32;

/// The most authorities of one client to which some are: one may name other servers, and no end of
/// them.
const IDLE_PLACES_MAX: usize = 64;

/// The type of a problem that the authority has with itself (RFC 8555, section 6.7).
const INTERNAL: &str = "urn:ietf:params:acme:error:serverInternal";

type Body = BodyWrapper<Bytes>;
type Sender = SendRequest<Body>;
type Problem = Box<dyn std::error::Error + Send + Sync>;

/// A client. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub(super) struct Client(Arc<Inner>);

struct Inner {
    tls: TlsConnector,
    names: Names,
    /// Whether a tenant says which servers are asked.
    is_tenants: bool,
    /// How long one request may take.
    patience: Duration,
    idle: Mutex<HashMap<Place, Vec<Sender>>>,
}

/// Whether it is plain HTTP, host and port.
type Place = (bool, Box<str>, u16);

impl Client {
    /// A client that verifies servers by a configuration, and looks their names up.
    pub(super) fn new(config: Arc<ClientConfig>, names: Names) -> Client {
        Client::made(config, names, false)
    }

    /// The same for servers that a tenant names: at public addresses alone, and with one connection
    /// that is kept for later.
    pub(super) fn of_tenant(config: Arc<ClientConfig>, names: Names) -> Client {
        Client::made(config, names, true)
    }

    fn made(config: Arc<ClientConfig>, names: Names, is_tenants: bool) -> Client {
        Client(Arc::new(Inner {
            tls: TlsConnector::from(config),
            names,
            is_tenants,
            patience: TIMEOUT,
            idle: Mutex::default(),
        }))
    }

    /// The same client for servers that tenants name.
    pub(super) fn for_tenants(&self) -> Client {
        Client(Arc::new(Inner {
            tls: self.0.tls.clone(),
            names: self.0.names.clone(),
            is_tenants: true,
            patience: self.0.patience,
            idle: Mutex::default(),
        }))
    }

    /// Gets a URL, of plain HTTP too, for the status of the answer alone.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn get(&self, url: &str) -> Result<u16, Problem> {
        let request = Request::get(url).body(BodyWrapper::default())?;
        let response = self.0.ask_in_time(request).await?;
        Ok(response.status().as_u16())
    }

    /// Posts a document of JSON, with a token where one is given. For URLs of plain HTTP too, which
    /// whoever calls it has looked at.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn post(
        &self,
        url: &str,
        token: Option<&str>,
        body: Vec<u8>,
    ) -> Result<(u16, Bytes), Problem> {
        let mut request = Request::post(url).header(CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(BodyWrapper::from(body))?;
        let response = self.0.ask_in_time(request).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body()))
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, HttpError>> + Send>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let url = request.uri().to_string();
            if !is_url(&url) {
                let problem =
                    format!("this is no URL of at most 2 KiB that begins with https://: {url}");
                return Err(HttpError::Other(problem.into()));
            }
            let answered = inner.ask_in_time(request).await;
            let response = answered.map_err(HttpError::Other)?;
            let (parts, body) = judged(response)?.into_parts();
            Ok(BytesResponse {
                parts,
                body: Box::new(body),
            })
        })
    }
}

impl Inner {
    async fn ask_in_time(&self, request: Request<Body>) -> Result<Response<Bytes>, Problem> {
        let asked = tokio::time::timeout(self.patience, self.ask(request)).await;
        asked.unwrap_or_else(|_| Err(format!("it did not answer in {:?}", self.patience).into()))
    }

    async fn ask(&self, mut request: Request<Body>) -> Result<Response<Bytes>, Problem> {
        let uri = request.uri().clone();
        let is_plain = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(match is_plain {
            true => 80,
            false => 443,
        });
        let host = uri.host().ok_or("a URL without a host")?;
        let place: Place = (is_plain, host.into(), port);
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
        let (places_max, idle_max) = match self.is_tenants {
            true => (1, 1),
            false => (IDLE_PLACES_MAX, IDLE_MAX),
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= places_max && !idle.contains_key(&place) {
            idle.clear();
        }
        let kept = idle.entry(place).or_default();
        if kept.len() < idle_max && !sender.is_closed() {
            kept.push(sender);
        }
    }

    async fn connect(&self, (is_plain, host, port): &Place) -> Result<Sender, Problem> {
        let connecting = async {
            let host = host.trim_matches(['[', ']']);
            let tcp = self.reach(host, *port).await?;
            if *is_plain {
                return talk(tcp).await;
            }
            let name = ServerName::try_from(host.to_owned())?;
            talk(self.tls.connect(name, tcp).await?).await
        };
        let sender = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        sender.unwrap_or_else(|_| Err("no connection in 10 s".into()))
    }

    async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, Problem> {
        let found = self.names.look_up(0, None, host).await;
        let found = found.map_err(|error| format!("{host}: {error}"))?;
        let mut problem: Problem = format!("{host} has no address").into();
        for ip in found.addresses {
            let border = self.names.border();
            if self.is_tenants && !border.admits_resolved(host, ip, true) {
                problem = format!("{host} leads to {ip}, which may not be asked").into();
                continue;
            }
            match TcpStream::connect((ip, port)).await {
                Ok(tcp) => {
                    let _ = tcp.set_nodelay(true);
                    return Ok(tcp);
                }
                Err(error) => problem = format!("{ip}:{port}: {error}").into(),
            }
        }
        Err(problem)
    }
}

/// A connection over a stream.
async fn talk<S>(stream: S) -> Result<Sender, Problem>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    task::spawn("acme connection", async move {
        // Who waits for an answer on it is told as well.
        let _ = connection.await;
    });
    Ok(sender)
}

/// An answer to the question that was asked.
///
/// # Errors
/// It says that the authority is busy or has failed, or is no answer of one.
pub(super) fn judged(response: Response<Bytes>) -> Result<Response<Bytes>, HttpError> {
    if let Some(busy) = busy(&response) {
        return Err(HttpError::Other(Box::new(busy)));
    }
    checked(response).map_err(|error| HttpError::Other(error.into()))
}

/// The words of an answer that is none to the question.
fn busy(response: &Response<Bytes>) -> Option<Busy> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let body = response.body();
    let is_short = body.len() <= DOCUMENT_BYTES_MAX;
    let problem: Option<serde_json::Value> = match is_short {
        true => serde_json::from_slice(body).ok(),
        false => None,
    };
    let detail = problem.as_ref().and_then(|it| it.get("detail")?.as_str());
    let words = match detail {
        Some(detail) => format!("{detail} (status {status})"),
        None => format!("status {status}"),
    };
    let kind = problem.as_ref().and_then(|it| it.get("type")?.as_str());
    let is_internal = status == StatusCode::INTERNAL_SERVER_ERROR && kind == Some(INTERNAL);
    let again = response.headers().get(RETRY_AFTER);
    let again = again.and_then(|it| it.to_str().ok()?.trim().parse::<u64>().ok());
    let again = again.unwrap_or(0).min(RETRY_AFTER_MAX) * 1_000;
    Some(Busy {
        status: status.as_u16(),
        is_internal,
        words,
        again: Millis::try_from(again).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, Response};
    use myriad_base::metrics::Metrics;
    use myriad_base::task;
    use myriad_pki::acme::clerk::{BodyWrapper, HttpClient as _};
    use myriad_proxy::{NameSettings, Names};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::{ANSWER_BYTES_MAX, Client, busy};

    #[tokio::test]
    async fn a_server_that_a_tenant_names_is_asked_at_public_addresses_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let names = || Names::new(NameSettings::default(), &Metrics::new());
        let config = myriad_proxy::upstream::secure::trusting().unwrap();
        let of_tenant = Client::of_tenant(config.clone(), names());
        for host in ["127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1"] {
            let reached = of_tenant.0.reach(host.trim_matches(['[', ']']), port).await;
            let problem = reached.expect_err("it is not asked").to_string();
            assert!(problem.contains("may not be asked"), "{host}: {problem}");
        }
        let own = Client::new(config, names());
        assert!(own.0.reach("127.0.0.1", port).await.is_ok());
    }

    #[tokio::test]
    async fn an_authority_is_never_asked_in_plain_text() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/dir", listener.local_addr().unwrap());
        let config = myriad_proxy::upstream::secure::trusting().unwrap();
        let names = Names::new(NameSettings::default(), &Metrics::new());
        let client = Client::new(config, names);
        let request = Request::get(url).body(BodyWrapper::default()).unwrap();
        let Err(error) = client.request(request).await else {
            panic!("it is asked")
        };
        assert!(error.to_string().contains("https://"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_is_slow_or_never_ends_is_given_up() {
        let config = myriad_proxy::upstream::secure::trusting().unwrap();
        let names = Names::new(NameSettings::default(), &Metrics::new());
        let mut client = Client::new(config, names);
        // Nothing at all, half of a head, half of a body, and more than is taken.
        let head = "HTTP/1.1 200 OK\r\nContent-Length: ";
        let long = format!("{head}{}\r\n\r\n{}", 2 << 20, "x".repeat(2 << 20));
        for said in ["", head, &format!("{head}9\r\n\r\nhalf"), &long] {
            let is_slow = said.len() < ANSWER_BYTES_MAX;
            let inner = Arc::get_mut(&mut client.0).expect("nothing is under way");
            inner.patience = match is_slow {
                true => Duration::from_millis(50),
                false => super::TIMEOUT,
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let said = said.to_owned();
            let server = task::spawn("slow server", async move {
                let (mut tcp, _) = listener.accept().await.unwrap();
                let mut asked = [0; 4_096];
                let _ = tcp.read(&mut asked).await;
                // Whoever has had enough hangs up.
                let _ = tcp.write_all(said.as_bytes()).await;
                while tcp.read(&mut asked).await.is_ok_and(|count| count > 0) {}
            });
            let problem = client.post(&url, None, b"{}".to_vec()).await;
            let problem = problem.expect_err("it is given up").to_string();
            let is_late = problem.contains("did not answer in 50ms");
            assert_eq!(is_late, is_slow, "{problem}");
            server.abort();
        }
    }

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
        assert!(!limited.is_internal);
        let failed = r#"{"type":"urn:ietf:params:acme:error:serverInternal","detail":"lost"}"#;
        assert!(answer(500, "", failed).unwrap().is_internal);
        assert!(!answer(503, "", failed).unwrap().is_internal);
        let broken = answer(503, "soon", "<html>").unwrap();
        assert_eq!((broken.again, broken.words.contains("503")), (0, true));
        let never = answer(503, "99999999999", "{}").unwrap();
        assert_eq!(never.again, 86_400_000);
    }
}
