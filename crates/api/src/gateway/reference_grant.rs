//! `gateway.networking.k8s.io` ReferenceGrant.

use super::bounded::{GroupName, List, Name, ShortName};
use super::object::GatewayKind;
use crate::ObjectKind;
use crate::istio::reading::message;

message! {
    /// The spec of a ReferenceGrant: each of `from` may name each of `to`.
    #[derive(Eq)]
    pub struct ReferenceGrantSpec {
        from: Box<[GrantFrom]> as List<GrantFrom, 16> = "from" required,
        to: Box<[GrantTo]> as List<GrantTo, 16> = "to" required,
    }
}

message! {
    /// The objects of one kind in one namespace.
    #[derive(Eq)]
    pub struct GrantFrom {
        group: Box<str> as GroupName = "group" required,
        kind: Box<str> as ShortName = "kind" required,
        namespace: Box<str> as ShortName = "namespace" required,
    }
}

message! {
    /// The objects of one kind in the namespace of the grant, or one of them.
    #[derive(Eq)]
    pub struct GrantTo {
        group: Box<str> as GroupName = "group" required,
        kind: Box<str> as ShortName = "kind" required,
        /// The name of the object; all of the kind where it is absent.
        name: Option<Box<str>> as Option<Name> = "name",
    }
}

impl GatewayKind for ReferenceGrantSpec {
    const KIND: ObjectKind = ObjectKind::ReferenceGrant;
}
