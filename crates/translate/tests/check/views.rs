//! Several views: what is the same in them is made and stored once, and what comes and goes leaves
//! what a fresh engine has.

use std::collections::BTreeMap;

use myriad_api::Change;
use myriad_model::{Kind, Sealed, SealedArc, Snapshot};
use myriad_translate::{Engine, MAIN, Settings, Work};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties::{Batches, run_any, survivors};
use crate::universe::{self, history};
use crate::world;

/// A view that is put, or one that is taken away.
pub(crate) type Step = Result<&'static str, &'static str>;

/// Views in several states; those of one name replace each other.
const VIEWS: [&str; 14] = [
    "third two x=1,y=2 sidecar",
    "fourth two x=1 sidecar",
    "fifth one x=1,y=2 sidecar",
    "beside one x=1,y=2 sidecar",
    "beside two x=1 sidecar",
    "along one x=1,y=2 sidecar",
    "along one app=other",
    "gateway two istio=ingressgateway ingress",
    "gateway one istio=other ingress",
    "side two istio=egressgateway",
    "side one istio=egressgateway",
    "side two istio=ingressgateway ingress",
    "tenant two app=other",
    "tenant one istio=ingressgateway,app=other",
];

pub(crate) fn steps() -> impl Strategy<Value = (Batches, Vec<Option<Step>>)> {
    let step = prop_oneof![
        3 => select(&VIEWS[..]).prop_map(Ok),
        2 => select(&["side", "tenant", "beside", "along", "third", "fourth", "fifth"][..])
            .prop_map(Err),
    ];
    (history(), vec(option::of(step), 16))
}

pub(crate) fn take(engine: &mut Engine, step: Option<Step>) {
    match step {
        Some(Ok(text)) => engine.put_view(world::view(text)).unwrap(),
        Some(Err(name)) => {
            let was_there = engine.snapshot_of(name).is_some();
            assert_eq!(engine.remove_view(name), was_there);
        }
        None => {}
    }
}

pub(crate) fn digests(engine: &Engine) -> BTreeMap<String, String> {
    let views = engine.views();
    let digests = views.map(|(view, it)| (view.name.to_string(), it.digest().to_string()));
    digests.collect()
}

fn with(views: &[&str]) -> Engine {
    world::engine(Settings {
        views: views.iter().map(|text| world::view(text)).collect(),
        ..Settings::default()
    })
}

#[test]
fn views_that_come_and_go_leave_what_a_fresh_engine_has() {
    run_any(steps(), |(batches, steps)| {
        let mut settings = universe::settings();
        settings.root_namespace = Some("one".into());
        settings.late_claims = true;
        let mut incremental = world::engine(settings.clone());
        let mut now = world::NOW;
        for ((passed, changes), step) in batches.iter().zip(steps) {
            now += passed;
            take(&mut incremental, step);
            incremental.apply(changes.clone(), now);
        }
        let mut views = incremental.views().map(|(view, _)| view.clone());
        let main = views.next().expect("it stays");
        (settings.gateway_labels, settings.gateway_namespace) = (main.labels, main.namespace);
        settings.views = views.collect();
        let mut fresh = world::engine(settings);
        fresh.learn(incremental.late_claims());
        let objects = survivors(&batches).into_iter().map(Change::Put).collect();
        fresh.apply(objects, now);
        prop_assert_eq!(digests(&incremental), digests(&fresh));
        let [incremental_findings, fresh_findings] =
            [&incremental, &fresh].map(|it| it.findings().cloned().collect::<Vec<_>>());
        prop_assert_eq!(incremental_findings, fresh_findings);
        prop_assert_eq!(incremental.next_deadline(), fresh.next_deadline());
        prop_assert_eq!(incremental.usage(), fresh.usage());
        Ok(())
    });
}

#[test]
fn a_view_is_what_an_engine_of_its_own_would_serve() {
    run_any(history(), |batches| {
        let mut settings = universe::settings();
        settings.root_namespace = Some("one".into());
        let mut alone = settings.clone();
        settings.views = vec![world::view("side two istio=egressgateway ingress")];
        alone.gateway_namespace = "two".into();
        alone.gateway_labels = world::view("side two istio=egressgateway").labels;
        let (mut both, mut alone) = (world::engine(settings), world::engine(alone));
        for (_, changes) in batches {
            both.apply(changes.clone(), world::NOW);
            alone.apply(changes, world::NOW);
            let side = both.snapshot_of("side").unwrap().digest();
            prop_assert_eq!(side, alone.snapshot().digest());
        }
        Ok(())
    });
}

#[test]
fn a_sidecar_among_others_is_told_what_it_would_be_told_alone() {
    run_any(history(), |batches| {
        let own = "beside two x=1 sidecar";
        let others = ["along one x=1,y=2 sidecar", "third two x=1,y=2 sidecar"];
        let mut settings = universe::settings();
        settings.root_namespace = Some("one".into());
        let mut alone = settings.clone();
        alone.views = vec![world::view(own)];
        let views = others.iter().chain([&own]);
        settings.views = views.map(|text| world::view(text)).collect();
        let (mut many, mut alone) = (world::engine(settings), world::engine(alone));
        for (_, changes) in batches {
            many.apply(changes.clone(), world::NOW);
            alone.apply(changes, world::NOW);
            let [many, alone] = [&many, &alone].map(|it| it.snapshot_of("beside").unwrap());
            prop_assert_eq!(many.digest(), alone.digest());
        }
        Ok(())
    });
}

