//! The prober: fresh connections until a name answers as it should.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use myriad_base::tls::{Anybody, ServerVerifier};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Stream};

/// The least time between the starts of two connections.
const PACE: Duration = Duration::from_micros(500);

/// How long a name may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long one connection may stand still.
const STALL: Duration = Duration::from_secs(5);

/// The answer that a connection is to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Exactly this certificate, and an answer with this status.
    Answer {
        /// The leaf in DER.
        leaf: Vec<u8>,
        /// The status.
        status: u16,
    },
    /// An alert in the place of a certificate.
    Alert,
    /// That, or an end of the connection without a word.
    Refusal,
}

/// The answer that a connection found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Answer { leaf: Vec<u8>, status: u16 },
    Alert,
    Broken(String),
}

/// The end of a search.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// When what was wanted had been seen.
    pub at: Instant,
    /// Connections that were made, this one included.
    pub connections: u32,
}

/// Makes fresh connections: a new port each, no resumption.
#[derive(Clone)]
pub struct Prober {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    path: &'static str,
}

impl Prober {
    /// A prober of one listener.
    ///
    /// # Errors
    /// The TLS library offers none of the versions.
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Prober {
            address,
            config: client_config(false)?,
            path: "/",
        })
    }

    /// The same, asking for another path.
    pub fn asking(mut self, path: &'static str) -> Self {
        self.path = path;
        self
    }

    /// Starts probing, publishes a change a moment later, and says when that began and what
    /// came of it.
    ///
    /// # Errors
    /// The deadline has passed, or the change cannot be published.
    pub fn watch(
        &self,
        host: &str,
        wanted: Wanted,
        publish: impl FnOnce() -> anyhow::Result<Instant>,
    ) -> anyhow::Result<(Instant, Hit)> {
        let (prober, host) = (self.clone(), host.to_owned());
        let (begin, begun) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            prober.search(&host, &wanted, || {
                // Who no longer listens has failed, and says so.
                let _ = begin.send(());
            })
        });
        begun.recv().context("the prober ended")?;
        let written = publish()?;
        Ok((written, thread.join().ok().context("the prober panicked")??))
    }

    /// Probes until what is wanted is found. `begun` is called after the first connection, so
    /// that the change comes to a name that has been asked for.
    ///
    /// # Errors
    /// The deadline has passed.
    pub fn search(&self, host: &str, wanted: &Wanted, begun: impl FnOnce()) -> anyhow::Result<Hit> {
        self.probe(host);
        begun();
        let mut hit = self.find(host, wanted)?;
        hit.connections += 1;
        Ok(hit)
    }

    /// Probes until what is wanted is found.
    ///
    /// # Errors
    /// The deadline has passed.
    pub fn find(&self, host: &str, wanted: &Wanted) -> anyhow::Result<Hit> {
        let start = Instant::now();
        let mut next = start;
        let mut connections = 0;
        let mut found = Found::Alert;
        while start.elapsed() < DEADLINE {
            if let Some(wait) = next.checked_duration_since(Instant::now()) {
                std::thread::sleep(wait);
            }
            next = Instant::now() + PACE;
            found = self.probe(host);
            connections += 1;
            if found.is(wanted) {
                let at = Instant::now();
                return Ok(Hit { at, connections });
            }
        }
        bail!("{host} was {found} for {DEADLINE:?}")
    }

    /// Makes so many connections to a name that answers, at the same pace.
    ///
    /// # Errors
    /// It did not.
    pub fn repeat(&self, host: &str, connections: u32) -> anyhow::Result<()> {
        for _ in 0..connections {
            let next = Instant::now() + PACE;
            let found = self.probe(host);
            let is_answered = matches!(found, Found::Answer { status: 200, .. });
            ensure!(is_answered, "{host} was {found}");
            if let Some(wait) = next.checked_duration_since(Instant::now()) {
                std::thread::sleep(wait);
            }
        }
        Ok(())
    }

    fn probe(&self, host: &str) -> Found {
        let found = self.connect(host);
        found.unwrap_or_else(|error| Found::Broken(format!("{error:#}")))
    }

    fn connect(&self, host: &str) -> anyhow::Result<Found> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STALL))?;
        let name = ServerName::try_from(host.to_owned())?;
        let mut tls = ClientConnection::new(self.config.clone(), name)?;
        while tls.is_handshaking() {
            if let Err(error) = tls.complete_io(&mut socket) {
                let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
                return match cause {
                    Some(rustls::Error::AlertReceived(_)) => Ok(Found::Alert),
                    _ => Err(error.into()),
                };
            }
        }
        let chain = tls.peer_certificates();
        let leaf = chain.and_then(|chain| chain.first());
        let leaf = leaf.context("there is a certificate")?.to_vec();
        let mut stream = Stream::new(&mut tls, &mut socket);
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n",
            self.path
        );
        stream.write_all(request.as_bytes())?;
        // "HTTP/1.1 200"
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        let status = std::str::from_utf8(&head)?.strip_prefix("HTTP/1.1 ");
        let status = status.context("this is no status line")?.parse()?;
        Ok(Found::Answer { leaf, status })
    }
}

impl Found {
    fn is(&self, wanted: &Wanted) -> bool {
        match (self, wanted) {
            (
                Found::Answer { leaf, status },
                Wanted::Answer {
                    leaf: leaf_wanted,
                    status: status_wanted,
                },
            ) => leaf == leaf_wanted && status == status_wanted,
            (Found::Alert, Wanted::Alert) => true,
            (Found::Alert | Found::Broken(_), Wanted::Refusal) => true,
            _ => false,
        }
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Found::Answer { status, .. } => write!(out, "answered with {status}"),
            Found::Alert => write!(out, "refused by an alert"),
            Found::Broken(how) => write!(out, "broken ({how})"),
        }
    }
}

/// A client that takes any certificate: the prober compares leaves itself.
///
/// # Errors
/// The TLS library offers none of the versions.
pub fn client_config(resumes: bool) -> anyhow::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerVerifier::new(Anybody, provider)))
        .with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}
