//! Several views: what is the same in them is made and stored once, and what comes and goes leaves
//! what a fresh engine has.

use std::collections::BTreeMap;

use myriad_api::Change;
use myriad_model::{Action, Kind, OriginKind, Sealed, SealedArc, Snapshot};
use myriad_translate::{Engine, MAIN, Settings, View, Work};
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
const VIEWS: [&str; 15] = [
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
    "own one gateway.networking.k8s.io/gateway-name=edge dedicated",
];

pub(crate) fn steps() -> impl Strategy<Value = (Batches, Vec<Option<Step>>)> {
    let step = prop_oneof![
        3 => select(&VIEWS[..]).prop_map(Ok),
        2 => select(
            &["side", "tenant", "beside", "along", "third", "fourth", "fifth", "own"][..]
        )
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
        settings.views = views.collect();
        let mut fresh = world::engine(settings);
        // The operator's namespace is a setting, wherever the main view stands.
        fresh.put_view(main).unwrap();
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

/// Sidecars of two namespaces, which differ in labels that selectors may name.
const ALIKE: [&str; 8] = [
    "one-a one x=1 sidecar",
    "one-b one x=1,y=2 sidecar",
    "one-c one x=2,z=3 sidecar",
    "one-d one z=3 sidecar",
    "two-a two x=1 sidecar",
    "two-b two x=1,y=2 sidecar",
    "two-c two x=2,z=3 sidecar",
    "two-d two z=3 sidecar",
];

#[test]
fn sidecars_that_differ_in_nothing_that_is_named_for_them_see_the_same() {
    run_any(history(), |batches| {
        let mut settings = universe::settings();
        settings.root_namespace = Some("istio-system".into());
        settings.views = ALIKE.map(world::view).to_vec();
        let mut engine = world::engine(settings);
        for (_, changes) in batches {
            engine.apply(changes, world::NOW);
            for (one, other) in pairs() {
                let (left, right) = (&one.labels, &other.labels);
                let mut keys = left.keys().chain(right.keys());
                let is_apart = keys.any(|key| {
                    left.get(key) != right.get(key) && engine.names_label(&one.namespace, key)
                });
                let [one, other] =
                    [&one, &other].map(|it| engine.snapshot_of(&it.name).unwrap().digest());
                prop_assert!(is_apart || one == other);
            }
        }
        Ok(())
    });
}

/// Any two of the same namespace.
fn pairs() -> Vec<(View, View)> {
    let views = ALIKE.map(world::view);
    let pairs = views.iter().flat_map(|one| {
        let others = views.iter().filter(|it| it.namespace == one.namespace);
        others.map(|other| (one.clone(), other.clone()))
    });
    pairs.collect()
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
            // A view to which nothing belongs has had no delta.
            let digests = digests(&engine);
            for name in digests.keys() {
                known.entry(name.clone()).or_default();
            }
            let known = known
                .iter()
                .map(|(name, it)| (name.clone(), it.digest().to_string()));
            prop_assert_eq!(known.collect::<BTreeMap<_, _>>(), digests);
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

/// A Service, and what its owner says to callers with a label.
fn callers(label: &str) -> Vec<Change> {
    world::changes(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: web}}\nspec: \
         {{clusterIP: 10.0.0.1, ports: [{{name: http, port: 80}}]}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: shop, \
         name: web}}\nspec:\n  hosts: [web.shop.svc.cluster.local]\n  http:\n  - match: \
         [{{uri: {{prefix: /a}}, sourceLabels: {{{label}: one}}}}]\n    route: [{{destination: \
         {{host: web}}}}]\n  - route: [{{destination: {{host: web}}}}]\n"
    ))
}

/// The routes of the VirtualService that lead somewhere in a view, and those that lead nowhere.
fn led(engine: &Engine, view: &str) -> (usize, usize) {
    let snapshot = engine.snapshot_of(view).unwrap();
    let (mut open, mut closed) = (0, 0);
    for sealed in snapshot.iter() {
        let resource = sealed.resource().unwrap();
        for (at, route) in resource.value.routes().enumerate() {
            if resource.origin_of(at).kind != OriginKind::VirtualService {
                continue;
            }
            match &route.action {
                Action::Forward(shares) if shares.is_empty() => closed += 1,
                _ => open += 1,
            }
        }
    }
    (open, closed)
}

