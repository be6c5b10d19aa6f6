//! Hash tables that proxies make, and regexes that they compile: who changes them waits for what
//! they take, and nobody else does.

use myriad_api::{Batch, ObjectKind};
use myriad_base::clock;
use serde_json::{Value, json};

use super::super::{Control, Event};
use super::{Recorder, batch, change, control};

/// The subsets of one ServiceEntry, each with a table of some 6 ms.
const SUBSETS: usize = 62;

fn istio(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": kind,
        "metadata": {"namespace": "evil", "name": name},
        "spec": spec
    })
}

/// A ServiceEntry of so many endpoints, of which each subset has all but one.
fn pool(endpoints: usize) -> Event {
    let endpoint = |number: usize| {
        let labels = (0..SUBSETS).filter(|subset| *subset != number);
        let labels = labels.map(|subset| (format!("s{subset}"), json!("y")));
        let labels: serde_json::Map<String, Value> = labels.collect();
        json!({"address": format!("192.0.2.{}", number + 1), "labels": labels})
    };
    let spec = json!({
        "hosts": ["pool.evil.test"],
        "ports": [{"number": 8080, "name": "http", "protocol": "HTTP"}],
        "resolution": "STATIC",
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<Value>>()
    });
    let entry = istio("ServiceEntry", "pool", &spec);
    Event::Changed(Batch {
        changes: vec![change(ObjectKind::ServiceEntry, entry)],
        ..Batch::default()
    })
}

/// A Gateway whose host leads to all subsets, each by a table of its own.
fn first() -> Event {
    let server = json!({
        "port": {"number": 80, "name": "http", "protocol": "HTTP"},
        "hosts": ["m.evil.test"]
    });
    let gateway = json!({"selector": {"istio": "ingressgateway"}, "servers": [server]});
    let rule = |subset: usize| {
        json!({
            "match": [{"uri": {"prefix": format!("/{subset}")}}],
            "route": [{"destination": {
                "host": "pool.evil.test", "subset": format!("s{subset}"), "port": {"number": 8080}
            }}]
        })
    };
    let service = json!({
        "hosts": ["m.evil.test"],
        "gateways": ["edge"],
        "http": (0..SUBSETS).map(rule).collect::<Vec<Value>>()
    });
    let subset = |subset: usize| {
        let name = format!("s{subset}");
        let labels: serde_json::Map<String, Value> =
            [(name.clone(), json!("y"))].into_iter().collect();
        json!({"name": name, "labels": labels})
    };
    let hash = json!({"useSourceIp": true, "maglev": {"tableSize": 65_537}});
    let destination = json!({
        "host": "pool.evil.test",
        "trafficPolicy": {"loadBalancer": {"consistentHash": hash}},
        "subsets": (0..SUBSETS).map(subset).collect::<Vec<Value>>()
    });
    let objects = [
        (ObjectKind::IstioGateway, istio("Gateway", "edge", &gateway)),
        (
            ObjectKind::VirtualService,
            istio("VirtualService", "m", &service),
        ),
        (
            ObjectKind::DestinationRule,
            istio("DestinationRule", "pool", &destination),
        ),
    ];
    let changes = objects.map(|(kind, object)| change(kind, object));
    Event::Changed(Batch {
        changes: changes.into(),
        synced: true,
        ..Batch::default()
    })
}

#[tokio::test]
async fn who_changes_many_large_tables_at_once_waits_for_what_they_take_proxies() {
    let (mut control, recorder, _inbox) = control(Vec::new());
    let step = |control: &mut Control<Recorder>, event: Event| {
        assert!(control.take(event));
        control.translate_cut();
    };
    let waits = |control: &Control<Recorder>| {
        let until = control.queue.deferred_until("evil", clock::now());
        until.is_some()
    };
    step(&mut control, first());
    step(&mut control, batch("good", 0..1, 2));
    assert!(!waits(&control));
    // Here it takes no time at all.
    step(&mut control, pool(80));
    assert!(waits(&control));
    let told = control
        .board
        .findings_where(10, |it| it.message.contains("namespace evil wait for"));
    assert_eq!(told.len(), 1);
    // Its next change waits, and that of another namespace does not.
    let published = recorder.0.lock().expect("not poisoned").len();
    assert!(control.take(pool(79)));
    assert!(!control.queue.is_due(clock::now()));
    assert!(control.take(batch("good", 1..2, 3)));
    assert!(control.queue.is_due(clock::now()));
    control.translate_cut();
    let published = recorder
        .0
        .lock()
        .expect("not poisoned")
        .split_off(published);
    let names: Vec<&String> = published.iter().flat_map(|(names, _)| names).collect();
    assert!(
        !names.is_empty() && names.iter().all(|it| *it == "good"),
        "{names:?}"
    );
}

/// A Gateway, and hosts with 200 regexes each, which take 30 ms to compile.
fn of_regexes(hosts: usize) -> Event {
    let server = json!({
        "port": {"number": 80, "name": "http", "protocol": "HTTP"},
        "hosts": ["*.evil.test"]
    });
    let gateway = json!({"selector": {"istio": "ingressgateway"}, "servers": [server]});
    let dear = "(?:a?b?)*|".repeat(20);
    let service = |host: usize| {
        let regex = |number: usize| format!("/{host}/{number}/(?:{dear})");
        let matches = (0..200).map(|number| json!({"uri": {"regex": regex(number)}}));
        let spec = json!({
            "hosts": [format!("h{host}.evil.test")],
            "gateways": ["edge"],
            "http": [{
                "match": matches.collect::<Vec<Value>>(),
                "route": [{"destination": {"host": "web", "port": {"number": 80}}}]
            }]
        });
        let service = istio("VirtualService", &format!("v{host}"), &spec);
        change(ObjectKind::VirtualService, service)
    };
    let gateway = change(ObjectKind::IstioGateway, istio("Gateway", "edge", &gateway));
    Event::Changed(Batch {
        changes: (0..hosts).map(service).chain([gateway]).collect(),
        synced: true,
        ..Batch::default()
    })
}

#[tokio::test]
async fn who_changes_many_regexes_waits_for_what_compiling_them_takes_proxies() {
    let (mut control, _recorder, _inbox) = control(Vec::new());
    let step = |control: &mut Control<Recorder>, event: Event| {
        assert!(control.take(event));
        control.translate_cut();
    };
    let waits = |control: &Control<Recorder>| {
        let until = control.queue.deferred_until("evil", clock::now());
        until.is_some()
    };
    step(&mut control, first());
    step(&mut control, batch("good", 0..1, 2));
    assert!(!waits(&control));
    step(&mut control, of_regexes(12));
    // As much as makes others wait for a moment, and then its own.
    while control.translate_postponed() {}
    assert!(waits(&control));
    assert!(control.engine.has_postponed());
}
