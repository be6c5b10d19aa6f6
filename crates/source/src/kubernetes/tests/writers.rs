//! Status, Lease and Events against the fake server.

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_base::{clock, task};
use serde_json::json;
use tokio::sync::oneshot;

use super::INGRESSES;
use super::server::Server;
use crate::kubernetes::lease::{self, Claim, Elector};
use crate::kubernetes::status::{self, Address, Condition, Statuses, Writer};
use crate::kubernetes::{Access, CallError, Client, OwnConfigMap, Texts, events};

const ISSUERS: &str = "/apis/myriad.dev/v1alpha1/namespaces/n/issuers";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/m/leases";

async fn client(server: &Server) -> Client {
    let access = Access::Plain(server.uri());
    Client::new(&access, Arc::default())
        .await
        .expect("a client")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::Ingress, "n", name)
}

fn address(last: u8) -> Arc<[Address]> {
    [Address::Ip([192, 0, 2, last].into())].into()
}

fn claim(holds: bool) -> Claim {
    let claim = Claim::new();
    let now = clock::now();
    claim.set(holds.then(|| now + Duration::from_secs(3_600)), now);
    claim
}

async fn writer(server: &Server, claim: Claim) -> Statuses {
    let settings = status::StatusSettings {
        writes_per_second: 1_000.0,
        ..status::StatusSettings::default()
    };
    let (writer, statuses) = Writer::new(client(server).await, claim, settings);
    task::spawn("status", writer.run());
    statuses
}

#[tokio::test]
async fn a_status_is_written_with_the_version_it_rests_on_and_only_on_change() {
    let server = Server::start().await;
    server.put(INGRESSES, "a", json!({"spec": {}}));
    let statuses = writer(&server, claim(true)).await;
    server.conflict(1);
    statuses.set(key("a"), address(1));
    server.asked("PATCH", 2).await;
    let shown = json!([{"ip": "192.0.2.1"}]);
    let status = |name: &str| {
        let object = server.get(INGRESSES, name).expect("it is there");
        object["status"]["loadBalancer"]["ingress"].clone()
    };
    // The second wish is equal, the third one is not; what is served last proves the order.
    server.asked("GET", 2).await;
    statuses.set(key("a"), address(1));
    server.asked("GET", 3).await;
    assert_eq!(status("a"), shown);
    statuses.set(key("a"), address(2));
    server.asked("PATCH", 3).await;
    statuses.set(key("none"), address(2));
    server.asked("/none", 1).await;
    assert_eq!(status("a"), json!([{"ip": "192.0.2.2"}]));
    let log = server.log();
    assert_eq!(
        log.iter().filter(|line| line.contains("PATCH")).count(),
        3,
        "{log:?}"
    );
    assert_eq!(statuses.counters().written.get(), 2);
    assert_eq!(statuses.counters().unchanged.get(), 1);
    assert_eq!(statuses.counters().conflicts.get(), 1);
}

#[tokio::test]
async fn an_object_that_others_write_all_the_time_waits_alone_and_is_written_in_the_end() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.put(INGRESSES, name, json!({"spec": {}}));
    }
    let statuses = writer(&server, claim(true)).await;
    // As often as it is tried at once.
    server.conflict(5);
    statuses.set(key("a"), address(1));
    server.asked("/a/status", 5).await;
    statuses.set(key("b"), address(1));
    server.asked("/b/status", 1).await;
    assert_eq!(statuses.waiting(), 1);
    server.asked("/a/status", 6).await;
    assert_eq!(statuses.counters().conflicts.get(), 5);
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing() {
    let server = Server::start().await;
    server.put(INGRESSES, "a", json!({"spec": {}}));
    let claim = claim(false);
    let statuses = writer(&server, claim.clone()).await;
    for number in 0..10 {
        statuses.set(key("a"), address(number));
    }
    while statuses.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    // Once it leads, what it is told then is written, and nothing of before: requests come
    // one after another, so what there was about the first would be in the log.
    let now = clock::now();
    claim.set(Some(now + Duration::from_secs(3_600)), now);
    server.put(INGRESSES, "b", json!({"spec": {}}));
    statuses.set(key("b"), address(42));
    server.asked("/b/status", 1).await;
    let log = server.log();
    assert!(log.iter().all(|line| line.contains("/b")), "{log:?}");
}

