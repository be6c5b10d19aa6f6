//! The identity of the proxy in its mesh, as handshakes find it. It is no resource: each proxy asks
//! for its own, and the process that runs the proxy hands it over.

use std::sync::{Arc, LazyLock};

use myriad_model::{
    Certificate, ClientAuth, ClientAuthMode, Form, Name, Origin, Resource, SealedArc, Sealer,
    Trust, Value, Version,
};

use super::certificate::CertificateEntry;
use super::trust::TrustEntry;

/// The request to every client in the mesh: a certificate of the mesh. Which of them may do
/// what is for access policies to say.
pub static MESH_CLIENTS: LazyLock<Arc<ClientAuth>> = LazyLock::new(|| {
    Arc::new(ClientAuth {
        trust: Name::from("mesh"),
        mode: ClientAuthMode::Required,
        subject_alt_names: Box::default(),
        key_hashes: Box::default(),
        certificate_hashes: Box::default(),
        depth: 0,
    })
});

/// The identity of the proxy in its mesh.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its certificate, whose subject alternative name is a SPIFFE URI, and the key of it.
    pub certificate: Certificate,
    /// The authorities that peers are verified by.
    pub roots: Trust,
    /// The trust domains whose workloads are of the mesh; empty for all that the authorities
    /// vouch for.
    pub trust_domains: Arc<[Box<str>]>,
}

/// An identity in the form that certificates and trusts have, so that handshakes treat it alike.
pub struct IdentityEntry {
    /// The certificate that is shown to peers.
    pub certificate: Arc<CertificateEntry>,
    /// The authorities that peers are verified against.
    pub trust: Arc<TrustEntry>,
    /// See [`Identity::trust_domains`].
    pub trust_domains: Arc<[Box<str>]>,
}

impl IdentityEntry {
    /// An identity whose key nobody has parsed.
    pub fn new(identity: Identity) -> Self {
        let Identity {
            certificate,
            roots,
            trust_domains,
        } = identity;
        let certificate = seal(Value::Certificate(Box::new(certificate)));
        IdentityEntry {
            certificate: Arc::new(CertificateEntry::new(certificate)),
            trust: Arc::new(TrustEntry::of_mesh(seal(Value::Trust(Box::new(roots))))),
            trust_domains,
        }
    }

    /// The versions of its certificate and its trust, by which two of them are told apart.
    pub fn versions(&self) -> (Version, Version) {
        (
            self.certificate.sealed.version(),
            self.trust.sealed.version(),
        )
    }
}

/// Versions are compared within this process only, so the key is no secret.
fn seal(value: Value) -> SealedArc {
    let origin = Origin::settings();
    let resource = Resource { origin, value };
    SealedArc::new(Sealer::new([0; 32], Form::Value).seal(Name::from("mesh"), resource))
}
