//! The catalog after changes, as readers of it see it.

use std::collections::BTreeSet;

use myriad_api::{Change, Object, ObjectKey, ObjectKind};
use myriad_model::{Form, Key, Kind, Sealer, Writer};
use myriad_translate::Engine;
use serde_json::json;

use super::{Backwards, Catalog, NameEnd, Named, Placed};

fn ingress(name: &str, host: &str) -> Change {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let value = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "tls": [{"hosts": [host], "secretName": "web"}],
            "rules": [{
                "host": host,
                "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
            }],
        },
    });
    let object = Object::deserialize(ObjectKind::Ingress, value);
    Change::Put(object.expect("an Ingress"))
}

/// A catalog of what is translated of objects, and what translates them.
fn catalog(form: Form) -> (Catalog, Engine) {
    let catalog = Catalog::default();
    catalog.keep();
    let writer = Writer::new(Sealer::new([3; 32], form));
    let engine = Engine::new(myriad_translate::Settings::default(), writer);
    (catalog, engine)
}

fn apply(catalog: &Catalog, engine: &mut Engine, changes: Vec<Change>) {
    let outcome = engine.apply(changes, 0);
    catalog.apply(outcome.delta.changes());
}

/// All hosts that a search finds, by pages of two.
fn all(catalog: &Catalog, text: &str, end: NameEnd) -> Vec<String> {
    let mut found = Vec::new();
    let mut after: Option<std::sync::Arc<str>> = None;
    loop {
        let page = catalog.search((text, end), after.as_deref(), (2, 1));
        assert!(page.hosts.len() <= 2);
        found.extend(page.hosts.iter().map(|entry| entry.host.to_string()));
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

#[test]
fn hosts_are_found_by_either_end_until_their_objects_go() {
    for form in [Form::Value, Form::Encoded] {
        let (catalog, mut engine) = catalog(form);
        let names = ["a.shop.test", "ab.shop.test", "b.shop.test", "a.bank.test"];
        let put = names.iter().map(|host| ingress(host, host)).collect();
        apply(&catalog, &mut engine, put);
        assert_eq!(catalog.hosts_len(), 4);
        let by_start = all(&catalog, "a", NameEnd::Start);
        assert_eq!(by_start, ["a.bank.test", "a.shop.test", "ab.shop.test"]);
        let by_end: BTreeSet<_> = all(&catalog, ".shop.test", NameEnd::End)
            .into_iter()
            .collect();
        let expected = ["a.shop.test", "ab.shop.test", "b.shop.test"];
        assert_eq!(by_end, expected.map(str::to_owned).into());
        assert_eq!(all(&catalog, "", NameEnd::Start).len(), 4);
        assert_eq!(all(&catalog, "", NameEnd::End).len(), 4);
        assert!(all(&catalog, "z", NameEnd::Start).is_empty());
        let gone = ObjectKey::new(ObjectKind::Ingress, "shop", "ab.shop.test");
        apply(&catalog, &mut engine, vec![Change::Remove(gone)]);
        assert_eq!(
            all(&catalog, "a", NameEnd::Start),
            ["a.bank.test", "a.shop.test"]
        );
        assert!(catalog.host("ab.shop.test").is_none());
    }
}

#[test]
fn a_host_has_its_resources_and_those_have_theirs() {
    let (catalog, mut engine) = catalog(Form::Encoded);
    let host = "a.shop.test";
    apply(&catalog, &mut engine, vec![ingress("web", host)]);
    let entry = catalog.host(host).expect("the host");
    let kinds: BTreeSet<Kind> = entry.resources.iter().map(|it| it.key().kind).collect();
    assert_eq!(kinds, [Kind::Domain, Kind::Route].into());
    // Another state of the same object takes the place of the former.
    apply(&catalog, &mut engine, vec![ingress("web", "b.shop.test")]);
    assert!(catalog.host(host).is_none());
    let entry = catalog.host("b.shop.test").expect("the host");
    assert_eq!(entry.resources.len(), 2);
    assert!(!entry.has_more);
}

#[test]
fn a_page_has_no_more_hosts_and_resources_than_were_asked_for() {
    let (catalog, mut engine) = catalog(Form::Value);
    let names: Vec<String> = (0..500)
        .map(|number| format!("n{number:03}.test"))
        .collect();
    let put = names.iter().map(|host| ingress(host, host)).collect();
    apply(&catalog, &mut engine, put);
    let page = catalog.search(("n", NameEnd::Start), Some("n099.test"), (50, 1));
    assert_eq!(page.hosts.len(), 50);
    assert_eq!(&*page.hosts[0].host, "n100.test");
    assert_eq!(page.next.as_deref(), Some("n149.test"));
    let first = &page.hosts[0];
    assert_eq!((first.resources.len(), first.has_more), (1, true));
}

#[test]
fn what_is_not_kept_costs_nothing_and_says_nothing() {
    let (_, mut engine) = catalog(Form::Value);
    let catalog = Catalog::default();
    apply(&catalog, &mut engine, vec![ingress("web", "a.test")]);
    assert_eq!(catalog.hosts_len(), 0);
    assert!(catalog.host("a.test").is_none());
    assert!(catalog.endpoints("shop/web:80").is_empty());
    let key = Key::new(Kind::Upstream, "shop/web:80");
    assert!(catalog.named(&key).is_none());
}

/// docs/console.md tells what a domain costs by these.
#[test]
fn entries_are_as_small_as_is_told() {
    let sizes = [
        size_of::<Placed>(),
        size_of::<Backwards>(),
        size_of::<Named>(),
    ];
    assert_eq!(sizes, [24, 16, 8]);
}
