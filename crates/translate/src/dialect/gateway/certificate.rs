//! The certificates that listeners show, and those that Gateways show to backends.

use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_api::gateway::{Listener, ObjectReference};

use super::grants::{self, Reference};
use crate::engine::Reader;

/// The fault of a reference to a certificate or an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefFault {
    /// The place of the reference in its list.
    pub at: usize,
    /// The kind of fault.
    pub kind: RefFaultKind,
    /// The sentence about the object that is named.
    pub message: String,
}

/// The kind of fault of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefFaultKind {
    /// It is of another namespace, and no ReferenceGrant permits it.
    NotPermitted,
    /// It names an object of a kind that cannot be meant.
    Kind,
    /// No object can have the name.
    Name,
    /// The object is not there, or has nothing that can be used.
    Unusable,
}

/// The Secrets of the certificates of a listener that may be used, be they there or not, in their
/// order, each once.
pub(crate) fn secrets(
    reader: &mut Reader<'_>,
    object: &ObjectKey,
    listener: &Listener,
) -> Vec<Arc<str>> {
    let mut found = Vec::new();
    for reference in references(listener) {
        if let Ok(secret) = secret_of(reader, object, reference)
            && !found.contains(&secret)
        {
            found.push(secret);
        }
    }
    found
}

/// The references of a listener to certificates.
pub(crate) fn references(listener: &Listener) -> &[ObjectReference] {
    let tls = listener.tls.as_ref();
    tls.map_or(&[][..], |tls| &tls.certificate_refs[..])
}

/// The faults of the certificates of a listener, and whether any is left that can be shown.
pub(crate) fn faults(
    reader: &mut Reader<'_>,
    object: &ObjectKey,
    listener: &Listener,
) -> (Vec<RefFault>, bool) {
    let mut faults = Vec::new();
    let mut is_any = false;
    for (at, reference) in references(listener).iter().enumerate() {
        match fault(reader, object, reference) {
            Some((kind, message)) => faults.push(RefFault { at, kind, message }),
            None => is_any = true,
        }
    }
    (faults, is_any)
}

/// The fault of a reference of an object to a certificate.
pub(crate) fn fault(
    reader: &mut Reader<'_>,
    object: &ObjectKey,
    reference: &ObjectReference,
) -> Option<(RefFaultKind, String)> {
    let secret = match secret_of(reader, object, reference) {
        Ok(secret) => secret,
        Err(kind) => {
            let (word, name) = (reference.kind(), &reference.name);
            return Some(match kind {
                RefFaultKind::NotPermitted => {
                    let message = format!(
                        "{word} {name} is of another namespace, where no ReferenceGrant lets this \
                         {} name it",
                        object.kind.as_str()
                    );
                    (kind, message)
                }
                RefFaultKind::Name => (kind, no_name(word, name)),
                _ => (kind, format!("{word} {name} is no Secret")),
            });
        }
    };
    let message = reader.certificate_fault(&secret)?;
    Some((RefFaultKind::Unusable, format!("Secret {secret} {message}")))
}

/// The sentence about a reference whose name no object can have.
pub(crate) fn no_name(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} is named as no object can be")
}

/// The Secret that a reference of an object names, by `namespace/name`.
///
/// # Errors
/// Why it names none.
pub(crate) fn secret_of(
    reader: &mut Reader<'_>,
    object: &ObjectKey,
    reference: &ObjectReference,
) -> Result<Arc<str>, RefFaultKind> {
    if !reference.group().is_empty() || reference.kind() != "Secret" {
        return Err(RefFaultKind::Kind);
    }
    let own = object.namespace();
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    let asked = Reference {
        from: object.kind,
        from_namespace: own,
        group: "",
        kind: "Secret",
        namespace,
        name: &reference.name,
    };
    if !asked.is_nameable() {
        return Err(RefFaultKind::Name);
    }
    match grants::permit(reader, &asked) {
        true => Ok(format!("{namespace}/{}", reference.name).into()),
        false => Err(RefFaultKind::NotPermitted),
    }
}
