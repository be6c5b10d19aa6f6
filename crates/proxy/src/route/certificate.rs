//! Certificates as handshakes find them: DER, and the parsed key while it is in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use myriad_model::{Host, SealedArc};
use rustls::sign::CertifiedKey;

use super::leaf::Keyed;
use crate::random::hash::hash;

const CLASS: u8 = 11;

/// A certificate resource and, after its first handshake, its parsed key.
pub struct CertificateEntry {
    hash: u64,
    /// The resource.
    pub sealed: SealedArc,
    parsed: Mutex<Option<Arc<Parsed>>>,
    is_used: AtomicBool,
}

/// The parts of a certificate that a handshake needs.
pub struct Parsed {
    /// Chain and key.
    pub key: Arc<CertifiedKey>,
    /// The names that the certificate is for: DNS names of its subject alternative names.
    pub names: Box<[Host]>,
}

/// The hash of a certificate's name.
pub fn hash_of(name: &str) -> u64 {
    hash(CLASS, name)
}

impl CertificateEntry {
    /// A certificate whose key nobody has parsed.
    pub fn new(sealed: SealedArc) -> Self {
        CertificateEntry {
            hash: hash_of(sealed.name()),
            sealed,
            parsed: Mutex::new(None),
            is_used: AtomicBool::new(false),
        }
    }

    /// The parsed key, if it is there. Marks it as used.
    pub fn parsed(&self) -> Option<Arc<Parsed>> {
        // A load first, so that handshakes on all cores do not write the same line.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.lock().clone()
    }

    /// Keeps a parsed key.
    pub fn keep(&self, parsed: Arc<Parsed>) {
        *self.lock() = Some(parsed);
    }

    /// Forgets the parsed key.
    pub fn forget(&self) {
        *self.lock() = None;
    }

    /// Whether the key was asked for since this was last called.
    pub fn take_used(&self) -> bool {
        self.is_used.swap(false, Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Parsed>>> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keyed for CertificateEntry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.sealed.name() == other.sealed.name()
    }
}

impl Parsed {
    /// Whether the certificate is for a lower-case name.
    pub fn covers(&self, name: &str) -> bool {
        self.names.iter().any(|host| host.covers(name))
    }
}
