//! Views of sidecars that look at what they may see, between the changes of others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use myriad_api::{Batch, ObjectKind};
use myriad_base::clock;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::super::{Control, Event, INBOX_EVENTS_MAX, TAKING_IN_MAX};
use super::{Recorder, asked, batch, change, control, pod, service};

/// A Sidecar of the namespace whose objects are for all.
fn sidecar_for_all(hosts: &str) -> Event {
    let sidecar = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Sidecar",
        "metadata": {"namespace": "istio-system", "name": "default"},
        "spec": {"egress": [{"hosts": [hosts]}]}
    });
    Event::Changed(Batch {
        changes: vec![change(ObjectKind::Sidecar, sidecar)],
        ..Batch::default()
    })
}

#[tokio::test]
async fn a_single_change_is_published_while_all_sidecars_look_at_what_they_may_reach() {
    const VIEWS: usize = 40;
    let services = (0..50).map(|number| service(&format!("n{number}"), "s"));
    let first = Batch {
        changes: services.collect(),
        synced: true,
        ..Batch::default()
    };
    let pods = (0..VIEWS).map(|number| pod(&format!("p{number}"), &format!("a{number}"), 2));
    let events = [Event::Changed(first), service_of_labels()].into_iter();
    let (mut control, recorder, mut inbox) = control(Vec::new());
    for event in events.chain(pods) {
        assert!(control.take(event));
        control.translate_cut();
    }
    let mut answers = Vec::new();
    for number in 0..VIEWS {
        let (answer, answered) = oneshot::channel();
        assert!(control.take(asked(&format!("shop/p{number}"), answer)));
        answers.push(answered);
    }
    // A look at the clock is a 25th of what may run between two cuts.
    let asked = AtomicU64::new(0);
    control.processor_time = Box::new(move || {
        let times = asked.fetch_add(1, Ordering::Relaxed);
        TAKING_IN_MAX * u32::try_from(times).unwrap_or(u32::MAX) / 25
    });
    // Nobody is told of a view before it has looked at all that it may see.
    let (sender, mut more) = mpsc::channel(INBOX_EVENTS_MAX);
    sender.try_send(batch("b", 0..1, 3)).expect("room");
    assert!(control.turn(&mut more).await);
    let is_answered = |it: &mut oneshot::Receiver<_>| it.try_recv().is_ok();
    assert!(!answers.iter_mut().any(is_answered));
    let published = |recorder: &Recorder, namespace: &str| {
        let published = recorder.0.lock().expect("not poisoned");
        let mut names = published.iter().flat_map(|(names, _)| names);
        names.any(|it| it == namespace)
    };
    assert!(published(&recorder, "b") && control.engine.has_postponed());
    let mut turns = 0;
    while control.engine.has_postponed() {
        assert!(control.turn(&mut more).await);
        turns += 1;
    }
    assert!(turns > VIEWS, "{turns}");
    let found = answers
        .iter_mut()
        .map(|it| it.try_recv().expect("an answer"));
    assert!(found.flatten().count() == VIEWS);

    for (namespace, hosts) in [("c", "./*"), ("d", "*/*")] {
        sender.try_send(sidecar_for_all(hosts)).expect("room");
        assert!(control.turn(&mut more).await);
        assert!(control.engine.has_postponed());
        sender.try_send(batch(namespace, 0..1, 4)).expect("room");
        assert!(control.turn(&mut more).await);
        assert!(published(&recorder, namespace) && control.engine.has_postponed());
        while control.engine.has_postponed() {
            assert!(control.turn(&mut more).await);
        }
    }
    assert!(inbox.try_recv().is_err());
}

/// A Service that selects by the label in which Pods of this file differ.
fn service_of_labels() -> Event {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": "pay"},
        "spec": {"selector": {"app": "pay"}, "ports": [{"port": 80, "name": "http"}]}
    });
    Event::Changed(Batch {
        changes: vec![change(ObjectKind::Service, service)],
        ..Batch::default()
    })
}

#[tokio::test]
async fn what_views_look_at_is_charged_to_whoever_caused_it_once_it_adds_up() {
    let services = (0..50).map(|number| service(&format!("n{number}"), "s"));
    let first = Batch {
        changes: services.collect(),
        synced: true,
        ..Batch::default()
    };
    let (mut control, recorder, _) = control(Vec::new());
    let pods = (0..5).map(|number| pod(&format!("p{number}"), &format!("a{number}"), 2));
    for event in [Event::Changed(first)].into_iter().chain(pods) {
        assert!(control.take(event));
        control.translate_cut();
    }
    let mut answers = Vec::new();
    for number in 0..5 {
        let (answer, answered) = oneshot::channel();
        answers.push(answered);
        assert!(control.take(asked(&format!("shop/p{number}"), answer)));
    }
    while control.translate_postponed() {}
    assert!(control.take(batch("b", 0..1, 3)));
    control.translate_cut();
    // Two looks at the clock, as long as a part takes, are not enough to be a heavy batch.
    let asked = AtomicU64::new(0);
    control.processor_time = Box::new(move || {
        let times = asked.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(45 * times)
    });
    let sidecar = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Sidecar",
        "metadata": {"namespace": "shop", "name": "default"},
        "spec": {"egress": [{"hosts": ["./*"]}]}
    });
    let sidecar = Batch {
        changes: vec![change(ObjectKind::Sidecar, sidecar)],
        ..Batch::default()
    };
    assert!(control.take(Event::Changed(sidecar)));
    control.translate_cut();
    let waits = |control: &Control<Recorder>| {
        let until = control.queue.deferred_until("shop", clock::now());
        until.is_some()
    };
    assert!(control.translate_postponed() && !waits(&control));
    assert!(control.translate_postponed() && waits(&control));
    // The rest waits with its other changes, and nobody else does.
    assert!(!control.translate_postponed() && control.engine.has_postponed());
    assert!(control.next_due().is_some());
    control.processor_time = Box::new(|| Duration::ZERO);
    assert!(control.take(batch("c", 0..1, 4)));
    control.translate_cut();
    let published = recorder.0.lock().expect("not poisoned");
    let (names, _) = published.last().expect("a cut");
    assert!(names.iter().any(|it| it == "c"));
    let told = control
        .board
        .findings_where(10, |it| it.message.contains("namespace shop wait for"));
    assert_eq!(told.len(), 1);
}
