//! The issuer that provides the certificates of an Ingress: the one of our annotation, or else,
//! where cert-manager is not there, the one of our own that its annotation would mean.

use myriad_api::{Meta, ObjectKind};

use super::annotations::Options;
use crate::engine::Reader;
use crate::settings::CertManager;

/// The annotations for cert-manager, and the kinds of the issuers that they name.
const HINTS: [(&str, ObjectKind); 2] = [
    ("cert-manager.io/cluster-issuer", ObjectKind::ClusterIssuer),
    ("cert-manager.io/issuer", ObjectKind::Issuer),
];

/// An annotation for cert-manager that is a hint here.
pub(super) struct Hint<'a> {
    /// Its key.
    pub key: &'static str,
    /// The kind of issuer that it names.
    pub kind: ObjectKind,
    /// The name.
    pub name: &'a str,
}

/// The issuer, by the name that wishes have for it; none where no annotation names one that is
/// there.
pub(super) fn issuer(reader: &mut Reader<'_>, meta: &Meta, options: &Options) -> Option<Box<str>> {
    let namespace = meta.key.namespace();
    if let Some(name) = &options.issuer {
        return reader.issuer_named(namespace, name);
    }
    let hint = hint(reader, meta)?;
    reader.issuer_of(hint.kind, namespace, hint.name)
}

/// The hint of an Ingress where no issuer is there that it would mean.
pub(super) fn unmet<'a>(reader: &mut Reader<'_>, meta: &'a Meta) -> Option<Hint<'a>> {
    let hint = hint(reader, meta)?;
    let found = reader.issuer_of(hint.kind, meta.key.namespace(), hint.name);
    found.is_none().then_some(hint)
}

/// The hint of an Ingress. There is none while cert-manager is or may be there: it would write the
/// same Secret.
fn hint<'a>(reader: &mut Reader<'_>, meta: &'a Meta) -> Option<Hint<'a>> {
    let ignored = &reader.settings().ignore_annotations;
    let mut hints = HINTS.into_iter().filter(|(key, _)| !ignored.contains(*key));
    let (key, kind, name) = hints.find_map(|(key, kind)| {
        let name = meta.annotation(key)?.trim();
        (!name.is_empty()).then_some((key, kind, name))
    })?;
    let is_absent = reader.cert_manager() == CertManager::Absent;
    is_absent.then_some(Hint { key, kind, name })
}
