//! What a unit is, and what one run of it returns.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind};
use myriad_model::{Host, Name, Resource};

use crate::istio::PortKey;

/// A keyed function. The order is the one in which units run: whoever needs runs first, so that
/// each unit runs at most once in a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// What one Ingress, by `namespace/name`, claims, and what is wrong with it alone.
    Ingress(Arc<str>),
    /// The hosts of one Istio Gateway, by `namespace/name`, and what is wrong with it alone.
    Gateway(Arc<str>),
    /// The hosts of one VirtualService, by `namespace/name`, and what is wrong with it alone.
    VirtualService(Arc<str>),
    /// One policy over the gateway as a whole.
    Guard(ObjectKey),
    /// An object of a kind that is read and not honoured.
    Refused(ObjectKey),
    /// What the proxies of the gateway record.
    Telemetry,
    /// All that holds for one host pattern.
    Host(Host),
    /// A provider of the mesh settings, by its name.
    Provider(Arc<str>),
    /// One port of one Service, by `namespace/service:port` with `+https` where TLS is spoken.
    Upstream(Arc<str>),
    /// The listener of a port of Istio's Gateways.
    Listener(PortKey),
    /// The certificate in one Secret, by `namespace/name`.
    Certificate(Arc<str>),
    /// The authorities in one Secret, by `namespace/name`.
    Trust(Arc<str>),
}

impl Unit {
    /// The kind of the object that the unit bears the name of and is there with, for units that
    /// nobody has to need.
    pub fn own_kind(&self) -> Option<ObjectKind> {
        match self {
            Unit::Ingress(_) => Some(ObjectKind::Ingress),
            Unit::Gateway(_) => Some(ObjectKind::IstioGateway),
            Unit::VirtualService(_) => Some(ObjectKind::VirtualService),
            Unit::Guard(key) | Unit::Refused(key) => Some(key.kind),
            Unit::Host(_)
            | Unit::Certificate(_)
            | Unit::Trust(_)
            | Unit::Telemetry
            | Unit::Provider(_)
            | Unit::Upstream(_)
            | Unit::Listener(_) => None,
        }
    }
}

/// What one run of a unit returns.
#[derive(Debug, Default)]
pub struct Output {
    /// The resources, by name.
    pub resources: Vec<(Name, Resource)>,
    /// The units that these resources refer to; they exist as long as somebody needs them.
    pub needs: Vec<Unit>,
    /// What people should know.
    pub findings: Vec<Finding>,
    /// What they should know unless it is otherwise in another view: told where all views have
    /// it that the object concerns, or all where it concerns none.
    pub doubts: Vec<Finding>,
    /// Whether the object concerns the view.
    pub is_concerned: bool,
    /// When the unit has to run again though no object changed, in seconds since the epoch.
    pub deadline: Option<i64>,
}
