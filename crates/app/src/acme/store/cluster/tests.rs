//! A store, and leaders that follow each other or believe to lead at the same time.

mod api;
mod on_demand;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Batch, Change, Object, ObjectKind};
use myriad_base::metrics::Metrics;
use myriad_pki::acme::{Order, OrderKey, OrderStage, SpentBudget, StepTrouble};
use serde_json::json;
use tokio::task::LocalSet;

use super::{ClusterSite, ClusterStore};
use crate::acme::issued::Issued;
use crate::acme::testing;
use crate::live::Live;
use api::Api;

const HOME: &str = "myriad";

/// A controller that believes to lead.
struct Leader {
    store: ClusterStore,
    issued: Issued,
    leads: Rc<Cell<bool>>,
}

impl Leader {
    async fn new(api: &Api) -> Leader {
        let (issued, leads) = (Issued::default(), Rc::new(Cell::new(true)));
        let (client, asked) = (api.start().await, leads.clone());
        let store = ClusterStore::new(ClusterSite {
            client,
            namespace: HOME.to_owned(),
            leads: Box::new(move || asked.get()),
            issued: issued.clone(),
            live: Live::new(&Metrics::new()),
        });
        Leader {
            store,
            issued,
            leads,
        }
    }

    /// Its watch sees a Secret as it is now.
    fn watch(&self, api: &Api, id: &str) {
        let text = api.secret(id).unwrap().to_string();
        let object = Object::from_json(ObjectKind::Secret, &text).unwrap();
        self.issued.look(&Batch {
            changes: vec![Change::Put(object)],
            ..Batch::default()
        });
    }

    async fn is_in_doubt(&self) -> bool {
        let doubted = self.store.doubted();
        tokio::time::timeout(Duration::from_millis(5), doubted)
            .await
            .is_ok()
    }
}

fn order(stage: OrderStage) -> Order {
    testing::order("shop/web", stage)
}

fn finalising(key: u8) -> Order {
    order(OrderStage::Finalising(
        "u".into(),
        OrderKey::new(vec![key; 8]),
    ))
}

/// Waits until there are so many Secrets.
async fn settles(api: &Api, count: usize) {
    while api.count() != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_order_is_found_by_the_next_leader_as_it_was_kept_last() {
    let api = Api::default();
    let first = Leader::new(&api).await;
    first
        .store
        .keep_order(&order(OrderStage::Placing))
        .await
        .unwrap();
    first.store.keep_order(&finalising(1)).await.unwrap();
    assert_eq!(api.lock().writes.len(), 2);
    let next = Leader::new(&api).await;
    assert_eq!(next.store.orders().await.unwrap(), [finalising(1)]);
    let stage = OrderStage::Fetching("u".into(), OrderKey::new(vec![1; 8]));
    next.store.keep_order(&order(stage)).await.unwrap();
    let run = LocalSet::new();
    run.run_until(async {
        next.store.drop_soon(&"shop/web".into());
        settles(&api, 0).await;
    })
    .await;
    assert!(!next.is_in_doubt().await);
}

#[tokio::test]
async fn of_two_that_believe_to_lead_one_keeps_its_key_and_the_other_begins_anew() {
    let api = Api::default();
    let (old, new) = (Leader::new(&api).await, Leader::new(&api).await);
    old.store
        .keep_order(&order(OrderStage::Placing))
        .await
        .unwrap();
    assert_eq!(new.store.orders().await.unwrap().len(), 1);
    // Both were about to ask for the certificate, each with a key of its own.
    new.store.keep_order(&finalising(2)).await.unwrap();
    assert!(old.store.keep_order(&finalising(1)).await.is_err());
    assert!(old.is_in_doubt().await && !new.is_in_doubt().await);
    assert_eq!(old.store.orders().await.unwrap(), [finalising(2)]);
    // Nor does one place an order that another one has placed.
    let third = Leader::new(&api).await;
    assert!(third.store.keep_order(&finalising(3)).await.is_err());
    assert!(third.is_in_doubt().await);
}

#[tokio::test]
async fn whoever_does_not_lead_writes_nothing() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    leader.store.keep_order(&finalising(1)).await.unwrap();
    leader.leads.set(false);
    let issued = testing::issued(&["a.example"]);
    assert!(leader.store.keep_order(&finalising(2)).await.is_err());
    let kept = leader.store.keep_certificate(&finalising(1), &issued).await;
    assert!(kept.is_err() && leader.store.lead().is_err());
    let key = OrderKey::new(vec![1]);
    assert!(leader.store.keep_account_key("k", &key).await.is_err());
    let run = LocalSet::new();
    run.run_until(async {
        leader.store.drop_soon(&"shop/web".into());
        tokio::time::sleep(Duration::from_millis(20)).await;
    })
    .await;
    assert_eq!(api.lock().writes.len(), 1);
}

