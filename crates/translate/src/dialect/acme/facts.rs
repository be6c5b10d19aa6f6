//! The unit that a change of an order touches.

use myriad_api::{ObjectKey, ObjectKind};

use crate::engine::{Scene, States, Touched, Unit};

/// Adds what differs between an object and its successor, either of which may be absent.
pub(crate) fn touch(_: &Scene<'_>, key: &ObjectKey, _: States<'_>, touched: &mut Touched) {
    if key.kind == ObjectKind::Order {
        touched.unit = Some(Unit::order(key.id().clone()));
    }
}
