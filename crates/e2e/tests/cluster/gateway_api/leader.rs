//! A leader that dies while it writes statuses, and what its successor makes of them.

use std::collections::BTreeMap;
use std::time::Duration;

use myriad_e2e::cluster::Process;
use myriad_e2e::world::{eventually, eventually_within};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::scene::{GROUP, Scene, at, generation, is_live, route, telling, told, version};

/// Routes whose statuses are written.
const ROUTES: usize = 100;

/// Between two routes, so that some are written before the leader dies and some after it.
const PACE: Duration = Duration::from_millis(20);

/// Statuses that are right when the leader dies.
const ENOUGH: usize = 10;

/// Time in which everything that the leader had sent when it died arrives.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// A Lease that is gone is noticed within 5 s, and who takes it listens for 3 s.
const TAKEOVER_DEADLINE: Duration = Duration::from_secs(40);

/// A status that is written once more is so after a second.
const REST: Duration = Duration::from_millis(1_500);

#[tokio::test]
async fn a_leader_that_dies_in_the_middle_of_a_hundred_routes_leaves_none_wrong() {
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let leader = cluster.controller(0).await;
    let class = format!("/apis/{GROUP}/v1/gatewayclasses/{}", cluster.class());
    let leads = |it: &Value| told(&it["status"]["conditions"], "Accepted") == "True/Accepted@1";
    scene.until(&class, leads).await;
    let _successor = cluster.controller(1).await;
    // The proxies follow the one that does not lead.
    let proxy = cluster.proxy(1, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    scene.api.apply(&scene.gateway(&[])).await;
    scene.api.apply(&scene.shop("first")).await;
    let tenant = cluster.tenant();
    scene
        .until(&at("httproutes", &tenant, "web"), is_live)
        .await;

    let ((), before) = tokio::join!(write(&scene), kill_in_the_middle(&scene, leader));
    let right: Vec<&String> = names_of(&before, true);
    let wrong = names_of(&before, false).len();
    assert!(right.len() >= ENOUGH, "{before:?}");
    assert!(
        right.len() < ROUTES,
        "the leader was done: {wrong} are wrong"
    );

    // One that is right is spoilt while nobody leads, and found like those that nobody has written.
    let spoilt = right[0];
    spoil(&scene, spoilt).await;
    // Its successor need not wait for a holder that is gone.
    let lease = format!(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\n\
         metadata:\n  name: myriad\n  namespace: {}\n",
        cluster.home()
    );
    scene.api.delete(&lease).await;
    let all_right = eventually_within(TAKEOVER_DEADLINE, async || {
        let found = look(&scene).await;
        let right = names_of(&found, true).len();
        sleep(PACE).await;
        (right == ROUTES + 1).then_some(found)
    });
    let after = all_right.await;
    let Some(after) = after else {
        panic!("some stay wrong: {:?}", look(&scene).await)
    };
    for name in right.into_iter().filter(|name| *name != spoilt) {
        assert_eq!(
            after[name].version, before[name].version,
            "{name} was right"
        );
    }
    sleep(REST).await;
    assert_eq!(look(&scene).await, after, "nobody has written since");
}

/// A route as somebody sees it who looks at it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    version: String,
    is_right: bool,
}

type AllSeen = BTreeMap<String, Seen>;

fn names_of(seen: &AllSeen, is_right: bool) -> Vec<&String> {
    let found = seen.iter().filter(|(_, it)| it.is_right == is_right);
    found.map(|(name, _)| name).collect()
}

async fn write(scene: &Scene) {
    let tenant = scene.cluster.tenant();
    for number in 0..ROUTES {
        let name = format!("route-{number}");
        let rules = telling(&name, &name, "shop-test");
        let parent = "kind: ListenerSet, name: shop";
        scene
            .api
            .apply(&route(&tenant, &name, parent, &rules))
            .await;
        sleep(PACE).await;
    }
}

/// Kills the leader once some statuses are right, and says which routes there are then.
async fn kill_in_the_middle(scene: &Scene, leader: Process) -> AllSeen {
    let some = eventually(async || {
        let right = names_of(&look(scene).await, true).len();
        sleep(PACE).await;
        (right >= ENOUGH).then_some(())
    });
    some.await.expect("the leader writes statuses");
    leader.kill().await;
    sleep(LAST_WORDS).await;
    look(scene).await
}

/// All routes of the tenant, by their names.
async fn look(scene: &Scene) -> AllSeen {
    let tenant = scene.cluster.tenant();
    let path = format!("/apis/{GROUP}/v1/namespaces/{tenant}/httproutes");
    let list = scene.api.get(&path).await;
    let items = list["items"].as_array().expect("a list").iter();
    let seen = items.map(|item| {
        let name = item["metadata"]["name"].as_str().expect("a name");
        let seen = Seen {
            version: version(item),
            is_right: is_right(item),
        };
        (name.to_owned(), seen)
    });
    seen.collect()
}

fn is_right(route: &Value) -> bool {
    let parents = &route["status"]["parents"];
    let says = |word: &str| {
        let wanted = format!("True/{word}@{}", generation(route));
        told(&parents[0]["conditions"], word) == wanted
    };
    let count = parents.as_array().map_or(0, Vec::len);
    count == 1 && says("Accepted") && says("ResolvedRefs") && is_live(route)
}

/// Says something else in our name.
async fn spoil(scene: &Scene, name: &str) {
    let path = at("httproutes", &scene.cluster.tenant(), name);
    let mut parents = scene.api.get(&path).await["status"]["parents"].take();
    let conditions = parents[0]["conditions"].as_array_mut().expect("a list");
    for condition in conditions.iter_mut().filter(|it| it["type"] == "Accepted") {
        condition["status"] = "False".into();
        condition["reason"] = "Somebody".into();
    }
    scene
        .api
        .set_status(&path, &json!({"parents": parents}))
        .await;
}
