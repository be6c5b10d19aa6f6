//! Sidecars' views that come, go or may reach other things than before look at what they may see a
//! part at a time: single changes go between, and all ends as if it had been done at once.

use std::collections::BTreeMap;

use myriad_api::Change;
use myriad_model::Snapshot;
use myriad_translate::{Engine, MAIN, Outcome, Settings, TooManyViews};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties::{Batches, run_any};
use crate::universe;
use crate::views::{Step, digests, steps, take};
use crate::world;

const NAMESPACES: usize = 10;

/// Services, and sidecars, of each namespace.
const EACH: usize = 10;

/// The most units that a view looks at between two batches, as documented.
const VISITED_MAX: u64 = 1_024;

fn service(namespace: usize, number: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: ns{namespace}, name: s{number}}}\n\
         spec: {{clusterIP: 10.0.{namespace}.{number}, ports: [{{name: tcp, port: 9000}}]}}\n"
    )
}

fn view(namespace: usize, number: usize) -> String {
    format!("ns{namespace}/w{number} ns{namespace} app=s{number} sidecar")
}

fn root_sidecar(hosts: &str) -> Vec<Change> {
    world::changes(&format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{namespace: root, name: \
         default}}\nspec: {{egress: [{{hosts: [{hosts}]}}]}}\n"
    ))
}

/// An engine with Services and no view yet.
fn services() -> Engine {
    let mut engine = world::engine(Settings {
        sidecars: true,
        root_namespace: Some("root".into()),
        ..Settings::default()
    });
    let all = (0..NAMESPACES).flat_map(|of| (0..EACH).map(move |number| service(of, number)));
    let changes = all.map(|text| Change::Put(world::object(&text)));
    engine.apply(changes.collect(), world::NOW);
    engine
}

/// The same with the views of all sidecars.
fn fleet() -> Engine {
    let mut engine = services();
    for namespace in 0..NAMESPACES {
        for number in 0..EACH {
            let view = world::view(&view(namespace, number));
            engine.put_view(view).unwrap();
        }
    }
    engine.apply(Vec::new(), world::NOW);
    engine
}

/// Applies changes as whoever runs batches one after the other does.
fn apply_taken_in(engine: &mut Engine, changes: Vec<Change>) -> Outcome {
    for change in changes {
        engine.take_in(change, world::NOW);
    }
    engine.apply_taken_in(world::NOW)
}

/// A part of what runs later, without time for more than one unit.
fn least(engine: &mut Engine) -> Outcome {
    let ran = engine.work_off(world::NOW, &mut || false, &|_| true);
    ran.expect("there is some").1
}

#[test]
fn a_single_change_goes_between_the_parts_of_a_sidecar_for_all() {
    let mut engine = fleet();
    let outcome = apply_taken_in(&mut engine, root_sidecar("./*"));
    assert_eq!((outcome.work.views_asked, outcome.others.len()), (1, 0));
    assert!(engine.has_postponed());
    let views = (NAMESPACES * EACH) as u64;
    let (mut parts, mut changed) = (0, 0);
    for number in 0..3 {
        // What it accepts, and one Service that all views are asked about anew.
        let outcome = least(&mut engine);
        assert!(outcome.work.views_asked <= views + 3, "{:?}", outcome.work);
        assert!(outcome.others.len() <= 1);
        let own = service(7, 40 + number);
        let single = apply_taken_in(&mut engine, vec![Change::Put(world::object(&own))]);
        // The views that have not looked yet see it as well, and no other unit runs for it.
        assert!(single.work.units_translated <= 6, "{:?}", single.work);
        assert!(single.others.len() >= EACH);
        parts += 1;
        changed += outcome.others.len();
    }
    while engine.has_postponed() {
        let ran = engine.work_off(world::NOW, &mut || true, &|_| true);
        let (namespace, outcome) = ran.expect("a part");
        assert_eq!(&*namespace, "root", "whose Sidecar it is");
        let work = outcome.work;
        assert!(work.views_asked <= VISITED_MAX * (views + 3), "{work:?}");
        parts += 1;
        changed += outcome.others.len();
    }
    assert!(changed >= NAMESPACES * EACH && parts > 10, "{parts}");
    let mut whole = fleet();
    whole.apply(root_sidecar("./*"), world::NOW);
    for number in 0..3 {
        let own = service(7, 40 + number);
        whole.apply(vec![Change::Put(world::object(&own))], world::NOW);
    }
    assert_eq!(digests(&engine), digests(&whole));
    assert_eq!(engine.usage(), whole.usage());
}

