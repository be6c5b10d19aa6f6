//! Files with objects of several namespaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use myriad_api::{Batch, Change, ObjectKind};
use myriad_translate::Settings;
use serde_json::json;

use super::super::queue::Queue;
use super::super::{Event, Fairness, JOINT_MAX, Shares};
use super::{change, control, listed};

/// An Ingress of a namespace with so many hosts.
fn ingress(namespace: &str, hosts: usize) -> Change {
    let rules = (0..hosts).map(|at| {
        json!({
            "host": format!("h{at}.{namespace}.test"),
            "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {
                "service": {"name": "s", "port": {"number": 80}}
            }}]}
        })
    });
    let rules: Vec<_> = rules.collect();
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"namespace": namespace, "name": "i"},
        "spec": {"rules": rules}
    });
    change(ObjectKind::Ingress, ingress)
}

#[tokio::test]
async fn a_file_takes_effect_as_a_whole_but_nobody_waits_for_it_longer_than_a_bound() {
    for (hosts, is_whole) in [(100, true), (1_000, false)] {
        let (mut control, recorder, _inbox) = control(Vec::new());
        let fairness = Fairness::new(Shares::WHOLE, 20, &Settings::default());
        control.queue = Queue::new(fairness);
        assert!(control.take(listed()));
        // 1 ms whenever somebody looks, which is once for each change, and for each host.
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        control.processor_time =
            Box::new(move || Duration::from_millis(counted.fetch_add(1, Ordering::Relaxed)));
        let file = Batch {
            changes: vec![ingress("a", hosts), ingress("b", 1)],
            ..Batch::default()
        };
        assert!(control.take(Event::Changed(file)));
        let before = recorder.0.lock().expect("not poisoned").len();
        control.translate_cut();
        assert_eq!(control.engine.has_postponed(), !is_whole, "{hosts}");
        let taken = Duration::from_millis(asked.load(Ordering::Relaxed));
        let least = Duration::from_millis(100);
        let longest = JOINT_MAX + Duration::from_millis(10);
        assert!((least..=longest).contains(&taken), "{hosts}: {taken:?}");

        // What is left follows.
        control.translate_all_postponed();
        let published = recorder.0.lock().expect("not poisoned");
        let changed: usize = published[before..].iter().map(|it| it.0.len()).sum();
        assert!(changed > hosts, "{changed} of {hosts}");
    }
}
