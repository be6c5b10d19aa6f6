use std::sync::Arc;

use myriad_api::{Change, Meta, Object, ObjectKey, ObjectKind, Service, ServicePort};
use myriad_model::{Form, Sealer, Writer};

use crate::engine::Unit;
use crate::{Engine, Role, Settings, View};

const VIEWS: usize = 4;

/// Ports of the Service, each with a route of its own name.
const PORTS: usize = 3;

fn service(first: usize) -> Change {
    let port = |at: usize| ServicePort {
        name: format!("http-{at}").into(),
        port: u16::try_from(first + at).expect("a port"),
        target_port: None,
        app_protocol: None,
        protocol: None,
    };
    let key = ObjectKey::new(ObjectKind::Service, "shop", "web");
    Change::Put(Object::Service(Arc::new(Service {
        meta: Meta::new(key),
        external_name: None,
        selector: [].into_iter().collect(),
        ports: (0..PORTS).map(port).collect(),
        addresses: [[10, 0, 0, 1].into()].into(),
        is_headless: false,
    })))
}

fn engine() -> Engine {
    let settings = Settings {
        sidecars: true,
        resources_at_once: 1,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, Writer::new(Sealer::new([7; 32], Form::Value)));
    for number in 0..VIEWS {
        let view = View {
            name: format!("v{number}").into(),
            role: Role::Sidecar,
            labels: [].into(),
            namespace: "shop".into(),
        };
        engine.put_view(view).expect("there is room");
    }
    engine
}

/// How many names of routes are kept for the Service.
fn names(engine: &Engine) -> usize {
    let key = ObjectKey::new(ObjectKind::Service, "shop", "web");
    let id = engine.units.find(&engine.hasher, &Unit::reachable(&key));
    let record = engine.units.get(id.expect("it is there"));
    record.expect("it is there").routes().len()
}

#[test]
fn names_are_forgotten_once_no_view_has_what_bears_them() {
    let mut engine = engine();
    engine.apply(vec![service(1_000)], 0);
    assert_eq!(names(&engine), PORTS);
    let mut most = 0;
    for edit in 1..50 {
        engine.take_in(service(1_000 + 10 * edit), 0);
        engine.apply_taken_in(0);
        // Each view has what one edit made.
        assert!((PORTS..=VIEWS * PORTS).contains(&names(&engine)));
        if edit % 3 == 0 {
            engine.work_off(0, &mut || false, &|_| true);
        }
        most = most.max(names(&engine));
    }
    assert!(most > PORTS, "they follow one after the other");
    while engine.has_postponed() {
        engine.work_off(0, &mut || false, &|_| true);
    }
    assert_eq!(names(&engine), PORTS);
    assert!(engine.turnings.0.is_empty());
}
