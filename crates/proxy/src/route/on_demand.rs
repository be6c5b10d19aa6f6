//! Certificates that were obtained on demand, as handshakes find them: by the host alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use myriad_model::{SealedArc, on_demand_host};

use super::certificate::CertificateEntry;
use super::leaf::Keyed;
use crate::random::hash::hash;

const CLASS: u8 = 17;

/// The certificate of a host that no domain names.
pub struct OnDemandEntry {
    hash: u64,
    /// The host, in lower case.
    pub host: Arc<str>,
    /// The certificate.
    pub certificate: Arc<CertificateEntry>,
    /// The span of time in which it was last told that somebody uses it.
    told: AtomicU32,
}

/// The hash of a host.
pub fn hash_of(host: &str) -> u64 {
    hash(CLASS, host)
}

impl OnDemandEntry {
    /// The entry of a certificate; none of one that was not obtained on demand.
    pub fn new(sealed: &SealedArc) -> Option<Self> {
        let host: Arc<str> = on_demand_host(sealed.name())?.into();
        Some(OnDemandEntry {
            hash: hash_of(&host),
            host,
            certificate: Arc::new(CertificateEntry::new(sealed.clone())),
            told: AtomicU32::new(0),
        })
    }

    /// Whether nobody was told yet in a span of time that it is used. From now on somebody was.
    pub fn is_untold(&self, span: u32) -> bool {
        // A load first, so that handshakes on all cores do not write the same line.
        self.told.load(Ordering::Relaxed) != span && self.told.swap(span, Ordering::Relaxed) != span
    }

    /// It was not told after all.
    pub fn forget_told(&self) {
        self.told.store(0, Ordering::Relaxed);
    }
}

impl Keyed for OnDemandEntry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.host == other.host
    }
}