#[tokio::test]
async fn a_condition_is_written_once_by_who_leads_whoever_writes_meanwhile() {
    let server = Server::start().await;
    server.define("myriad.dev/v1alpha1", &["issuers"]);
    server.put(ISSUERS, "le", json!({"spec": {}}));
    let client = client(&server).await;
    let issuer = ObjectKey::new(ObjectKind::Issuer, "n", "le");
    let ready = Condition {
        name: "Ready",
        holds: true,
        reason: "AccountRegistered",
        message: "an account is there".to_owned(),
    };
    let shown = client.show_condition(&claim(false), &issuer, &ready).await;
    assert_eq!(shown, Ok(false));
    assert!(server.log().is_empty(), "{:?}", server.log());
    server.conflict(1);
    let leads = claim(true);
    let shown = client.show_condition(&leads, &issuer, &ready).await;
    assert_eq!(shown, Ok(true));
    let object = server.get(ISSUERS, "le").expect("it is there");
    let condition = &object["status"]["conditions"][0];
    assert_eq!(condition["status"], "True");
    assert_eq!(condition["reason"], "AccountRegistered");
    let shown = client.show_condition(&leads, &issuer, &ready).await;
    assert_eq!(shown, Ok(false));
    let log = server.log();
    let patches = log.iter().filter(|line| line.contains("PATCH"));
    assert_eq!(patches.count(), 2, "{log:?}");
    let none = ObjectKey::new(ObjectKind::Issuer, "n", "none");
    let shown = client.show_condition(&leads, &none, &ready).await;
    assert_eq!(shown, Err(CallError::NotFound));
}

#[tokio::test]
async fn a_claim_is_lost_when_its_time_is_over_or_it_is_given_up_and_not_before() {
    let claim = claim(true);
    let lost = tokio::time::timeout(Duration::from_millis(20), claim.lost());
    assert!(lost.await.is_err(), "it holds");
    // A renewal is no loss, and its end is.
    let now = clock::now();
    claim.set(Some(now + Duration::from_millis(20)), now);
    claim.lost().await;
    assert!(!claim.holds(clock::now()));
    let other = claim.clone();
    other.set(Some(now + Duration::from_secs(3_600)), clock::now());
    let given_up = async {
        tokio::task::yield_now().await;
        other.set(None, clock::now());
    };
    tokio::join!(claim.lost(), given_up);
    assert!(!claim.holds(clock::now()));
}

fn elector(client: Client, identity: &str) -> Elector {
    let settings = lease::LeaseSettings {
        namespace: "m".to_owned(),
        name: "leader".to_owned(),
        identity: identity.to_owned(),
        duration: Duration::from_secs(15),
    };
    Elector::new(client, settings)
}

#[tokio::test]
async fn a_lease_is_taken_given_back_and_taken_by_the_next() {
    let server = Server::start().await;
    let first = elector(client(&server).await, "first");
    let claim = first.claim();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = task::spawn("first", first.run(async move { drop(stopped.await) }));
    let mut terms = claim.terms();
    terms
        .wait_for(|term| term.number == 1)
        .await
        .expect("it runs");
    assert!(claim.holds(clock::now()));
    let holder = || {
        let lease = server.get(LEASES, "leader").expect("a Lease");
        lease["spec"]["holderIdentity"]
            .as_str()
            .expect("a holder")
            .to_owned()
    };
    assert_eq!(holder(), "first");
    stop.send(()).expect("it waits");
    running.await.expect("it ended");
    assert!(!claim.holds(clock::now()));
    assert_eq!(holder(), "");
    let second = elector(client(&server).await, "second");
    let claim = second.claim();
    let running = task::spawn("second", second.run(std::future::pending()));
    let mut terms = claim.terms();
    terms
        .wait_for(|term| term.number == 1)
        .await
        .expect("it runs");
    assert_eq!(holder(), "second");
    running.abort();
}

