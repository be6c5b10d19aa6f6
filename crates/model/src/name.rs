//! Names, kinds and keys of resources, and the objects that they came from.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::Endpoints;

/// The kinds of resources. Their numbers are part of the wire form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// See [`crate::Listener`].
    Listener,
    /// See [`crate::Domain`].
    Domain,
    /// See [`crate::Certificate`].
    Certificate,
    /// See [`crate::Route`].
    Route,
    /// See [`crate::Upstream`].
    Upstream,
    /// See [`crate::Endpoints`].
    Endpoints,
    /// See [`crate::Trust`].
    Trust,
    /// See [`crate::StreamRoute`].
    StreamRoute,
    /// See [`crate::AccessPolicy`].
    AccessPolicy,
    /// See [`crate::Provider`].
    Provider,
    /// See [`crate::Telemetry`].
    Telemetry,
    /// See [`crate::ChallengeAnswer`].
    ChallengeAnswer,
    /// A kind of a newer build, of which this one knows the number. No value is of it: such a
    /// resource is refused by name, and kept where bytes are kept as they came.
    Newer(NewerKind),
}

/// The number of a kind that this build does not know. Only [`Kind::from_number`] makes one, so
/// that a kind which is known has no second form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NewerKind(u8);

impl Kind {
    /// Every kind that this build knows, in the order of their numbers.
    pub const ALL: [Kind; 12] = [
        Kind::Listener,
        Kind::Domain,
        Kind::Certificate,
        Kind::Route,
        Kind::Upstream,
        Kind::Endpoints,
        Kind::Trust,
        Kind::StreamRoute,
        Kind::AccessPolicy,
        Kind::Provider,
        Kind::Telemetry,
        Kind::ChallengeAnswer,
    ];

    /// The highest number of a kind that this build knows.
    pub const NUMBER_MAX: usize = Kind::ALL[Kind::ALL.len() - 1].number() as usize;

    /// The kind with this number on the wire. Numbers are bytes, since that is what places in the
    /// digest tree are made of; 0 is none.
    pub fn from_number(number: u32) -> Option<Kind> {
        let number = u8::try_from(number).ok().filter(|number| *number > 0)?;
        let known = Kind::ALL.into_iter().find(|kind| kind.number() == number);
        Some(known.unwrap_or(Kind::Newer(NewerKind(number))))
    }

    /// The kind with this number, as a build sees it that knows no higher one than `number_max`.
    #[must_use]
    pub fn within(self, number_max: u8) -> Kind {
        match self.number() {
            number if number > number_max => Kind::Newer(NewerKind(number)),
            _ => self,
        }
    }

    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Kind::Listener => 1,
            Kind::Domain => 2,
            Kind::Certificate => 3,
            Kind::Route => 4,
            Kind::Upstream => 5,
            Kind::Endpoints => 6,
            Kind::Trust => 7,
            Kind::StreamRoute => 8,
            Kind::AccessPolicy => 9,
            Kind::Provider => 10,
            Kind::Telemetry => 11,
            Kind::ChallengeAnswer => 12,
            Kind::Newer(NewerKind(number)) => number,
        }
    }

    /// The word for the kind in dumps and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Listener => "listener",
            Kind::Domain => "domain",
            Kind::Certificate => "certificate",
            Kind::Route => "route",
            Kind::Upstream => "upstream",
            Kind::Endpoints => "endpoints",
            Kind::Trust => "trust",
            Kind::StreamRoute => "stream_route",
            Kind::AccessPolicy => "access_policy",
            Kind::Provider => "provider",
            Kind::Telemetry => "telemetry",
            Kind::ChallengeAnswer => "challenge_answer",
            Kind::Newer(_) => "newer kind",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Newer(NewerKind(number)) => write!(f, "kind {number}"),
            known => f.write_str(known.as_str()),
        }
    }
}

