//! A tenant with a domain of its own at the platform's Gateway: what statuses say, and what they
//! promise to a pipeline that waits for them.

use myriad_e2e::cluster::Process;
use myriad_e2e::document::Document;
use serde_json::{Value, json};

use super::scene::{
    ADDRESS, GROUP, LIVE, Scene, at, generation, https, is_live, route, telling, told,
};

/// How long a pipeline waits at most.
const PATIENCE_SECONDS: u32 = 10;

/// How often the tenant changes its route.
const CHANGES: usize = 3;

#[tokio::test]
async fn a_listener_set_with_a_certificate_of_its_own_is_served_and_its_statuses_say_so() {
    let scene = Scene::set().await;
    let _parts = scene.serve().await;
    let cluster = &scene.cluster;
    let (home, tenant) = (cluster.home(), cluster.tenant());
    let class = format!("/apis/{GROUP}/v1/gatewayclasses/{}", cluster.class());
    let gateway = at("gateways", &home, "edge");
    let set = at("listenersets", &tenant, "shop");
    let web = at("httproutes", &tenant, "web");
    scene.api.apply(&scene.gateway(&[])).await;
    scene.api.apply(&scene.shop("first")).await;

    let is_accepted =
        |it: &Value| told(&it["status"]["conditions"], "Accepted") == "True/Accepted@1";
    let found = scene.until(&class, is_accepted).await;
    let features = found["status"]["supportedFeatures"].as_array();
    let feature = json!({"name": "HTTPRoute"});
    assert!(
        features.is_some_and(|it| it.contains(&feature)),
        "{found:#}"
    );

    let has_set = |it: &Value| is_live(it) && it["status"]["attachedListenerSets"] == 1;
    let status = scene.until(&gateway, has_set).await["status"].take();
    let words = ["Accepted", "Programmed", "ResolvedRefs"];
    let said = words.map(|word| told(&status["conditions"], word));
    let wanted = words.map(|word| format!("True/{word}@1"));
    assert_eq!(said, wanted, "{status:#}");
    let addresses = json!([{"type": "IPAddress", "value": ADDRESS}]);
    assert_eq!(status["addresses"], addresses);
    assert_eq!(status["listeners"][0]["attachedRoutes"], 0);

    let status = scene.until(&set, is_live).await["status"].take();
    let words = ["Accepted", "Programmed"];
    let said = words.map(|word| told(&status["conditions"], word));
    assert_eq!(said, words.map(|word| format!("True/{word}@1")));
    let listener = &status["listeners"][0];
    let words = ["Accepted", "Programmed", "ResolvedRefs", "Conflicted"];
    let said = words.map(|word| told(&listener["conditions"], word));
    let wanted = [
        "True/Accepted@1",
        "True/Programmed@1",
        "True/ResolvedRefs@1",
        "False/NoConflicts@1",
    ];
    assert_eq!(said, wanted, "{status:#}");
    let kinds = json!([
        {"group": GROUP, "kind": "HTTPRoute"},
        {"group": GROUP, "kind": "GRPCRoute"},
    ]);
    assert_eq!(listener["supportedKinds"], kinds);

    let status = scene.until(&web, is_live).await["status"].take();
    let parent = &status["parents"][0];
    assert_eq!(parent["controllerName"], cluster.controller_name());
    let reference = json!({"group": GROUP, "kind": "ListenerSet", "name": "shop"});
    assert_eq!(parent["parentRef"], reference);
    let words = ["Accepted", "ResolvedRefs"];
    let said = words.map(|word| told(&parent["conditions"], word));
    assert_eq!(said, words.map(|word| format!("True/{word}@1")));
    let answer = cluster.get("shop.test").await;
    assert_eq!(answer.told()["headers"]["x-word"], "first");

    counts_routes(&scene, &tenant, &set).await;
}

/// Routes that come and go are counted.
async fn counts_routes(scene: &Scene, tenant: &str, set: &str) {
    let count =
        |wanted: u64| move |it: &Value| it["status"]["listeners"][0]["attachedRoutes"] == wanted;
    scene.until(set, count(1)).await;
    let rules = telling("second", "more", "shop-test");
    let more = route(tenant, "more", "kind: ListenerSet, name: shop", &rules);
    scene.api.apply(&more).await;
    scene.until(set, count(2)).await;
    scene.api.delete(&more).await;
    scene.until(set, count(1)).await;
    let answer = scene.cluster.ask("https://shop.test:8443/more").await;
    assert_eq!(answer.told()["headers"]["x-word"], "first");
}

