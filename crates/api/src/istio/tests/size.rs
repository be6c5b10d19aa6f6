//! The size in memory of the most numerous kind.

use std::mem::size_of;
use std::sync::Arc;

use serde_json::json;

use super::super::virtual_service::{HttpDestination, HttpMatch, HttpRewrite, HttpRoute};
use super::read;
use crate::Object;

/// The bytes of a hundred exact routes as at the published scale, without their texts.
#[test]
fn a_virtual_service_of_a_hundred_exact_routes_stays_small() {
    let route = |number: usize| {
        json!({
            "match": [{"uri": {"exact": format!("/path-{number}")}, "sourceLabels": {"app": "g"}}],
            "rewrite": {"uri": "/"},
            "route": [{"destination": {"host": "backend", "port": {"number": 8080}}}],
        })
    };
    let value = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "a"},
        "spec": {"hosts": ["a.example.com"], "http": (0..100).map(route).collect::<Vec<_>>()},
    });
    let Ok(Object::VirtualService(service)) = read(&value) else {
        panic!("a VirtualService");
    };
    let mut bytes = size_of_val(&*service) + size_of_val(&*service.spec.http);
    for route in &service.spec.http {
        assert_eq!(route.rare, None);
        bytes += size_of_val(&*route.matches);
        for matched in &route.matches {
            assert_eq!(matched.rare, None);
        }
    }
    assert!(bytes <= 15_000, "{bytes} bytes");
}

#[test]
fn routes_share_their_labels_where_they_go_and_what_they_are_rewritten_to() {
    let route = json!({
        "match": [{"sourceLabels": {"app": "g"}}],
        "rewrite": {"uri": "/"},
        "route": [{"destination": {"host": "backend"}}],
    });
    let value = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "a"},
        "spec": {"hosts": ["a.example.com"], "http": [route.clone(), route, {
            "rewrite": {"uri": "/b"},
            "route": [{"destination": {"host": "backend", "subset": "b"}}],
        }]},
    });
    let Ok(Object::VirtualService(service)) = read(&value) else {
        panic!("a VirtualService");
    };
    let [one, other, third] = &*service.spec.http else {
        panic!("three routes");
    };
    let labels = |route: &HttpRoute| route.matches[0].source_labels.clone().unwrap();
    assert!(Arc::ptr_eq(&labels(one), &labels(other)));
    let host = |route: &HttpRoute| route.route[0].destination.host.clone();
    assert!(Arc::ptr_eq(&host(one), &host(third)));
    assert!(Arc::ptr_eq(&one.route, &other.route));
    assert_ne!(one.route, third.route);
    let rewrite = |route: &HttpRoute| route.rewrite.clone().unwrap();
    assert!(Arc::ptr_eq(&rewrite(one), &rewrite(other)));
    assert_eq!(*rewrite(third).uri, *"/b");
}

/// Figures that a new field must not raise unseen: what is seldom set goes to `rare`.
#[test]
fn the_parts_of_a_route_keep_their_sizes() {
    let sizes = [
        size_of::<HttpRoute>(),
        size_of::<HttpMatch>(),
        size_of::<HttpDestination>(),
        size_of::<HttpRewrite>(),
    ];
    assert_eq!(sizes, [80, 64, 56, 40]);
}
