//! The ConfigMap of an ingress-nginx: whatever comes first, it and the Ingresses end up as if all
//! had come at once, and none is open meanwhile.

use myriad_api::{Change, Finding, ObjectKey, ObjectKind};
use myriad_model::{Action, Digest};
use myriad_translate::{Engine, Settings};

use crate::goldens::BASE;
use crate::world;

const WEB: &str = "{apiVersion: networking.k8s.io/v1, kind: Ingress, \
    metadata: {namespace: shop, name: web}, spec: {rules: [{host: a.example, http: {paths: \
    [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}";

fn engine() -> Engine {
    let mut engine = world::engine(Settings {
        nginx_config_map: Some(key()),
        ..Settings::default()
    });
    engine.apply(world::changes(BASE), world::NOW);
    engine
}

fn key() -> ObjectKey {
    ObjectKey::new(ObjectKind::ConfigMap, "ingress-nginx", "controller")
}

fn map(data: &str) -> Change {
    let head = "apiVersion: v1, kind: ConfigMap";
    let metadata = "{namespace: ingress-nginx, name: controller}";
    let text = format!("{{{head}, metadata: {metadata}, data: {{{data}}}}}");
    Change::Put(world::object(&text))
}

fn web() -> Change {
    Change::Put(world::object(WEB))
}

fn apply(engine: &mut Engine, change: Change) {
    engine.apply(vec![change], world::NOW);
}

fn state(engine: &Engine) -> (Digest, Vec<Finding>) {
    let findings = engine.findings().cloned().collect();
    (engine.snapshot().digest(), findings)
}

/// Whether the one route is forwarded.
fn is_open(engine: &Engine) -> bool {
    let mut routes = engine.snapshot().iter().flat_map(|sealed| sealed.routes());
    let route = routes.next().expect("the route");
    matches!(route.action, Action::Forward(_))
}

#[test]
fn the_order_of_the_map_and_the_ingresses_does_not_matter() {
    for data in [
        "",
        "use-gzip: 'true'",
        "global-auth-url: x",
        "global-auth-url: http://auth.example/",
        "block-cidrs: x",
    ] {
        let (mut first, mut last, mut both) = (engine(), engine(), engine());
        apply(&mut first, map(data));
        apply(&mut first, web());
        apply(&mut last, web());
        assert!(!is_open(&last), "nobody knows yet");
        apply(&mut last, map(data));
        both.apply(vec![web(), map(data)], world::NOW);
        assert_eq!(state(&first), state(&both), "{data}");
        assert_eq!(state(&last), state(&both), "{data}");
    }
}

#[test]
fn a_map_that_goes_closes_what_it_may_have_closed_and_one_that_comes_back_opens_it() {
    let mut engine = engine();
    engine.apply(vec![web(), map("")], world::NOW);
    assert!(is_open(&engine));
    let open = state(&engine);
    for data in ["main-snippet: 'deny all;'", "whitelist-source-range: x"] {
        apply(&mut engine, map(data));
        assert!(!is_open(&engine), "{data}");
        apply(&mut engine, map(""));
        assert_eq!(state(&engine), open);
    }
    apply(&mut engine, Change::Remove(key()));
    assert!(!is_open(&engine));
    assert_eq!(engine.findings().count(), 1);
    apply(&mut engine, map(""));
    assert_eq!(state(&engine), open);
}
