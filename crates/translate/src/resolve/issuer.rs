//! The issuers that objects name, and the Secrets that issuers do.
//!
//! A name is never one of another namespace: what an object says is looked up beside it, then among
//! the issuers that are for all namespaces, and then among those of the settings.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind, Secret, Severity};

use super::facts::SharedFact;
use crate::engine::{HintFact, Reader};
use crate::settings::CertManager;

impl Reader<'_> {
    /// The issuer that an object of a namespace means by a name, by the name that wishes have for
    /// it; none where there is none.
    pub fn issuer_named(&mut self, namespace: &str, name: &str) -> Option<Box<str>> {
        let own = self.issuer_of(ObjectKind::Issuer, namespace, name);
        let found = own.or_else(|| self.issuer_of(ObjectKind::ClusterIssuer, namespace, name));
        found.or_else(|| self.settings().has_issuer(name).then(|| name.into()))
    }

    /// The same where the kind is said: an Issuer of that namespace, or a ClusterIssuer.
    pub fn issuer_of(&mut self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Box<str>> {
        let key = ObjectKey::new(kind, namespace, name);
        self.read_object(kind, key.id());
        let is_there = self.stored().has(kind, key.id());
        is_there.then(|| issuer_name(&key))
    }

    /// Whether cert-manager provides certificates in the same cluster.
    pub fn cert_manager(&mut self) -> CertManager {
        self.read(HintFact);
        self.settings().cert_manager
    }

    /// A Secret whose values issuers may use; none where there is no such Secret.
    pub fn issuer_keys(&mut self, id: &str) -> Option<Arc<Secret>> {
        self.read(SharedFact::Keys(id));
        self.secret(id).filter(|secret| secret.keys.is_some())
    }
}

/// The name that wishes have for the issuer that an object makes.
pub(crate) fn issuer_name(key: &ObjectKey) -> Box<str> {
    match key.kind {
        ObjectKind::Issuer => (**key.id()).into(),
        _ => key.name().into(),
    }
}

/// The finding about an object that names an issuer which is not there.
pub(crate) fn no_issuer(
    reader: &mut Reader<'_>,
    object: &ObjectKey,
    field: String,
    issuer: &str,
) -> Option<Finding> {
    let found = reader.issuer_named(object.namespace(), issuer);
    let is_missing = found.is_none() && reader.settings().issuers.is_some();
    is_missing.then(|| {
        Finding::new(
            Severity::Error,
            object,
            field,
            format!("names issuer {issuer}, which is not there, so no certificate is obtained"),
            format!(
                "write an Issuer {issuer} beside it or a ClusterIssuer {issuer}, which controllers \
                 read with --acme, or name the issuer default and start with --acme-email or \
                 --acme-directory"
            ),
        )
    })
}
