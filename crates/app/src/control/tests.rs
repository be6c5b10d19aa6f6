use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use myriad_api::{Batch, Change, Object, ObjectKey, ObjectKind};
use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use myriad_model::{Delta, Form, Kind, Position, Sealer, Snapshot, Writer};
use myriad_translate::{Bounds, Claimed, ClaimsChange, Engine, LateClaims, Role, View};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

mod asking;
mod joint;
mod labels;
mod remembering;
mod stating;
mod tables;
mod visits;

use super::queue::Holders;
use super::{
    Addresses, Control, Event, Fairness, INBOX_EVENTS_MAX, Outlet, Shares, TAKING_IN_MAX, TICK,
};
use crate::board::Board;
use crate::live::Live;

/// The commits that were published: the namespaces of what changed, and the position after it.
type Published = Vec<(Vec<String>, Position)>;

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Published>>, Arc<Mutex<Vec<ClaimsChange>>>);

impl Outlet for Recorder {
    fn publish(&mut self, delta: Delta, snapshot: &Snapshot, _: &Board) {
        let namespace = |change: &myriad_model::Change| {
            let name = change.key.name.as_str();
            name.split('/').next().unwrap_or_default().to_owned()
        };
        let namespaces = delta.changes().iter().map(namespace).collect();
        let mut published = self.0.lock().expect("not poisoned");
        published.push((namespaces, snapshot.position().clone()));
    }

    fn claims(&mut self, changed: ClaimsChange) {
        if !changed.is_empty() {
            self.1.lock().expect("not poisoned").push(changed);
        }
    }

    fn addresses(&self) -> Addresses {
        Addresses::new()
    }

    async fn drain(self) {}
}

fn batch(namespace: &str, numbers: std::ops::Range<usize>, revision: u64) -> Event {
    let ingress = |number| {
        let value = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"namespace": namespace, "name": format!("i{number}")},
            "spec": {"rules": [{
                "host": format!("h{number}.{namespace}.test"),
                "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {
                    "service": {"name": "s", "port": {"number": 80}}
                }}]}
            }]}
        });
        let object = Object::deserialize(ObjectKind::Ingress, value);
        Change::Put(object.expect("an Ingress"))
    };
    Event::Changed(Batch {
        changes: numbers.map(ingress).collect(),
        positions: vec![(ObjectKind::Ingress, revision)],
        ..Batch::default()
    })
}

fn listed() -> Event {
    Event::Changed(Batch {
        synced: true,
        positions: vec![(ObjectKind::Ingress, 1)],
        ..Batch::default()
    })
}

fn pod(name: &str, app: &str, revision: u64) -> Event {
    let value = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": app}}
    });
    let object = Object::deserialize(ObjectKind::Pod, value);
    Event::Changed(Batch {
        changes: vec![Change::Put(object.expect("a Pod"))],
        positions: vec![(ObjectKind::Pod, revision)],
        ..Batch::default()
    })
}

/// The question of the proxy of a Pod.
fn asked(pod: &str, answer: oneshot::Sender<Option<Arc<str>>>) -> Event {
    Event::Asked(pod.to_owned(), answer, [None, None])
}

/// A loop with these events waiting in its inbox, where nothing takes any time.
fn control(events: Vec<Event>) -> (Control<Recorder>, Recorder, mpsc::Receiver<Event>) {
    control_within(Bounds::default(), events)
}

/// The same, where namespaces have these bounds.
fn control_within(
    bounds: Bounds,
    events: Vec<Event>,
) -> (Control<Recorder>, Recorder, mpsc::Receiver<Event>) {
    let (metrics, recorder) = (Metrics::new(), Recorder::default());
    let writer = Writer::new(Sealer::new([5; 32], Form::Encoded));
    let settings = myriad_translate::Settings {
        sidecars: true,
        late_claims: true,
        bounds,
        ..myriad_translate::Settings::default()
    };
    let fairness = Fairness::new(Shares::FAIR, 20, &settings);
    let mut control = Control::new(
        Engine::new(settings, writer),
        recorder.clone(),
        fairness,
        Board::new(&metrics),
        Live::new(&metrics),
        Readiness::new().require("the first list"),
        watch::channel(None).0,
    );
    control.processor_time = Box::new(|| Duration::ZERO);
    let (sender, inbox) = mpsc::channel(INBOX_EVENTS_MAX);
    for event in events {
        sender.try_send(event).expect("room");
    }
    (control, recorder, inbox)
}