/// The name of a resource, unique within its kind. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// A name from its text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Name(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, shared: what carries the same name needs no second allocation.
    pub fn text(&self) -> &Arc<str> {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(text.into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Kind and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The kind.
    pub kind: Kind,
    /// The name.
    pub name: Name,
}

impl Key {
    /// A key.
    pub fn new(kind: Kind, name: impl Into<Name>) -> Self {
        Key {
            kind,
            name: name.into(),
        }
    }

    /// The group of a resource: resources of one kind and group take effect together. The routes of
    /// one host, whose names are `namespace/object/host/` and the rest, are a group, and so are the
    /// endpoints of an upstream. Everything else, and a route of another name, is a group of its
    /// own.
    pub fn group(&self) -> &str {
        let mut parts = self.name.splitn(4, '/').skip(2);
        match (self.kind, parts.next(), parts.next()) {
            (Kind::Route, Some(host), Some(_)) => host,
            (Kind::Endpoints, ..) => Endpoints::upstream_of(&self.name),
            _ => &self.name,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The object that a resource came from, for receipts, explanations and the access log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The object's kind.
    pub kind: OriginKind,
    /// `namespace/name`; an empty namespace for objects without one.
    pub id: Arc<str>,
}

/// The kinds of objects that resources come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OriginKind {
    /// Not an object: what the process was started with.
    Settings,
    /// `networking.k8s.io/v1`.
    Ingress,
    /// `v1`.
    Service,
    /// `v1`.
    Secret,
    /// `networking.istio.io`.
    Gateway,
    /// `networking.istio.io`.
    VirtualService,
    /// `security.istio.io`.
    AuthorizationPolicy,
    /// `security.istio.io`.
    RequestAuthentication,
    /// `networking.istio.io`.
    ServiceEntry,
    /// `telemetry.istio.io`.
    Telemetry,
    /// `myriad.dev`.
    Order,
    /// `gateway.networking.k8s.io`.
    KubernetesGateway,
    /// `gateway.networking.k8s.io`.
    ListenerSet,
    /// `gateway.networking.k8s.io`.
    HttpRoute,
    /// `gateway.networking.k8s.io`.
    GrpcRoute,
    /// `gateway.networking.k8s.io`.
    TlsRoute,
    /// `gateway.networking.k8s.io`.
    TcpRoute,
    /// `gateway.networking.k8s.io`.
    UdpRoute,
    /// A kind that only a newer controller knows.
    Object,
}

impl OriginKind {
    const ALL: [OriginKind; 19] = [
        OriginKind::Settings,
        OriginKind::Ingress,
        OriginKind::Service,
        OriginKind::Secret,
        OriginKind::Gateway,
        OriginKind::VirtualService,
        OriginKind::AuthorizationPolicy,
        OriginKind::RequestAuthentication,
        OriginKind::ServiceEntry,
        OriginKind::Telemetry,
        OriginKind::Order,
        OriginKind::KubernetesGateway,
        OriginKind::ListenerSet,
        OriginKind::HttpRoute,
        OriginKind::GrpcRoute,
        OriginKind::TlsRoute,
        OriginKind::TcpRoute,
        OriginKind::UdpRoute,
        OriginKind::Object,
    ];

    /// The kind as written in `kind:`, with its group where another kind is called so too.
    pub const fn as_str(self) -> &'static str {
        match self {
            OriginKind::Settings => "Settings",
            OriginKind::Ingress => "Ingress",
            OriginKind::Service => "Service",
            OriginKind::Secret => "Secret",
            OriginKind::Gateway => "Gateway",
            OriginKind::VirtualService => "VirtualService",
            OriginKind::AuthorizationPolicy => "AuthorizationPolicy",
            OriginKind::RequestAuthentication => "RequestAuthentication",
            OriginKind::ServiceEntry => "ServiceEntry",
            OriginKind::Telemetry => "Telemetry",
            OriginKind::Order => "Order",
            OriginKind::KubernetesGateway => "gateway.networking.k8s.io Gateway",
            OriginKind::ListenerSet => "ListenerSet",
            OriginKind::HttpRoute => "HTTPRoute",
            OriginKind::GrpcRoute => "GRPCRoute",
            OriginKind::TlsRoute => "TLSRoute",
            OriginKind::TcpRoute => "TCPRoute",
            OriginKind::UdpRoute => "UDPRoute",
            OriginKind::Object => "Object",
        }
    }

    /// The kind of this word. Nothing depends on it but what people are shown, so an unknown one
    /// is no error.
    pub fn from_word(word: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.as_str() == word)
            .unwrap_or(OriginKind::Object)
    }
}

impl Origin {
    /// The origin of resources that follow from settings alone.
    pub fn settings() -> Self {
        Origin {
            kind: OriginKind::Settings,
            id: "/settings".into(),
        }
    }

    /// The namespace; empty for objects without one.
    pub fn namespace(&self) -> &str {
        self.id
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.id.split_once('/').map_or(&*self.id, |(_, name)| name)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            self.kind.as_str(),
            self.id.trim_start_matches('/')
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Kind};

    #[test]
    fn a_number_is_a_kind_that_is_known_or_one_of_a_newer_build() {
        for (number, kind) in (1..).zip(Kind::ALL) {
            assert_eq!(Kind::from_number(number), Some(kind));
            assert_eq!(u32::from(kind.number()), number);
        }
        let newer = Kind::from_number(77).expect("a kind of a newer build");
        assert!(matches!(newer, Kind::Newer(_)));
        assert_eq!(Key::new(newer, "shop/web").to_string(), "kind 77 shop/web");
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(256), None);
        assert_eq!(Kind::Telemetry.within(11), Kind::Telemetry);
        assert_eq!(Kind::Telemetry.within(10).to_string(), "kind 11");
    }

    #[test]
    fn what_takes_effect_together_is_one_group() {
        for (kind, name, group) in [
            (Kind::Route, "shop/web/a.example/exact:/a/b", "a.example"),
            (Kind::Route, "shop/other/a.example/+", "a.example"),
            (Kind::Route, "shop/other/a.example/+7f", "a.example"),
            (Kind::Route, "mesh/a.example", "mesh/a.example"),
            (Kind::Endpoints, "shop/web:80", "shop/web:80"),
            (
                Kind::Endpoints,
                "shop/web:443+https#7f",
                "shop/web:443+https",
            ),
            (Kind::Upstream, "shop/web:80#7f", "shop/web:80#7f"),
        ] {
            assert_eq!(Key::new(kind, name).group(), group, "{name}");
        }
    }
}
