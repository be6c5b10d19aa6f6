//! Trusts as connections to endpoints verify by them.
//!
//! Authorities and revocation lists may be a megabyte each, and larger once they are read. What is
//! made of them is made once in the process, however many names, certificates and workers there are
//! that it is used with.

use std::sync::{Arc, OnceLock};

use myriad_model::{SealedArc, Version};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateRevocationListDer;

use super::chain;

/// A trust that servers are verified by.
#[derive(Debug)]
pub struct ServerTrust {
    sealed: SealedArc,
    /// The most authorities of one subject.
    subject_max: usize,
    made: OnceLock<Option<ServerChain>>,
}

/// The verification of the chains of servers, whatever names are wanted.
#[derive(Clone, Debug)]
pub(crate) struct ServerChain {
    /// Verifies chain, validity, purpose and revocation.
    pub(crate) verifier: Arc<WebPkiServerVerifier>,
    /// The authorities.
    pub(crate) roots: Arc<RootCertStore>,
    /// Whether there are revocation lists.
    pub(crate) has_crls: bool,
}

impl ServerTrust {
    /// A trust that nobody has read.
    pub(crate) fn new(sealed: SealedArc, subject_max: usize) -> Self {
        ServerTrust {
            sealed,
            subject_max,
            made: OnceLock::new(),
        }
    }

    /// Its version.
    pub(crate) fn version(&self) -> Version {
        self.sealed.version()
    }

    /// The verification by it, made at its first use; none where no authority can be read, or a
    /// revocation list cannot.
    pub(crate) fn chain(&self) -> Option<ServerChain> {
        let make = || {
            let trust = self.sealed.trust()?;
            let roots = chain::authorities(&trust.roots, self.subject_max)?;
            let crls = trust.crls.iter().map(|der| der.to_vec().into());
            ServerChain::new(roots, crls.collect())
        };
        self.made.get_or_init(make).clone()
    }
}

impl ServerChain {
    /// The verification by authorities and revocation lists; none where a list cannot be read.
    pub(crate) fn new(
        roots: Arc<RootCertStore>,
        crls: Vec<CertificateRevocationListDer<'static>>,
    ) -> Option<Self> {
        let has_crls = !crls.is_empty();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider);
        Some(ServerChain {
            verifier: builder.with_crls(crls).build().ok()?,
            roots,
            has_crls,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use myriad_model::{Form, Name, Origin, Resource, SealedArc, Sealer, Trust, Users, Value};

    use super::ServerTrust;

    fn trust(roots: Vec<Bytes>) -> ServerTrust {
        let value = Value::Trust(Box::new(Trust {
            roots: roots.into(),
            crls: Box::default(),
            users: Users::default(),
        }));
        let origin = Origin::settings();
        let resource = Resource { origin, value };
        let mut sealer = Sealer::new([0; 32], Form::Value);
        let sealed = sealer.seal(Name::from("shop/ca"), resource);
        ServerTrust::new(SealedArc::new(sealed), 4)
    }

    #[test]
    fn what_is_made_of_a_trust_is_made_once() {
        let root = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        let trust = trust(vec![Bytes::from(root.cert.der().to_vec())]);
        let [one, other] = [(); 2].map(|()| trust.chain().unwrap());
        assert!(Arc::ptr_eq(&one.verifier, &other.verifier));
        assert!(Arc::ptr_eq(&one.roots, &other.roots));
        assert!(!one.has_crls);
    }

    #[test]
    fn a_trust_without_an_authority_verifies_nobody() {
        assert!(trust(vec![Bytes::from_static(b"no")]).chain().is_none());
    }
}
