//! A route of any kind, as far as it matters which of them it is.

use std::sync::Arc;

use myriad_api::gateway::{
    GROUP, GrpcRoute, HttpRoute, ParentReference, TcpRoute, TlsRoute, UdpRoute,
};
use myriad_api::istio::Note;
use myriad_api::{Meta, Object, ObjectKey, ObjectKind};
use myriad_model::{Origin, OriginKind};

use crate::engine::PortSpeech;

/// A route of any kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RouteObject {
    /// For requests of HTTP.
    Http(Arc<HttpRoute>),
    /// For calls of gRPC.
    Grpc(Arc<GrpcRoute>),
    /// For handshakes.
    Tls(Arc<TlsRoute>),
    /// For connections.
    Tcp(Arc<TcpRoute>),
    /// For datagrams.
    Udp(Arc<UdpRoute>),
}

impl RouteObject {
    /// The route that an object is; none where it is no route.
    pub(crate) fn of(object: &Object) -> Option<Self> {
        Some(match object {
            Object::HttpRoute(route) => RouteObject::Http(route.clone()),
            Object::GrpcRoute(route) => RouteObject::Grpc(route.clone()),
            Object::TlsRoute(route) => RouteObject::Tls(route.clone()),
            Object::TcpRoute(route) => RouteObject::Tcp(route.clone()),
            Object::UdpRoute(route) => RouteObject::Udp(route.clone()),
            _ => return None,
        })
    }

    /// Key, age and annotations.
    pub(crate) fn meta(&self) -> &Meta {
        match self {
            RouteObject::Http(route) => &route.meta,
            RouteObject::Grpc(route) => &route.meta,
            RouteObject::Tls(route) => &route.meta,
            RouteObject::Tcp(route) => &route.meta,
            RouteObject::Udp(route) => &route.meta,
        }
    }

    /// The key.
    pub(crate) fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    /// The generation, which conditions name.
    pub(crate) fn generation(&self) -> i64 {
        match self {
            RouteObject::Http(route) => route.generation,
            RouteObject::Grpc(route) => route.generation,
            RouteObject::Tls(route) => route.generation,
            RouteObject::Tcp(route) => route.generation,
            RouteObject::Udp(route) => route.generation,
        }
    }

    /// Notes of what was written and is not known.
    pub(crate) fn notes(&self) -> &[Note] {
        match self {
            RouteObject::Http(route) => &route.notes,
            RouteObject::Grpc(route) => &route.notes,
            RouteObject::Tls(route) => &route.notes,
            RouteObject::Tcp(route) => &route.notes,
            RouteObject::Udp(route) => &route.notes,
        }
    }

    /// The objects that it is for, as they are named.
    pub(crate) fn parents(&self) -> &[ParentReference] {
        match self {
            RouteObject::Http(route) => &route.spec.parents,
            RouteObject::Grpc(route) => &route.spec.parents,
            RouteObject::Tls(route) => &route.spec.parents,
            RouteObject::Tcp(route) => &route.spec.parents,
            RouteObject::Udp(route) => &route.spec.parents,
        }
    }

    /// Whether Gateways take it that take routes without a parent.
    pub(crate) fn uses_defaults(&self) -> bool {
        let scope = match self {
            RouteObject::Http(route) => &route.spec.use_default_gateways,
            RouteObject::Grpc(route) => &route.spec.use_default_gateways,
            RouteObject::Tls(route) => &route.spec.use_default_gateways,
            RouteObject::Tcp(route) => &route.spec.use_default_gateways,
            RouteObject::Udp(route) => &route.spec.use_default_gateways,
        };
        **scope == *"All"
    }

    /// The hosts that it names; none for all of its listeners.
    pub(crate) fn hostnames(&self) -> &[Box<str>] {
        match self {
            RouteObject::Http(route) => &route.spec.hostnames,
            RouteObject::Grpc(route) => &route.spec.hostnames,
            RouteObject::Tls(route) => &route.spec.hostnames,
            RouteObject::Tcp(_) | RouteObject::Udp(_) => &[],
        }
    }

    /// The kind as it is written.
    pub(crate) fn kind(&self) -> &'static str {
        self.key().kind.as_str()
    }

    /// The word that begins the names of its resources.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            RouteObject::Http(_) => "http",
            RouteObject::Grpc(_) => "grpc",
            RouteObject::Tls(_) => "tls",
            RouteObject::Tcp(_) => "tcp",
            RouteObject::Udp(_) => "udp",
        }
    }

    /// Whether it is for requests.
    pub(crate) fn is_of_requests(&self) -> bool {
        matches!(self, RouteObject::Http(_) | RouteObject::Grpc(_))
    }

    /// The other kind that is for requests.
    pub(crate) fn rival(&self) -> Option<ObjectKind> {
        match self {
            RouteObject::Http(_) => Some(ObjectKind::GrpcRoute),
            RouteObject::Grpc(_) => Some(ObjectKind::HttpRoute),
            RouteObject::Tls(_) | RouteObject::Tcp(_) | RouteObject::Udp(_) => None,
        }
    }

    /// The origin of what is made of it.
    pub(crate) fn origin(&self) -> Origin {
        let kind = match self {
            RouteObject::Http(_) => OriginKind::HttpRoute,
            RouteObject::Grpc(_) => OriginKind::GrpcRoute,
            RouteObject::Tls(_) => OriginKind::TlsRoute,
            RouteObject::Tcp(_) => OriginKind::TcpRoute,
            RouteObject::Udp(_) => OriginKind::UdpRoute,
        };
        Origin {
            kind,
            id: self.key().id().clone(),
        }
    }
}

/// The Service that a parent of a route of a namespace is; none where it is none.
pub(crate) fn service_of(parent: &ParentReference, own: &str) -> Option<Arc<str>> {
    let is_service = parent.group().is_empty() && parent.kind() == "Service";
    is_service.then(|| {
        let namespace = parent.namespace.as_deref().unwrap_or(own);
        format!("{namespace}/{}", parent.name).into()
    })
}

/// The Gateway or ListenerSet that a parent of a route of a namespace is; none where it is none.
pub(crate) fn entity_of(parent: &ParentReference, own: &str) -> Option<ObjectKey> {
    let kind = match parent.kind() {
        "Gateway" if parent.group() == GROUP => ObjectKind::Gateway,
        "ListenerSet" if parent.group() == GROUP => ObjectKind::ListenerSet,
        _ => return None,
    };
    let namespace = parent.namespace.as_deref().unwrap_or(own);
    Some(ObjectKey::new(kind, namespace, &parent.name))
}

/// The kinds of routes that a protocol of listeners takes; none for one that is not known.
pub(crate) fn kinds_of(protocol: &str) -> &'static [ObjectKind] {
    match protocol {
        "HTTP" | "HTTPS" => &[ObjectKind::HttpRoute, ObjectKind::GrpcRoute],
        "TLS" => &[ObjectKind::TlsRoute],
        "TCP" => &[ObjectKind::TcpRoute],
        "UDP" => &[ObjectKind::UdpRoute],
        _ => &[],
    }
}

/// The words on the wire of a protocol of listeners; none for one that is not known.
pub(crate) fn speech_of(protocol: &str) -> Option<PortSpeech> {
    match protocol {
        "HTTP" => Some(PortSpeech::Http),
        "HTTPS" | "TLS" => Some(PortSpeech::Tls),
        "TCP" => Some(PortSpeech::Tcp),
        "UDP" => Some(PortSpeech::Udp),
        _ => None,
    }
}