#[tokio::test]
async fn an_answer_that_was_lost_or_a_label_that_was_changed_is_no_doubt() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    api.lock().loses = 1;
    // It is written, and nobody knows.
    let placing = order(OrderStage::Placing);
    assert!(leader.store.keep_order(&placing).await.is_err());
    assert_eq!(api.count(), 1);
    leader.store.keep_order(&placing).await.unwrap();
    api.lock().loses = 1;
    assert!(leader.store.keep_order(&finalising(1)).await.is_err());
    leader.store.keep_order(&finalising(1)).await.unwrap();
    let id = api.lock().secrets.keys().next().unwrap().clone();
    let mut secret = api.secret(&id).unwrap();
    secret["metadata"]["labels"]["team"] = "shop".into();
    api.put(&id, secret);
    leader.store.keep_order(&placing).await.unwrap();
    let run = LocalSet::new();
    run.run_until(async {
        api.lock().loses = 1;
        leader.store.drop_soon(&"shop/web".into());
        settles(&api, 0).await;
    })
    .await;
    assert!(!leader.is_in_doubt().await);
}

#[tokio::test]
async fn what_is_written_without_waiting_is_written_in_the_order_in_which_it_was_asked_for() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    let run = LocalSet::new();
    run.run_until(async {
        leader.store.keep_soon(&order(OrderStage::Proving));
        leader.store.drop_soon(&"shop/web".into());
        leader.store.keep_soon(&finalising(1));
        leader.store.keep_order(&finalising(2)).await.unwrap();
    })
    .await;
    let writes = api.lock().writes.clone();
    let methods: Vec<&str> = writes
        .iter()
        .filter_map(|it| it.split(' ').next())
        .collect();
    assert_eq!(methods, ["POST", "DELETE", "POST", "PATCH"]);
    assert_eq!(leader.store.orders().await.unwrap(), [finalising(2)]);
}

#[tokio::test]
async fn an_order_that_may_not_be_removed_holds_up_no_other_and_is_told_of_once() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    api.lock().keeps_all = true;
    let removals = || {
        let state = api.lock();
        let removals = state.writes.iter().filter(|it| it.starts_with("DELETE"));
        removals.count()
    };
    let run = LocalSet::new();
    run.run_until(async {
        leader.store.keep_order(&finalising(1)).await.unwrap();
        leader.store.drop_soon(&"shop/web".into());
        while removals() == 0 || !leader.store.0.is_refused.get() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The next one of the certificate is written over it.
        let next = order(OrderStage::Placing);
        let kept = leader.store.keep_order(&next);
        let kept = tokio::time::timeout(Duration::from_secs(20), kept).await;
        kept.expect("it does not wait for the removal").unwrap();
        assert_eq!((api.count(), removals()), (1, 1));
        assert_eq!(leader.store.orders().await.unwrap(), [next]);
        // Once it may be removed, it is.
        api.lock().keeps_all = false;
        leader.store.drop_soon(&"shop/web".into());
        settles(&api, 0).await;
        while leader.store.0.is_refused.get() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert!(!leader.is_in_doubt().await);
}

#[tokio::test]
async fn names_that_are_proven_again_and_again_are_written_once() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    let mut proving = order(OrderStage::Proving);
    assert_eq!(leader.store.token("shop/web"), None);
    leader.store.keep_order(&proving).await.unwrap();
    let token = leader.store.token("shop/web").unwrap();
    for failures in 0..10 {
        proving.failures = failures;
        assert_eq!(leader.store.show(&proving).await, Ok(token.clone()));
    }
    assert_eq!(api.lock().writes.len(), 1);
    // A leader that takes over asks with the same one, which proxies have.
    let next = Leader::new(&api).await;
    next.store.orders().await.unwrap();
    assert_eq!(next.store.show(&proving).await, Ok(token));
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone_and_one_of_an_issuer_is_renewed() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    let own = json!({"type": "kubernetes.io/tls", "metadata": {}, "data": {"tls.crt": "eA=="}});
    api.put("shop/web", own);
    let before = api.secret("shop/web");
    let (wanted, issued) = (finalising(1), testing::issued(&["a.example"]));
    let kept = leader.store.keep_certificate(&wanted, &issued).await;
    assert!(kept.is_err_and(|error| error.to_string().contains("somebody else")));
    let found = leader.store.find(&wanted).await;
    assert!(matches!(found, Err(StepTrouble::Unproven(..))));
    assert_eq!(api.secret("shop/web"), before);

    api.lock().secrets.clear();
    leader
        .store
        .keep_certificate(&wanted, &issued)
        .await
        .unwrap();
    // Labels that people give it stay.
    let mut labelled = api.secret("shop/web").unwrap();
    labelled["metadata"]["labels"]["team"] = "shop".into();
    api.put("shop/web", labelled);
    let renewed = testing::issued(&["a.example"]);
    leader
        .store
        .keep_certificate(&wanted, &renewed)
        .await
        .unwrap();
    let secret = api.secret("shop/web").unwrap();
    assert_eq!(secret["metadata"]["labels"]["team"], "shop");
    assert_eq!(
        secret["metadata"]["annotations"]["myriad.dev/issuer"],
        "default"
    );
    let object = Object::from_json(ObjectKind::Secret, &secret.to_string());
    let Ok(Object::Secret(object)) = object else {
        panic!("no Secret")
    };
    let held = crate::acme::secret::held_in(&object).unwrap();
    assert_eq!(held.ari, renewed.held.ari);
    // Whoever may write there could say anything of it.
    assert_eq!(held.placed_at, None);
}

