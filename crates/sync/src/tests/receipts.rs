//! Receipts of proxies, and how many of them are passed on.

use myriad_model::{Form, Snapshot};

use super::pair::{Pair, World};
use crate::server::{ClaimRoom, SIDECAR_RECEIPTS_MAX};
use crate::wire::{self, FromProxy, from_proxy};

fn world() -> World {
    let mut world = World::new(Form::Encoded);
    for number in 0..100 {
        world.put(&format!("e{number}"), 1);
    }
    world
}

/// Receipts for all resources of a snapshot.
fn receipts(of: &Snapshot) -> Vec<wire::Receipt> {
    let receipt = |key: &myriad_model::Key, version| wire::Receipt {
        kind: key.kind.number().into(),
        name: key.name.as_str().to_owned(),
        version: wire::version_bytes(version),
        reason: "somebody says so".to_owned(),
    };
    let resources = of.iter();
    resources
        .map(|it| receipt(it.key(), it.version()))
        .collect()
}

/// Has the next acknowledgement say this, and returns the resources that are passed on of it.
fn ack(pair: &mut Pair, receipts: &[wire::Receipt]) -> Vec<String> {
    pair.receipts.clear();
    loop {
        pair.speak();
        if let Some(FromProxy {
            body: Some(from_proxy::Body::Ack(ack)),
        }) = pair.to_server.front_mut()
        {
            ack.receipts = receipts.to_vec();
            pair.serve_one();
            let names = pair.receipts.iter();
            return names.map(|it| it.key.to_string()).collect();
        }
        let is_served = pair.serve_one();
        assert!(pair.obey_one() || is_served, "there is no commit");
    }
}

#[test]
fn of_a_sidecar_a_few_receipts_count_and_of_its_last_commit_alone() {
    let mut world = world();
    let mut pair = Pair::connect(&world, Snapshot::new());
    let all = receipts(world.snapshot());
    let invented = wire::Receipt {
        name: "invented".to_owned(),
        ..all[0].clone()
    };
    let claimed = [vec![invented; 900], all.clone()].concat();
    let passed = ack(&mut pair, &claimed);
    assert_eq!(passed.len(), SIDECAR_RECEIPTS_MAX);
    assert!(!passed.contains(&"endpoints invented".to_owned()));
    // Neither what came before, nor another version.
    world.put("e7", 2);
    pair.server.update(world.snapshot().clone());
    assert_eq!(ack(&mut pair, &all), [""; 0]);
    world.put("e7", 3);
    world.put("e8", 3);
    pair.server.update(world.snapshot().clone());
    let mut passed = ack(&mut pair, &receipts(world.snapshot()));
    passed.sort();
    assert_eq!(passed, ["endpoints e7", "endpoints e8"]);
}

#[test]
fn a_gateway_is_heard_about_as_much_as_an_acknowledgement_holds() {
    let world = world();
    let mut pair = Pair::connect(&world, Snapshot::new());
    let session = world.session(pair.server_counters.clone());
    pair.server = session.claiming(&ClaimRoom::default(), "gateways".into(), true);
    let all = receipts(world.snapshot());
    assert_eq!(ack(&mut pair, &all).len(), all.len());
}
