//! One configuration for each distinct TLS settings, shared by all workers.
//!
//! Each has ticket keys of its own, so that a session cannot be resumed under other settings than
//! those it was made under.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use myriad_model::{TlsSettings, TlsVersion};
use rustls::crypto::aws_lc_rs::{self, Ticketer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion, version};

/// The most configurations. There are three distinct settings, with two versions to choose from.
const CONFIGS_MAX: usize = 64;

thread_local! {
    static CHOSEN: RefCell<Option<Arc<CertifiedKey>>> = const { RefCell::new(None) };
}

/// All configurations in use.
#[derive(Default)]
pub struct Configs {
    known: Mutex<Vec<Known>>,
}

/// A configuration, and what it is for.
struct Known {
    settings: Arc<TlsSettings>,
    speaks: Speaks,
    config: Arc<ServerConfig>,
}

/// What is spoken once the handshake is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP, of the version that the handshake settles.
    Http,
    /// Whatever client and endpoint agree on; the handshake settles nothing.
    Anything,
}

impl Configs {
    /// No configurations.
    pub fn new() -> Self {
        Configs::default()
    }

    /// The configuration of settings.
    ///
    /// # Errors
    /// Settings under which no handshake can be done.
    pub fn get(
        &self,
        settings: &Arc<TlsSettings>,
        speaks: Speaks,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |it: &&Known| it.speaks == speaks && it.settings == *settings;
        if let Some(it) = known.iter().find(is_it) {
            return Ok(it.config.clone());
        }
        let config = Arc::new(build(settings, speaks)?);
        if known.len() >= CONFIGS_MAX {
            known.remove(0);
        }
        known.push(Known {
            settings: settings.clone(),
            speaks,
            config: config.clone(),
        });
        Ok(config)
    }
}

/// Calls `step`, in which a handshake that asks for a certificate gets this one.
pub fn with_chosen(key: &Arc<CertifiedKey>, step: &mut dyn FnMut()) {
    CHOSEN.set(Some(key.clone()));
    step();
    CHOSEN.set(None);
}

fn build(settings: &TlsSettings, speaks: Speaks) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(settings))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Chosen));
    if speaks == Speaks::Http {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    config.ticketer = Ticketer::new()?;
    // Tickets carry sessions; remembering them here as well would cost memory per client.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    // What arrives before the handshake is done could have been sent by anybody, again.
    config.max_early_data_size = 0;
    Ok(config)
}

fn versions(settings: &TlsSettings) -> Vec<&'static SupportedProtocolVersion> {
    let known = [
        (TlsVersion::V12, &version::TLS12),
        (TlsVersion::V13, &version::TLS13),
    ];
    known
        .into_iter()
        .filter(|(version, _)| (settings.version_min..=settings.version_max).contains(version))
        .map(|(_, version)| version)
        .collect()
}

/// Hands over the certificate that was chosen from the tables that the handshake began with.
#[derive(Debug)]
struct Chosen;

impl ResolvesServerCert for Chosen {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        CHOSEN.with_borrow(Clone::clone)
    }
}