#[tokio::test]
async fn a_certificate_that_the_leader_before_has_obtained_is_not_ordered_again() {
    let api = Api::default();
    let (old, new) = (Leader::new(&api).await, Leader::new(&api).await);
    let wanted = order(OrderStage::Placing);
    // The new one begins, and its watch is behind.
    assert!(new.store.certificates().is_empty());
    new.store.admit(&wanted).await.unwrap();
    assert_eq!(new.store.find(&wanted).await, Ok(None));
    let issued = testing::issued(&["a.example"]);
    old.store.keep_certificate(&wanted, &issued).await.unwrap();
    let found = new.store.find(&wanted).await.unwrap().unwrap();
    assert_eq!(found.ari, issued.held.ari);

    // Once it is known, the next order is a renewal, and is placed.
    new.watch(&api, "shop/web");
    new.store.admit(&wanted).await.unwrap();
    assert_eq!(new.store.find(&wanted).await, Ok(None));
    // So is one for other names, or that the leader before had begun to place.
    let other = Leader::new(&api).await;
    assert_eq!(other.store.find(&wanted).await, Ok(None));
    let mut more = wanted.clone();
    more.names.push("b.example".into());
    assert!(other.store.certificates().is_empty());
    other.store.admit(&more).await.unwrap();
    assert_eq!(other.store.find(&more).await, Ok(None));
}

#[tokio::test]
async fn the_watch_tells_what_others_have_done_and_nothing_of_this_process() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    let (wanted, issued) = (finalising(1), testing::issued(&["a.example"]));
    assert!(leader.store.certificates().is_empty());
    leader
        .store
        .keep_certificate(&wanted, &issued)
        .await
        .unwrap();
    leader.watch(&api, "shop/web");
    let news = tokio::time::timeout(Duration::from_millis(5), leader.store.news());
    assert!(news.await.is_err(), "it is known");
    let other = Leader::new(&api).await;
    let edited = testing::issued(&["b.example"]);
    other
        .store
        .keep_certificate(&wanted, &edited)
        .await
        .unwrap();
    leader.watch(&api, "shop/web");
    let news = leader.store.news().await;
    let held = news[0].1.as_ref().unwrap();
    assert_eq!(&*held.names[0], "b.example");
}

#[tokio::test]
async fn nothing_is_ordered_where_no_secret_may_be_written() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    api.lock().forbidden.insert("shop".to_owned());
    let admitted = leader.store.admit(&order(OrderStage::Proving)).await;
    let Err(StepTrouble::Unproven(words, remedy)) = admitted else {
        panic!("{admitted:?}")
    };
    assert!(words.contains("may not write Secrets in shop"), "{words}");
    assert!(remedy.contains("acme.namespaces"), "{remedy}");
    let elsewhere = testing::order("blog/web", OrderStage::Proving);
    assert_eq!(leader.store.admit(&elsewhere).await, Ok(()));
    assert!(api.lock().writes.is_empty());
}

