//! Keys of issuers: fetched by a thread of their own, so that no request ever waits for them.
//!
//! Keys that were fetched stay until others take their place. URLs come from policies in the
//! namespace of the gateway alone, and redirects are not followed. Where the description of an
//! issuer leads is the word of whoever answers there, so that it leads no further than endpoints.

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
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_rustls::TlsConnector;

use crate::codec::body::BodyDecoder;
use crate::codec::head::split_authority;
use crate::codec::response;
use crate::limits::Limits;
use crate::net::border::Border;
use crate::net::names::{ADDRESSES_MAX, Names};
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
    names: Names,
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
    #[error("the answer, which came over TLS, leads to keys in plain text")]
    Plain,
    #[error("the answer leads to where no endpoint may be")]
    Refused,
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
    pub(super) fn new(metrics: &Metrics, names: Names) -> Self {
        let counters = Counters::default();
        let (fetched, failed) = (counters.fetched.clone(), counters.failed.clone());
        metrics.register("key_sets_fetched", "Key sets of issuers fetched", fetched);
        let help = "Key sets of issuers that could not be fetched";
        metrics.register("key_sets_failed", help, failed);
        Fetcher {
            wanted: None,
            counters,
            names,
        }
    }

    /// Takes over the keys that nobody fetches yet.
    pub(super) fn take(&mut self, access_policies: &AccessPolicies) {
        for slot in access_policies.slots().filter(|slot| slot.take()) {
            if self.wanted.is_none() {
                self.wanted = start(self.counters.clone(), self.names.clone());
            }
            let weak = Arc::downgrade(slot);
            let taken = self.wanted.as_ref().map(|wanted| wanted.try_send(weak));
            if !matches!(taken, Some(Ok(()))) {
                tracing::error!(url = %slot.url, "keys are not fetched: there are too many");
            }
        }
    }
}

