//! Certificates on demand, which lie in the controllers' own namespace.

use std::sync::Arc;

use myriad_pki::acme::{Order, OrderStage};
use myriad_source::kubernetes::{Shelf, Texts};
use serde_json::json;
use tokio::task::LocalSet;

use super::api::Api;
use super::{HOME, Leader, settles};
use crate::acme::store::{KeptOnDemand, today};
use crate::acme::testing;

const ID: &str = "on-demand:a.example";
const SECRET: &str = "myriad/on-demand.a.example";

fn order() -> Order {
    testing::order(ID, OrderStage::Placing)
}

/// The values of the Secret as they are now.
async fn texts(api: &Api) -> Texts {
    let label = ("myriad.dev/acme", "on-demand");
    let shelf = Shelf::new(api.start().await, HOME, label);
    let found = shelf.all().await.unwrap();
    assert_eq!(found.len(), 1, "it has the label");
    found.into_iter().next().unwrap().texts
}

#[tokio::test]
async fn a_certificate_on_demand_is_a_labelled_secret_of_the_controllers_own_namespace() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    leader.store.admit(&order()).await.unwrap();
    assert_eq!(leader.store.find(&order()).await, Ok(None));
    let first = testing::issued(&["a.example"]);
    let kept = leader.store.keep_certificate(&order(), &first).await;
    let kept = kept.unwrap();
    assert_eq!((&*kept.id, &kept.held.names), (ID, &first.held.names));
    let secret = api.secret(SECRET).unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    let read = KeptOnDemand::read(&texts(&api).await).unwrap();
    assert_eq!((&*read.host, read.used_on), ("a.example", today()));
    assert_eq!(read.held, kept.held);

    // A renewal takes its place, and is no use of it.
    let shelf = Shelf::new(api.start().await, HOME, ("myriad.dev/acme", "on-demand"));
    let earlier = KeptOnDemand::texts_of_use(today() - 3);
    let version = secret["metadata"]["resourceVersion"].as_str();
    shelf
        .put("on-demand.a.example", version, &earlier)
        .await
        .unwrap();
    let second = testing::issued(&["a.example"]);
    let kept = leader.store.keep_certificate(&order(), &second).await;
    let read = KeptOnDemand::read(&texts(&api).await).unwrap();
    assert_eq!(read.held, kept.unwrap().held);
    assert_eq!(read.used_on, today() - 3);
    assert_eq!(api.count(), 1);
}

#[tokio::test]
async fn the_next_leader_finds_a_certificate_on_demand_and_whoever_leads_forgets_it() {
    let api = Api::default();
    let (old, new) = (Leader::new(&api).await, Leader::new(&api).await);
    new.store.admit(&order()).await.unwrap();
    let issued = testing::issued(&["a.example"]);
    let kept = old.store.keep_certificate(&order(), &issued).await.unwrap();
    let order = Order {
        names: issued.held.names.clone(),
        ..order()
    };
    assert_eq!(new.store.find(&order).await, Ok(Some(kept.held)));
    let id: Arc<str> = ID.into();
    let run = LocalSet::new();
    run.run_until(async {
        old.leads.set(false);
        old.store.drop_on_demand_soon(&id);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!(api.count(), 1, "it does not lead any more");
        new.store.drop_on_demand_soon(&"shop/web".into());
        new.store.drop_on_demand_soon(&id);
        settles(&api, 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_secret_of_somebody_else_in_its_place_stays() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    api.put(SECRET, json!({"data": {"tls.crt": "eA=="}}));
    leader.store.admit(&order()).await.unwrap();
    assert!(leader.store.find(&order()).await.is_err());
    let issued = testing::issued(&["a.example"]);
    let kept = leader.store.keep_certificate(&order(), &issued).await;
    assert!(kept.is_err());
    let run = LocalSet::new();
    run.run_until(async {
        leader.store.drop_on_demand_soon(&ID.into());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    })
    .await;
    assert!(api.lock().writes.is_empty());
    assert_eq!(
        api.secret(SECRET).unwrap()["data"],
        json!({"tls.crt": "eA=="})
    );
}
