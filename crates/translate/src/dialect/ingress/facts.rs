//! Facts about Ingresses and their classes, and which of them a change touches.

use std::hash::Hash;

use myriad_api::{ConfigMap, IngressClass, Object, ObjectKey, ObjectKind};

use crate::engine::{Scene, States, Touched, Unit};
use crate::store::{Fact, FactHasher, object_fact};

/// Something that a unit may read of the classes of Ingresses, or of a ConfigMap beside the keys
/// that mean something by themselves. An Ingress is read whole.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum IngressFact<'a> {
    /// The controller of an IngressClass.
    Class(&'a str),
    /// Whether an IngressClass of ours is the default.
    DefaultClass,
    /// The entries of a ConfigMap as header fields.
    Fields(&'a str),
}

impl Fact for IngressFact<'_> {
    const FAMILY: u8 = 4;
}

/// Adds what differs between an object and its successor, either of which may be absent.
pub(crate) fn touch(scene: &Scene<'_>, key: &ObjectKey, states: States<'_>, touched: &mut Touched) {
    let (hasher, id) = (scene.hasher, key.id());
    match key.kind {
        ObjectKind::Ingress => {
            // Its hosts run with it; a wildcard among them tells the hosts below what they read.
            touched.unit = Some(Unit::ingress(id.clone()));
            touched.facts.push(object_fact(hasher, key.kind, id));
        }
        ObjectKind::ConfigMap => touch_config_map(hasher, key, states, touched),
        ObjectKind::IngressClass => {
            touched.facts.push(hasher.fact(IngressFact::Class(id)));
            let (old, new) = states;
            let ours = &scene.settings.controller_name;
            let is_default = |class: Option<&IngressClass>| {
                class.is_some_and(|class| class.controller == *ours && is_default(class))
            };
            if is_default(as_class(old)) != is_default(as_class(new)) {
                touched.facts.push(hasher.fact(IngressFact::DefaultClass));
            }
        }
        _ => {}
    }
}

/// All Ingresses may read the keys that mean something by themselves, and few the other ones.
fn touch_config_map(
    hasher: &FactHasher,
    key: &ObjectKey,
    (old, new): States<'_>,
    touched: &mut Touched,
) {
    let (old, new) = (as_config_map(old), as_config_map(new));
    if old.map(|map| &map.data) != new.map(|map| &map.data) {
        touched.unit = Some(Unit::config_map(key.id().clone()));
        touched.facts.push(object_fact(hasher, key.kind, key.id()));
    }
    if old.map(|map| &map.fields) != new.map(|map| &map.fields) {
        let fact = hasher.fact(IngressFact::Fields(key.id()));
        touched.facts.push(fact);
    }
}

/// The facts under which an object is found that is not found by its key alone.
pub(crate) fn found_under(hasher: &FactHasher, object: &Object, add: &mut dyn FnMut(u64)) {
    if let Object::IngressClass(_) = object {
        add(hasher.fact(IngressFact::DefaultClass));
    }
}

/// Whether a class carries the mark of the default class.
pub(crate) fn is_default(class: &IngressClass) -> bool {
    class
        .meta
        .annotation("ingressclass.kubernetes.io/is-default-class")
        == Some("true")
}

fn as_config_map(object: Option<&Object>) -> Option<&ConfigMap> {
    match object {
        Some(Object::ConfigMap(map)) => Some(map),
        _ => None,
    }
}

fn as_class(object: Option<&Object>) -> Option<&IngressClass> {
    match object {
        Some(Object::IngressClass(class)) => Some(class),
        _ => None,
    }
}
