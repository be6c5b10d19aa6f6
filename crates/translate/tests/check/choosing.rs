//! A workload that changes costs the ServiceEntries whose whole selector finds it, however many
//! others share some of its labels.

use myriad_api::Change;
use myriad_translate::{Bounds, Engine, Settings};

use crate::world;

fn entry(number: usize) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{namespace: shop, \
         name: e{number}}}\nspec:\n  hosts: [e{number}.shop.test]\n  resolution: STATIC\n  \
         addresses: [10.8.{}.{}]\n  ports: [{{number: 80, name: http, protocol: HTTP}}]\n  \
         workloadSelector: {{labels: {{app.kubernetes.io/instance: shop, app.kubernetes.io/name: \
         e{number}}}}}\n",
        number / 200,
        number % 200,
    )
}

fn pod(name: &str, number: usize, ready: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: shop\n  name: {name}\n  labels: \
         {{app.kubernetes.io/instance: shop, app.kubernetes.io/name: e{number}, \
         pod-template-hash: h{name}}}\nstatus: {{podIP: 10.{}.{}.{}, conditions: [{{type: Ready, \
         status: \"{ready}\"}}]}}\n",
        // A Pod more has an address of its own.
        if name == "more" { 10 } else { 9 },
        number / 200,
        number % 200,
    )
}

/// An engine with so many ServiceEntries, each with a Pod, and a sidecar that reaches them.
fn engine(entries: usize, bounds: Bounds) -> Engine {
    let mut engine = world::engine(Settings {
        sidecars: true,
        bounds,
        ..Settings::default()
    });
    let texts = (0..entries).flat_map(|it| [entry(it), pod(&format!("p{it}"), it, "False")]);
    let texts = texts.map(|text| Change::Put(world::object(&text)));
    engine.apply(texts.collect(), world::NOW);
    let client = world::view("client shop app=client sidecar");
    engine.put_view(client).unwrap();
    engine.apply(Vec::new(), world::NOW);
    engine
}

/// The units and objects that a change takes, and the resources that it changes.
fn put(engine: &mut Engine, text: &str) -> (u64, u64, u64) {
    let change = Change::Put(world::object(text));
    let work = engine.apply(vec![change], world::NOW).work;
    (
        work.units_translated,
        work.objects_visited,
        work.resources_changed,
    )
}

#[test]
fn a_pod_costs_the_entry_whose_whole_selector_finds_it() {
    for bounds in [Bounds::default(), Bounds::of_tenants()] {
        let measure = |entries: usize| {
            let mut engine = engine(entries, bounds);
            let ready = put(&mut engine, &pod("p0", 0, "True"));
            let unknown = put(&mut engine, &pod("other", 5_000, "True"));
            let comes = put(&mut engine, &pod("more", 0, "True"));
            [ready, unknown, comes]
        };
        let few = measure(10);
        assert_eq!(few.map(|(units, ..)| units), [1, 0, 1]);
        assert_eq!(few.map(|(.., resources)| resources), [1, 0, 1]);
        for entries in [100, 1_000] {
            assert_eq!(measure(entries), few, "{entries} ServiceEntries");
        }
    }
}
