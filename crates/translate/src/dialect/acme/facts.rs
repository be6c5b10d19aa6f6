//! The units that a change of an order or an issuer touches, and the facts about issuers.

use myriad_api::{ObjectKey, ObjectKind};

use crate::engine::{Scene, States, Touched, Unit};
use crate::store::object_fact;

/// Adds what differs between an object and its successor, either of which may be absent.
pub(crate) fn touch(scene: &Scene<'_>, key: &ObjectKey, states: States<'_>, touched: &mut Touched) {
    match key.kind {
        ObjectKind::Order => touched.unit = Some(Unit::order(key.id().clone())),
        ObjectKind::Issuer | ObjectKind::ClusterIssuer => {
            touched.unit = Some(Unit::issuer(key));
            // Whoever names it reads whether it is there, and nothing of what it says.
            let (old, new) = states;
            if old.is_some() != new.is_some() {
                let fact = object_fact(scene.hasher, key.kind, key.id());
                touched.facts.push(fact);
            }
        }
        _ => {}
    }
}
