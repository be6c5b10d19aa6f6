//! A proof of whose a host is. Nobody writes one: the process itself makes them of records of DNS,
//! so that what was proven takes the way of all objects.

use crate::{Meta, ObjectKey, ObjectKind};

/// The namespace that has proven a host to be its own. A proof bears the name of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProof {
    /// Key and age.
    pub meta: Meta,
    /// The namespace.
    pub namespace: Box<str>,
}

impl HostProof {
    /// The proof of a host, in its wire form.
    pub fn new(host: &str, namespace: &str) -> HostProof {
        HostProof {
            meta: Meta {
                key: HostProof::key_of(host),
                created: Meta::UNKNOWN_AGE,
                annotations: Box::default(),
            },
            namespace: namespace.into(),
        }
    }

    /// The key of the proof of a host.
    pub fn key_of(host: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::HostProof, "", host)
    }
}
