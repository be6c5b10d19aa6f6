//! One configuration for each distinct TLS settings, shared by all workers.
//!
//! Each has ticket keys of its own, so that a session cannot be resumed under other settings than
//! those it was made under.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use myriad_model::{CipherSuite, ClientAuth, TlsSettings, TlsVersion, Version};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    NamedGroup, ServerConfig, SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
    version,
};
use smallvec::SmallVec;

use super::client::Asking;
use super::tickets::{TicketKeys, Ticketer, until};
use crate::net::wanted_names::WantedNames;
use crate::route::trust::TrustEntry;

/// The protocols that peers of the mesh settle on, in the order of preference. Those that speak
/// HTTP offer `istio` as well. `istio-peer-exchange` is not among them: what is exchanged there is
/// not spoken here, and whoever offers it offers `istio` too.
const MESH_PROTOCOLS: &[&[u8]] = &[
    b"istio-h2",
    b"istio-http/1.1",
    b"istio-http/1.0",
    b"istio",
    b"h2",
    b"http/1.1",
    b"http/1.0",
];

/// The most configurations; a further one takes the place of any.
const CONFIGS_MAX: usize = 1_024;

/// The keys of a domain's certificates, in the order of preference. Two take no more room than one.
pub type Offer = SmallVec<[Arc<CertifiedKey>; 2]>;

thread_local! {
    static CHOSEN: RefCell<Offer> = RefCell::new(Offer::new());
}

/// All configurations in use.
pub struct Configs {
    tickets: Arc<TicketKeys>,
    known: Mutex<HashMap<Want, Arc<ServerConfig>>>,
}

/// The key of a configuration. Sessions are never resumed under another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// Versions and suites.
    pub settings: Arc<TlsSettings>,
    /// The protocol behind the handshake.
    pub speaks: Speaks,
    /// The trust domains of peers, where they are those of the mesh.
    pub mesh: Option<Arc<[Box<str>]>>,
    /// The request for clients' certificates, and the version of the trust that verifies them.
    pub clients: Option<(Arc<ClientAuth>, Version)>,
}

/// The protocol once the handshake is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Speaks {
    /// HTTP, of the version that the handshake settles.
    Http,
    /// Whatever client and endpoint agree on; the handshake settles nothing.
    Anything,
    /// The protocol that peers of the mesh have agreed on.
    Mesh,
}

impl Configs {
    /// An empty store of configurations.
    pub fn new(tickets: Arc<TicketKeys>) -> Self {
        Configs {
            tickets,
            known: Mutex::default(),
        }
    }

    /// The configuration for this. Where clients are asked for, `trust` is what verifies them.
    ///
    /// # Errors
    /// Settings under which no handshake can be done, or a trust that verifies nobody.
    pub fn get(
        &self,
        want: Want,
        trust: Option<&TrustEntry>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = known.get(&want) {
            return Ok(config.clone());
        }
        let config = Arc::new(build(&want, trust, &self.tickets)?);
        if known.len() >= CONFIGS_MAX
            && let Some(other) = known.keys().next().cloned()
        {
            known.remove(&other);
        }
        known.insert(want, config.clone());
        Ok(config)
    }
}

/// Calls `step`, in which a handshake that asks for a certificate gets one of these. Its session
/// may be resumed until then, or for as long as is found out in it; see [`until`].
pub fn with_chosen(offer: &Offer, until: &mut i64, step: &mut dyn FnMut()) {
    CHOSEN.set(offer.clone());
    until::around(until, step);
    CHOSEN.set(Offer::new());
}

/// Hands over what was chosen; see [`with_chosen`].
pub fn chosen() -> Arc<dyn ResolvesServerCert> {
    Arc::new(Chosen { speaks_13: true })
}

