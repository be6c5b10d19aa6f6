//! Keys of issuers: fetched by a thread of their own, so that no request ever waits for them.
//!
//! Keys that were fetched stay until others take their place. URLs come from policies in the
//! namespace of the gateway alone, and redirects are not followed.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use myriad_base::backoff::{Backoff, Waits, random_seed};
use myriad_base::log::sparse::SparseLines;
use myriad_base::metrics::{Counter, Metrics};
use myriad_base::task;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_rustls::TlsConnector;

use crate::codec::body::BodyDecoder;
use crate::codec::head::split_authority;
use crate::codec::response;
use crate::limits::Limits;
use crate::route::access_policies::AccessPolicies;
use crate::route::keys::{KeySet, KeySlot};
use crate::upstream::secure;

/// How long keys are used before they are fetched again.
const REFRESH: Duration = Duration::from_secs(20 * 60);

/// The waits after failures.
static WAITS: Waits = Waits {
    first: Duration::from_secs(1)..=Duration::from_secs(1),
    second: Duration::from_secs(2)..=Duration::from_secs(2),
    max: Duration::from_secs(30)..=Duration::from_secs(30),
};

/// The lines about keys that could not be fetched; each time is counted.
static LINES: SparseLines = SparseLines::untold();

/// The most sets of keys.
const SETS_MAX: usize = 1_024;

/// The most bytes of an answer, its head included.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Starts fetching what access policies ask for.
pub(super) struct Fetcher {
    wanted: Option<mpsc::Sender<Weak<KeySlot>>>,
    counters: Counters,
}

#[derive(Clone, Default)]
struct Counters {
    fetched: Counter,
    failed: Counter,
}

/// Why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the URL is not valid")]
    Url,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the answer is not valid")]
    Answer,
    #[error("the answer has status {0}")]
    Status(u16),
    #[error("the answer {0}")]
    Keys(&'static str),
    #[error("it took too long")]
    Timeout,
}

impl Fetcher {
    /// A fetcher that has nothing to do, and no thread yet.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let counters = Counters::default();
        let (fetched, failed) = (counters.fetched.clone(), counters.failed.clone());
        metrics.register("key_sets_fetched", "Key sets of issuers fetched", fetched);
        let help = "Key sets of issuers that could not be fetched";
        metrics.register("key_sets_failed", help, failed);
        Fetcher {
            wanted: None,
            counters,
        }
    }

    /// Takes over the keys that nobody fetches yet.
    pub(super) fn take(&mut self, access_policies: &AccessPolicies) {
        for slot in access_policies.slots().filter(|slot| slot.take()) {
            if self.wanted.is_none() {
                self.wanted = start(self.counters.clone());
            }
            let weak = Arc::downgrade(slot);
            let taken = self.wanted.as_ref().map(|wanted| wanted.try_send(weak));
            if !matches!(taken, Some(Ok(()))) {
                tracing::error!(url = %slot.url, "keys are not fetched: there are too many");
            }
        }
    }
}

fn start(counters: Counters) -> Option<mpsc::Sender<Weak<KeySlot>>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build();
    let (wanted, mut inbox) = mpsc::channel::<Weak<KeySlot>>(SETS_MAX);
    let started = runtime.and_then(|runtime| {
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || {
                let tasks = LocalSet::new();
                tasks.block_on(&runtime, async move {
                    let Ok(config) = secure::trusting() else {
                        return;
                    };
                    while let Some(slot) = inbox.recv().await {
                        task::spawn_local("keys", keep(slot, config.clone(), counters.clone()));
                    }
                });
            })
    });
    match started {
        Ok(_) => Some(wanted),
        Err(error) => {
            tracing::error!(%error, "keys are not fetched");
            None
        }
    }
}

/// Fetches keys again and again, for as long as an access policy asks for them.
async fn keep(slot: Weak<KeySlot>, config: Arc<ClientConfig>, counters: Counters) {
    let mut backoff = Backoff::new(&WAITS, random_seed());
    loop {
        let Some(slot) = slot.upgrade() else {
            return;
        };
        let fetched = tokio::time::timeout(slot.timeout, fetch(&slot, &config)).await;
        let pause = match fetched.unwrap_or(Err(FetchError::Timeout)) {
            Ok(keys) => {
                slot.set(keys);
                counters.fetched.inc();
                backoff.reset();
                REFRESH
            }
            Err(error) => {
                if let Some(left_out) = LINES.admit() {
                    tracing::warn!(url = %slot.url, %error, left_out, "keys could not be fetched");
                }
                counters.failed.inc();
                backoff.fail()
            }
        };
        drop(slot);
        tokio::time::sleep(pause).await;
    }
}