fn position(revision: u64) -> Position {
    Position {
        epoch: 0,
        revisions: vec![(ObjectKind::Ingress as u8, revision)],
    }
}

#[tokio::test]
async fn what_is_missing_is_published_as_a_whole_and_marked_and_what_was_removed_is_not() {
    let (mut control, recorder, mut inbox) = control(vec![listed(), batch("a", 0..600, 2)]);
    while control.turn(&mut inbox).await && !(inbox.is_empty() && control.queue.is_empty()) {}
    let removals = |numbers: std::ops::Range<usize>, infers: bool| {
        let Event::Changed(batch) = batch("a", numbers, 9) else {
            unreachable!("it is a batch");
        };
        let keys = batch.changes.iter().map(|change| change.key().clone());
        Event::Changed(Batch {
            changes: keys.map(Change::Remove).collect(),
            infers,
            ..batch
        })
    };
    assert!(control.take(removals(0..1, false)));
    control.translate_cut();
    assert_eq!(control.engine.snapshot().inferences(), 0);
    let before = recorder.0.lock().expect("not poisoned").len();
    // A change that waits goes first: it is no part of what is missing.
    assert!(control.take(batch("b", 0..1, 8)));
    assert!(control.take(removals(1..600, true)));
    assert_eq!(control.engine.snapshot().inferences(), 1);
    let published = recorder.0.lock().expect("not poisoned");
    let [(first, _), (second, at)] = &published[before..] else {
        panic!("two commits");
    };
    assert!(first.iter().all(|it| it == "b") && second.iter().all(|it| it == "a"));
    assert_eq!((second.len(), at), (599, &position(9)));
}

#[tokio::test]
async fn a_single_change_is_published_with_the_first_of_a_flood_before_it() {
    let flood = [(0..4_000, 5), (4_000..8_000, 6), (8_000..10_000, 7)];
    let flood = flood.map(|(numbers, revision)| batch("a", numbers, revision));
    let mut events = vec![listed()];
    events.extend(flood);
    events.push(batch("b", 0..1, 8));
    let (mut control, recorder, mut inbox) = control(events);
    assert!(control.turn(&mut inbox).await);
    let published = std::mem::take(&mut *recorder.0.lock().expect("not poisoned"));
    let [_, (namespaces, at)] = &published[..] else {
        panic!("the list, and one cut: {}", published.len());
    };
    assert_eq!(namespaces.iter().filter(|it| *it == "b").count(), 1);
    assert_eq!(namespaces.iter().filter(|it| *it == "a").count(), 64);
    assert_eq!(at, &position(1), "the flood is not contained yet");
    let mut cuts = 0;
    while !control.queue.is_empty() {
        assert!(control.turn(&mut inbox).await);
        cuts += 1;
    }
    assert_eq!(cuts, 156);
    let published = recorder.0.lock().expect("not poisoned");
    let (_, at) = published.last().expect("a cut");
    assert_eq!(at, &position(8));
    let (_, before) = &published[published.len() - 2];
    assert_eq!(before, &position(6), "the last of 7 came with the last cut");
}

#[tokio::test]
async fn what_nothing_leads_to_is_looked_after_however_much_there_is_to_do() {
    let (mut control, _, mut inbox) = control(vec![listed(), batch("a", 0..4_000, 2)]);
    assert!(control.turn(&mut inbox).await && !control.queue.is_empty());
    control.ticked -= 2 * TICK;
    let before = control.ticked;
    assert!(control.turn(&mut inbox).await && !control.queue.is_empty());
    assert!(control.ticked >= before + TICK);
}

