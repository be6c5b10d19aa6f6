//! The weights of objects of Gateway API in their namespaces.

use std::sync::Arc;

use myriad_api::gateway::{BackendTlsPolicySpec, GatewayObject};
use myriad_api::istio::{Labels, SpecProblem};
use myriad_api::{Meta, Object};

use super::backend_tls::ANCESTORS_MAX;
use super::places::DEFAULT_GATEWAYS_MAX;
use super::route::RouteObject;
use super::{places, rules};

/// The bytes that the status of a listener counts for: four conditions or five, of which some do
/// not hold and say why.
const LISTENER_STATUS_BYTES: u64 = 1 << 10;

/// The bytes that the status of a route at a parent counts for, and that of a policy at a Gateway.
const PARENT_STATUS_BYTES: u64 = 512;

/// The rows of proxies' tables that an object counts for.
pub(crate) fn rows(object: &Object) -> u64 {
    let listeners = match object {
        Object::Gateway(gateway) => gateway.spec.listeners.len(),
        Object::ListenerSet(set) => set.spec.listeners.len(),
        _ => 0,
    };
    match RouteObject::of(object) {
        Some(RouteObject::Http(route)) => rules::weight::of_http(&route),
        Some(RouteObject::Grpc(route)) => rules::weight::of_grpc(&route),
        Some(route) => route.hostnames().len().max(1) as u64,
        None => listeners.max(1) as u64,
    }
}

/// The bytes that the status of an object counts for, which is kept beside it: about what it takes
/// where little of it holds. None for kinds that have no status.
pub(crate) fn status_bytes(object: &Object) -> u64 {
    let (count, bytes) = match object {
        Object::Gateway(gateway) => (gateway.spec.listeners.len(), LISTENER_STATUS_BYTES),
        Object::ListenerSet(set) => (set.spec.listeners.len(), LISTENER_STATUS_BYTES),
        // Which Gateways they are follows from others' objects.
        Object::BackendTlsPolicy(_) => (ANCESTORS_MAX, PARENT_STATUS_BYTES),
        _ => {
            let parents = RouteObject::of(object).map_or(0, |route| match route.uses_defaults() {
                true => route.parents().len() + DEFAULT_GATEWAYS_MAX,
                false => route.parents().len(),
            });
            (parents, PARENT_STATUS_BYTES)
        }
    };
    count as u64 * bytes
}

/// The bytes that the places of a route count for; none for other kinds.
pub(crate) fn place_bytes(object: &Object) -> u64 {
    RouteObject::of(object).map_or(0, |route| places::bytes(&route))
}

/// The rows that the regexes of an object count for.
pub(crate) fn regex_rows(object: &Object) -> u64 {
    match object {
        Object::HttpRoute(route) => rules::weight::http_regex_rows(route),
        Object::GrpcRoute(route) => rules::weight::grpc_regex_rows(route),
        _ => 0,
    }
}

/// The rest that is kept of an object of Gateway API that takes more memory than its namespace may
/// hold, and whether it takes its place: a BackendTLSPolicy that nobody can read lets nothing
/// through to its Services. None for other kinds.
pub(crate) fn hollow(object: &Object) -> Option<(Object, bool)> {
    fn blank<S: Default>(object: &GatewayObject<S>) -> Arc<GatewayObject<S>> {
        Arc::new(of(&object.meta, object.generation, S::default()))
    }
    fn of<S>(meta: &Meta, generation: i64, spec: S) -> GatewayObject<S> {
        GatewayObject {
            meta: Meta {
                annotations: Box::default(),
                ..meta.clone()
            },
            generation,
            spec,
            notes: Box::default(),
            bytes: 0,
        }
    }
    Some(match object {
        Object::Gateway(it) => (Object::Gateway(blank(it)), false),
        Object::ListenerSet(it) => (Object::ListenerSet(blank(it)), false),
        Object::HttpRoute(it) => (Object::HttpRoute(blank(it)), false),
        Object::GrpcRoute(it) => (Object::GrpcRoute(blank(it)), false),
        Object::TlsRoute(it) => (Object::TlsRoute(blank(it)), false),
        Object::TcpRoute(it) => (Object::TcpRoute(blank(it)), false),
        Object::UdpRoute(it) => (Object::UdpRoute(blank(it)), false),
        Object::ReferenceGrant(it) => (Object::ReferenceGrant(blank(it)), false),
        Object::BackendTlsPolicy(it) => {
            let spec = BackendTlsPolicySpec {
                targets: it.spec.targets.clone(),
                validation: Err(SpecProblem {
                    field: "spec".into(),
                    message: "is not kept, since it takes more memory than its namespace may have"
                        .into(),
                }),
                options: Labels::default(),
            };
            let rest = of(&it.meta, it.generation, spec);
            (Object::BackendTlsPolicy(Arc::new(rest)), true)
        }
        _ => return None,
    })
}
