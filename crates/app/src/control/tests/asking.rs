//! Proxies that ask which view they see, more often than they need to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use myriad_api::{Batch, Change, Object, ObjectKey, ObjectKind};
use myriad_base::clock;
use myriad_translate::{VIEW_LABEL_BYTES_MAX, VIEW_LABELS_MAX};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use super::super::asking::ASKING_MAX;
use super::super::beside::BEYOND_MAX;
use super::super::{Control, Event, INBOX_EVENTS_MAX};
use super::{Recorder, asked, batch, control, listed, put};

/// The answers that are waited for.
type Answers = Vec<oneshot::Receiver<Option<Arc<str>>>>;

fn pod(name: &str, labels: Value) -> Object {
    let value = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "labels": labels}
    });
    Object::deserialize(ObjectKind::Pod, value).expect("a Pod")
}

/// So many labels.
fn many(count: usize) -> Value {
    let labels = (0..count).map(|number| (format!("k{number}"), json!("v")));
    Value::Object(labels.collect::<Map<String, Value>>())
}

/// A label that takes so many bytes.
fn long(bytes: usize) -> Value {
    json!({"k": "x".repeat(bytes - 1)})
}

/// The removal of a Pod.
fn gone(name: &str) -> Event {
    let key = ObjectKey::new(ObjectKind::Pod, "shop", name);
    Event::Changed(Batch {
        changes: vec![Change::Remove(key)],
        ..Batch::default()
    })
}

/// A change that is translated at once.
fn step(control: &mut Control<Recorder>, event: Event) {
    assert!(control.take(event));
    control.translate_cut();
    while control.translate_postponed() {}
}

/// The view of a Pod, as its proxy is told.
fn ask(control: &mut Control<Recorder>, name: &str) -> Option<Arc<str>> {
    let (answer, mut answered) = oneshot::channel();
    assert!(control.take(asked(&format!("shop/{name}"), answer)));
    while control.translate_postponed() {}
    control.beside.answer(&control.engine);
    answered.try_recv().expect("an answer")
}

/// An inbox in which a change waits, and more questions than it ever has room for.
fn flooded(count: usize) -> (mpsc::Receiver<Event>, Answers) {
    let (sender, inbox) = mpsc::channel(1 + count);
    sender.try_send(batch("b", 0..1, 2)).expect("room");
    let mut answers = Vec::new();
    for _ in 0..count {
        let (answer, answered) = oneshot::channel();
        sender.try_send(asked("shop/nobody", answer)).expect("room");
        answers.push(answered);
    }
    (inbox, answers)
}

/// Whether a change of a namespace was published.
fn is_published(recorder: &Recorder, namespace: &str) -> bool {
    let published = recorder.0.lock().expect("not poisoned");
    let mut names = published.iter().flat_map(|(names, _)| names);
    names.any(|it| it == namespace)
}

#[tokio::test]
async fn questions_without_end_keep_no_change_waiting() {
    let (mut control, recorder, _) = control(Vec::new());
    assert!(control.take(listed()));
    let (mut inbox, _answers) = flooded(500);
    assert!(control.turn(&mut inbox).await);
    assert!(is_published(&recorder, "b"));
    assert_eq!(inbox.len(), 501 - INBOX_EVENTS_MAX);
}

#[tokio::test]
async fn questions_that_take_long_keep_no_change_waiting() {
    let (mut control, recorder, _) = control(Vec::new());
    assert!(control.take(listed()));
    // Each question is half of what they may take.
    let looks = AtomicU32::new(0);
    control.processor_time = Box::new(move || {
        let times = looks.fetch_add(1, Ordering::Relaxed);
        ASKING_MAX * times / 2
    });
    let (mut inbox, _answers) = flooded(500);
    assert!(control.turn(&mut inbox).await);
    assert!(is_published(&recorder, "b"));
    assert_eq!(inbox.len(), 501 - 1 - 2);
}

#[tokio::test]
async fn who_does_not_wait_for_an_answer_costs_nothing_and_is_forgotten() {
    let (mut control, _, _) = control(Vec::new());
    assert!(control.take(listed()));
    step(&mut control, put(vec![pod("p0", json!({"app": "pay"}))]));
    for _ in 0..1_000 {
        let (answer, answered) = oneshot::channel();
        drop(answered);
        assert!(control.take(asked("shop/p0", answer)));
    }
    assert_eq!(control.beside.counts(), (0, 0, (0, 0)));
    assert_eq!(control.engine.views().count(), 1);
    // Nor do answers pile up of those who went later.
    for _ in 0..1_000 {
        let (answer, _answered) = oneshot::channel();
        assert!(control.take(asked("shop/p0", answer)));
    }
    assert_eq!(control.beside.counts(), (1, 1_000, (1, 0)));
    control.beside.answer(&control.engine);
    assert_eq!(control.beside.counts(), (1, 0, (1, 0)));
}