#[tokio::test]
async fn what_came_before_an_epoch_belongs_to_the_one_before() {
    let events = vec![
        listed(),
        batch("a", 0..150, 7),
        Event::Epoch(9),
        batch("a", 0..1, 3),
    ];
    let (mut control, recorder, mut inbox) = control(events);
    assert!(control.turn(&mut inbox).await);
    let published = recorder.0.lock().expect("not poisoned");
    let epochs: Vec<u64> = published.iter().map(|(_, at)| at.epoch).collect();
    assert_eq!(epochs, [0, 0, 0, 0, 9]);
    assert_eq!(published[3].1, position(7));
}

#[tokio::test]
async fn a_cut_ends_where_taking_in_takes_long() {
    let events = vec![listed(), batch("a", 0..40, 2), batch("b", 0..1, 3)];
    let (mut control, recorder, mut inbox) = control(events);
    // 10 ms whenever somebody looks, which is once for each change, and for each host.
    let asked = AtomicU64::new(0);
    control.processor_time = Box::new(move || {
        let times = asked.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(10 * times)
    });
    while control.turn(&mut inbox).await && !control.queue.is_empty() {}
    let published = recorder.0.lock().expect("not poisoned");
    let sizes: Vec<usize> = published.iter().map(|(all, _)| all.len()).collect();
    let cuts = sizes.iter().filter(|size| **size > 0).count();
    assert!(sizes.iter().all(|size| *size <= 3), "{sizes:?}");
    // After three changes there is time for two hosts, or less, and the others follow in turns.
    assert_eq!(cuts, 28, "{sizes:?}");
    assert!(
        published[1..5]
            .iter()
            .any(|(all, _)| all.iter().any(|it| it == "b"))
    );
    let (_, at) = published.last().expect("a cut");
    assert_eq!(at, &position(3));
}

#[tokio::test]
async fn changes_of_who_is_costly_wait_but_not_beyond_their_epoch() {
    let (mut control, recorder, _inbox) = control(Vec::new());
    // Every cut takes three seconds: to take in its one change, to look at its host, and to end.
    let asked = AtomicU64::new(0);
    control.processor_time = Box::new(move || {
        let times = asked.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(1_000 * times)
    });
    let step = |control: &mut Control<Recorder>, event: Event| {
        assert!(control.take(event));
        let is_due = control.queue.is_due(myriad_base::clock::now());
        if is_due {
            control.translate_cut();
        }
        is_due
    };
    step(&mut control, listed());
    // The first has nobody to wait for; the second owes something, and so the first does then.
    for (namespace, number, is_due) in [
        ("b", 0, true),
        ("a", 0, true),
        ("a", 1, false),
        ("b", 1, true),
        ("c", 0, true),
        ("b", 2, false),
    ] {
        let published = recorder.0.lock().expect("not poisoned").len() as u64;
        let event = batch(namespace, number..number + 1, published + 1);
        assert_eq!(step(&mut control, event), is_due, "{namespace} {number}");
    }
    let told = control
        .board
        .findings_where(10, |it| it.message.contains("wait for 12 s"));
    let objects = told.iter().filter_map(|finding| finding.object.clone());
    let objects: Vec<String> = objects.map(|object| object.to_string()).collect();
    assert_eq!(objects, ["Ingress a/i0", "Ingress b/i1", "Ingress c/i0"]);
    assert_eq!(control.board.work().namespaces_deferred.get(), 2);
    step(&mut control, Event::Epoch(9));
    assert!(control.queue.is_empty());
    assert_eq!(control.board.work().namespaces_deferred.get(), 0);
    let published = recorder.0.lock().expect("not poisoned");
    let (namespaces, at) = published.last().expect("a cut");
    assert!(
        ["a", "b"]
            .iter()
            .all(|it| namespaces.iter().any(|namespace| namespace == it))
    );
    assert_eq!(at.epoch, 0, "it belongs to the epoch before");
}

