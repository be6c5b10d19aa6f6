//! Lists of hosts and quotas of single namespaces, counted.

use myriad_api::{Change, ObjectKey, ObjectKind};
use myriad_translate::{Engine, Settings, Work};

use crate::goldens::BASE;
use crate::world;

/// An engine with these tenants, and the objects of the base.
fn engine(tenants: &str) -> Engine {
    let mut engine = world::engine(Settings {
        tenants: world::tenants(tenants),
        ..Settings::default()
    });
    engine.apply(world::changes(BASE), world::NOW);
    engine
}

/// An Ingress of that number and age, with a host of its own.
fn ingress(namespace: &str, number: usize) -> String {
    let (day, hour) = (number / 24 + 1, number % 24);
    format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{namespace: {namespace}, name: i{number:03}, \
         creationTimestamp: 2026-01-{day:02}T{hour:02}:00:00Z}}
spec: {{rules: [{{host: h{number:03}.{namespace}.example, http: {{paths: [{{path: /, \
         pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]}}
"
    )
}

fn put(engine: &mut Engine, namespace: &str, numbers: impl Iterator<Item = usize>) -> Work {
    let all: Vec<String> = numbers.map(|number| ingress(namespace, number)).collect();
    let changes = world::changes(&all.join("---\n"));
    engine.apply(changes, world::NOW).work
}

/// The numbers of the Ingresses of a namespace that are served.
fn served(engine: &Engine, namespace: &str) -> Vec<usize> {
    let all = engine.served().filter_map(|id| {
        let (own, name) = id.split_once("/i")?;
        (own == namespace).then(|| name.parse().expect("a number"))
    });
    let mut all: Vec<usize> = all.collect();
    all.sort_unstable();
    all
}

fn told(engine: &Engine, text: &str) -> usize {
    let all = engine.findings().map(ToString::to_string);
    all.filter(|it| it.contains(text)).count()
}

#[test]
fn of_a_namespace_beyond_its_quota_exactly_the_oldest_stay() {
    let mut engine = engine("shop hosts=10");
    put(&mut engine, "shop", (0..100).rev());
    put(&mut engine, "blog", 0..100);
    let remedy = "raise hosts: 10 of namespace shop in --tenants";
    assert_eq!(served(&engine, "shop"), Vec::from_iter(0..10));
    assert_eq!(served(&engine, "blog"), Vec::from_iter(0..100));
    assert_eq!(told(&engine, remedy), 90);
    let key = ObjectKey::new(ObjectKind::Ingress, "shop", "i003");
    engine.apply(vec![Change::Remove(key)], world::NOW);
    let expected = (0..11).filter(|number| *number != 3);
    assert_eq!(served(&engine, "shop"), Vec::from_iter(expected));
    assert_eq!(told(&engine, remedy), 89);
    put(&mut engine, "shop", 3..4);
    assert_eq!(served(&engine, "shop"), Vec::from_iter(0..10));
}

#[test]
fn a_change_of_a_tenant_costs_what_changes_however_many_there_are() {
    let work_at = |count: usize| {
        let listed = (0..count).map(|number| format!("n{number} *.n{number}.example hosts=1"));
        let listed: Vec<String> = listed
            .chain(["shop *.shop.example hosts=9".into()])
            .collect();
        let mut engine = engine(&listed.join(";"));
        put(&mut engine, "shop", 0..8);
        put(&mut engine, "shop", 8..9)
    };
    assert_eq!(work_at(1), work_at(1_000));
}

#[test]
fn a_host_that_is_refused_is_free_for_whoever_may_claim_it() {
    let mut engine = engine("shop *.shop.example");
    let thief = ingress("blog", 0).replace("h000.blog.example", "h001.shop.example");
    engine.apply(world::changes(&thief), world::NOW);
    assert!(served(&engine, "blog").is_empty());
    assert_eq!(
        told(&engine, "--tenants keeps host h001.shop.example from"),
        1
    );
    put(&mut engine, "shop", 1..2);
    assert_eq!(served(&engine, "shop"), [1]);
    assert_eq!(told(&engine, "h001.shop.example"), 1);
    let key = ObjectKey::new(ObjectKind::Ingress, "blog", "i000");
    let outcome = engine.apply(vec![Change::Remove(key)], world::NOW);
    assert!(outcome.delta.is_empty(), "it had no part in anything");
    assert_eq!(engine.findings().count(), 0);
}
