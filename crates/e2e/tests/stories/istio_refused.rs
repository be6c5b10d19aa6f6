//! Objects of Istio with mistakes: the answer, the finding, and neighbours that are untouched.

use myriad_e2e::istio::{RULES, Scene, TO, gateway, policy, rules, virtual_service};
use myriad_e2e::{Answer, Backend, World};

/// A rule that answers with a word.
fn says(word: &str) -> String {
    format!("directResponse: {{status: 200, body: {{string: {word}}}}}")
}

/// Waits for a finding about this object with these words.
async fn finds(world: &World, object: &str, words: &str) {
    let found = myriad_e2e::world::eventually(async || {
        let findings = world.findings().await;
        let is_it = |it: &&String| it.contains(object) && it.contains(words);
        findings.iter().find(is_it).map(|_| ())
    });
    let found = found.await;
    assert!(
        found.is_some(),
        "{object}, {words}: {:?}",
        world.findings().await
    );
}

/// A world with a neighbour that answers, and another object beside it.
async fn beside(backend: &Backend, mistaken: &str) -> World {
    let world = Scene::new()
        .to(&[backend.address()])
        .servers(&[
            "port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test, b.test]",
            "port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.test], tls: {mode: \
             SIMPLE, credentialName: own}",
        ])
        .with(mistaken)
        .serve()
        .await;
    for url in ["http://a.test/", "https://a.test/"] {
        assert_eq!(world.get(url).await.status, 200, "the neighbour answers");
    }
    world
}

