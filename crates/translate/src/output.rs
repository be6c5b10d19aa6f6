//! What a unit is, and what one run of it returns.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind};
use myriad_model::{Host, Name, Resource};

use crate::istio::PortKey;
use crate::istio::mesh::{CaptureKey, Spoken, Workload};

/// A keyed function. The order is the one in which units run: whoever needs runs first, so that
/// each unit runs at most once in a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// What one Ingress, by `namespace/name`, claims, and what is wrong with it alone.
    Ingress(Arc<str>),
    /// What is wrong with one ConfigMap of an ingress-nginx, by `namespace/name`.
    ConfigMap(Arc<str>),
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
    /// What one Service or ServiceEntry is to sidecars that may reach it.
    Reachable(ObjectKey),
    /// What is accepted for a workload beside whom there is a sidecar.
    Workload(Arc<Workload>),
    /// What becomes of connections of sidecars that are for nobody who is known.
    Elsewhere,
    /// A provider of the mesh settings, by its name.
    Provider(Arc<str>),
    /// One port of one Service, by `namespace/service:port` with `+https` where TLS is spoken.
    Upstream(Arc<str>),
    /// The listener of a port of Istio's Gateways.
    Listener(PortKey),
    /// That something is spoken where sidecars capture connections.
    Spoken(CaptureKey, Spoken),
    /// The listener of connections that sidecars capture on their way out.
    Captured(CaptureKey),
    /// The certificate in one Secret, by `namespace/name`.
    Certificate(Arc<str>),
    /// The authorities in one Secret, by `namespace/name`.
    Trust(Arc<str>),
    /// An object that is more than its namespace may hold.
    Beyond(ObjectKey),
}

impl Unit {
    /// The kind of the object that the unit bears the name of and is there with, for units that
    /// nobody has to need.
    pub fn own_kind(&self) -> Option<ObjectKind> {
        match self {
            Unit::Ingress(_) => Some(ObjectKind::Ingress),
            Unit::ConfigMap(_) => Some(ObjectKind::ConfigMap),
            Unit::Gateway(_) => Some(ObjectKind::IstioGateway),
            Unit::VirtualService(_) => Some(ObjectKind::VirtualService),
            Unit::Guard(key) | Unit::Refused(key) => Some(key.kind),
            Unit::Host(_)
            | Unit::Certificate(_)
            | Unit::Trust(_)
            | Unit::Telemetry
            | Unit::Provider(_)
            | Unit::Upstream(_)
            | Unit::Listener(_)
            | Unit::Reachable(_)
            | Unit::Workload(_)
            | Unit::Elsewhere
            | Unit::Spoken(..)
            | Unit::Captured(_)
            | Unit::Beyond(_) => None,
        }
    }

    /// The namespace whose workloads it is for, of units that sidecars are led to by it.
    pub fn held_in(&self) -> Option<&str> {
        match self {
            Unit::Guard(key) => Some(key.namespace()),
            Unit::Refused(key) if key.kind == ObjectKind::Telemetry => Some(key.namespace()),
            _ => None,
        }
    }

    /// Whether it is for sidecars alone, and makes resources that do not bear its name.
    pub fn is_mesh(&self) -> bool {
        matches!(
            self,
            Unit::Reachable(_) | Unit::Workload(_) | Unit::Elsewhere | Unit::Captured(_)
        )
    }

    /// Whether those that it needs read who needs them, and so run again when that differs.
    pub fn is_claim(&self) -> bool {
        self.own_kind().is_some() || matches!(self, Unit::Spoken(..))
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
