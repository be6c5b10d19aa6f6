//! Trusts as handshakes find them: DER, and the store of authorities once one has needed it.

use std::sync::{Arc, OnceLock};

use myriad_model::{ClientAuthMode, SealedArc, TRUST_SUBJECT_MAX};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::leaf::Keyed;
use crate::net::chain;
use crate::net::server_trust::ServerTrust;
use crate::random::hash::hash;

const CLASS: u8 = 12;

/// The most bytes of names of authorities in a handshake, each with its length. A message holds
/// 65,535, and the library that writes it ends the process beyond; and each client of a long list
/// would be sent all of it before it has shown anything.
const HINT_BYTES_MAX: usize = 16 << 10;

/// A trust resource and, after the first handshake that verifies by it, its authorities.
pub struct TrustEntry {
    hash: u64,
    /// The resource.
    pub sealed: SealedArc,
    /// The same for connections to endpoints.
    pub servers: Arc<ServerTrust>,
    /// The most authorities of one subject.
    subject_max: usize,
    roots: OnceLock<Option<Arc<RootCertStore>>>,
    required: OnceLock<Verifier>,
    optional: OnceLock<Verifier>,
}

/// None where no certificate of an authority can be read, or a revocation list cannot.
type Verifier = Option<Arc<dyn ClientCertVerifier>>;

/// The hash of a trust's name.
pub fn hash_of(name: &str) -> u64 {
    hash(CLASS, name)
}

impl TrustEntry {
    /// A trust that nobody has read.
    pub fn new(sealed: SealedArc) -> Self {
        TrustEntry::with(sealed, TRUST_SUBJECT_MAX)
    }

    /// The trust of the mesh, that nobody has read.
    pub fn of_mesh(sealed: SealedArc) -> Self {
        TrustEntry::with(sealed, chain::MESH_SUBJECT_MAX)
    }

    fn with(sealed: SealedArc, subject_max: usize) -> Self {
        TrustEntry {
            hash: hash_of(sealed.name()),
            servers: Arc::new(ServerTrust::new(sealed.clone(), subject_max)),
            sealed,
            subject_max,
            roots: OnceLock::new(),
            required: OnceLock::new(),
            optional: OnceLock::new(),
        }
    }

    /// The authorities, read once; none where not a single one can be read.
    pub fn roots(&self) -> Option<Arc<RootCertStore>> {
        let read = || {
            let trust = self.sealed.trust()?;
            chain::authorities(&trust.roots, self.subject_max)
        };
        self.roots.get_or_init(read).clone()
    }

    /// The verifier of clients by these authorities, made once for all that ask by them.
    pub fn verifier(&self, mode: ClientAuthMode) -> Verifier {
        let make = || {
            let provider = Arc::new(aws_lc_rs::default_provider());
            let roots = self.roots()?;
            let are_told = hint_bytes(&roots) <= HINT_BYTES_MAX;
            let builder =
                WebPkiClientVerifier::builder_with_provider(roots, provider).with_crls(self.crls());
            // Names are hints. Without any a client shows what it has (RFC 5246, section 7.4.4;
            // RFC 8446, section 4.2.4), and is verified as ever.
            let builder = match are_told {
                true => builder,
                false => builder.clear_root_hint_subjects(),
            };
            let builder = match mode {
                ClientAuthMode::Required => builder,
                ClientAuthMode::Optional | ClientAuthMode::Shown => builder.allow_unauthenticated(),
            };
            builder.build().ok()
        };
        let made = match mode {
            ClientAuthMode::Required => &self.required,
            ClientAuthMode::Optional | ClientAuthMode::Shown => &self.optional,
        };
        made.get_or_init(make).clone()
    }

    /// The revocation lists.
    pub fn crls(&self) -> Vec<CertificateRevocationListDer<'static>> {
        let trust = self.sealed.trust();
        let all = trust.map_or(&[][..], |trust| &trust.crls);
        all.iter().map(|der| der.to_vec().into()).collect()
    }
}

/// The bytes that the names of authorities take in a handshake.
fn hint_bytes(roots: &RootCertStore) -> usize {
    let names = roots.subjects();
    names.iter().map(|name| name.as_ref().len() + 2).sum()
}

impl Keyed for TrustEntry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.sealed.name() == other.sealed.name()
    }
}
