//! Statuses that several controllers write, and people by hand.

use serde_json::{Value, json};

use super::scene::{GROUP, LIVE, Scene, at, is_live, told};
use crate::is_refused;

#[tokio::test]
async fn what_others_say_stays_and_what_we_say_is_mended_and_taken_back() {
    let scene = Scene::set().await;
    let _parts = scene.serve().await;
    let (home, tenant) = (scene.cluster.home(), scene.cluster.tenant());
    let web = at("httproutes", &tenant, "web");
    scene.api.apply(&scene.gateway(&[])).await;
    scene.api.apply(&scene.shop("first")).await;
    let mut route = scene.until(&web, is_live).await;

    // Others write before and behind our entry, and somebody spoils ours.
    let ours = spoiled(route["status"]["parents"][0].take());
    let others = [foreign(&tenant, "one"), foreign(&tenant, "other")];
    let parents = json!([others[0], ours, others[1]]);
    scene
        .api
        .set_status(&web, &json!({"parents": parents}))
        .await;
    scene.api.apply(&scene.web("second")).await;
    let is_mended = |it: &Value| {
        let conditions = &it["status"]["parents"][1]["conditions"];
        told(conditions, LIVE) == "True/Served@2"
            && told(conditions, "Accepted") == "True/Accepted@2"
    };
    let route = scene.until(&web, is_mended).await;
    let parents = &route["status"]["parents"];
    assert_eq!([&parents[0], &parents[2]], [&others[0], &others[1]]);
    assert_eq!(parents.as_array().map(Vec::len), Some(3), "{parents:#}");

    mends_a_gateway(&scene, &home).await;

    // With its Gateway goes all that we have said of those who name it.
    scene.api.delete(&scene.gateway(&[])).await;
    let left = json!(others);
    scene
        .until(&web, |it| it["status"]["parents"] == left)
        .await;
    let set = at("listenersets", &tenant, "shop");
    let is_unsaid = |it: &Value| {
        let status = &it["status"];
        let said = told(&status["conditions"], "Accepted");
        said == "Unknown/Pending@0" && status["listeners"].is_null()
    };
    let set = scene.until(&set, is_unsaid).await;
    assert_eq!(told(&set["status"]["conditions"], LIVE), "");
    scene.cluster.eventually("shop.test", is_refused).await;

    scene.api.apply(&scene.gateway(&[])).await;
    let is_back = |it: &Value| {
        let parents = it["status"]["parents"].as_array().cloned();
        let parents = parents.unwrap_or_default();
        let says = |it: &Value| told(&it["conditions"], LIVE) == "True/Served@2";
        parents.len() == 3 && parents.iter().any(says)
    };
    let route = scene.until(&web, is_back).await;
    let parents = route["status"]["parents"].as_array().cloned();
    let parents = parents.unwrap_or_default();
    assert!(others.iter().all(|it| parents.contains(it)), "{parents:#?}");
    assert_eq!(scene.cluster.get("shop.test").await.status, 200);
}

/// A Gateway's status is one controller's, but for conditions of other types.
async fn mends_a_gateway(scene: &Scene, home: &str) {
    let path = at("gateways", home, "edge");
    let mut gateway = scene.until(&path, is_live).await;
    let foreign = condition("example.com/Checked", "True");
    let mut conditions = gateway["status"]["conditions"].take();
    let list = conditions.as_array_mut().expect("a list");
    for shown in list.iter_mut().filter(|it| it["type"] == "Programmed") {
        *shown = condition("Programmed", "False");
    }
    list.push(foreign.clone());
    let status = json!({"conditions": conditions, "addresses": null});
    scene.api.set_status(&path, &status).await;
    let further = ["name: further, hostname: further.test, port: 80, protocol: HTTP"];
    scene.api.apply(&scene.gateway(&further)).await;
    let is_mended = |it: &Value| {
        let status = &it["status"];
        is_live(it)
            && told(&status["conditions"], "Programmed") == "True/Programmed@2"
            && status["listeners"].as_array().map(Vec::len) == Some(2)
            && status["addresses"].is_array()
    };
    let gateway = scene.until(&path, is_mended).await;
    let conditions = gateway["status"]["conditions"].as_array();
    let is_kept = conditions.is_some_and(|it| it.contains(&foreign));
    assert!(is_kept, "{gateway:#}");
}

/// Our entry as somebody leaves it who means no good.
fn spoiled(mut entry: Value) -> Value {
    entry["conditions"] = json!([condition("Accepted", "False")]);
    entry
}

/// The entry of another controller.
fn foreign(namespace: &str, name: &str) -> Value {
    json!({
        "parentRef": {
            "group": GROUP,
            "kind": "Gateway",
            "namespace": namespace,
            "name": name,
        },
        "controllerName": format!("example.com/{name}"),
        "conditions": [condition("Accepted", "True"), condition("example.com/Odd", "False")],
    })
}

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": "Somebody",
        "message": "has said so",
        "observedGeneration": 1,
        "lastTransitionTime": "2020-02-02T02:02:02Z",
    })
}
