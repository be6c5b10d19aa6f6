//! A small HTTP/1.1 client over TLS that knows what each domain has to answer.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A client gives up after this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests on one connection: both kept and new connections have to work all the time.
const REQUESTS_MAX: usize = 5;
/// The largest answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Keeps a connection per proxy and domain.
pub(super) struct Client {
    tls: TlsConnector,
    kept: Mutex<HashMap<(SocketAddr, String), Kept>>,
}

/// A fault of a request.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// An answer that is not that of the domain.
    Wrong(String),
    /// No answer.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Wrong(answer) => write!(f, "a wrong answer from {answer}"),
            Fault::Broken(problem) => write!(f, "no answer from {problem}"),
        }
    }
}

struct Kept {
    stream: TlsStream<TcpStream>,
    requests: usize,
}

/// An answer, and whether the connection may be used again.
struct Answer {
    status: u16,
    body: String,
    is_last: bool,
}

impl Client {
    /// Trusts one root.
    pub(super) fn new(root: &str) -> Client {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(root.as_bytes()).expect("a root");
        roots.add(root).expect("a root");
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Each connection shows the certificate.
        config.resumption = rustls::client::Resumption::disabled();
        Client {
            tls: TlsConnector::from(Arc::new(config)),
            kept: Mutex::default(),
        }
    }

    /// Asks on a connection that is kept, if there is one. Where the proxy had closed that, the
    /// request goes on a new one, as every client does.
    pub(super) async fn ask(&self, address: SocketAddr, host: &str) -> Result<(), Fault> {
        let key = (address, host.to_owned());
        let kept = self.lock().remove(&key);
        if let Some(kept) = kept {
            match self.exchange(kept, &key).await {
                Err(Fault::Broken(_)) => {}
                outcome => return outcome,
            }
        }
        self.ask_anew(address, host).await
    }

    /// Asks on a new connection.
    pub(super) async fn ask_anew(&self, address: SocketAddr, host: &str) -> Result<(), Fault> {
        let connected = tokio::time::timeout(PATIENCE, self.connect(address, host));
        let connected = connected.await.map_err(io::Error::from).flatten();
        let stream = connected.map_err(|error| Fault::Broken(format!("{address}: {error}")))?;
        let fresh = Kept {
            stream,
            requests: 0,
        };
        self.exchange(fresh, &(address, host.to_owned())).await
    }

    async fn connect(&self, address: SocketAddr, host: &str) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.tls.connect(name, stream).await
    }

    async fn exchange(&self, mut kept: Kept, key: &(SocketAddr, String)) -> Result<(), Fault> {
        let (address, host) = key;
        let answered = tokio::time::timeout(PATIENCE, exchange(&mut kept.stream, host)).await;
        let answer = answered.map_err(io::Error::from).flatten();
        let answer = answer.map_err(|error| Fault::Broken(format!("{address}: {error}")))?;
        kept.requests += 1;
        if !answer.is_last && kept.requests < REQUESTS_MAX {
            self.lock().insert(key.clone(), kept);
        }
        // The endpoint tells which host it was asked for.
        let told = serde_json::from_str::<serde_json::Value>(&answer.body).unwrap_or_default();
        let told = told["headers"]["host"].as_str().unwrap_or_default();
        if answer.status == 200 && told == host {
            return Ok(());
        }
        let Answer { status, body, .. } = answer;
        Err(Fault::Wrong(format!("{address}: {status} {body}")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(SocketAddr, String), Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn exchange(stream: &mut TlsStream<TcpStream>, host: &str) -> io::Result<Answer> {
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
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
        let head = head.to_ascii_lowercase();
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let length = field("content-length:").and_then(|value| value.trim().parse().ok());
        let length: usize = length.ok_or_else(|| io::Error::other("the answer has no length"))?;
        if body.len() >= length {
            let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
            return Ok(Answer {
                status: status.unwrap_or(0),
                body: body.to_owned(),
                is_last: field("connection:").is_some_and(|value| value.trim() == "close"),
            });
        }
    }
}