#[test]
fn callers_of_other_namespaces_are_told_apart_by_labels_that_their_owners_write_alone() {
    let views = ["own shop", "other elsewhere"].map(|it| {
        let labels = "app=a,version=one,pod-template-hash=one";
        world::view(&format!("{it} {labels} sidecar"))
    });
    let told = |root: &str, label: &str| {
        let mut engine = world::engine(Settings {
            sidecars: true,
            root_namespace: Some(root.into()),
            views: views.to_vec(),
            ..Settings::default()
        });
        engine.apply(callers(label), world::NOW);
        let mut findings = engine.findings();
        let is_told = findings.any(|it| it.message.contains("in which each of their Pods differs"));
        let [own, other] = ["own", "other"].map(|view| led(&engine, view));
        (own, other, is_told)
    };
    assert_eq!(told("root", "version"), ((2, 0), (2, 0), false));
    let closed = ((2, 0), (1, 1), true);
    assert_eq!(told("root", "pod-template-hash"), closed);
    let of_root = ((2, 0), (2, 0), false);
    assert_eq!(told("shop", "pod-template-hash"), of_root);
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
fn the_first_view_beside_the_main_one_is_asked_what_nobody_else_was() {
    let wildcard = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: two, \
                    name: b}\nspec: {rules: [{host: '*.example'}]}\n";
    let gateway = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {namespace: one, \
                   name: edge, creationTimestamp: 2020-01-01T00:00:00Z}\nspec: {selector: {istio: \
                   ingressgateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, \
                   hosts: [z.example]}]}\n";
    let tenant = "tenant one istio=ingressgateway";
    let engine = |views: &[&str]| {
        let mut engine = world::engine(Settings {
            gateway_namespace: "one".into(),
            views: views.iter().map(|text| world::view(text)).collect(),
            ..Settings::default()
        });
        for objects in [wildcard, gateway] {
            engine.apply(world::changes(objects), world::NOW);
        }
        engine
    };
    let mut alone = engine(&[]);
    assert_eq!(alone.snapshot().count(Kind::Route), 1, "it is closed");
    alone.put_view(world::view(tenant)).unwrap();
    alone.apply(Vec::new(), world::NOW);
    assert_eq!(digests(&alone), digests(&engine(&[tenant])));
    // The Ingress is none of its, so that it closes nothing there.
    let of_tenant = alone.snapshot_of("tenant").unwrap();
    assert_eq!(of_tenant.count(Kind::Route), 0);
}

#[test]
fn a_gateway_that_comes_in_place_of_another_has_all_although_hosts_were_late() {
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, \
                   name: a}\nspec: {tls: [{hosts: [a.example.com], secretName: tls}], rules: \
                   [{host: a.example.com, http: {paths: [{path: /, pathType: Prefix, backend: \
                   {service: {name: web, port: {number: 80}}}}]}}]}\n";
    let side = "side shop istio=ingressgateway ingress";
    let mut engine = with(&[side]);
    let objects = [crate::goldens::BASE, ingress].join("---\n");
    engine.apply(world::changes(&objects), world::NOW);
    let all = digests(&engine);
    assert!(engine.remove_view("side"));
    engine.apply_taken_in_while(world::NOW, &mut || false);
    assert!(engine.has_postponed(), "hosts have no time");
    engine.put_view(world::view(side)).unwrap();
    engine.apply_taken_in_while(world::NOW, &mut || false);
    while engine.has_postponed() {
        engine.work_off(world::NOW, &mut || false, &|_| true);
    }
    assert_eq!(digests(&engine), all);
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

#[test]
fn a_new_view_is_told_of_even_where_nothing_is_seen_in_it() {
    let mut engine = world::engine(Settings::default());
    engine.apply(Vec::new(), world::NOW);
    engine.put_view(View::dedicated("infra", "edge")).unwrap();
    let outcome = engine.apply(Vec::new(), world::NOW);
    let told: Vec<_> = outcome.others.iter().map(|(view, _)| &**view).collect();
    assert_eq!(told, ["gateway/infra/edge"]);
    assert!(outcome.others.iter().all(|(_, delta)| delta.is_empty()));
    assert!(engine.apply(Vec::new(), world::NOW).others.is_empty());
}
