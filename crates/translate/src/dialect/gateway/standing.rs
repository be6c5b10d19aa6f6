//! Whose Gateways are ours, by which proxies they are served, and which ListenerSets they take.

use std::sync::{Arc, OnceLock};

use myriad_api::ObjectKey;
use myriad_api::gateway::status::Scaling;
use myriad_api::gateway::{GROUP, Gateway, GatewayClass};
use myriad_model::Host;

use super::allowed::takes_sets_of;
use super::beside::Beside;
use super::entity::Entity;
use super::facts::{GatewayFact, own_parameters};
use super::scaling;
use crate::engine::Reader;
use crate::settings::Settings;
use crate::view::GATEWAY_NAME;

/// The key of a ConfigMap of parameters that says by which proxies Gateways are served.
const MODE: &str = "myriad-gateway-mode";

/// The proxies that serve a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The ones that answer for Ingresses.
    Shared,
    /// Proxies of its own.
    Dedicated,
}

/// A Gateway or a ListenerSet that is ours, with its Gateway.
#[derive(Clone, Debug)]
pub(crate) struct GatewayStanding {
    /// The object.
    pub entity: Entity,
    /// The Gateway: the object itself, or the one that it is for.
    pub gateway: Arc<Gateway>,
    /// The proxies.
    pub mode: Mode,
    /// The relations of its listeners to each other, once they are asked for.
    beside: Arc<OnceLock<Beside>>,
}

/// Why an object has no effect as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// It is not there, or another controller's.
    Foreign,
    /// The parameters of its class or its Gateway cannot be used, for this reason.
    Parameters(String),
    /// Its Gateway takes no ListenerSets of its namespace.
    NotAllowed,
}

/// A Gateway that is ours, and its proxies.
///
/// # Errors
/// Why it has no effect.
pub(crate) fn of_gateway(
    reader: &mut Reader<'_>,
    id: &str,
) -> Result<(Arc<Gateway>, Mode), Unserved> {
    let gateway = reader.gateway_frame(id).ok_or(Unserved::Foreign)?;
    let mode = mode_of_class(reader, &gateway.spec.class)?;
    match own_parameters(&gateway) {
        Some(_) => {
            let message = "infrastructure.parametersRef is nothing that is honoured".to_owned();
            Err(Unserved::Parameters(message))
        }
        None => Ok((gateway, mode)),
    }
}

/// A Gateway or a ListenerSet that is ours. The caller noted what it reads of its listeners.
///
/// # Errors
/// Why it has no effect.
pub(crate) fn of(reader: &mut Reader<'_>, key: &ObjectKey) -> Result<GatewayStanding, Unserved> {
    reader.read(GatewayFact::Frame(key.kind, key.id()));
    let entity = Entity::find(reader, key).ok_or(Unserved::Foreign)?;
    let (gateway, mode) = of_gateway(reader, &entity.gateway_id())?;
    if let Entity::Set(set) = &entity {
        let parent = &set.spec.parent;
        let is_gateway = parent.group() == GROUP && parent.kind() == "Gateway";
        if !is_gateway {
            return Err(Unserved::Foreign);
        }
        let allowed = gateway.spec.allowed_listeners.as_ref();
        if !takes_sets_of(reader, allowed, &gateway.meta.key, key.namespace()) {
            return Err(Unserved::NotAllowed);
        }
    }
    Ok(GatewayStanding::new(entity, gateway, mode))
}

/// The proxies of the Gateways of a class that is ours.
///
/// # Errors
/// It is not, or its parameters cannot be used.
fn mode_of_class(reader: &mut Reader<'_>, name: &str) -> Result<Mode, Unserved> {
    match reader.gateway_class(name) {
        Some(class) if is_ours(&class, reader.settings()) => mode_of(reader, &class),
        Some(_) => Err(Unserved::Foreign),
        // In files nobody need write the class.
        None if reader.settings().serve_classless && *reader.settings().class_name == *name => {
            Ok(Mode::Shared)
        }
        None => Err(Unserved::Foreign),
    }
}

/// Whether a class is ours.
pub(crate) fn is_ours(class: &GatewayClass, settings: &Settings) -> bool {
    class.spec.controller == settings.gateway_controller
}