#[tokio::test]
async fn a_gateway_that_is_not_there_serves_nothing_until_it_is() {
    let backend = Backend::start("a").await;
    let spec = "hosts: [b.test], gateways: [gone]";
    let mistaken = virtual_service("b", spec, "http", &[TO]);
    let world = beside(&backend, &mistaken).await;
    finds(&world, "VirtualService default/b", "gone").await;
    assert_eq!(world.get("http://b.test/").await.status, 404);
    let server = "port: {number: 80, name: http, protocol: HTTP}, hosts: [b.test]";
    world.write("gone.yaml", &gateway("gone", &[server]));
    world
        .eventually("http://b.test/", |it| it.status == 200)
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_host_that_no_server_covers_is_not_served() {
    let backend = Backend::start("a").await;
    let spec = "hosts: [c.test], gateways: [edge]";
    let mistaken = virtual_service("c", spec, "http", &[TO]);
    let world = beside(&backend, &mistaken).await;
    finds(
        &world,
        "VirtualService default/c",
        "is covered by no server",
    )
    .await;
    assert_eq!(world.get("http://c.test/").await.status, 404);
    assert_eq!(world.get("https://c.test/").await.status, 0);
    world.stop().await;
}

#[tokio::test]
async fn a_credential_that_is_not_there_answers_no_handshake_until_it_is() {
    let backend = Backend::start("a").await;
    let server = "port: {number: 443, name: https, protocol: HTTPS}, hosts: [b.test], tls: {mode: \
                  SIMPLE, credentialName: late}";
    let spec = "hosts: [b.test], gateways: [late]";
    let mistaken = gateway("late", &[server]) + &virtual_service("b", spec, "http", &[TO]);
    let world = beside(&backend, &mistaken).await;
    finds(&world, "Gateway default/late", "late").await;
    let answer = world.get("https://b.test/").await;
    assert!(answer.error.contains("unrecognized name"), "{answer:?}");
    let late = world.authority.issue(&["b.test"]);
    world.write(
        "late.yaml",
        &myriad_e2e::istio::credential("late", &late, &[]),
    );
    world
        .eventually("https://b.test/", |it| it.status == 200)
        .await;
    world.stop().await;
}

#[tokio::test]
async fn delegates_in_a_circle_or_in_a_row_take_no_request() {
    let backend = Backend::start("a").await;
    let leads = |path: &str, name: &str| {
        format!("match: [{{uri: {{prefix: /{path}}}}}], delegate: {{name: {name}}}")
    };
    let row = virtual_service("row", "exportTo: ['*']", "http", &[&leads("row", "end")]);
    let end = virtual_service("end", "exportTo: ['*']", "http", &[TO]);
    let own = virtual_service("own", "exportTo: ['*']", "http", &[&leads("own", "own")]);
    let spec = "hosts: [b.test], gateways: [edge]";
    let written = [
        leads("row", "row"),
        leads("own", "own"),
        leads("b", "b"),
        says("b"),
    ];
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    let root = virtual_service("b", spec, "http", &written);
    let world = beside(&backend, &(row + &end + &own + &root)).await;
    for at in [
        "spec.http[0].delegate",
        "spec.http[1].delegate",
        "spec.http[2].delegate",
    ] {
        finds(&world, "VirtualService default/b", at).await;
    }
    // What stands behind them takes what they do not.
    for path in ["row", "own", "b", "x"] {
        let answer = world.get(&format!("http://b.test/{path}")).await;
        assert_eq!((answer.status, &*answer.body), (200, "b"), "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn of_two_virtual_services_on_a_host_the_older_goes_first() {
    let backend = Backend::start("a").await;
    let spec = "hosts: [b.test], gateways: [edge]";
    let aged = |name: &str, year: u32| {
        let own = format!("match: [{{uri: {{prefix: /{name}}}}}], {}", says(name));
        let both = format!("match: [{{uri: {{prefix: /both}}}}], {}", says(name));
        let text = virtual_service(name, spec, "http", &[&own, &both]);
        let time = format!("default, creationTimestamp: '{year}-01-01T00:00:00Z'");
        text.replacen("default", &time, 1)
    };
    // The younger stands first in the file and in the alphabet.
    let world = beside(&backend, &(aged("m", 2_024) + &aged("z", 2_020))).await;
    for (path, wanted) in [("m", "m"), ("z", "z"), ("both", "z")] {
        let answer = world.get(&format!("http://b.test/{path}")).await;
        assert_eq!((answer.status, &*answer.body), (200, wanted), "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn an_object_that_istio_would_refuse_keeps_its_last_good_version() {
    let backend = Backend::start("a").await;
    let world = beside(&backend, "").await;
    for broken in [
        "route: [{destination: {}}]",
        "match: [{uri: {exact: /x, prefix: /x}}]",
        "route: 7",
    ] {
        world.write(RULES, &rules(&[broken]));
        finds(&world, RULES, "what this file gave before stays").await;
        assert_eq!(world.get("http://a.test/").await.status, 200, "{broken}");
        world.write(RULES, &rules(&[TO]));
        let is_calm =
            myriad_e2e::world::eventually(async || world.findings().await.is_empty().then_some(()));
        assert!(is_calm.await.is_some(), "{:?}", world.findings().await);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_field_that_nobody_knows_is_named_and_the_rest_holds() {
    let backend = Backend::start("a").await;
    let world = beside(&backend, "").await;
    let misspelt = format!("timeuot: 1s, rewrite: {{uri: /new/}}, {TO}");
    world.write(RULES, &rules(&[&misspelt]));
    let is_new = |answer: &Answer| answer.status == 200 && answer.told()["uri"] == "/new/old";
    world.eventually("http://a.test/old", is_new).await;
    finds(&world, "VirtualService default/a", "spec.http[0].timeuot").await;
    world.stop().await;
}

#[tokio::test]
async fn of_two_answers_of_a_rule_one_has_no_effect_and_is_named() {
    let backend = Backend::start("a").await;
    let world = beside(&backend, "").await;
    world.write(RULES, &rules(&[&format!("{}, {TO}", says("fixed"))]));
    world
        .eventually("http://a.test/", |it| it.body == "fixed")
        .await;
    finds(&world, "VirtualService default/a", "spec.http[0].route").await;
    world.stop().await;
}

#[tokio::test]
async fn a_provider_that_nobody_defined_and_a_policy_that_is_not_understood_refuse() {
    let backend = Backend::start("a").await;
    let world = beside(&backend, "").await;
    for (kind, spec) in [
        (
            "AuthorizationPolicy",
            "action: CUSTOM, provider: {name: nobody}, rules: [{}]",
        ),
        ("AuthorizationPolicy", "action: CUSTOM, rules: [{}]"),
        ("AuthorizationPolicy", "rulez: [{}]"),
        (
            "AuthorizationPolicy",
            "action: DENY, rules: [{when: [{key: experimental.x, values: [y]}]}]",
        ),
    ] {
        world.write("policy.yaml", &policy(kind, "p", spec));
        world
            .eventually("http://a.test/", |it| it.status == 403)
            .await;
        finds(&world, "AuthorizationPolicy istio-system/p", "").await;
        world.delete("policy.yaml");
        world
            .eventually("http://a.test/", |it| it.status == 200)
            .await;
    }
    world.stop().await;
}
