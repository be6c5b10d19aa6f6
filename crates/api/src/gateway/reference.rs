//! How objects name other objects.

use super::GROUP;
use super::bounded::{GroupName, Name, Number, PortNumber, ShortName};
use crate::istio::reading::message;

/// A share of requests or connections, relative to the sum of all.
pub(super) type Weight = Number<0, 1_000_000>;

message! {
    /// A Gateway, a ListenerSet or a Service that a route is for, or a part of one.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct ParentReference {
        /// The API group; that of Gateway API where it is absent.
        group: Option<Box<str>> as Option<GroupName> = "group",
        /// The kind; Gateway where it is absent.
        kind: Option<Box<str>> as Option<ShortName> = "kind",
        namespace: Option<Box<str>> as Option<ShortName> = "namespace",
        name: Box<str> as Name = "name" required,
        /// A listener of a Gateway or a ListenerSet.
        section_name: Option<Box<str>> as Option<Name> = "sectionName",
        /// The listeners with this port, or the port of a Service.
        port: Option<u16> as Option<PortNumber> = "port",
    }
}

impl ParentReference {
    /// The group, by default that of Gateway API.
    pub fn group(&self) -> &str {
        self.group.as_deref().unwrap_or(GROUP)
    }

    /// The kind, by default Gateway.
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("Gateway")
    }
}

message! {
    /// The Gateway that a ListenerSet is for.
    #[derive(Eq)]
    pub struct ParentGateway {
        /// The API group; that of Gateway API where it is absent.
        group: Option<Box<str>> as Option<GroupName> = "group",
        /// The kind; Gateway where it is absent.
        kind: Option<Box<str>> as Option<ShortName> = "kind",
        namespace: Option<Box<str>> as Option<ShortName> = "namespace",
        name: Box<str> as Name = "name" required,
    }
}

impl ParentGateway {
    /// The group, by default that of Gateway API.
    pub fn group(&self) -> &str {
        self.group.as_deref().unwrap_or(GROUP)
    }

    /// The kind, by default Gateway.
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("Gateway")
    }
}

message! {
    /// A backend, with its share where it has one: those of copies and of questions have none.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct BackendRef {
        /// The API group; the core group where it is absent.
        group: Option<Box<str>> as Option<GroupName> = "group",
        /// The kind; Service where it is absent.
        kind: Option<Box<str>> as Option<ShortName> = "kind",
        namespace: Option<Box<str>> as Option<ShortName> = "namespace",
        name: Box<str> as Name = "name" required,
        port: Option<u16> as Option<PortNumber> = "port",
        /// The share of the backend; 1 where it is absent.
        weight: Option<u32> as Option<Weight> = "weight",
    }
}

impl BackendRef {
    /// The group, by default the core group.
    pub fn group(&self) -> &str {
        self.group.as_deref().unwrap_or("")
    }

    /// The kind, by default Service.
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("Service")
    }

    /// The share, by default 1.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(1)
    }
}

message! {
    /// A Secret, a ConfigMap or another object.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct ObjectReference {
        /// The API group; the core group where it is absent.
        group: Option<Box<str>> as Option<GroupName> = "group",
        /// The kind; Secret where it is absent.
        kind: Option<Box<str>> as Option<ShortName> = "kind",
        namespace: Option<Box<str>> as Option<ShortName> = "namespace",
        name: Box<str> as Name = "name" required,
    }
}

impl ObjectReference {
    /// The group, by default the core group.
    pub fn group(&self) -> &str {
        self.group.as_deref().unwrap_or("")
    }

    /// The kind, by default Secret.
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("Secret")
    }
}

message! {
    /// An object of any kind in the same namespace.
    #[derive(Eq)]
    pub struct LocalObjectReference {
        group: Box<str> as GroupName = "group" required,
        kind: Box<str> as ShortName = "kind" required,
        name: Box<str> as Name = "name" required,
    }
}
