use std::sync::Arc;

use myriad_api::{Change, Meta, Object, ObjectKey, ObjectKind, Service, ServicePort};
use myriad_model::{Form, Sealer, Writer};

use super::FORMERS_MAX;
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
    engine_of(VIEWS)
}

fn engine_of(views: usize) -> Engine {
    let settings = Settings {
        sidecars: true,
        resources_at_once: 1,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, Writer::new(Sealer::new([7; 32], Form::Value)));
    for number in 0..views {
        engine.put_view(view(number)).expect("there is room");
    }
    engine
}

fn view(number: usize) -> View {
    View {
        name: format!("v{number}").into(),
        role: Role::Sidecar,
        labels: [].into(),
        namespace: "shop".into(),
    }
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
    assert!(engine.turnings.units.is_empty());
}

/// The units that have yet to follow in each view: as they are counted, and as a walk over all of
/// them finds.
fn left(engine: &Engine) -> (Vec<u32>, Vec<u32>) {
    let turnings = &engine.turnings;
    let counted = turnings.left.clone();
    let walked = (0..counted.len()).map(|slot| {
        let slot = u32::try_from(slot).expect("a slot");
        let units = turnings.units.values();
        let left = units.filter(|it| it.left.has(slot)).count();
        u32::try_from(left).expect("few")
    });
    let walked = walked.collect();
    (counted, walked)
}

#[test]
fn who_has_yet_to_follow_is_counted_and_not_looked_for_in_all_units() {
    let mut engine = engine();
    engine.apply(vec![service(1_000)], 0);
    let mut most = 0;
    for edit in 1..40 {
        engine.take_in(service(1_000 + 10 * edit), 0);
        engine.apply_taken_in(0);
        let (counted, walked) = left(&engine);
        assert_eq!(counted, walked, "after edit {edit}");
        most = most.max(counted.into_iter().max().unwrap_or_default());
        if edit % 3 == 0 {
            engine.work_off(0, &mut || false, &|_| true);
        }
        // One goes while it has yet to follow, and another takes its place later.
        if edit % 10 == 0 {
            assert!(engine.remove_view("v2"));
            engine.apply_taken_in(0);
            engine.put_view(view(2)).expect("there is room");
        }
        let (counted, walked) = left(&engine);
        assert_eq!(counted, walked, "after edit {edit}");
    }
    assert!(most > 0, "they follow one after the other");
    while engine.has_postponed() {
        engine.work_off(0, &mut || false, &|_| true);
    }
    let (counted, _) = left(&engine);
    assert!(counted.iter().all(|left| *left == 0), "{counted:?}");
}

/// Changes the Service so often, with a turn or two after each time, and lets all views follow in
/// the end. Returns the most states before that views had resources of, and the most names.
fn edited(engine: &mut Engine, times: usize, first_of: impl Fn(usize) -> usize) -> (usize, usize) {
    engine.apply(vec![service(first_of(0))], 0);
    let (mut formers, mut most) = (0_usize, 0_usize);
    for edit in 1..times {
        engine.take_in(service(first_of(edit)), 0);
        engine.apply_taken_in(0);
        let units = engine.turnings.units.values();
        formers = formers.max(units.map(|it| it.former.len()).sum::<usize>());
        most = most.max(names(engine));
        for _ in 0..2 {
            engine.work_off(0, &mut || false, &|_| true);
        }
    }
    assert!(engine.has_postponed(), "they follow one after the other");
    while engine.has_postponed() {
        engine.work_off(0, &mut || false, &|_| true);
    }
    assert_eq!(names(engine), PORTS);
    assert!(engine.turnings.units.is_empty());
    (formers, most)
}

#[test]
fn states_with_the_same_names_are_one_however_often_they_come_back() {
    let mut engine = engine_of(12 * FORMERS_MAX);
    let (formers, most) = edited(&mut engine, 100, |edit| 1_000 + 10 * (edit % 2));
    assert_eq!((formers, most), (2, 2 * PORTS));
}

#[test]
fn views_have_resources_of_few_states_however_many_there_were_between_their_turns() {
    let mut engine = engine_of(12 * FORMERS_MAX);
    let (formers, most) = edited(&mut engine, 100, |edit| 1_000 + 10 * edit);
    assert_eq!(formers, FORMERS_MAX);
    // With the newest, and with one whose last views have just followed.
    assert!(most <= (FORMERS_MAX + 2) * PORTS, "{most}");
}