#[tokio::test]
async fn a_view_that_comes_or_goes_while_the_loop_runs_is_translated_at_once() {
    // Both listeners, and the one route.
    const COUNT: usize = 3;
    let view = || View {
        name: "side".into(),
        role: Role::Ingress,
        labels: [("app".to_owned(), "side".to_owned())].into(),
        namespace: "side".into(),
    };
    let came = || vec![listed(), batch("a", 0..1, 2), Event::ViewPut(view())];
    let went = || came().into_iter().chain([Event::ViewGone("side".into())]);
    let before = [Event::ViewPut(view())].into_iter().chain(came());
    for (events, count) in [
        (came(), Some(COUNT)),
        (went().collect(), None),
        (before.collect(), Some(COUNT)),
    ] {
        let (mut control, _, mut inbox) = control(events);
        while control.turn(&mut inbox).await && !(inbox.is_empty() && control.queue.is_empty()) {}
        let side = control.engine.snapshot_of("side");
        assert_eq!(side.map(|it| it.len()), count);
        assert_eq!(control.board.snapshot_of("side").map(|it| it.len()), count);
    }
}

#[tokio::test]
async fn a_sidecar_is_told_the_view_of_its_pods_labels_and_another_where_they_change() {
    let events = vec![listed(), pod("a", "pay", 2), pod("b", "pay", 3)];
    let (mut control, _, mut inbox) = control(events);
    let ask = |control: &mut Control<Recorder>, name: &str| {
        let (answer, answered) = oneshot::channel();
        assert!(control.take(asked(&format!("shop/{name}"), answer)));
        answered
    };
    while !(inbox.is_empty() && control.queue.is_empty()) {
        assert!(control.turn(&mut inbox).await);
    }
    let mut asked = ["a", "b", "c"].map(|name| ask(&mut control, name));
    let (sender, mut inbox) = mpsc::channel(INBOX_EVENTS_MAX);
    sender.try_send(pod("d", "pay", 4)).expect("room");
    assert!(control.turn(&mut inbox).await);
    let [a, b, c] = asked.each_mut().map(|it| it.try_recv().expect("an answer"));
    assert_eq!(c, None, "nobody knows the Pod");
    assert_eq!(a, b, "equal labels are one workload");
    let view = a.expect("a view");
    let snapshot = control.engine.snapshot_of(&view).expect("it is there");
    assert!(!snapshot.is_empty());
    sender.try_send(pod("b", "read", 5)).expect("room");
    assert!(control.turn(&mut inbox).await);
    assert!(control.engine.snapshot_of(&view).is_none(), "it is not b's");
    let mut again = ["a", "b"].map(|name| ask(&mut control, name));
    sender.try_send(pod("d", "read", 6)).expect("room");
    assert!(control.turn(&mut inbox).await);
    let [a, b] = again.each_mut().map(|it| it.try_recv().expect("an answer"));
    assert!(a.is_some() && b.is_some() && a != b);
}

/// A Pod of a revision of its Deployment.
fn pod_of(number: usize, revision: usize) -> Object {
    let labels = json!({"app": "pay", "pod-template-hash": format!("r{revision}")});
    let value = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": format!("p{number}"), "labels": labels}
    });
    Object::deserialize(ObjectKind::Pod, value).expect("a Pod")
}

fn put(objects: Vec<Object>) -> Event {
    Event::Changed(Batch {
        changes: objects.into_iter().map(Change::Put).collect(),
        ..Batch::default()
    })
}

