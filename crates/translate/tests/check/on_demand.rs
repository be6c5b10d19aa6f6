//! Certificates on demand: what they become, and what they cost.

use std::sync::Arc;

use myriad_api::{Change, Meta, Object, ObjectKey, ObjectKind, OnDemand};
use myriad_model::Kind;
use myriad_translate::{Engine, Settings};

use crate::world;

fn put(host: &str, certificate: &str) -> Change {
    let secret = world::secret(certificate, "<key a.example>", None);
    let key = ObjectKey::from_id(ObjectKind::OnDemand, format!("on-demand:{host}").into());
    Change::Put(Object::OnDemand(Arc::new(OnDemand {
        meta: Meta::new(key),
        host: host.into(),
        secret: Arc::new(secret),
    })))
}

fn apply(engine: &mut Engine, changes: Vec<Change>) -> u64 {
    engine.apply(changes, world::NOW).work.units_translated
}

/// The names of all certificates.
fn certificates(engine: &Engine) -> Vec<String> {
    let snapshot = engine.snapshot();
    let all = snapshot.iter();
    let certificates = all.filter(|sealed| sealed.key().kind == Kind::Certificate);
    let mut names: Vec<_> = certificates
        .map(|it| it.name().as_str().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn each_becomes_a_certificate_of_its_host_and_costs_no_more_than_itself() {
    let mut engine = world::engine(Settings::default());
    let hosts: Vec<String> = (0..50).map(|number| format!("h{number}.example")).collect();
    let all = hosts
        .iter()
        .map(|host| put(host, "<certificate a.example>"));
    apply(&mut engine, all.collect());
    assert_eq!(certificates(&engine).len(), 50);
    let new = put("new.example", "<certificate a.example>");
    assert_eq!(apply(&mut engine, vec![new]), 1);
    assert!(certificates(&engine).contains(&"on-demand:new.example".to_owned()));
    let key = ObjectKey::from_id(ObjectKind::OnDemand, "on-demand:new.example".into());
    apply(&mut engine, vec![Change::Remove(key)]);
    assert_eq!(certificates(&engine).len(), 50);
    assert_eq!(engine.findings().count(), 0);
}

#[test]
fn what_cannot_be_served_or_is_no_host_becomes_nothing() {
    let mut engine = world::engine(Settings::default());
    let changes = vec![
        put("a.example", "<certificate b.example>"),
        put("b.example", "nonsense"),
        put("*.example", "<certificate a.example>"),
        put("localhost", "<certificate a.example>"),
    ];
    apply(&mut engine, changes);
    assert_eq!(certificates(&engine), [""; 0]);
}

#[test]
fn no_secret_that_somebody_writes_is_one() {
    let mut engine = world::engine(Settings::default());
    let text = "apiVersion: v1\nkind: Secret\n\
                metadata: {namespace: on-demand, name: a.example, \
                annotations: {myriad.dev/on-demand: a.example}}\n\
                type: kubernetes.io/tls\n\
                stringData: {tls.crt: <certificate a.example>, tls.key: <key a.example>}\n";
    apply(&mut engine, world::changes(text));
    assert_eq!(certificates(&engine), [""; 0]);
}
