//! Objects with listeners: Gateways and ListenerSets.

use std::sync::Arc;

use myriad_api::gateway::{Gateway, Listener, ListenerSet};
use myriad_api::{Meta, ObjectKey, ObjectKind};
use myriad_model::{Host, HostError, Name, Origin, OriginKind};

use crate::engine::Reader;
use crate::resolve::names;

/// An object with listeners.
#[derive(Clone, Debug)]
pub(crate) enum Entity {
    /// A Gateway.
    Gateway(Arc<Gateway>),
    /// Further listeners of a Gateway.
    Set(Arc<ListenerSet>),
}

impl Entity {
    /// The object of a key. The caller noted what of it is read, or is a unit of its name.
    pub(crate) fn find(reader: &mut Reader<'_>, key: &ObjectKey) -> Option<Self> {
        match key.kind {
            ObjectKind::Gateway => reader.gateway_itself(key.id()).map(Entity::Gateway),
            _ => reader.listener_set_itself(key.id()).map(Entity::Set),
        }
    }

    /// Key, age and annotations.
    pub(crate) fn meta(&self) -> &Meta {
        match self {
            Entity::Gateway(gateway) => &gateway.meta,
            Entity::Set(set) => &set.meta,
        }
    }

    /// The key.
    pub(crate) fn key(&self) -> &ObjectKey {
        &self.meta().key
    }

    /// The listeners, in their order.
    pub(crate) fn listeners(&self) -> &[Listener] {
        match self {
            Entity::Gateway(gateway) => &gateway.spec.listeners,
            Entity::Set(set) => &set.spec.listeners,
        }
    }

    /// Whether it is a ListenerSet.
    pub(crate) fn is_set(&self) -> bool {
        matches!(self, Entity::Set(_))
    }

    /// The class of its claims: those of the Gateway go before all others.
    pub(crate) fn order(&self) -> u8 {
        match self {
            Entity::Gateway(_) => 0,
            Entity::Set(_) => 1,
        }
    }

    /// The `namespace/name` of the Gateway.
    pub(crate) fn gateway_id(&self) -> Arc<str> {
        match self {
            Entity::Gateway(gateway) => gateway.meta.key.id().clone(),
            Entity::Set(set) => {
                let parent = &set.spec.parent;
                let own = set.meta.key.namespace();
                let namespace = parent.namespace.as_deref().unwrap_or(own);
                format!("{namespace}/{}", parent.name).into()
            }
        }
    }

    /// The name of the part of a socket that a listener is.
    pub(crate) fn section(&self, listener: &Listener) -> Name {
        let word = match self {
            Entity::Gateway(_) => "gateway",
            Entity::Set(_) => "listenerset",
        };
        Name::new(format!("{word}/{}/{}", self.key().id(), listener.name))
    }

    /// The origin of what is made of it.
    pub(crate) fn origin(&self) -> Origin {
        let kind = match self {
            Entity::Gateway(_) => OriginKind::KubernetesGateway,
            Entity::Set(_) => OriginKind::ListenerSet,
        };
        Origin {
            kind,
            id: self.key().id().clone(),
        }
    }
}

/// The host of a listener: any where it names none, or where its protocol has no names.
///
/// # Errors
/// The problem of the name.
pub(crate) fn host_of(listener: &Listener) -> Result<Host, HostError> {
    match (listener.hostname.as_deref(), &*listener.protocol) {
        (_, "TCP" | "UDP") | (None | Some(""), _) => Ok(Host::any()),
        (Some(text), _) => hostname(text),
    }
}

/// A host as Gateway API writes it: a name, or a wildcard for one label or more.
///
/// # Errors
/// The problem of the name.
pub(crate) fn hostname(text: &str) -> Result<Host, HostError> {
    match text {
        "*" => Err(HostError::BadWildcard),
        text => names::host(text),
    }
}

/// Whether a listener ends TLS, where TLS is spoken there.
pub(crate) fn terminates(listener: &Listener) -> bool {
    let mode = listener.tls.as_ref().and_then(|tls| tls.mode.as_deref());
    mode.is_none_or(|mode| mode != "Passthrough")
}
