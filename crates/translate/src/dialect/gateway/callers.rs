//! Routes whose parent is a Service, as they claim to be among those that have an effect.
//!
//! Anybody may name a Service of others, for the callers of his own namespace. So the routes of
//! each namespace are found for themselves, and who reads those for a Service reads no others.

use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};

use super::attach::claim_of;
use super::facts::GatewayFact;
use super::route::RouteObject;
use crate::engine::{CROWD_MIN, Reader, Stake, StakeClaim, namespace_of};

/// The most routes of one namespace with one Service as a parent that have an effect, the oldest
/// first.
const ROUTES_OF_SERVICE_MAX: usize = 64;

/// The most namespaces of callers whose routes have an effect at one Service, by their names.
const CALLERS_MAX: usize = 256;

const _: () = assert!(ROUTES_OF_SERVICE_MAX >= CROWD_MIN && CALLERS_MAX >= CROWD_MIN);

/// The claims of a route to be among those of its namespace for a Service, and of its namespace to
/// be among those that have some. A change of a route of any namespace is a change for the callers
/// in that one alone, or for all where it is the Service's own.
pub(crate) fn stakes(reader: &Reader<'_>, route: &RouteObject, service: &str) -> Vec<Stake> {
    let namespace = route.key().namespace();
    let mut stakes = vec![Stake {
        seat: reader.hash(GatewayFact::RoutesOf(service, namespace)),
        claim: claim_of(route),
    }];
    if namespace != namespace_of(service) {
        stakes.push(Stake {
            seat: reader.hash(GatewayFact::CallersOf(service)),
            claim: of_callers(namespace),
        });
    }
    stakes
}

/// The claim of a namespace, which all of its routes make alike.
fn of_callers(namespace: &str) -> StakeClaim {
    StakeClaim {
        order: 0,
        created: 0,
        id: namespace.into(),
        value: 0,
    }
}

/// Why a route is none of those that have an effect at a Service; none where it is one.
pub(crate) fn beyond(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    service: &str,
) -> Option<String> {
    let namespace = route.key().namespace();
    let seat = reader.hash(GatewayFact::RoutesOf(service, namespace));
    if !reader.is_within(seat, &claim_of(route), ROUTES_OF_SERVICE_MAX) {
        return Some(format!(
            "{ROUTES_OF_SERVICE_MAX} older routes of namespace {namespace} are for Service \
             {service}, and no more have an effect"
        ));
    }
    let seat = reader.hash(GatewayFact::CallersOf(service));
    let is_own = namespace == namespace_of(service);
    let is_in = is_own || reader.is_within(seat, &of_callers(namespace), CALLERS_MAX);
    (!is_in).then(|| {
        format!(
            "{CALLERS_MAX} other namespaces have routes for Service {service}, and no more have \
             an effect"
        )
    })
}

/// The namespaces of callers whose routes have an effect at a Service.
pub(crate) fn namespaces(reader: &mut Reader<'_>, service: &str) -> Vec<Arc<str>> {
    let seat = reader.hash(GatewayFact::CallersOf(service));
    let claims = reader.first_claims(seat, CALLERS_MAX).into_iter();
    claims.map(|claim| claim.id).collect()
}

/// The routes of a namespace that have an effect at a Service, the oldest first.
pub(crate) fn routes_of(reader: &mut Reader<'_>, service: &str, namespace: &str) -> Vec<ObjectKey> {
    let seat = reader.hash(GatewayFact::RoutesOf(service, namespace));
    let claims = reader.first_claims(seat, ROUTES_OF_SERVICE_MAX).into_iter();
    let keys = claims.filter_map(|StakeClaim { id, value, .. }| {
        let mut kinds = [ObjectKind::HttpRoute, ObjectKind::GrpcRoute].into_iter();
        let kind = kinds.find(|kind| *kind as u32 == value)?;
        Some(ObjectKey::from_id(kind, id))
    });
    keys.collect()
}