#[tokio::test]
async fn pods_are_one_view_until_a_selector_names_a_label_in_which_they_differ() {
    let pods = (0..1_000).map(|it| pod_of(it, it % 100)).collect();
    let (mut control, _, mut inbox) = control(vec![listed(), put(pods)]);
    while !(inbox.is_empty() && control.queue.is_empty()) {
        assert!(control.turn(&mut inbox).await);
    }
    let views = |control: &Control<Recorder>| control.engine.views().count() - 1;
    async fn ask(control: &mut Control<Recorder>, pods: std::ops::Range<usize>) -> Vec<Arc<str>> {
        let ask = |control: &mut Control<Recorder>, number| {
            let (answer, answered) = oneshot::channel();
            assert!(control.take(asked(&format!("shop/p{number}"), answer)));
            answered
        };
        let asked: Vec<_> = pods.map(|it| ask(control, it)).collect();
        let (sender, mut inbox) = mpsc::channel(INBOX_EVENTS_MAX);
        sender.try_send(pod("other", "other", 5_000)).expect("room");
        assert!(control.turn(&mut inbox).await);
        let answers = asked.into_iter().map(|mut it| it.try_recv().expect("one"));
        answers.map(|view| view.expect("a view")).collect()
    }
    let before = ask(&mut control, 0..1_000).await;
    assert_eq!(views(&control), 1, "1,000 Pods of 100 revisions");

    // One that changes in what nobody names stays where it is.
    let (sender, mut inbox) = mpsc::channel(INBOX_EVENTS_MAX);
    sender.try_send(put(vec![pod_of(0, 7)])).expect("room");
    assert!(control.turn(&mut inbox).await);
    assert!(control.engine.snapshot_of(&before[0]).is_some());

    let policy = json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"namespace": "shop", "name": "p"},
        "spec": {"selector": {"matchLabels": {"pod-template-hash": "r7"}}, "action": "DENY",
            "rules": [{}]}
    });
    let policy = Object::deserialize(ObjectKind::AuthorizationPolicy, policy).expect("a policy");
    sender.try_send(put(vec![policy])).expect("room");
    assert!(control.turn(&mut inbox).await);
    assert_eq!(views(&control), 0, "its proxies come back");
    let after = ask(&mut control, 0..10).await;
    assert_eq!(views(&control), 9);
    assert_eq!(after[0], after[7], "both are of r7");
    let is_refused = |view: &Arc<str>| {
        let snapshot = control.engine.snapshot_of(view).expect("it is there");
        snapshot.count(Kind::AccessPolicy)
    };
    let refused: Vec<usize> = after.iter().map(is_refused).collect();
    assert_eq!(refused, [1, 0, 0, 0, 0, 0, 0, 1, 0, 0]);

    let key = ObjectKey::new(ObjectKind::AuthorizationPolicy, "shop", "p");
    let changes = vec![Change::Remove(key)];
    let removal = Batch {
        changes,
        ..Batch::default()
    };
    sender.try_send(Event::Changed(removal)).expect("room");
    assert!(control.turn(&mut inbox).await);
    assert_eq!(ask(&mut control, 0..10).await.len(), 10);
    ask(&mut control, 500..600).await;
    assert_eq!(views(&control), 9, "nobody names it any more");
}

#[tokio::test]
async fn what_another_replica_saw_of_claims_is_translated_at_once() {
    let ingress = |namespace: &str, created: &str| {
        let value = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"namespace": namespace, "name": "i", "creationTimestamp": created},
            "spec": {"rules": [{
                "host": "a.test",
                "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {
                    "service": {"name": "s", "port": {"number": 80}}
                }}]}
            }]}
        });
        Change::Put(Object::deserialize(ObjectKind::Ingress, value).expect("an Ingress"))
    };
    let changes = vec![
        ingress("old", "2024-01-01T00:00:00Z"),
        ingress("new", "2026-01-01T00:00:00Z"),
    ];
    let created = changes[0].clone();
    let Change::Put(object) = created else {
        unreachable!("it is put");
    };
    let first = Event::Changed(Batch {
        changes,
        synced: true,
        positions: vec![(ObjectKind::Ingress, 1)],
        ..Batch::default()
    });
    let learned = Event::Learned(ClaimsChange {
        objects: vec![LateClaims {
            key: object.key().clone(),
            created: object.meta().created,
            claims: vec![(
                Claimed::parse("a.test").expect("a host"),
                object.meta().created + 100_000_000,
            )],
            left: Vec::new(),
        }],
        beyond: Vec::new(),
    });
    let (mut control, recorder, mut inbox) = control(vec![first, learned]);
    while control.turn(&mut inbox).await && !(inbox.is_empty() && control.queue.is_empty()) {}
    let owners = |control: &Control<Recorder>| {
        let snapshot = control.engine.snapshot();
        let routes = snapshot
            .iter()
            .filter(|sealed| sealed.key().kind == Kind::Route);
        let names = routes.map(|sealed| sealed.name().as_str().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(owners(&control), ["new/i/a.test/prefix:/"]);
    assert_eq!(recorder.1.lock().expect("not poisoned").len(), 1);
    assert!(control.take(Event::Overrun("new".into())));
    assert_eq!(owners(&control), ["old/i/a.test/prefix:/"]);
    let told = recorder.1.lock().expect("not poisoned");
    let [learned, overrun] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((learned.objects.len(), overrun.beyond.len()), (1, 1));
}

/// A change that puts an object.
fn change(kind: ObjectKind, value: serde_json::Value) -> Change {
    let object = Object::deserialize(kind, value);
    Change::Put(object.expect("an object"))
}

fn service(namespace: &str, name: &str) -> Change {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"ports": [{"port": 80, "name": "http"}]}
    });
    change(ObjectKind::Service, service)
}

