//! Why a peer was not believed in a handshake: counted each time, and said in the log now and then,
//! since who is not believed comes again.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use myriad_base::clock;
use myriad_base::log::suppressed::Topic;
use rustls::{CertificateError, Error, OtherError};

use super::count::{Count, Counts};

/// The shortest time between two lines of the log for one reason, in seconds.
const LOG_INTERVAL: i64 = 10;

/// The reason why a peer is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRefusal {
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
    /// Its certificate is of X.509 version 1, which no verifier takes for that of a peer: it can
    /// say neither whom it is for nor what it may be used for.
    Version,
    /// Its certificate is wrong in some other way.
    Other,
}

/// On which side of the proxy a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerSide {
    /// A peer of the mesh, on either side.
    Mesh,
    /// A client that has to show a certificate.
    Client,
    /// An endpoint.
    Endpoint,
}

impl PeerRefusal {
    /// The reason in an error of a handshake; none where that failed otherwise.
    pub fn of(error: &io::Error) -> Option<PeerRefusal> {
        let inner = error.get_ref()?;
        let tls = inner.downcast_ref::<Error>();
        tls.or_else(|| inner.source()?.downcast_ref())
            .and_then(PeerRefusal::of_tls)
    }

    /// The reason in a bare error of TLS.
    pub fn of_tls(error: &Error) -> Option<PeerRefusal> {
        use CertificateError as Bad;
        Some(match error {
            Error::NoCertificatesPresented => PeerRefusal::Anonymous,
            Error::InvalidCertificate(bad) => match bad {
                Bad::Expired | Bad::ExpiredContext { .. } => PeerRefusal::Ended,
                Bad::NotValidYet | Bad::NotValidYetContext { .. } => PeerRefusal::NotBegun,
                Bad::UnknownIssuer | Bad::BadSignature => PeerRefusal::Authority,
                Bad::NotValidForName
                | Bad::NotValidForNameContext { .. }
                | Bad::ApplicationVerificationFailure => PeerRefusal::Identity,
                Bad::Other(other) if is_of_version_1(other) => PeerRefusal::Version,
                _ => PeerRefusal::Other,
            },
            _ => return None,
        })
    }

    /// Counts it, and says it where it was not said of late.
    pub fn tell(self, peer: SocketAddr, side: PeerSide, counts: &Counts) {
        static SAID: [[AtomicI64; 7]; 3] = [const { [const { AtomicI64::new(i64::MIN) }; 7] }; 3];
        counts.add(self.count(side));
        let now = clock::unix_seconds();
        let said = SAID.get(side as usize);
        let Some(said) = said.and_then(|said| said.get(self as usize)) else {
            return;
        };
        let is_due = |said: i64| now.saturating_sub(said) >= LOG_INTERVAL || now < said;
        let next = said.fetch_update(Relaxed, Relaxed, |said| is_due(said).then_some(now));
        if next.is_err() {
            Topic::Peer.suppress();
            return;
        }
        let reason = self.reason();
        match side {
            PeerSide::Mesh => tracing::warn!(%peer, reason, "a peer of the mesh is not believed"),
            PeerSide::Client => tracing::warn!(%peer, reason, "a client is not believed"),
            PeerSide::Endpoint => tracing::warn!(%peer, reason, "an endpoint is not believed"),
        }
    }

    fn count(self, side: PeerSide) -> Count {
        match side {
            PeerSide::Mesh => {}
            PeerSide::Client => return Count::ClientRefused,
            PeerSide::Endpoint => return Count::EndpointRefused,
        }
        match self {
            PeerRefusal::Anonymous => Count::PeerAnonymous,
            PeerRefusal::Ended => Count::PeerEnded,
            PeerRefusal::NotBegun => Count::PeerNotBegun,
            PeerRefusal::Authority => Count::PeerAuthority,
            PeerRefusal::Identity => Count::PeerIdentity,
            PeerRefusal::Version => Count::PeerVersion,
            PeerRefusal::Other => Count::PeerOther,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            PeerRefusal::Anonymous => "it has shown no certificate",
            PeerRefusal::Ended => "its certificate has ended by this clock",
            PeerRefusal::NotBegun => "its certificate has not begun by this clock",
            PeerRefusal::Authority => {
                "no authority that is trusted here has signed its certificate"
            }
            PeerRefusal::Identity => "it is of another trust domain, or not who is expected there",
            PeerRefusal::Version => {
                "its certificate is X.509 version 1; make it of version 3, \
                 as openssl x509 -req does with -extfile or -copy_extensions"
            }
            PeerRefusal::Other => "its certificate is of no use",
        }
    }
}

/// Whether that is what is wrong with a certificate, where rustls has no word for it.
fn is_of_version_1(error: &OtherError) -> bool {
    let error = error.0.downcast_ref::<webpki::Error>();
    error == Some(&webpki::Error::UnsupportedCertVersion)
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::server::ParsedCertificate;

    use super::PeerRefusal;

    /// A leaf as `openssl x509 -req` makes it where nothing says what it may be used for.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBDjCBtQIBBzAKBggqhkjOPQQDAjANMQswCQYDVQQDDAJjYTAgFw0yNjExMjIy\n\
MDEwMDlaGA8yMTI2MTAyOTIwMTAwOVowGDEWMBQGA1UEAwwNYS5leGFtcGxlLmNv\n\
bTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABABYVv9f2osQGr3quU1+cPNPha8z\n\
aRpEFifuh+Ud+4DmGU09+tKiTcBNptvknK2uCaAH+/Y3zMsWjyar6K/nEaEwCgYI\n\
KoZIzj0EAwIDSAAwRQIhAPGPsAUqEIYCvfSpLwi5cD2440ihv5ffNV+KDLgmP8J6\n\
AiA3HdSiCFDbTxiMdwyZj5MvE58td3eT6A5rO9LkE1syQQ==\n\
-----END CERTIFICATE-----\n\
";

    #[test]
    fn a_certificate_of_version_1_is_told_apart_from_one_that_is_no_certificate() {
        let leaf = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap();
        let error = ParsedCertificate::try_from(&leaf).err().unwrap();
        assert_eq!(PeerRefusal::of_tls(&error), Some(PeerRefusal::Version));
        // An authority has to say nothing of the kind.
        assert!(RootCertStore::empty().add(leaf.clone()).is_ok());
        let broken = CertificateDer::from(&b"\x30\x00"[..]);
        let error = ParsedCertificate::try_from(&broken).err().unwrap();
        assert_eq!(PeerRefusal::of_tls(&error), Some(PeerRefusal::Other));
    }
}
