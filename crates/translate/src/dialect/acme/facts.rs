//! The units that a change of an order, of a certificate on demand or of an issuer touches, and the
//! facts about issuers.

use myriad_api::{ObjectKey, ObjectKind};

use crate::engine::{Scene, States, Touched, Unit};
use crate::resolve::{is_issuer_ours, is_pairing};
use crate::store::object_fact;

/// Adds what differs between an object and its successor, either of which may be absent.
pub(crate) fn touch(scene: &Scene<'_>, key: &ObjectKey, states: States<'_>, touched: &mut Touched) {
    match key.kind {
        ObjectKind::Order => touched.unit = Some(Unit::order(key.id().clone())),
        ObjectKind::OnDemand => touched.unit = Some(Unit::on_demand(key.id().clone())),
        ObjectKind::Issuer | ObjectKind::ClusterIssuer => {
            touched.unit = Some(Unit::issuer(key));
            // Whoever names it reads whether it is there, whether it is ours, and whether it
            // provides two certificates for a host, and nothing else of what it says.
            let (old, new) = states;
            let is_ours = |object| is_issuer_ours(scene.settings, object);
            let is_other = old.is_some() != new.is_some() || is_ours(old) != is_ours(new);
            if is_other || is_pairing(old) != is_pairing(new) {
                let fact = object_fact(scene.hasher, key.kind, key.id());
                touched.facts.push(fact);
            }
        }
        _ => {}
    }
}
