//! Exports to the gateway's namespace, which is `istio-system`, and to others.

use myriad_e2e::istio::{RULES, Scene, TO, destination_rule, object, virtual_service};
use myriad_e2e::world::eventually;
use myriad_e2e::{Backend, World};

/// Waits until `a.test` is answered with this status.
async fn answers(world: &World, status: u16, why: &str) {
    let answered = eventually(async || {
        let answer = world.get("http://a.test/").await;
        (answer.status == status).then_some(())
    });
    assert!(answered.await.is_some(), "{why}: never {status}");
}

#[tokio::test]
async fn rules_are_served_where_they_are_exported_to() {
    let backend = Backend::start("a").await;
    let world = Scene::new().to(&[backend.address()]).serve().await;
    answers(&world, 200, "to all by default").await;
    for (exported, status) in [
        ("['.']", 404),
        ("['*']", 200),
        ("[elsewhere]", 404),
        ("[elsewhere, istio-system]", 200),
        ("['~']", 404),
    ] {
        let spec = format!("hosts: [a.test], gateways: [edge], exportTo: {exported}");
        world.write(RULES, &virtual_service("a", &spec, "http", &[TO]));
        answers(&world, status, exported).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn subsets_are_known_where_their_rule_is_exported_to() {
    let backend = Backend::start("a").await;
    let to = "route: [{destination: {host: api, port: {number: 80}, subset: all}}]";
    let scene = Scene::new().to(&[backend.address()]).rules(&[to]);
    let world = scene.serve().await;
    answers(&world, 503, "no rule").await;
    for (exported, status) in [
        ("['*']", 200),
        ("['.']", 503),
        ("[istio-system]", 200),
        ("[elsewhere]", 503),
    ] {
        let rest = format!("exportTo: {exported}, subsets: [{{name: all}}]");
        world.write("rule.yaml", &destination_rule("api", &rest));
        answers(&world, status, exported).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn hosts_of_other_namespaces_are_known_where_they_are_exported_to() {
    let backend = Backend::start("a").await;
    let to = "route: [{destination: {host: out.test, port: {number: 80}}}]";
    let world = Scene::new().rules(&[to]).serve().await;
    answers(&world, 503, "no entry").await;
    for (exported, status) in [
        ("['*']", 200),
        ("['.']", 503),
        ("[default]", 200),
        ("[elsewhere]", 503),
    ] {
        let (ip, port) = (backend.address().ip(), backend.address().port());
        let spec = format!(
            "exportTo: {exported}, hosts: [out.test], ports: [{{number: 80, name: http, protocol: \
             HTTP}}], resolution: STATIC, endpoints: [{{address: {ip}, ports: {{http: {port}}}}}]"
        );
        let entry = object("networking.istio.io/v1", "ServiceEntry", "out", &spec);
        let entry = entry.replace("namespace: default", "namespace: other");
        world.write("entry.yaml", &entry);
        answers(&world, status, exported).await;
    }
    world.stop().await;
}
