//! The units of orders, of certificates on demand and of issuers.

use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};

use crate::engine::{Bond, Own, Unit, UnitKind};

/// The answers of one order, by the `namespace/name` of the Secret that it is for. Every gateway
/// gives them: an authority asks any.
pub(crate) static ORDER: UnitKind = UnitKind {
    stores_all: true,
    bond: Bond::NONE,
    ..UnitKind::of_object("order", 26, Own::Of(ObjectKind::Order))
};

/// An issuer, of either kind. It makes nothing that proxies see.
pub(crate) static ISSUER: UnitKind = UnitKind {
    bond: Bond::NONE,
    ..UnitKind::of_object("issuer", 27, Own::Key)
};

/// A certificate that was obtained on demand, by the name of its object. Every gateway has it: any
/// is asked for the host.
pub(crate) static ON_DEMAND: UnitKind = UnitKind {
    stores_all: true,
    bond: Bond::NONE,
    ..UnitKind::of_object("on demand", 28, Own::Of(ObjectKind::OnDemand))
};

impl Unit {
    /// An issuer.
    pub fn issuer(key: &ObjectKey) -> Unit {
        Unit::of_object(&ISSUER, key)
    }

    /// A certificate that was obtained on demand, by the name of its object.
    pub fn on_demand(id: Arc<str>) -> Unit {
        Unit::named(&ON_DEMAND, id)
    }

    /// An order, by `namespace/name`.
    pub fn order(id: Arc<str>) -> Unit {
        Unit::named(&ORDER, id)
    }
}