#[tokio::test]
async fn an_account_has_the_key_that_was_kept_first_and_is_found_again() {
    let api = Api::default();
    let (one, other) = (Leader::new(&api).await, Leader::new(&api).await);
    assert_eq!(one.store.account_key("k").await.unwrap(), None);
    assert_eq!(one.store.account("k").await.unwrap(), None);
    let keys = [1, 2].map(|byte| OrderKey::new(vec![byte; 8]));
    one.store.keep_account_key("k", &keys[0]).await.unwrap();
    assert!(other.store.keep_account_key("k", &keys[1]).await.is_err());
    let known = other.store.account_key("k").await.unwrap();
    assert_eq!(known.as_ref(), Some(&keys[0]));
    one.store.keep_account("k", "{}").await.unwrap();
    assert_eq!(
        other.store.account("k").await.unwrap().as_deref(),
        Some("{}")
    );
    // An account that the authority has forgotten is made anew with the same key.
    one.store.drop_account("k").await.unwrap();
    assert_eq!(other.store.account("k").await.unwrap(), None);
    assert_eq!(other.store.account_key("k").await.unwrap(), known);
    let secrets: Vec<String> = api.lock().secrets.keys().cloned().collect();
    assert_eq!(secrets, ["myriad/myriad-account-k"]);
}

/// An order that is to be placed, and what is spent with it.
fn spending(noted_at: i64, domain: &str) -> Order {
    let mut placing = order(OrderStage::Placing);
    let far = i64::MAX / 2 + noted_at;
    placing.spent = Some(Arc::new(SpentBudget {
        directory: placing.directory.clone(),
        noted_at,
        whole_at: far,
        domains: [(domain.into(), far)].into(),
    }));
    placing
}

#[tokio::test]
async fn what_orders_have_spent_outlives_them_where_no_tenant_writes() {
    let api = Api::default();
    let first = Leader::new(&api).await;
    assert!(first.store.spent().await.unwrap().is_empty());
    for order in [spending(2, "b.example"), spending(1, "a.example")] {
        first.store.keep_order(&order).await.unwrap();
    }
    let run = LocalSet::new();
    run.run_until(async {
        first.store.drop_soon(&"shop/web".into());
        settles(&api, 1).await;
    })
    .await;
    let names: Vec<String> = api.lock().secrets.keys().cloned().collect();
    assert!(names[0].starts_with("myriad/myriad-budget-"), "{names:?}");
    // The next leader knows it, and one that believes to lead takes nothing away.
    let next = Leader::new(&api).await;
    let spent = next.store.spent().await.unwrap();
    assert_eq!((spent.len(), spent[0].noted_at), (1, 2));
    assert_eq!(spent[0].domains.len(), 2);
    next.store
        .keep_order(&spending(3, "c.example"))
        .await
        .unwrap();
    let writes = api.lock().writes.len();
    first
        .store
        .keep_spent(spending(1, "d.example").spent.as_ref().unwrap())
        .await
        .unwrap();
    assert!(api.lock().writes.len() > writes);
    let last = Leader::new(&api).await.store.spent().await.unwrap();
    assert_eq!((last[0].noted_at, last[0].domains.len()), (3, 4));
    // What is known already is not written again.
    let writes = api.lock().writes.len();
    next.store
        .keep_spent(spending(3, "c.example").spent.as_ref().unwrap())
        .await
        .unwrap();
    assert_eq!(api.lock().writes.len(), writes);
}

#[tokio::test]
async fn budgets_that_are_whole_again_are_forgotten() {
    let api = Api::default();
    let leader = Leader::new(&api).await;
    let mut order = spending(1, "a.example");
    order.spent = order.spent.map(|spent| {
        Arc::new(SpentBudget {
            whole_at: 2,
            domains: [("a.example".into(), 2)].into(),
            ..(*spent).clone()
        })
    });
    leader
        .store
        .keep_spent(order.spent.as_ref().unwrap())
        .await
        .unwrap();
    assert_eq!(api.count(), 1);
    let next = Leader::new(&api).await;
    assert!(next.store.spent().await.unwrap().is_empty());
    assert_eq!(api.count(), 0);
}
