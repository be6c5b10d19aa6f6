//! The units of Ingresses.

use std::sync::Arc;

use myriad_api::{Object, ObjectKey, ObjectKind};

use super::claims::newly_claimed;
use crate::engine::{Bond, NewlyClaimed, Own, Stays, Unit, UnitKind, Viewers};
use crate::settings::Settings;

/// The claims of one Ingress, by `namespace/name`, and the findings about it alone.
pub(crate) static INGRESS: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Ingress,
    // A host reads the Ingresses that claim it whole.
    bond: Bond {
        is_read_whole: true,
        ..Bond::READ
    },
    has_status: true,
    ..UnitKind::of_object("ingress", 0, Own::Of(ObjectKind::Ingress))
};

/// Findings about one ConfigMap of an ingress-nginx, by `namespace/name`. The one that the settings
/// name is missed where it is not there.
pub(crate) static CONFIG_MAP: UnitKind = UnitKind {
    viewers: |_, _| Viewers::Ingress,
    stays: |unit, settings| {
        let named = settings.nginx_config_map.as_ref();
        match named.is_some_and(|key| unit.name() == Some(key.id())) {
            true => Stays::Always,
            false => Stays::WithObject,
        }
    },
    ..UnitKind::of_object("config map", 1, Own::Of(ObjectKind::ConfigMap))
};

impl Unit {
    /// An Ingress, by `namespace/name`.
    pub fn ingress(id: Arc<str>) -> Unit {
        Unit::named(&INGRESS, id)
    }

    /// A ConfigMap, by `namespace/name`.
    pub fn config_map(id: Arc<str>) -> Unit {
        Unit::named(&CONFIG_MAP, id)
    }
}

/// The unit that an object is there with, for kinds that claim hosts.
pub(crate) fn claimant(key: &ObjectKey) -> Option<Unit> {
    (key.kind == ObjectKind::Ingress).then(|| Unit::ingress(key.id().clone()))
}

/// The claims of an object, and those of them that may be new.
pub(crate) fn newly(old: &Object, new: &Object, settings: &Settings) -> Option<NewlyClaimed> {
    match (old, new) {
        (Object::Ingress(old), Object::Ingress(new)) => {
            Some(newly_claimed(old, new, &settings.ignore_annotations))
        }
        _ => None,
    }
}

/// The units that are there because of the settings.
pub(crate) fn roots(settings: &Settings) -> Option<Unit> {
    let named = settings.nginx_config_map.as_ref();
    named.map(|key| Unit::config_map(key.id().clone()))
}