#[test]
fn the_deltas_of_every_view_add_up() {
    run_any(steps(), |(batches, steps)| {
        let mut engine = world::engine(universe::settings());
        let mut known: BTreeMap<String, Snapshot> = BTreeMap::new();
        for ((_, changes), step) in batches.into_iter().zip(steps) {
            take(&mut engine, step);
            if let Some(Err(name)) = step {
                known.remove(name);
            }
            let outcome = engine.apply(changes, world::NOW);
            let others = outcome.others.iter().map(|(name, delta)| (&**name, delta));
            for (name, delta) in others.chain([(MAIN, &outcome.delta)]) {
                let known = known.entry(name.to_owned()).or_default();
                delta
                    .changes()
                    .iter()
                    .for_each(|change| known.apply(change));
            }
            let known = known
                .iter()
                .map(|(name, it)| (name.clone(), it.digest().to_string()));
            prop_assert_eq!(known.collect::<BTreeMap<_, _>>(), digests(&engine));
        }
        Ok(())
    });
}

/// A gateway for all, a host behind it, and what it leads to.
fn one_host() -> Vec<Change> {
    let head = "apiVersion: networking.istio.io/v1\nkind: ";
    let gateway = "Gateway\nmetadata: {namespace: shop, name: all}\nspec:\n  selector: {}\n  \
                   servers:\n  - {port: {number: 80, name: http, protocol: HTTP}, hosts: \
                   [a.example.com]}\n";
    let service = "VirtualService\nmetadata: {namespace: shop, name: web}\nspec:\n  hosts: \
                   [a.example.com]\n  gateways: [all]\n  http:\n  - {route: [{destination: \
                   {host: web, port: {number: 80}}}]}\n";
    world::changes(&format!("{head}{gateway}---\n{head}{service}"))
}

#[test]
fn what_is_the_same_in_all_views_is_translated_and_encoded_once() {
    let views: Vec<String> = (0..100)
        .map(|n| format!("v{n} istio-system n={n}"))
        .collect();
    let views: Vec<&str> = views.iter().map(String::as_str).collect();
    let (mut one, mut many) = (with(&[]), with(&views));
    let mut work = [Work::default(); 2];
    for (engine, work) in [&mut one, &mut many].into_iter().zip(&mut work) {
        engine.apply(world::changes(crate::goldens::BASE), world::NOW);
        *work = engine.apply(one_host(), world::NOW).work;
    }
    let [one, of_many] = work;
    assert_eq!(of_many.units_translated, one.units_translated);
    assert_eq!(of_many.bytes_encoded, one.bytes_encoded);
    assert_eq!(of_many.resources_changed, one.resources_changed * 101);
    let routes = many.views().map(|(_, snapshot)| {
        let mut all = snapshot.iter();
        let route = all.find(|sealed| sealed.key().kind == Kind::Route);
        route.unwrap().clone()
    });
    let routes: Vec<SealedArc> = routes.collect();
    let first: *const Sealed = &*routes[0];
    assert!(routes.iter().all(|route| std::ptr::eq(first, &**route)));
}

#[test]
fn a_view_that_comes_gets_all_in_one_delta_and_no_other_changes() {
    let mut engine = with(&["egress istio-system istio=egressgateway"]);
    engine.apply(world::changes(crate::goldens::BASE), world::NOW);
    engine.apply(one_host(), world::NOW);
    engine
        .put_view(world::view("tenant tenant app=gw"))
        .unwrap();
    let outcome = engine.apply(Vec::new(), world::NOW);
    assert!(outcome.delta.is_empty());
    let [(name, delta)] = &outcome.others[..] else {
        panic!("{} views changed", outcome.others.len());
    };
    assert_eq!(&**name, "tenant");
    let snapshot = engine.snapshot_of("tenant").unwrap();
    assert_eq!(
        (delta.len(), snapshot.len()),
        (5, 5),
        "listeners, route, upstream, endpoints"
    );
    assert_eq!(snapshot.digest(), engine.snapshot().digest());
    engine
        .put_view(world::view("tenant tenant app=gw"))
        .unwrap();
    assert!(engine.apply(Vec::new(), world::NOW).others.is_empty());
    assert!(engine.remove_view("tenant") && !engine.remove_view("tenant"));
    assert!(!engine.remove_view(MAIN), "it stays");
    assert!(engine.apply(Vec::new(), world::NOW).others.is_empty());
}

#[test]
fn a_workload_that_comes_later_records_what_the_mesh_says() {
    let mut settings = Settings {
        sidecars: true,
        ..Settings::default()
    };
    settings.telemetry.access_log = Some(myriad_translate::telemetry::usual_log());
    let mut engine = world::engine(settings);
    engine.apply(world::changes(crate::goldens::BASE), world::NOW);
    engine
        .put_view(world::view("late one app=a sidecar"))
        .unwrap();
    engine.apply(Vec::new(), world::NOW);
    let snapshot = engine.snapshot_of("late").unwrap();
    let mut all = snapshot.iter();
    assert!(all.any(|sealed| sealed.key().kind == Kind::Telemetry));
}
