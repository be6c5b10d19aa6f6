//! References to objects of other namespaces, and the ReferenceGrants that permit them.

use std::sync::Arc;

use myriad_api::gateway::{GROUP, ReferenceGrant};
use myriad_api::{Object, ObjectKind};

use super::facts::GatewayFact;
use crate::engine::Reader;
use crate::resolve::names::is_object_name;

/// A reference of an object of Gateway API to another object.
pub(crate) struct Reference<'a> {
    /// The kind of the object that names the other.
    pub from: ObjectKind,
    /// Its namespace.
    pub from_namespace: &'a str,
    /// The group of the object that is named; empty for the core group.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl Reference<'_> {
    /// Whether an object can have the name. Any other one must not become a part of the names of
    /// trusts, certificates and upstreams, where it would mean other objects.
    pub(crate) fn is_nameable(&self) -> bool {
        is_object_name(self.namespace) && is_object_name(self.name)
    }
}

/// Whether a reference may be made: within a namespace, or where a ReferenceGrant of the other
/// namespace says so.
pub(crate) fn permit(reader: &mut Reader<'_>, reference: &Reference<'_>) -> bool {
    if reference.namespace == reference.from_namespace {
        return true;
    }
    let fact = GatewayFact::Grants(reference.namespace, reference.group, reference.kind);
    let fact = reader.read(fact);
    let grants = reader.collect(fact, |object| match object {
        Object::ReferenceGrant(grant) => Some(grant),
        _ => None,
    });
    grants.iter().any(|grant| permits(grant, reference))
}

fn permits(grant: &Arc<ReferenceGrant>, reference: &Reference<'_>) -> bool {
    let mut from = grant.spec.from.iter();
    let mut to = grant.spec.to.iter();
    grant.meta.key.namespace() == reference.namespace
        && from.any(|from| {
            *from.group == *GROUP
                && *from.kind == *reference.from.as_str()
                && *from.namespace == *reference.from_namespace
        })
        && to.any(|to| {
            let is_named = to.name.as_deref().is_none_or(|name| name == reference.name);
            *to.group == *reference.group && *to.kind == *reference.kind && is_named
        })
}