#[tokio::test]
async fn a_finding_becomes_an_event_that_names_the_object_by_uid() {
    let server = Server::start().await;
    server.put(INGRESSES, "a", json!({"spec": {}}));
    let settings = events::EventSettings::new("pod-1");
    let (recorder, events) = events::Recorder::new(client(&server).await, claim(true), settings);
    let finding = Finding::new(
        Severity::Error,
        &key("a"),
        "spec",
        "it is wrong",
        "correct it",
    );
    events.record(&finding);
    events.record(&finding);
    task::spawn("events", recorder.run());
    server.asked("POST", 1).await;
    events.record(&Finding::new(Severity::Info, &key("none"), "", "a", "b"));
    server.asked("/none", 1).await;
    let path = "/apis/events.k8s.io/v1/namespaces/n/events";
    let names = server.names(path);
    assert_eq!(names.len(), 1);
    let event = server.get(path, &names[0]).expect("it is there");
    assert_eq!(event["regarding"]["uid"], "uid-a");
    assert_eq!(event["note"], "spec: it is wrong; correct it");
    assert_eq!(event["type"], "Warning");
}

#[tokio::test]
async fn events_of_a_follower_wait_for_its_term() {
    let server = Server::start().await;
    server.put(INGRESSES, "a", json!({"spec": {}}));
    let claim = claim(false);
    let settings = events::EventSettings::new("pod-1");
    let (recorder, events) = events::Recorder::new(client(&server).await, claim.clone(), settings);
    events.record(&Finding::new(Severity::Error, &key("a"), "", "a", "b"));
    let running = task::spawn("events", recorder.run());
    tokio::task::yield_now().await;
    assert!(server.log().is_empty());
    let now = clock::now();
    claim.set(Some(now + Duration::from_secs(3_600)), now);
    server.asked("POST", 1).await;
    running.abort();
}

#[tokio::test]
async fn a_status_that_is_given_up_is_taken_from_nobody_else() {
    let server = Server::start().await;
    let shown = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    let managed = |manager: &str| {
        let owner = json!({"manager": manager, "operation": "Apply", "subresource": "status"});
        json!({"metadata": {"managedFields": [owner]}, "spec": {}, "status": shown})
    };
    server.put(INGRESSES, "ours", managed("myriad"));
    server.put(INGRESSES, "theirs", managed("myriad-other"));
    let statuses = writer(&server, claim(true)).await;
    statuses.set(key("theirs"), Arc::default());
    server.asked("/theirs", 1).await;
    statuses.set(key("ours"), Arc::default());
    server.asked("PATCH", 1).await;
    let log = server.log();
    let writes: Vec<&String> = log.iter().filter(|it| it.contains("PATCH")).collect();
    let expected = format!("PATCH {INGRESSES}/ours/status?fieldManager=myriad");
    assert_eq!(writes, [&expected], "without force");
}

/// An Ingress whose status shows an address that this manager has written.
fn shows(manager: &str, last: u8) -> serde_json::Value {
    let owner = json!({"manager": manager, "operation": "Apply", "subresource": "status"});
    let shown = json!({"loadBalancer": {"ingress": [{"ip": format!("192.0.2.{last}")}]}});
    json!({"metadata": {"managedFields": [owner]}, "spec": {}, "status": shown})
}

fn writes(server: &Server) -> Vec<String> {
    let mut log = server.log();
    log.retain(|line| line.contains("PATCH"));
    log
}

