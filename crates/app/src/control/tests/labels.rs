//! Pods that are one view or several, by the labels that selectors name for them.

use std::sync::Arc;

use myriad_api::{Object, ObjectKind};
use myriad_translate::Bounds;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::super::{Control, Event};
use super::{Recorder, asked, control, control_within, listed, put};

/// Pods of each namespace.
const PODS: usize = 20;

fn pod(namespace: &str, number: usize, labels: Value) -> Object {
    let value = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": format!("p{number}"), "labels": labels}
    });
    Object::deserialize(ObjectKind::Pod, value).expect("a Pod")
}

/// Pods of one workload, of two versions and several revisions.
fn pods(namespace: &str) -> Event {
    let pods = (0..PODS).map(|number| {
        let (version, hash) = (format!("v{}", number % 2), format!("r{}", number % 5));
        let labels = json!({"app": "pay", "version": version, "pod-template-hash": hash});
        pod(namespace, number, labels)
    });
    put(pods.collect())
}

/// A change that is translated at once.
fn step(control: &mut Control<Recorder>, event: Event) {
    assert!(control.take(event));
    control.translate_cut();
    while control.translate_postponed() {}
}

/// The views of the first Pods of a namespace, as their proxies are told.
fn ask(control: &mut Control<Recorder>, namespace: &str, count: usize) -> Vec<Option<Arc<str>>> {
    let mut waiting = Vec::new();
    for number in 0..count {
        let (answer, answered) = oneshot::channel();
        let event = asked(&format!("{namespace}/p{number}"), answer);
        assert!(control.take(event));
        waiting.push(answered);
    }
    while control.translate_postponed() {}
    control.beside.answer(&control.engine);
    let answers = waiting
        .iter_mut()
        .map(|it| it.try_recv().expect("an answer"));
    answers.collect()
}

/// How many views of sidecars there are.
fn views(control: &Control<Recorder>) -> usize {
    control.engine.views().count() - 1
}

/// A VirtualService of a Service that everybody may call, for callers with a label.
fn callers(namespace: &str, label: &str, value: &str) -> Event {
    let rule = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"namespace": namespace, "name": "web"},
        "spec": {"hosts": [format!("web.{namespace}.svc.cluster.local")], "http": [{
            "match": [{"sourceLabels": {label: value}}],
            "route": [{"destination": {"host": "web"}}]
        }]}
    });
    let rule = Object::deserialize(ObjectKind::VirtualService, rule);
    put(vec![rule.expect("a VirtualService")])
}

#[tokio::test]
async fn a_label_that_one_namespace_names_parts_the_views_of_no_other() {
    let (mut control, _, _) = control(Vec::new());
    assert!(control.take(listed()));
    for namespace in ["shop", "tenant"] {
        step(&mut control, pods(namespace));
        let told = ask(&mut control, namespace, PODS);
        assert!(told.iter().all(|view| view.is_some() && *view == told[0]));
    }
    assert_eq!(views(&control), 2);
    let policy = json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"namespace": "tenant", "name": "p"},
        "spec": {"selector": {"matchLabels": {"pod-template-hash": "r7"}}, "action": "DENY",
            "rules": [{}]}
    });
    let policy = Object::deserialize(ObjectKind::AuthorizationPolicy, policy).expect("a policy");
    step(&mut control, put(vec![policy]));
    assert_eq!(views(&control), 1, "its own is parted alone");
    ask(&mut control, "tenant", PODS);
    assert_eq!(views(&control), 1 + 5);
    // Nor does a rule for callers by a label in which each Pod differs, which closes for them.
    step(&mut control, callers("tenant", "pod-template-hash", "r1"));
    assert_eq!(views(&control), 1 + 5);
    // One that owners write parts those who differ in it, since they are led elsewhere.
    step(&mut control, callers("tenant", "version", "v1"));
    assert_eq!(views(&control), 0);
    ask(&mut control, "shop", PODS);
    assert_eq!(views(&control), 2);
}

#[tokio::test]
async fn a_label_that_the_root_namespace_names_parts_the_views_of_all() {
    let (mut control, _, _) = control(Vec::new());
    assert!(control.take(listed()));
    for namespace in ["shop", "tenant"] {
        step(&mut control, pods(namespace));
        ask(&mut control, namespace, PODS);
    }
    let telemetry = json!({
        "apiVersion": "telemetry.istio.io/v1",
        "kind": "Telemetry",
        "metadata": {"namespace": "istio-system", "name": "t"},
        "spec": {"selector": {"matchLabels": {"version": "v1"}}}
    });
    let telemetry = Object::deserialize(ObjectKind::Telemetry, telemetry).expect("a Telemetry");
    step(&mut control, put(vec![telemetry]));
    assert_eq!(views(&control), 0);
    for namespace in ["shop", "tenant"] {
        ask(&mut control, namespace, PODS);
    }
    assert_eq!(views(&control), 2 + 2);
}

#[tokio::test]
async fn a_pod_beyond_the_views_of_its_namespace_gets_none_and_a_finding_says_so() {
    let bounds = Bounds {
        views: 2,
        ..Bounds::default()
    };
    let (mut control, _, _) = control_within(bounds, Vec::new());
    assert!(control.take(listed()));
    for namespace in ["shop", "tenant"] {
        let pods = (0..4).map(|it| pod(namespace, it, json!({"app": format!("a{}", it % 3)})));
        step(&mut control, put(pods.collect()));
    }
    let told = ask(&mut control, "tenant", 4);
    let has_view: Vec<bool> = told.iter().map(Option::is_some).collect();
    // The last is of the same workload as the first.
    assert_eq!(has_view, [true, true, false, true]);
    assert_eq!(told[0], told[3]);
    let found = control
        .board
        .findings_where(10, |it| it.remedy.contains("--bound views=2"));
    let objects = found.iter().filter_map(|it| it.object.clone());
    let objects: Vec<String> = objects.map(|it| it.to_string()).collect();
    assert_eq!(objects, ["Pod tenant/p2"]);
    let told = ask(&mut control, "shop", 2);
    assert!(told.iter().all(Option::is_some), "others have theirs");
}

#[tokio::test]
async fn a_pod_that_was_let_go_is_another_when_it_is_kept_again() {
    let bounds = Bounds {
        object_bytes: 4_096,
        ..Bounds::default()
    };
    let (mut control, _, _) = control_within(bounds, Vec::new());
    assert!(control.take(listed()));
    let labelled = |app: &str, filler: usize| {
        let labels = json!({"app": app, "filler": "x".repeat(filler)});
        put(vec![pod("shop", 0, labels)])
    };
    step(&mut control, labelled("pay", 1));
    let told = ask(&mut control, "shop", 1);
    let view = told[0].clone().expect("a view");
    // Nobody knows what it is while it takes too much, and its proxy stays where it was.
    step(&mut control, labelled("pay", 20_000));
    assert!(control.engine.snapshot_of(&view).is_some());
    assert!(ask(&mut control, "shop", 1)[0].is_none());
    step(&mut control, labelled("read", 1));
    assert!(
        control.engine.snapshot_of(&view).is_none(),
        "it is not its own"
    );
    let told = ask(&mut control, "shop", 1);
    assert!(told[0].as_ref().is_some_and(|it| *it != view));
}
