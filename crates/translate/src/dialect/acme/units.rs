//! The unit of orders.

use std::sync::Arc;

use myriad_api::ObjectKind;

use crate::engine::{Bond, Own, Unit, UnitKind};

/// The answers of one order, by the `namespace/name` of the Secret that it is for. Every gateway
/// gives them: an authority asks any.
pub(crate) static ORDER: UnitKind = UnitKind {
    stores_all: true,
    bond: Bond::NONE,
    ..UnitKind::of_object("order", 20, Own::Of(ObjectKind::Order))
};

impl Unit {
    /// An order, by `namespace/name`.
    pub fn order(id: Arc<str>) -> Unit {
        Unit::named(&ORDER, id)
    }
}