/// A VirtualService and its Gateway in namespace `a`, whose 300 hosts lead to a Service of `b`.
fn hosts_of_another() -> Vec<Change> {
    let hosts: Vec<String> = (0..300).map(|it| format!("h{it}.a.test")).collect();
    let rule = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"namespace": "a", "name": "v"},
        "spec": {"hosts": hosts, "gateways": ["g"], "http": [{"route": [
            {"destination": {"host": "web.b.svc.cluster.local", "port": {"number": 80}}}
        ]}]}
    });
    let gateway = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": {"namespace": "a", "name": "g"},
        "spec": {"selector": {"istio": "ingressgateway"}, "servers": [{
            "port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*.a.test"]
        }]}
    });
    vec![
        change(ObjectKind::VirtualService, rule),
        change(ObjectKind::IstioGateway, gateway),
    ]
}

#[tokio::test]
async fn hosts_that_name_a_service_of_another_follow_while_nobody_waits_for_them() {
    let first = Batch {
        changes: hosts_of_another(),
        synced: true,
        ..Batch::default()
    };
    let second = Batch {
        changes: vec![service("b", "web")],
        ..Batch::default()
    };
    let (mut control, recorder, mut inbox) = control(vec![Event::Changed(first)]);
    // The list is taken in before there is anything to wait for.
    let Ok(event) = inbox.try_recv() else {
        panic!("the list");
    };
    assert!(control.take(event) && !control.engine.has_postponed());
    // A heavy batch of theirs: one change at a time, until a light one says better.
    let heavy = Holders::of("a".into());
    control.charge(heavy, Duration::from_secs(1), None);
    assert!(control.take(Event::Changed(second)));
    // A hundred looks at the clock are as long as turns may last, and there is one for each host.
    let asked = AtomicU64::new(0);
    control.processor_time = Box::new(move || {
        let times = asked.fetch_add(1, Ordering::Relaxed);
        TAKING_IN_MAX * u32::try_from(times).unwrap_or(u32::MAX) / 100
    });
    let before = recorder.0.lock().expect("not poisoned").len();
    control.translate_cut();
    let mut turns = 0;
    while control.translate_postponed() {
        turns += 1;
    }
    // 64 in the cut, and some 80 each time that there are turns.
    assert_eq!(turns, 3);
    let published = recorder.0.lock().expect("not poisoned");
    let changed: usize = published[before..].iter().map(|it| it.0.len()).sum();
    assert!(changed >= 300, "{changed}");
    drop(published);

    // Turns that cost little have made none of their next batches longer.
    let third = Batch {
        changes: ["x", "y"].map(|name| service("a", name)).into(),
        ..Batch::default()
    };
    assert!(control.take(Event::Changed(third)));
    control.translate_cut();
    assert!(!control.queue.is_empty());
    control.translate_cut();
    assert!(control.queue.is_empty());
}
