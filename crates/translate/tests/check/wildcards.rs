//! Wildcards above the hosts of others: their owners do the work of finding what they mean.

use myriad_model::Host;
use myriad_translate::{Engine, Settings, Work};

use crate::world;

/// An Ingress for a host.
fn ingress(namespace: &str, name: &str, year: u32, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: {namespace}, \
         name: {name}, creationTimestamp: {year}-01-01T00:00:00Z}}\nspec: {{tls: [{{hosts: \
         ['{host}']}}], rules: [{{host: '{host}', http: {{paths: [{{path: /, pathType: Prefix, \
         backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]}}\n"
    )
}

fn plain(namespace: &str, name: &str, year: u32, host: &str) -> String {
    let tls = format!("tls: [{{hosts: ['{host}']}}], ");
    ingress(namespace, name, year, host).replace(&tls, "")
}

fn apply(engine: &mut Engine, text: &str) -> Work {
    engine.apply(world::changes(text), world::NOW).work
}

/// The listeners at which a host has routes.
fn listeners(engine: &Engine, host: &str) -> Vec<String> {
    let host = Host::parse(host).expect("a host");
    let mut routes = engine.snapshot().iter().filter_map(|sealed| {
        let route = sealed.routes().next()?;
        let listeners = route.listeners.iter();
        let listeners = listeners.map(|name| name.as_str().to_owned());
        route.hosts.contains(&host).then(|| listeners.collect())
    });
    routes.next().unwrap_or_default()
}

#[test]
fn a_host_opens_nothing_of_what_claims_the_wildcards_above_it() {
    let work = |claimants: usize| {
        let mut engine = world::engine(Settings::default());
        let above =
            (0..claimants).map(|at| ingress("evil", &format!("w{at}"), 2025, "*.good.test"));
        let above: Vec<String> = above.collect();
        apply(&mut engine, &above.join("---\n"));
        let first = apply(
            &mut engine,
            &plain("good", "first", 2024, "first.good.test"),
        );
        let second = apply(
            &mut engine,
            &plain("good", "second", 2024, "second.good.test"),
        );
        (first, second)
    };
    assert_eq!(work(1), work(40));
}

#[test]
fn a_host_knows_of_the_wildcards_above_it_in_whatever_order_they_come() {
    let objects = [
        ingress("evil", "broad", 2020, "*.test"),
        ingress("more", "narrow", 2021, "*.good.test"),
        plain("good", "host", 2022, "a.good.test"),
        plain("good", "nested", 2022, "*.b.good.test"),
    ];
    let mut orders = Vec::new();
    for first in 0..objects.len() {
        let mut order = objects.to_vec();
        order.rotate_left(first);
        orders.push(order.clone());
        order.reverse();
        orders.push(order);
    }
    let mut whole = world::engine(Settings::default());
    apply(&mut whole, &objects.join("---\n"));
    assert_eq!(listeners(&whole, "a.good.test"), ["http"]);
    for order in orders {
        let mut engine = world::engine(Settings::default());
        for object in &order {
            apply(&mut engine, object);
        }
        assert_eq!(engine.snapshot().digest(), whole.snapshot().digest());
        // What is gone above it means nothing any more.
        apply(&mut engine, "remove Ingress more/narrow\n");
        let mut rest = world::engine(Settings::default());
        let rest_of_them: Vec<String> = objects
            .iter()
            .filter(|it| !it.contains("narrow"))
            .cloned()
            .collect();
        apply(&mut rest, &rest_of_them.join("---\n"));
        assert_eq!(engine.snapshot().digest(), rest.snapshot().digest());
    }
}