#[tokio::test]
async fn a_pod_that_has_not_changed_is_not_looked_at_again() {
    let (mut control, _, _) = control(Vec::new());
    assert!(control.take(listed()));
    let labels = |hash: &str| json!({"app": "pay", "pod-template-hash": hash});
    step(&mut control, put(vec![pod("p0", labels("a"))]));
    let view = ask(&mut control, "p0");
    assert!(view.is_some());
    for _ in 0..100 {
        assert_eq!(ask(&mut control, "p0"), view);
    }
    assert_eq!(control.beside.counts(), (1, 0, (1, 0)));
    // One that changes in what nobody names was looked at when it did.
    step(&mut control, put(vec![pod("p0", labels("b"))]));
    assert_eq!(ask(&mut control, "p0"), view);
    assert_eq!(control.beside.counts().0, 1);
    step(&mut control, put(vec![pod("p0", json!({"app": "read"}))]));
    let other = ask(&mut control, "p0");
    assert!(other.is_some() && other != view);
    assert_eq!(control.beside.counts(), (2, 0, (1, 0)));
    step(&mut control, gone("p0"));
    assert_eq!(control.beside.counts(), (2, 0, (0, 0)));
    assert_eq!(ask(&mut control, "p0"), None);
}

#[tokio::test]
async fn what_questions_take_is_charged_to_the_namespace_of_the_pod() {
    let (mut control, _, _) = control(Vec::new());
    assert!(control.take(listed()));
    step(&mut control, put(vec![pod("p0", json!({"app": "pay"}))]));
    step(&mut control, batch("b", 0..1, 2));
    let looks = AtomicU32::new(0);
    control.processor_time = Box::new(move || {
        let times = looks.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(60) * times
    });
    let waits = |control: &Control<Recorder>, namespace: &str| {
        let until = control.queue.deferred_until(namespace, clock::now());
        until.is_some()
    };
    let mut answers = Vec::new();
    for is_charged in [false, true] {
        let (answer, answered) = oneshot::channel();
        answers.push(answered);
        assert!(control.take(asked("shop/nobody", answer)));
        assert_eq!(waits(&control, "shop"), is_charged);
    }
    assert!(!waits(&control, "b"));
    let told = control
        .board
        .findings_where(10, |it| it.message.contains("namespace shop wait for"));
    assert_eq!(told.len(), 1);
}

#[tokio::test]
async fn a_pod_with_more_labels_than_a_view_has_gets_none_until_it_has_fewer() {
    let (mut control, _, _) = control(Vec::new());
    assert!(control.take(listed()));
    let pods = [
        pod("full", many(VIEW_LABELS_MAX)),
        pod("wide", long(VIEW_LABEL_BYTES_MAX)),
        pod("many", many(VIEW_LABELS_MAX + 1)),
        pod("long", long(VIEW_LABEL_BYTES_MAX + 1)),
    ];
    step(&mut control, put(pods.into()));
    let full = ask(&mut control, "full").expect("a view");
    assert!(ask(&mut control, "wide").is_some());
    for _ in 0..100 {
        assert_eq!(ask(&mut control, "many"), None);
        assert_eq!(ask(&mut control, "long"), None);
    }
    assert_eq!(control.beside.counts(), (4, 0, (2, 2)));
    let found = control
        .board
        .findings_where(10, |it| it.message.contains("more than 256"));
    let objects = found.iter().filter_map(|it| it.object.clone());
    let objects: Vec<String> = objects.map(|it| it.to_string()).collect();
    assert_eq!(objects, ["Pod shop/many"], "the first of the namespace");

    step(&mut control, put(vec![pod("many", many(9))]));
    assert!(ask(&mut control, "many").is_some());
    step(&mut control, gone("long"));
    assert_eq!(control.beside.counts().2, (3, 0));
    // One that has a view, and comes to have too many, has none any more.
    step(
        &mut control,
        put(vec![pod("full", many(VIEW_LABELS_MAX + 1))]),
    );
    assert!(control.engine.snapshot_of(&full).is_none());
    assert_eq!(ask(&mut control, "full"), None);
}

#[tokio::test]
async fn of_pods_with_too_many_labels_no_more_than_so_many_are_remembered() {
    let count = BEYOND_MAX + 10;
    let names = (0..count).map(|number| format!("p{number}"));
    let pods = names.map(|name| pod(&name, long(VIEW_LABEL_BYTES_MAX + 1)));
    let first = Batch {
        changes: pods.map(Change::Put).collect(),
        synced: true,
        ..Batch::default()
    };
    let (mut control, _, _) = control(Vec::new());
    assert!(control.take(Event::Changed(first)));
    for number in 0..count {
        assert_eq!(ask(&mut control, &format!("p{number}")), None);
    }
    assert_eq!(control.beside.counts(), (count, 0, (0, BEYOND_MAX)));
}