/// Waits until a review has looked at so many statuses and nothing waits.
async fn reviewed(statuses: &Statuses, count: u64) {
    while statuses.counters().reviewed.get() < count || statuses.waiting() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_begins_to_lead_takes_back_what_an_earlier_leader_left_and_writes_nothing_else() {
    let server = Server::start().await;
    for number in 0..1_200 {
        server.put(INGRESSES, &format!("right{number:04}"), shows("myriad", 1));
    }
    server.put(INGRESSES, "left", shows("myriad", 1));
    server.put(INGRESSES, "theirs", shows("myriad-other", 9));
    server.put(INGRESSES, "new", json!({"spec": {}}));
    server.put(INGRESSES, "moved", shows("myriad", 7));
    let statuses = writer(&server, claim(true)).await;
    let right = (0..1_200).map(|number| format!("n/right{number:04}"));
    let served = right.chain(["n/new".to_owned(), "n/moved".to_owned()]);
    statuses.review(served.map(Arc::from), address(1));
    reviewed(&statuses, 1_204).await;
    server.asked("PATCH", 3).await;
    let written = ["left", "moved", "new"];
    for name in written {
        let writes = writes(&server);
        let count = writes.iter().filter(|it| it.contains(&format!("/{name}/")));
        assert_eq!(count.count(), 1, "{writes:?}");
    }
    let log = server.log();
    assert_eq!(log.iter().filter(|it| it.contains("limit=500")).count(), 3);
    assert!(
        !log.iter().any(|line| line.contains("/right")),
        "not even read alone"
    );
}

#[tokio::test]
async fn a_leader_that_dies_in_the_middle_of_its_writes_loses_none() {
    let server = Server::start().await;
    for number in 0..20 {
        server.put(INGRESSES, &format!("gone{number}"), shows("myriad", 1));
    }
    let first = claim(true);
    let dying = writer(&server, first.clone()).await;
    for number in 0..20 {
        dying.set(key(&format!("gone{number}")), Arc::default());
    }
    server.asked("PATCH", 5).await;
    first.set(None, clock::now());
    while dying.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    let before = writes(&server).len();
    assert!(before < 20, "it had still some to write");
    let next = writer(&server, claim(true)).await;
    next.review([], address(1));
    reviewed(&next, 20).await;
    // This server keeps what is taken back, so that all of them are written again.
    server.asked("PATCH", before + 20).await;
    for number in 0..20 {
        let name = format!("/gone{number}/");
        assert!(writes(&server).iter().any(|line| line.contains(&name)));
    }
}

#[tokio::test]
async fn a_change_during_a_review_is_newer_than_the_review() {
    let server = Server::start().await;
    server.put(INGRESSES, "a", json!({"spec": {}}));
    server.put(INGRESSES, "b", json!({"spec": {}}));
    let claim = claim(true);
    let settings = status::StatusSettings::default();
    let (writer, statuses) = Writer::new(client(&server).await, claim, settings);
    statuses.review(["n/a".into()], address(1));
    // Both come before the first page is read.
    statuses.set(key("a"), Arc::default());
    statuses.set(key("b"), address(1));
    task::spawn("status", writer.run());
    reviewed(&statuses, 2).await;
    server.asked("/b/status", 1).await;
    assert!(writes(&server).iter().all(|line| line.contains("/b/")));
}

#[tokio::test]
async fn a_config_map_is_written_with_the_version_it_rests_on() {
    let server = Server::start().await;
    let client = client(&server).await;
    let texts = |text: &str| Texts::from([("claims".to_owned(), text.to_owned())]);
    let missing = client.config_map("m", "c").await;
    assert_eq!(missing.err(), Some(CallError::NotFound));
    let write = async |read: Option<&OwnConfigMap>, text: &str| {
        client.write_config_map("m", "c", read, &texts(text)).await
    };
    assert_eq!(write(None, "one").await, Ok(()));
    assert_eq!(write(None, "two").await, Err(CallError::Conflict));
    let first = client.config_map("m", "c").await.expect("it is there");
    assert_eq!(first.texts, texts("one"));
    assert_eq!(write(Some(&first), "two").await, Ok(()));
    assert_eq!(write(Some(&first), "three").await, Err(CallError::Conflict));
    let second = client.config_map("m", "c").await.expect("it is there");
    assert_eq!(second.texts, texts("two"));
    server.forbid("/api/v1/namespaces/m/configmaps/c");
    let refused = client.config_map("m", "c").await.err();
    assert!(matches!(refused, Some(CallError::Forbidden(_))));
}
