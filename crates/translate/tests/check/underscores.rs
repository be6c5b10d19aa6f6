//! The treatment of header fields with underscores in their names, by the dialect of a route.

use myriad_api::Change;
use myriad_model::{OriginKind, Underscores};
use myriad_translate::Settings;

use crate::world;

const OBJECTS: [&str; 3] = [
    "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: a}, \
     spec: {rules: [{host: a.example, http: {paths: [{path: /, pathType: Prefix, \
     backend: {service: {name: web, port: {number: 80}}}}]}}]}}",
    "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {namespace: shop, name: edge}, \
     spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 80, name: http, \
     protocol: HTTP}, hosts: [b.example]}]}}",
    "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {namespace: shop, \
     name: b}, spec: {hosts: [b.example], gateways: [edge], \
     http: [{route: [{destination: {host: web}}]}]}}",
];

/// The treatment that routes ask for, with the kind of object that each came from.
fn said(passes_underscores: bool) -> Vec<(OriginKind, Underscores)> {
    let mut engine = world::engine(Settings {
        passes_underscores,
        ..Settings::default()
    });
    let changes = OBJECTS.map(|text| Change::Put(world::object(text)));
    engine.apply(changes.into(), world::NOW);
    let snapshot = engine.snapshot();
    let routes = snapshot.iter().filter_map(|sealed| {
        let route = sealed.routes().next()?;
        Some((sealed.resource()?.origin.kind, route.policy.underscores))
    });
    let mut said: Vec<_> = routes.collect();
    said.sort_by_key(|(kind, _)| format!("{kind:?}"));
    said
}

#[test]
fn hosts_of_ingresses_drop_all_and_others_those_that_collide_unless_all_pass() {
    let kinds = [OriginKind::Ingress, OriginKind::VirtualService];
    let usual = [Underscores::Dropped, Underscores::Colliding];
    assert_eq!(
        said(false),
        kinds.into_iter().zip(usual).collect::<Vec<_>>()
    );
    assert_eq!(said(true), kinds.map(|kind| (kind, Underscores::Passed)));
}
