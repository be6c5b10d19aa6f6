//! Routes whose parent is a Service, at the sidecars of those who call it.
//!
//! Routes of the Service's namespace are for all callers. Routes of another namespace are for the
//! callers of that one, and hold there in place of the others.

use std::sync::Arc;

use myriad_api::ServicePort;
use myriad_model::{Host, Name};

use super::callers;
use super::parent::judge;
use super::route::{RouteObject, service_of};
use super::rules;
use super::tenants::{Mesh, RouteTenant, Section};
use crate::engine::{Output, Reader, namespace_of};

/// The routes for a port of a Service, by its `namespace/name`, that have an effect in the view,
/// the oldest first.
pub(crate) fn routes(
    reader: &mut Reader<'_>,
    service: &Arc<str>,
    port: &ServicePort,
) -> Vec<RouteObject> {
    let mut callers = callers::namespaces(reader, service).into_iter();
    let of_view = callers.find(|namespace| reader.view().is_of(namespace));
    let mut found = match of_view {
        Some(namespace) => routes_of(reader, service, &namespace, port),
        None => Vec::new(),
    };
    if found.is_empty() {
        found = routes_of(reader, service, namespace_of(service), port);
    }
    found.retain(|route| {
        let mesh = Mesh {
            service: service.clone(),
        };
        judge(reader, route, Some(&mesh)).refused.is_none()
    });
    found
}

/// The routes of a namespace for a port of a Service, the oldest first.
fn routes_of(
    reader: &mut Reader<'_>,
    service: &Arc<str>,
    namespace: &str,
    port: &ServicePort,
) -> Vec<RouteObject> {
    let mut found = Vec::new();
    for key in callers::routes_of(reader, service, namespace) {
        reader.read_object(key.kind, key.id());
        let route = reader.route_itself(&key);
        found.extend(route.filter(|route| is_for(route, service, port)));
    }
    found
}

/// Adds the rules of routes for a port of a Service, at the listeners that stand for it.
pub(crate) fn add(
    reader: &mut Reader<'_>,
    (service, number, routes): (&Arc<str>, u16, &[RouteObject]),
    (hosts, listeners): (&Arc<[Host]>, &[Name]),
    output: &mut Output,
) {
    let section = |name: &Name| Section {
        name: name.clone(),
        port: number,
        terminates: false,
    };
    for route in routes {
        let tenant = RouteTenant {
            route: route.clone(),
            hosts: hosts.clone(),
            sections: listeners.iter().map(section).collect(),
            label: format!("mesh/{service}:{number}"),
            gateway: None,
            mesh: Some(Mesh {
                service: service.clone(),
            }),
        };
        rules::build(reader, &tenant, output);
    }
}

/// Whether a route is for a port of a Service.
fn is_for(route: &RouteObject, wanted: &Arc<str>, port: &ServicePort) -> bool {
    let own = route.key().namespace();
    let mut parents = route.parents().iter();
    parents.any(|parent| {
        service_of(parent, own).is_some_and(|service| service == *wanted)
            && parent.port.is_none_or(|number| number == port.port)
            && parent
                .section_name
                .as_deref()
                .is_none_or(|name| *name == *port.name)
    })
}