fn start(counters: Counters, names: Names) -> Option<mpsc::Sender<Weak<KeySlot>>> {
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
                        let around = (counters.clone(), names.clone());
                        task::spawn_local("keys", keep(slot, config.clone(), around));
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
async fn keep(
    slot: Weak<KeySlot>,
    config: Arc<ClientConfig>,
    (counters, names): (Counters, Names),
) {
    let mut backoff = Backoff::new(&WAITS, random_seed());
    loop {
        let Some(slot) = slot.upgrade() else {
            return;
        };
        let fetching = fetch(&slot, &config, names.border());
        let fetched = tokio::time::timeout(slot.timeout, fetching).await;
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

async fn fetch(
    slot: &KeySlot,
    config: &Arc<ClientConfig>,
    border: &Border,
) -> Result<KeySet, FetchError> {
    let body = get(FetchUrl::of(&slot.url)?, config, None).await?;
    if !slot.is_discovered {
        return KeySet::read(&body).map_err(FetchError::Keys);
    }
    let description: serde_json::Value =
        serde_json::from_slice(&body).map_err(|_| FetchError::Answer)?;
    let url = description.get("jwks_uri").and_then(|url| url.as_str());
    let described = FetchUrl::of(url.ok_or(FetchError::Keys("has no jwks_uri"))?)?;
    let own = FetchUrl::of(&slot.url)?;
    described.may_follow(&own)?;
    // The operator has written where the issuer itself is.
    let border = (!described.is_beside(&own)).then_some(border);
    let body = get(described, config, border).await?;
    KeySet::read(&body).map_err(FetchError::Keys)
}

/// The parts of a URL.
struct FetchUrl<'a> {
    is_tls: bool,
    authority: &'a str,
    host: &'a str,
    port: u16,
    /// The path and the query.
    path: &'a str,
}

impl<'a> FetchUrl<'a> {
    fn of(url: &'a str) -> Result<Self, FetchError> {
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(FetchError::Url),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split_authority(authority).map_err(|_| FetchError::Url)?;
        if url.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(FetchError::Url);
        }
        Ok(FetchUrl {
            is_tls,
            authority,
            host: host.trim_matches(['[', ']']),
            port: port.unwrap_or(if is_tls { 443 } else { 80 }),
            path,
        })
    }

    /// Whether it may be what another tells of itself.
    fn may_follow(&self, other: &FetchUrl<'_>) -> Result<(), FetchError> {
        match other.is_tls && !self.is_tls {
            true => Err(FetchError::Plain),
            false => Ok(()),
        }
    }

    /// Whether another is at the same port of the same host.
    fn is_beside(&self, other: &FetchUrl<'_>) -> bool {
        self.port == other.port && self.host.eq_ignore_ascii_case(other.host)
    }
}

/// Asks for what a URL leads to, inside a border where there is one.
async fn get(
    target: FetchUrl<'_>,
    config: &Arc<ClientConfig>,
    border: Option<&Border>,
) -> Result<Vec<u8>, FetchError> {
    let FetchUrl {
        is_tls,
        authority,
        host,
        port,
        path,
    } = target;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let request = format!(
        "GET {slash}{path} HTTP/1.1\r\nhost: {authority}\r\naccept: application/json\r\n\
         connection: close\r\n\r\n"
    );
    let tcp = match border {
        None => TcpStream::connect((host, port)).await?,
        Some(border) => connect_within(border, host, port).await?,
    };
    if !is_tls {
        return ask(tcp, &request).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| FetchError::Url)?;
    let connector = TlsConnector::from(config.clone());
    ask(connector.connect(name, tcp).await?, &request).await
}

/// Connects to a host where an endpoint could be.
async fn connect_within(border: &Border, host: &str, port: u16) -> Result<TcpStream, FetchError> {
    let mut failure = FetchError::Refused;
    for address in lookup_host((host, port)).await?.take(ADDRESSES_MAX) {
        if !border.admits(address) || border.leads_back(address, None) {
            continue;
        }
        match TcpStream::connect(address).await {
            // A listener may have come meanwhile.
            Ok(tcp) if border.is_own(address, || tcp.local_addr().ok()) => {}
            Ok(tcp) => return Ok(tcp),
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
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

    use myriad_base::metrics::Metrics;
    use myriad_model::{Extent, Reach, TokenKeys};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::{FetchError, FetchUrl, fetch};
    use crate::net::border::{Border, BorderSettings};
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

    /// A border within which endpoints may be anywhere.
    fn everywhere() -> Border {
        Border::new(BorderSettings::default(), &Metrics::new())
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
        let border = everywhere();
        let (found, ()) = tokio::join!(fetch(&slot, &config, &border), serving);
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
        let fetched = fetch(&elsewhere, &config, &everywhere()).await;
        assert!(fetched.is_err());
    }

    /// Answers each connection by a text.
    async fn serving(listener: TcpListener, answer: String) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_description_of_an_issuer_leads_no_further_than_endpoints() {
        let bind = || TcpListener::bind("127.0.0.1:0");
        let (issuer, keys) = (bind().await.unwrap(), bind().await.unwrap());
        let (at, beyond) = (issuer.local_addr().unwrap(), keys.local_addr().unwrap());
        let slot = slot(format!("http://{at}/a"), true);
        let description = format!("{{\"jwks_uri\":\"http://{beyond}/keys\"}}");
        let says = |body: &str| format!("HTTP/1.0 200 OK\r\n\r\n{body}");
        let (issuer, keys) = (
            serving(issuer, says(&description)),
            serving(keys, says(KEYS)),
        );
        let config = secure::trusting().unwrap();
        let fetched = |settings: BorderSettings| {
            let (slot, config) = (slot.clone(), config.clone());
            async move { fetch(&slot, &config, &Border::new(settings, &Metrics::new())).await }
        };
        let here = BorderSettings::default;
        let elsewhere = BorderSettings {
            endpoints: Reach {
                extent: Extent::Elsewhere,
                ..Reach::default()
            },
            ..here()
        };
        let own = BorderSettings {
            own: vec![beyond],
            ..here()
        };
        let all = async {
            let known = fetched(here()).await;
            assert!(known.is_ok(), "{known:?}");
            for border in [elsewhere, own] {
                let refused = fetched(border).await;
                assert!(matches!(refused, Err(FetchError::Refused)), "{refused:?}");
            }
        };
        tokio::select! {
            () = all => {}
            () = issuer => {}
            () = keys => {}
        }
    }

    #[test]
    fn a_url_is_beside_another_by_host_and_port() {
        let is_beside = |url: &str, other: &str| {
            let target = |url| FetchUrl::of(url).unwrap();
            target(url).is_beside(&target(other))
        };
        assert!(is_beside(
            "https://a.example/x",
            "https://A.example:443/y?z"
        ));
        assert!(is_beside("http://[::1]:80/", "http://[::1]"));
        assert!(!is_beside("https://a.example/", "https://b.example/"));
        assert!(!is_beside("http://a.example/", "http://a.example:9901/"));
        for bad in [
            "file:///etc/passwd",
            "http://",
            "http://a b/",
            "http://u@a/",
        ] {
            assert!(matches!(FetchUrl::of(bad), Err(FetchError::Url)), "{bad}");
        }
    }

    #[test]
    fn an_issuer_over_tls_does_not_lead_to_keys_in_plain_text() {
        let own = FetchUrl::of("https://a.example/").unwrap();
        let plain = FetchUrl::of("http://a.example:443/keys").unwrap();
        assert!(matches!(plain.may_follow(&own), Err(FetchError::Plain)));
        assert!(own.may_follow(&plain).is_ok() && own.may_follow(&own).is_ok());
    }
}
