//! Statuses of Gateways that have proxies of their own, and objects that wait to be served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use myriad_api::gateway::status::{Deployment, GatewayStatus, ObjectCondition, State, Status};
use myriad_api::{ObjectKey, ObjectKind};
use myriad_translate::Difference;

use super::super::Control;
use super::{Recorder, batch, control, listed};
use crate::dedicated::DedicatedGateways;
use crate::live::{ProxyGroup, Served};
use crate::stated::StatedStatuses;

fn gateway(name: &str) -> Arc<Status> {
    let kind = ObjectCondition::ACCEPTED;
    let deployment = Deployment {
        ports: Box::default(),
        labels: Box::default(),
        annotations: Box::default(),
        scaling: None,
    };
    Arc::new(Status {
        object: ObjectKey::new(ObjectKind::Gateway, "edge", name),
        generation: 1,
        state: State::Gateway(GatewayStatus {
            conditions: [ObjectCondition::holds(kind, "Accepted")].into(),
            listeners: Box::default(),
            attached_listener_sets: 0,
            addresses: Box::default(),
            deployment: Some(Box::new(deployment)),
        }),
    })
}

fn stating() -> (Control<Recorder>, StatedStatuses) {
    let stated = StatedStatuses::new(Some(DedicatedGateways::default()));
    let (control, _, _) = control(Vec::new());
    (control.with_stated(stated.clone()), stated)
}

fn ingress(number: usize) -> ObjectKey {
    ObjectKey::new(ObjectKind::Ingress, "a", &format!("i{number}"))
}

fn views(control: &Control<Recorder>) -> Vec<String> {
    let views = control.engine.views();
    let views = views.map(|(view, _)| view.name.to_string());
    views.filter(|name| name.contains('/')).collect()
}

#[tokio::test]
async fn a_gateway_with_proxies_of_its_own_has_a_view_for_as_long_as_it_is_there() {
    let (mut control, stated) = stating();
    control.take(listed());
    let (one, two) = (gateway("one"), gateway("two"));
    let came = Difference {
        added: vec![one.clone(), two],
        removed: Vec::new(),
    };
    control.state_objects(&came, &[]);
    control.settle_dedicated();
    assert_eq!(views(&control), ["gateway/edge/one", "gateway/edge/two"]);
    let gone = Difference {
        added: Vec::new(),
        removed: vec![one],
    };
    control.state_objects(&gone, &[]);
    control.settle_dedicated();
    assert_eq!(views(&control), ["gateway/edge/two"]);
    assert!(!stated.has_view("edge/one") && stated.has_view("edge/two"));
}

#[tokio::test]
async fn an_ingress_that_has_changed_waits_to_be_served_and_one_of_the_first_list_does_not() {
    let (mut control, stated) = stating();
    assert!(control.take(batch("a", 0..3, 1)));
    assert!(control.take(listed()));
    assert_eq!(control.live.waiting_objects(), []);
    assert!(control.take(batch("a", 3..4, 2)));
    control.translate_cut();
    assert_eq!(control.live.waiting_objects(), [ingress(3)]);
    assert!(stated.take_ingress(&ingress(0)).is_none());
    assert!(stated.take_ingress(&ingress(3)).is_some());
    assert!(stated.take_ingress(&ingress(3)).is_none(), "it was taken");
}

#[tokio::test]
async fn an_object_is_not_served_before_all_is_translated_that_follows_from_it() {
    let (mut control, _) = stating();
    assert!(control.take(listed()));
    // Hosts come when the time of the cut is over.
    let time = AtomicU64::new(0);
    control.processor_time = Box::new(move || {
        let passed = time.fetch_add(30, Ordering::Relaxed);
        Duration::from_millis(passed)
    });
    assert!(control.take(batch("a", 0..1, 2)));
    control.translate_cut();
    assert!(control.engine.has_postponed());
    assert_eq!(control.stating_held(), 1);
    let served = |control: &Control<Recorder>| {
        let live = &control.live;
        live.served(&ingress(0), &ProxyGroup::Shared)
    };
    assert_eq!(served(&control), Served::Nowhere);
    control.translate_all_postponed();
    assert_eq!(control.stating_held(), 0);
    assert_eq!(control.live.waiting_objects(), [ingress(0)]);
}
