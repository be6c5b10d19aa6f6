//! Why a peer was not believed in a handshake of the mesh: counted each time, and said in the log
//! now and then, since who is not believed comes again.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use myriad_base::clock;
use rustls::{CertificateError, Error};

use super::count::{Count, Counts};

/// The shortest time between two lines of the log for one reason, in seconds.
const LOG_INTERVAL: i64 = 10;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has shown no certificate.
    Anonymous,
    /// Its certificate has ended.
    Ended,
    /// Its certificate has not begun.
    NotBegun,
    /// No authority that is trusted has signed its certificate.
    Authority,
    /// It is of another trust domain, or not who was expected, or nobody.
    Identity,
    /// Its certificate is wrong in some other way.
    Other,
}

impl Refusal {
    /// The reason in an error of a handshake; none where that failed otherwise.
    pub fn of(error: &io::Error) -> Option<Refusal> {
        let inner = error.get_ref()?;
        let tls = inner.downcast_ref::<Error>();
        tls.or_else(|| inner.source()?.downcast_ref())
            .and_then(Refusal::of_tls)
    }

    /// The same where the error is bare.
    pub fn of_tls(error: &Error) -> Option<Refusal> {
        use CertificateError as Bad;
        Some(match error {
            Error::NoCertificatesPresented => Refusal::Anonymous,
            Error::InvalidCertificate(bad) => match bad {
                Bad::Expired | Bad::ExpiredContext { .. } => Refusal::Ended,
                Bad::NotValidYet | Bad::NotValidYetContext { .. } => Refusal::NotBegun,
                Bad::UnknownIssuer | Bad::BadSignature => Refusal::Authority,
                Bad::NotValidForName
                | Bad::NotValidForNameContext { .. }
                | Bad::ApplicationVerificationFailure => Refusal::Identity,
                _ => Refusal::Other,
            },
            _ => return None,
        })
    }

    /// Counts it, and says it where it was not said of late.
    pub fn tell(self, peer: SocketAddr, counts: &Counts) {
        static SAID: [AtomicI64; 6] = [const { AtomicI64::new(i64::MIN) }; 6];
        counts.add(match self {
            Refusal::Anonymous => Count::PeerAnonymous,
            Refusal::Ended => Count::PeerEnded,
            Refusal::NotBegun => Count::PeerNotBegun,
            Refusal::Authority => Count::PeerAuthority,
            Refusal::Identity => Count::PeerIdentity,
            Refusal::Other => Count::PeerOther,
        });
        let now = clock::unix_seconds();
        let Some(said) = SAID.get(self as usize) else {
            return;
        };
        let is_due = |said: i64| now.saturating_sub(said) >= LOG_INTERVAL || now < said;
        let next = said.fetch_update(Relaxed, Relaxed, |said| is_due(said).then_some(now));
        if next.is_ok() {
            let reason = self.reason();
            tracing::warn!(%peer, reason, "a peer of the mesh is not believed");
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Refusal::Anonymous => "it has shown no certificate",
            Refusal::Ended => "its certificate has ended by this clock",
            Refusal::NotBegun => "its certificate has not begun by this clock",
            Refusal::Authority => "no authority of the mesh has signed its certificate",
            Refusal::Identity => "it is of another trust domain, or not who is expected there",
            Refusal::Other => "its certificate is of no use",
        }
    }
}