#[test]
fn a_view_that_comes_is_whole_once_it_has_looked_at_all() {
    let mut engine = services();
    for number in 0..3 {
        let view = world::view(&view(1, number));
        engine.put_view(view).unwrap();
    }
    let outcome = engine.apply_taken_in(world::NOW);
    assert_eq!(outcome.work.views_asked, 0);
    let mut whole_after = Vec::new();
    for number in 0..3 {
        let mut parts = 0;
        while !engine.is_whole(&format!("ns1/w{number}")) {
            let outcome = least(&mut engine);
            assert!(outcome.work.units_translated <= 6, "{:?}", outcome.work);
            parts += 1;
        }
        whole_after.push(parts);
    }
    // Each Service, what is accepted, and whatever all sidecars have.
    assert!(
        whole_after.iter().all(|parts| (100..110).contains(parts)),
        "{whole_after:?}"
    );
    assert!(!engine.has_postponed() && engine.is_whole("nobody"));
    let snapshot = engine.snapshot_of("ns1/w2").unwrap();
    let alike = engine.snapshot_of("ns1/w1").unwrap();
    assert_eq!(snapshot.len(), alike.len());

    // One that goes is gone at once, and those who saw it forget it by and by.
    assert!(engine.remove_view("ns1/w1"));
    let outcome = engine.apply_taken_in(world::NOW);
    assert_eq!(outcome.gone, ["ns1/w1".into()]);
    assert_eq!(outcome.work.views_asked, 0);
    // It comes back before they have.
    engine.put_view(world::view(&view(1, 1))).unwrap();
    assert!(!engine.is_whole("ns1/w1"));
    while engine.has_postponed() {
        least(&mut engine);
    }
    let again = engine.snapshot_of("ns1/w1").unwrap();
    assert_eq!(again.digest(), alike.digest());
}

