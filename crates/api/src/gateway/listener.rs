//! Listeners, as Gateways and ListenerSets have them, and `gateway.networking.k8s.io`
//! ListenerSet.

use super::GROUP;
use super::bounded::{
    BoundedLabels, FilledText, GroupName, Hostname, List, Name, PortNumber, ShortName, Text,
};
use super::object::{GatewayKind, problem};
use super::reference::{ObjectReference, ParentGateway};
use crate::ObjectKind;
use crate::istio::reading::{Wire, message};
use crate::istio::{Labels, SpecProblem};

/// The most listeners of a Gateway, and of a ListenerSet.
pub const LISTENERS_MAX: usize = 64;

/// The most labels or conditions of a selector, which has no bound in the definitions.
pub const SELECTOR_MAX: usize = 16;

/// The most values of a condition of a selector.
pub const SELECTOR_VALUES_MAX: usize = 256;

message! {
    /// The spec of a ListenerSet.
    #[derive(Eq)]
    pub struct ListenerSetSpec {
        parent: ParentGateway = "parentRef" required,
        listeners: Box<[Listener]> as List<Listener, LISTENERS_MAX> = "listeners" required,
    }
}

message! {
    /// A port with a protocol and, for some, a host.
    #[derive(Eq)]
    pub struct Listener {
        name: Box<str> as Name = "name" required,
        /// The host of the listener; every host where it is absent.
        hostname: Option<Box<str>> as Option<Hostname> = "hostname",
        port: u16 as PortNumber = "port" required,
        /// HTTP, HTTPS, TLS, TCP, UDP, or a domain and a path for a protocol of its owner.
        protocol: Box<str> as FilledText<255> = "protocol" required,
        tls: Option<Box<ListenerTls>> = "tls",
        allowed_routes: Option<Box<AllowedRoutes>> = "allowedRoutes",
    }
}

message! {
    /// TLS towards clients.
    #[derive(Eq)]
    pub struct ListenerTls {
        /// `Terminate`, which is the default, or `Passthrough`.
        mode: Option<Box<str>> as Option<Text<253>> = "mode",
        certificate_refs: Box<[ObjectReference]> as List<ObjectReference, 64> = "certificateRefs",
        /// Settings of implementations.
        options: Labels as BoundedLabels<16, 4_096> = "options",
    }
}

message! {
    /// The routes that a listener takes.
    #[derive(Eq)]
    pub struct AllowedRoutes {
        /// The namespaces of routes; the listener's own where it is absent.
        namespaces: Option<RouteNamespaces> = "namespaces",
        /// Empty for those that the protocol allows.
        kinds: Box<[RouteGroupKind]> as List<RouteGroupKind, 8> = "kinds",
    }
}

message! {
    /// A kind of routes.
    #[derive(Eq)]
    pub struct RouteGroupKind {
        /// The API group; that of Gateway API where it is absent.
        group: Option<Box<str>> as Option<GroupName> = "group",
        kind: Box<str> as ShortName = "kind" required,
    }
}

impl RouteGroupKind {
    /// The group, by default that of Gateway API.
    pub fn group(&self) -> &str {
        self.group.as_deref().unwrap_or(GROUP)
    }
}

message! {
    /// Namespaces from which objects are taken.
    #[derive(Eq)]
    pub struct RouteNamespaces {
        /// `All`, `Selector`, `Same` or `None`; the default is `Same` for routes and `None` for
        /// ListenerSets.
        from: Option<Box<str>> as Option<Text<253>> = "from",
        selector: Option<LabelSelector> = "selector",
    }
}

message! {
    /// The ListenerSets that a Gateway takes.
    pub(super) struct RawAllowedListeners {
        namespaces: Option<RouteNamespaces> = "namespaces",
    }
}

impl Wire<RouteNamespaces> for RawAllowedListeners {
    fn into_kept(self) -> RouteNamespaces {
        self.namespaces.unwrap_or_default()
    }
}

message! {
    /// Objects with all of these labels, for which all of these conditions hold.
    #[derive(Eq)]
    pub struct LabelSelector {
        match_labels: Labels as BoundedLabels<SELECTOR_MAX, 63> = "matchLabels",
        match_expressions: Box<[LabelExpression]> as List<LabelExpression, SELECTOR_MAX> =
            "matchExpressions",
    }
}

message! {
    /// A condition of a label.
    #[derive(Eq)]
    pub struct LabelExpression {
        key: Box<str> as Text<317> = "key" required,
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: Box<str> as Text<253> = "operator" required,
        values: Box<[Box<str>]> as List<Text<63>, SELECTOR_VALUES_MAX> = "values",
    }
}

impl GatewayKind for ListenerSetSpec {
    const KIND: ObjectKind = ObjectKind::ListenerSet;

    fn finish(&mut self) -> Result<(), SpecProblem> {
        check_names(&self.listeners)
    }
}

/// Listeners are told apart by their names, in routes and in statuses.
pub(super) fn check_names(listeners: &[Listener]) -> Result<(), SpecProblem> {
    let mut names: Vec<&str> = listeners.iter().map(|listener| &*listener.name).collect();
    names.sort_unstable();
    match names.is_sorted_by(|one, next| one < next) {
        true => Ok(()),
        false => Err(problem("spec.listeners", "has two listeners of one name")),
    }
}