async fn fetch(slot: &KeySlot, config: &Arc<ClientConfig>) -> Result<KeySet, FetchError> {
    if !slot.is_discovered {
        let body = get(&slot.url, config).await?;
        return KeySet::read(&body).map_err(FetchError::Keys);
    }
    let body = get(&slot.url, config).await?;
    let description: serde_json::Value =
        serde_json::from_slice(&body).map_err(|_| FetchError::Answer)?;
    let url = description.get("jwks_uri").and_then(|url| url.as_str());
    let body = get(url.ok_or(FetchError::Keys("has no jwks_uri"))?, config).await?;
    KeySet::read(&body).map_err(FetchError::Keys)
}

async fn get(url: &str, config: &Arc<ClientConfig>) -> Result<Vec<u8>, FetchError> {
    let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err(FetchError::Url),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = split_authority(authority).map_err(|_| FetchError::Url)?;
    let host = host.trim_matches(['[', ']']);
    let port = port.unwrap_or(if is_tls { 443 } else { 80 });
    if url.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(FetchError::Url);
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    let request = format!(
        "GET {slash}{path} HTTP/1.1\r\nhost: {authority}\r\naccept: application/json\r\n\
         connection: close\r\n\r\n"
    );
    let tcp = TcpStream::connect((host, port)).await?;
    if !is_tls {
        return ask(tcp, &request).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| FetchError::Url)?;
    let connector = TlsConnector::from(config.clone());
    ask(connector.connect(name, tcp).await?, &request).await
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    request: &str,
) -> Result<Vec<u8>, FetchError> {
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    let mut limited = stream.take(ANSWER_BYTES_MAX as u64);
    // The connection ends with the answer. A peer that ends TLS without saying so may have cut
    // it short, which its framing or its keys show.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is read from is limited above"
    )]
    let read = limited.read_to_end(&mut answer).await;
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(error.into()),
    }
    let end = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or(FetchError::Answer)?;
    let (head, mut rest) = answer.split_at(end + 4);
    let head = response::parse(head, &Limits::default()).map_err(|_| FetchError::Answer)?;
    if head.status != 200 {
        return Err(FetchError::Status(head.status));
    }
    let mut decoder = BodyDecoder::new(head.body_for(false));
    let mut body = Vec::new();
    while !decoder.is_done() && !rest.is_empty() {
        let step = decoder.step(rest).map_err(|_| FetchError::Answer)?;
        body.extend_from_slice(step.data);
        rest = rest.get(step.consumed..).unwrap_or_default();
    }
    match decoder.is_done() || decoder.is_until_close() {
        true => Ok(body),
        false => Err(FetchError::Answer),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_model::TokenKeys;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::{FetchError, fetch};
    use crate::route::keys::{IssuerKeys, KeySlot};
    use crate::upstream::secure;

    const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519",
        "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn slot(url: String, is_discovered: bool) -> Arc<KeySlot> {
        let keys = TokenKeys::Fetched {
            url: url.into(),
            is_discovered,
            timeout: Duration::from_secs(5),
        };
        match IssuerKeys::of(&keys, std::iter::empty()) {
            IssuerKeys::Fetched(slot) => slot,
            IssuerKeys::Own(_) => panic!("they are fetched"),
        }
    }

    /// Answers connections in turn, and then no more.
    async fn fetched(is_discovered: bool, answers: &[&str]) -> Result<(), FetchError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1_024];
                let length = stream.read(&mut request).await.unwrap();
                assert!(request[..length].starts_with(b"GET /"));
                let answer = answer.replace("ADDRESS", &address.to_string());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let slot = slot(format!("http://{address}/a?b"), is_discovered);
        let config = secure::trusting().unwrap();
        let (found, ()) = tokio::join!(fetch(&slot, &config), serving);
        found.map(|_| ())
    }

    #[tokio::test]
    async fn keys_are_fetched_in_every_framing_and_by_what_an_issuer_says_of_itself() {
        let exact = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{KEYS}",
            KEYS.len()
        );
        let open = format!("HTTP/1.0 200 OK\r\n\r\n{KEYS}");
        let length = KEYS.len();
        let chunked = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{KEYS}\r\n0\r\n\r\n"
        );
        for answer in [&exact, &open, &chunked] {
            fetched(false, &[answer]).await.unwrap();
        }
        let description = "HTTP/1.0 200 OK\r\n\r\n{\"jwks_uri\":\"http://ADDRESS/keys\"}";
        fetched(true, &[description, &exact]).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_no_key_set_is_an_error() {
        for answer in [
            "",
            "HTTP/1.1 404 Not Found\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: http://ADDRESS/\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        ] {
            assert!(fetched(false, &[answer]).await.is_err(), "{answer}");
        }
        assert!(fetched(true, &["HTTP/1.0 200 OK\r\n\r\n{}"]).await.is_err());
        let config = secure::trusting().unwrap();
        let elsewhere = slot("file:///etc/passwd".to_owned(), false);
        assert!(fetch(&elsewhere, &config).await.is_err());
    }
}