fn sidecar(namespace: usize) -> Vec<Change> {
    world::changes(&format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{namespace: \
         ns{namespace}, name: default}}\nspec: {{egress: [{{hosts: [./*]}}]}}\n"
    ))
}

#[test]
fn namespaces_take_turns_with_what_they_cause_and_those_that_owe_something_wait() {
    let mut engine = fleet();
    apply_taken_in(&mut engine, sidecar(1));
    apply_taken_in(&mut engine, sidecar(3));
    let turn = |engine: &mut Engine, may_run: &dyn Fn(&str) -> bool| {
        let ran = engine.work_off(world::NOW, &mut || false, may_run);
        ran.map(|(namespace, _)| namespace.to_string())
    };
    let turns = (0..4).map(|_| turn(&mut engine, &|_| true).expect("a part"));
    assert_eq!(turns.collect::<Vec<_>>(), ["ns1", "ns3", "ns1", "ns3"]);
    assert_eq!(engine.postponed().collect::<Vec<_>>(), ["ns1", "ns3"]);
    // One that owes something is passed by, but for its views that come.
    let may_run = |namespace: &str| namespace != "ns1";
    for _ in 0..3 {
        assert_eq!(turn(&mut engine, &may_run).as_deref(), Some("ns3"));
    }
    engine.put_view(world::view(&view(1, EACH))).unwrap();
    let mut turns = Vec::new();
    while !engine.is_whole("ns1/w10") {
        turns.extend(turn(&mut engine, &may_run));
    }
    assert!(turns.iter().any(|it| it == "ns3") && turns.iter().any(String::is_empty));
    while turn(&mut engine, &may_run).is_some() {}
    assert_eq!(engine.postponed().collect::<Vec<_>>(), ["ns1"]);
    while turn(&mut engine, &|_| true).is_some() {}
    assert!(!engine.has_postponed());
    let mut whole = fleet();
    whole.put_view(world::view(&view(1, EACH))).unwrap();
    for namespace in [1, 3] {
        whole.apply(sidecar(namespace), world::NOW);
    }
    assert_eq!(digests(&engine), digests(&whole));
}

#[test]
fn a_namespace_has_as_many_views_as_it_may_and_others_have_theirs() {
    let mut settings = Settings {
        sidecars: true,
        ..Settings::default()
    };
    settings.bounds.views = 3;
    let mut engine = world::engine(settings);
    let put = |engine: &mut Engine, number| engine.put_view(world::view(&view(1, number)));
    for number in 0..3 {
        put(&mut engine, number).unwrap();
    }
    let refused = Err(TooManyViews::OfNamespace(3));
    assert_eq!(put(&mut engine, 3), refused);
    put(&mut engine, 2).unwrap();
    for other in ["ns2/w0 ns2 app=s0 sidecar", "gateway-1 ns1 app=s0"] {
        engine.put_view(world::view(other)).unwrap();
    }
    engine.apply(Vec::new(), world::NOW);
    // All of them may be replaced at once, and then not again before they are forgotten.
    for number in 0..3 {
        assert!(engine.remove_view(&format!("ns1/w{number}")));
        put(&mut engine, 10 + number).unwrap();
    }
    assert!(engine.remove_view("ns1/w10"));
    assert_eq!(put(&mut engine, 20), refused);
    engine.apply(Vec::new(), world::NOW);
    put(&mut engine, 20).unwrap();
    assert_eq!(put(&mut engine, 21), refused);
}

#[test]
fn a_gateway_of_nobody_else_is_whole_from_the_beginning() {
    let mut engine = services();
    let gateway = world::view("side side istio=other");
    engine.put_view(gateway).unwrap();
    assert!(engine.is_whole("side") && !engine.has_postponed());
}

/// A history, the steps of views beside it, and how much time each part has.
type Cuts = ((Batches, Vec<Option<Step>>), Vec<Vec<usize>>);

/// A history with views that come and go, and how much time each part has.
fn cuts() -> impl Strategy<Value = Cuts> {
    (steps(), vec(vec(0..6_usize, 0..4), 16))
}

/// Adds an outcome to what is known of all views.
fn add(known: &mut BTreeMap<String, Snapshot>, outcome: &Outcome) {
    let others = outcome.others.iter().map(|(name, delta)| (&**name, delta));
    for (name, delta) in others.chain([(MAIN, &outcome.delta)]) {
        let known = known.entry(name.to_owned()).or_default();
        for change in delta.changes() {
            known.apply(change);
        }
    }
}

#[test]
fn however_it_is_cut_it_ends_as_if_it_was_not() {
    run_any(cuts(), |((batches, steps), cuts)| {
        let mut settings = universe::settings();
        settings.root_namespace = Some("one".into());
        settings.late_claims = true;
        let mut whole = world::engine(settings.clone());
        // Whatever changes in several views does so in one after the other.
        settings.resources_at_once = 1;
        let mut cut = world::engine(settings);
        let mut known = BTreeMap::new();
        let mut now = world::NOW;
        for (((passed, changes), step), cuts) in batches.into_iter().zip(steps).zip(cuts) {
            now += passed;
            take(&mut whole, step);
            whole.apply(changes.clone(), now);
            take(&mut cut, step);
            if let Some(Err(name)) = step {
                known.remove(name);
            }
            for change in changes {
                cut.take_in(change, now);
            }
            let mut hosts = cuts.len();
            let mut has_time = || {
                hosts = hosts.saturating_sub(1);
                hosts > 0
            };
            add(&mut known, &cut.apply_taken_in_while(now, &mut has_time));
            for mut time in cuts {
                let mut has_time = || {
                    time = time.saturating_sub(1);
                    time > 0
                };
                if let Some((_, outcome)) = cut.work_off(now, &mut has_time, &|_| true) {
                    add(&mut known, &outcome);
                }
            }
        }
        add(&mut known, &cut.apply(Vec::new(), now));
        prop_assert_eq!(digests(&cut), digests(&whole));
        // A view to which nothing belongs has had no delta.
        for name in digests(&whole).into_keys() {
            known.entry(name).or_default();
        }
        let known: BTreeMap<String, String> = known
            .iter()
            .map(|(name, it)| (name.clone(), it.digest().to_string()))
            .collect();
        prop_assert_eq!(known, digests(&whole));
        let [cut_findings, whole_findings] =
            [&cut, &whole].map(|it| it.findings().cloned().collect::<Vec<_>>());
        prop_assert_eq!(cut_findings, whole_findings);
        prop_assert_eq!(cut.next_deadline(), whole.next_deadline());
        prop_assert_eq!(cut.usage(), whole.usage());
        Ok(())
    });
}
