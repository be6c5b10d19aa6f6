use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::clock;
use myriad_source::kubernetes::Texts;

use super::report::Report;
use super::{AwaitedObject, Peers, REMOVED_AFTER, SILENT_MAX};
use crate::control::Progress;
use crate::live::ProxyGroup;
use crate::stated::Revisions;

fn route(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::HttpRoute, namespace, name)
}

fn read_up_to(revision: u64) -> BTreeMap<ObjectKind, u64> {
    BTreeMap::from([(ObjectKind::HttpRoute, revision), (ObjectKind::Gateway, 9)])
}

/// The report of a replica with two gateways, at which these wait.
fn report(revision: u64, objects: Vec<ObjectKey>, namespaces: &[&str]) -> Report {
    let progress = Progress {
        read: read_up_to(revision),
        waiting: namespaces.iter().map(|it| Box::from(*it)).collect(),
    };
    Report::new(progress, &[(ProxyGroup::Shared, 2)], objects)
}

fn lacks(report: &Report, key: &ObjectKey, read: Option<u64>) -> bool {
    let read: Option<Revisions> = read.map(|it| Arc::new(read_up_to(it)));
    let namespaces = [key.namespace(), "edge"];
    report.lacks(&AwaitedObject {
        key,
        namespaces: &namespaces,
        read: read.as_ref(),
    })
}

#[test]
fn a_replica_lacks_what_it_has_not_read_or_translated_or_its_proxies_do_not_serve() {
    let written = report(7, vec![route("shop", "a")], &["evil"]).text();
    let report = Report::read(&written);
    assert_eq!(report.proxies_of("shared"), 2);
    assert!(lacks(&report, &route("shop", "a"), Some(7)));
    assert!(!lacks(&report, &route("shop", "b"), Some(7)));
    assert!(!lacks(&report, &route("shop", "b"), None));
    assert!(
        lacks(&report, &route("shop", "b"), Some(8)),
        "it has not read it"
    );
    assert!(
        lacks(&report, &route("evil", "b"), Some(7)),
        "its namespace waits"
    );
    let waits = super::tests::report(7, Vec::new(), &["edge"]);
    assert!(
        lacks(&waits, &route("shop", "b"), Some(7)),
        "that of its Gateway does"
    );
    let odd = Report::read("{\"proxies\": 7}");
    assert!(odd.is_empty());
}

#[test]
fn many_objects_of_a_namespace_leave_room_for_those_of_others() {
    let mut objects: Vec<ObjectKey> = (0..2_000)
        .map(|number| route("loud", &format!("r{number}")))
        .collect();
    objects.push(route("shop", "a"));
    let report = report(7, objects, &[]);
    assert!(lacks(&report, &route("shop", "a"), None));
    assert!(!lacks(&report, &route("shop", "b"), None));
    assert!(lacks(&report, &route("loud", "none of them"), None));
    assert!(report.text().len() < 1_000);
    let names: Vec<String> = (0..600).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let report = super::tests::report(7, Vec::new(), &names);
    assert!(
        lacks(&report, &route("shop", "b"), None),
        "there are too many"
    );
    assert!(report.text().len() < 1_000);
}

#[tokio::test]
async fn an_object_waits_for_another_replica_until_that_says_something_new() {
    let (peers, now) = (Peers::default(), clock::now());
    let key = route("shop", "a");
    let served = |group: &ProxyGroup| {
        let namespaces = ["shop"];
        let object = AwaitedObject {
            key: &key,
            namespaces: &namespaces,
            read: None,
        };
        let (was_waited_for, peeked) = (peers.is_waited_for(), peers.peek(&object, group));
        assert_eq!(peers.is_waited_for(), was_waited_for);
        let served = peers.served(&object, group);
        assert_eq!(peeked, served);
        served
    };
    let say = |report: Report| Texts::from([("other".to_owned(), report.text())]);
    assert_eq!(served(&ProxyGroup::Shared), (0, false));
    let behind = say(report(7, vec![key.clone()], &[]));
    assert!(peers.hear(&behind, "own", now).is_empty());
    assert_eq!(served(&ProxyGroup::Own("gateway/n/g".into())), (0, false));
    assert!(!peers.is_waited_for());
    assert_eq!(served(&ProxyGroup::Shared), (2, true));
    assert!(peers.is_waited_for());
    peers.hear(&behind, "own", now);
    assert!(peers.is_waited_for(), "it has said nothing new");
    peers.hear(&say(report(7, Vec::new(), &[])), "own", now);
    assert_eq!(peers.next_due().await, BTreeSet::from([key.clone()]));
    assert_eq!(served(&ProxyGroup::Shared), (2, false));
    // What one says itself is no word of another.
    let own = Texts::from([("own".to_owned(), report(7, Vec::new(), &[]).text())]);
    peers.hear(&own, "own", now);
    assert_eq!(
        served(&ProxyGroup::Shared),
        (0, false),
        "and the other is gone"
    );
}

#[tokio::test]
async fn an_object_without_any_proxy_waits_for_the_first_of_another_replica() {
    let (peers, now) = (Peers::default(), clock::now());
    let (key, other) = (route("shop", "a"), route("shop", "b"));
    peers.await_first(&key);
    peers.await_first(&other);
    peers.let_go(&other);
    assert!(peers.is_waited_for());
    let texts = Texts::from([("other".to_owned(), report(7, Vec::new(), &[]).text())]);
    peers.hear(&texts, "own", now);
    assert_eq!(peers.next_due().await, BTreeSet::from([key]));
    assert!(!peers.is_waited_for());
}

#[tokio::test]
async fn a_replica_that_is_silent_has_no_proxies_any_more_and_is_forgotten() {
    let (peers, now) = (Peers::default(), clock::now());
    let (key, namespaces) = (route("shop", "a"), ["shop"]);
    let served = || {
        let object = AwaitedObject {
            key: &key,
            namespaces: &namespaces,
            read: None,
        };
        peers.served(&object, &ProxyGroup::Shared)
    };
    let texts = Texts::from([("other".to_owned(), report(7, vec![key.clone()], &[]).text())]);
    peers.hear(&texts, "own", now);
    assert_eq!(served(), (2, true));
    let late = now + SILENT_MAX;
    assert!(
        peers
            .hear(&texts, "own", late - Duration::from_secs(1))
            .is_empty()
    );
    assert_eq!(served(), (2, true));
    assert!(peers.hear(&texts, "own", late).is_empty());
    assert_eq!(peers.next_due().await.len(), 1, "nobody waits for it");
    assert_eq!(served(), (0, false));
    let over = peers.hear(&texts, "own", now + REMOVED_AFTER);
    assert_eq!(over, ["other"]);
}