fn build(
    want: &Want,
    trust: Option<&TrustEntry>,
    tickets: &Arc<TicketKeys>,
) -> Result<ServerConfig, rustls::Error> {
    let (settings, speaks) = (&*want.settings, want.speaks);
    let builder = ServerConfig::builder_with_provider(Arc::new(provider(settings)))
        .with_protocol_versions(&versions(settings))?;
    let builder = match &want.clients {
        None => builder.with_no_client_auth(),
        Some((auth, _)) => {
            let trust = trust.and_then(|trust| trust.verifier(auth.mode));
            let trust = trust.ok_or_else(|| rustls::Error::General("no authority".to_owned()))?;
            builder.with_client_cert_verifier(Arc::new(Asking {
                trust,
                auth: auth.clone(),
                names: WantedNames::new(&auth.subject_alt_names),
                mesh: want.mesh.clone(),
            }))
        }
    };
    let speaks_13 = settings.version_max >= TlsVersion::V13;
    let mut config = builder.with_cert_resolver(Arc::new(Chosen { speaks_13 }));
    config.ignore_client_order = !settings.cipher_suites.is_empty();
    let protocols: &[&[u8]] = match speaks {
        Speaks::Http => &[b"h2", b"http/1.1"],
        Speaks::Anything => &[],
        Speaks::Mesh => MESH_PROTOCOLS,
    };
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    // A resumed session would outlive the certificates and authorities that it was made by.
    if want.mesh.is_some() {
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        return Ok(config);
    }
    let ticketer = Ticketer::new(tickets.clone(), want);
    config.ticketer =
        Arc::new(ticketer.map_err(|error| rustls::Error::General(error.to_string()))?);
    // Tickets carry sessions; remembering them here as well would cost memory per client.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    // What arrives before the handshake is done could have been sent by anybody, again.
    config.max_early_data_size = 0;
    Ok(config)
}

/// The suites that are wanted, in their order. Those of a version that is not spoken are left out:
/// what a client can verify is judged by the suites that both ends have.
fn provider(settings: &TlsSettings) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let spoken = versions(settings);
    let is_spoken = |it: &SupportedCipherSuite| spoken.contains(&it.version());
    provider.cipher_suites.retain(is_spoken);
    if !settings.cipher_suites.is_empty() {
        let all = std::mem::take(&mut provider.cipher_suites);
        let find = |wanted: &CipherSuite| {
            let number = *wanted as u16;
            all.iter()
                .find(|it| u16::from(it.suite()) == number)
                .copied()
        };
        provider.cipher_suites = settings.cipher_suites.iter().filter_map(find).collect();
    }
    provider
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
struct Chosen {
    /// Whether TLS 1.3 may be spoken.
    speaks_13: bool,
}

impl ResolvesServerCert for Chosen {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        CHOSEN.with_borrow(|offer| match &**offer {
            // Whether the client can verify the only one, the handshake finds out.
            [only] => Some(only.clone()),
            several => {
                let mut fitting = several.iter().filter(|it| self.fits(it, &hello));
                fitting.next().or(several.first()).cloned()
            }
        })
    }
}

impl Chosen {
    /// Whether a client can verify what is signed with a key. The schemes that are asked for are
    /// those that the suites of both ends allow.
    fn fits(&self, key: &CertifiedKey, hello: &ClientHello<'_>) -> bool {
        let Some(signer) = key.key.choose_scheme(hello.signature_schemes()) else {
            return false;
        };
        // Whoever has suites of TLS 1.3 speaks it.
        let mut suites = hello.cipher_suites().iter();
        let has_13 = suites.any(|suite| u16::from(*suite) >> 8 == SUITES_13);
        // Before it, schemes of ECDSA say nothing of curves (RFC 8422, section 5.1).
        match (curve_of(signer.scheme()), hello.named_groups()) {
            (Some(curve), Some(known)) => self.speaks_13 && has_13 || known.contains(&curve),
            _ => true,
        }
    }
}

/// The first byte of the numbers of suites of TLS 1.3.
const SUITES_13: u16 = 0x13;

/// The curve of a key that signs so, where it has one that clients name.
fn curve_of(scheme: SignatureScheme) -> Option<NamedGroup> {
    match scheme {
        SignatureScheme::ECDSA_NISTP256_SHA256 => Some(NamedGroup::secp256r1),
        SignatureScheme::ECDSA_NISTP384_SHA384 => Some(NamedGroup::secp384r1),
        SignatureScheme::ECDSA_NISTP521_SHA512 => Some(NamedGroup::secp521r1),
        _ => None,
    }
}