/// The proxies that the parameters of a class ask for.
///
/// # Errors
/// The parameters cannot be used.
pub(crate) fn mode_of(reader: &mut Reader<'_>, class: &GatewayClass) -> Result<Mode, Unserved> {
    parameters_of(reader, class).map(|(mode, _)| mode)
}

/// How many proxies the Gateways of a class have that have some of their own; none where its
/// parameters do not say so.
pub(crate) fn scaling_of(reader: &mut Reader<'_>, class: &str) -> Option<Scaling> {
    let class = reader.gateway_class(class)?;
    let (_, scaling) = parameters_of(reader, &class).ok()?;
    scaling
}

/// The parameters of a class.
///
/// # Errors
/// They cannot be used.
fn parameters_of(
    reader: &mut Reader<'_>,
    class: &GatewayClass,
) -> Result<(Mode, Option<Scaling>), Unserved> {
    let Some(parameters) = &class.spec.parameters else {
        return Ok((Mode::Shared, None));
    };
    let refused = |message: &str| {
        let name = &parameters.name;
        Err(Unserved::Parameters(format!(
            "parametersRef {name:?} {message}"
        )))
    };
    if !parameters.group.is_empty() || *parameters.kind != *"ConfigMap" {
        return refused("is no ConfigMap");
    }
    let Some(namespace) = parameters.namespace.as_deref() else {
        return refused("has no namespace");
    };
    let id = format!("{namespace}/{}", parameters.name);
    let Some(map) = reader.config_map_whole(&id) else {
        return refused("is not there");
    };
    let mut data = map.data.iter();
    let mode = data
        .find(|(key, _)| **key == *MODE)
        .map(|(_, mode)| &**mode);
    let scaling = match scaling::read(&map) {
        Ok(scaling) => scaling,
        Err(problem) => return refused(&problem),
    };
    match (mode, scaling) {
        (None | Some("shared"), None) => Ok((Mode::Shared, None)),
        (None | Some("shared"), Some(_)) => {
            refused("asks for an autoscaler without myriad-gateway-mode: dedicated")
        }
        (Some("dedicated"), scaling) => Ok((Mode::Dedicated, scaling)),
        (Some(_), _) => refused("has a myriad-gateway-mode that is neither shared nor dedicated"),
    }
}

impl GatewayStanding {
    /// An object, with its Gateway and the proxies of that.
    pub(crate) fn new(entity: Entity, gateway: Arc<Gateway>, mode: Mode) -> Self {
        GatewayStanding {
            entity,
            gateway,
            mode,
            beside: Arc::default(),
        }
    }

    /// The relations of its listeners to each other.
    pub(crate) fn beside(&self) -> &Beside {
        self.beside
            .get_or_init(|| Beside::of(self.entity.listeners()))
    }

    /// Whether it is of another namespace.
    pub(crate) fn is_of_another(&self, namespace: &str) -> bool {
        *namespace != *self.entity.key().namespace()
    }

    /// Whether it may claim a host: with proxies of its own it may claim any, and for hosts that
    /// nobody names it is asked elsewhere.
    pub(crate) fn may_claim(&self, reader: &Reader<'_>, host: &Host) -> bool {
        let namespace = self.entity.key().namespace();
        self.mode == Mode::Dedicated
            || *host == Host::any()
            || reader.settings().may_claim(namespace, host)
    }

    /// The Gateway, by `namespace/name`, where it has proxies of its own.
    pub(crate) fn entered(&self) -> Option<Arc<str>> {
        let id = self.gateway.meta.key.id();
        (self.mode == Mode::Dedicated).then(|| id.clone())
    }

    /// Whether the proxies of the view serve it.
    pub(crate) fn is_served(&self, reader: &Reader<'_>) -> bool {
        is_served(reader, &self.gateway, self.mode)
    }
}

/// Whether the proxies of the view serve a Gateway.
pub(crate) fn is_served(reader: &Reader<'_>, gateway: &Gateway, mode: Mode) -> bool {
    let (view, key) = (reader.view(), &gateway.meta.key);
    match mode {
        Mode::Shared => view.is_ingress(),
        Mode::Dedicated => {
            view.is_dedicated()
                && view.is_of(key.namespace())
                && view.has_label(GATEWAY_NAME, key.name())
        }
    }
}