#[tokio::test]
async fn who_waits_for_live_gets_the_new_answer_and_never_waits_in_vain() {
    let scene = Scene::set().await;
    let (_controller, proxy) = scene.serve().await;
    let cluster = &scene.cluster;
    let (home, tenant) = (cluster.home(), cluster.tenant());
    scene.api.apply(&scene.gateway(&[])).await;
    follows_the_document(&scene).await;
    assert_eq!(cluster.get("shop.test").await.status, 200);

    for change in 0..CHANGES {
        let word = format!("change-{change}");
        scene.api.apply(&scene.web(&word)).await;
        waits_for_route(&scene, PATIENCE_SECONDS)
            .await
            .expect("live");
        let answer = cluster.get("shop.test").await;
        assert_eq!(answer.told()["headers"]["x-word"], word, "at once");
    }

    // A listener is ready for handshakes by then.
    let more = scene.backend(&tenant, "more.test");
    let of = [https("https", "shop.test"), https("more", "more.test")];
    let set = scene.listener_set((&tenant, "shop"), &of.each_ref().map(String::as_str));
    scene.api.apply(&[more, set].join("---\n")).await;
    let of_set = format!("listenersets.{GROUP}/shop");
    let condition = format!("condition={LIVE}");
    let waited = scene.wait((&tenant, &of_set), &condition, PATIENCE_SECONDS);
    waited.await.expect("live");
    let answer = cluster.get("more.test").await;
    assert_ne!(answer.status, 0, "{answer:?}");

    let further = ["name: further, hostname: further.test, port: 80, protocol: HTTP"];
    scene.api.apply(&scene.gateway(&further)).await;
    let of_gateway = format!("gateways.{GROUP}/edge");
    let waited = scene.wait((&home, &of_gateway), &condition, PATIENCE_SECONDS);
    waited.await.expect("live");
    let found = scene.api.get(&at("gateways", &home, "edge")).await;
    assert!(generation(&found) == 2 && is_live(&found), "{found:#}");

    is_not_live_before_it_is(&scene, proxy).await;
}

/// Waits for the route, as somebody does who has changed it.
async fn waits_for_route(scene: &Scene, seconds: u32) -> Result<(), String> {
    let tenant = scene.cluster.tenant();
    let route = scene.api.get(&at("httproutes", &tenant, "web")).await;
    let condition = format!(".status.parents[0].conditions[?(@.type==\"{LIVE}\")]");
    let object = format!("httproutes.{GROUP}/web");
    for (field, value) in [
        ("observedGeneration", generation(&route).to_string()),
        ("status", "True".to_owned()),
    ] {
        let wanted = format!("jsonpath={{{condition}.{field}}}={value}");
        scene.wait((&tenant, &object), &wanted, seconds).await?;
    }
    Ok(())
}

/// The commands of `docs/gateway-api.md`, in namespaces of the story's own.
async fn follows_the_document(scene: &Scene) {
    let document = Document::read("docs/gateway-api.md");
    let (home, tenant) = (scene.cluster.home(), scene.cluster.tenant());
    let reader = scene.cluster.reader();
    reader.keep("shop.yaml", &scene.shop("first"));
    let written = "--namespace shop";
    for (heading, namespace) in [
        ("A first Gateway", &home),
        ("Wait until it serves", &tenant),
    ] {
        for step in document.below(heading) {
            let commands = &step.commands;
            assert!(commands.contains("kubectl wait"), "{commands}");
            let own = commands.replace(written, &format!("--namespace {namespace}"));
            let output = reader.run(&format!("set -eu\n{own}")).await;
            assert!(output.status.success(), "{own}: {output:?}");
        }
    }
}

/// A proxy that does not come to it keeps everybody waiting, and one that is gone is no proxy.
async fn is_not_live_before_it_is(scene: &Scene, proxy: Process) {
    let (cluster, tenant) = (&scene.cluster, scene.cluster.tenant());
    let web = at("httproutes", &tenant, "web");
    let says = |words: &'static str| {
        move |it: &Value| {
            let wanted = format!("{words}@{}", generation(it));
            told(&it["status"]["parents"][0]["conditions"], LIVE) == wanted
        }
    };
    proxy.freeze();
    scene.api.apply(&scene.web("frozen")).await;
    scene.until(&web, says("False/Pending")).await;
    let waited = waits_for_route(scene, 1).await;
    waited.expect_err("nobody serves it");
    proxy.resume();
    let waited = waits_for_route(scene, PATIENCE_SECONDS).await;
    waited.expect("live");
    let answer = cluster.get("shop.test").await;
    assert_eq!(answer.told()["headers"]["x-word"], "frozen");

    proxy.kill().await;
    scene.api.apply(&scene.web("alone")).await;
    scene.until(&web, says("False/NoProxies")).await;
    let _proxy = cluster.restart_proxy(0, "proxy");
    let waited = waits_for_route(scene, PATIENCE_SECONDS).await;
    waited.expect("live");
    let answer = cluster.get("shop.test").await;
    assert_eq!(answer.told()["headers"]["x-word"], "alone");
}
