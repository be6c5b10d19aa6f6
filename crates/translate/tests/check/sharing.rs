//! Equal parts are stored once, and what people can write a lot of stays bounded.

use std::sync::Arc;

use myriad_api::{Change, Meta, Object, ObjectKey, ObjectKind, Secret};
use myriad_model::{Certificate, Domain, Route};
use myriad_translate::{Engine, Settings};

use crate::world;

/// Two Ingresses with a host, an annotation and a certificate each, behind one issuer.
fn two_domains() -> Engine {
    let mut engine = world::engine(Settings::default());
    for name in ["a", "b"] {
        let ingress = world::object(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  \
             annotations: {{myriad.dev/proxy-read-timeout: \"7\"}}\nspec:\n  \
             tls: [{{hosts: [{name}.example], secretName: {name}}}]\n  \
             rules: [{{host: {name}.example, http: {{paths: [{{path: /, pathType: Prefix, \
             backend: {{service: {{name: x, port: {{number: 80}}}}}}}}]}}}}]\n"
        ));
        let secret = Secret {
            meta: Meta::new(ObjectKey::new(ObjectKind::Secret, "default", name)),
            ..world::secret(
                "<certificate *.example>",
                "<key *.example>",
                Some(world::issuer()),
            )
        };
        let secret = Object::Secret(Arc::new(secret));
        engine.apply(vec![Change::Put(ingress), Change::Put(secret)], world::NOW);
    }
    engine
}

fn pair<'a, T>(
    engine: &'a Engine,
    pick: impl Fn(&'a myriad_model::Sealed) -> Option<&'a T>,
) -> [&'a T; 2] {
    let found: Vec<&T> = engine
        .snapshot()
        .iter()
        .filter_map(|sealed| pick(sealed))
        .collect();
    found.try_into().ok().expect("two of a kind")
}

#[test]
fn equal_parts_of_two_domains_are_one_in_memory() {
    let engine = two_domains();
    let [one, other]: [&Domain; 2] = pair(&engine, |sealed| sealed.domain());
    assert!(Arc::ptr_eq(&one.listeners, &other.listeners));
    assert!(Arc::ptr_eq(&one.tls, &other.tls));
    let [one, other]: [&Route; 2] = pair(&engine, |sealed| sealed.route());
    assert!(Arc::ptr_eq(&one.listeners, &other.listeners));
    assert!(Arc::ptr_eq(&one.policy, &other.policy));
    let [one, other]: [&Certificate; 2] = pair(&engine, |sealed| sealed.certificate());
    assert_eq!(one.chain[1].as_ptr(), other.chain[1].as_ptr(), "the issuer");
    assert_ne!(one.chain[0].as_ptr(), other.chain[0].as_ptr(), "the leaf");
    assert_eq!(engine.usage().interned, 2);
}

#[test]
fn ten_thousand_errors_are_few_findings_and_leave_the_neighbours_alone() {
    let mut engine = two_domains();
    let before = engine.snapshot().clone();
    let rules: String = (0..10_000)
        .map(|n| format!("  - host: bad..{n}\n"))
        .collect();
    let broken = world::object(&format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: broken}}\n\
         spec:\n  defaultBackend: {{service: {{name: x, port: {{number: 80}}}}}}\n  rules:\n{rules}"
    ));
    let outcome = engine.apply(vec![Change::Put(broken)], world::NOW);
    assert_eq!(outcome.findings.added.len(), 100);
    assert_eq!(engine.snapshot().digest(), before.digest());
}

#[test]
fn an_ingress_of_a_thousand_hosts_is_translated_host_by_host() {
    let mut engine = world::engine(Settings::default());
    let text = |name: &str| {
        let rules: String = (0..1_000)
            .map(|n| format!("  - host: h{n}.example\n"))
            .collect();
        let backend = "{service: {name: x, port: {number: 80}}}";
        world::object(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\n\
             spec:\n  defaultBackend: {backend}\n  rules:\n{rules}"
        ))
    };
    let outcome = engine.apply(vec![Change::Put(text("a"))], world::NOW);
    assert_eq!(outcome.work.units_translated, 1_001);
    assert_eq!(outcome.work.resources_changed, 1_002);
    // Of a thousand hosts that miss one Service there is one finding.
    assert_eq!(outcome.findings.added.len(), 1);
}
