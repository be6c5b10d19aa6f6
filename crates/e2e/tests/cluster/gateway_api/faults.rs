//! Faults of one tenant at a Gateway that others use: what its statuses say, what is answered, and
//! that its neighbour notices nothing.

use serde_json::Value;

use super::scene::{GROUP, Scene, at, https, https_by, is_live, route, telling, told, version};

/// A route with a fault: its name, its parent, the rest of its `spec`, and the condition that says
/// what is wrong.
struct FaultyRoute {
    name: &'static str,
    parent: String,
    spec: String,
    condition: (&'static str, &'static str),
}

/// The paths of faulty routes that are attached all the same; what they take is refused.
const REFUSED: [&str; 3] = ["lost", "denied", "strange"];

/// The error of curl on a handshake that was refused; for a certificate of another name it is 60.
const NO_HANDSHAKE: &str = "exit code Some(35)";

/// The conditions of each listener: Accepted, Programmed, ResolvedRefs and Conflicted.
const LISTENERS_TOLD: [[&str; 4]; 4] = [
    [
        "True/Accepted@1",
        "True/Programmed@1",
        "True/ResolvedRefs@1",
        "False/NoConflicts@1",
    ],
    [
        "True/Accepted@1",
        "False/Invalid@1",
        "False/InvalidCertificateRef@1",
        "False/NoConflicts@1",
    ],
    [
        "False/HostnameConflict@1",
        "False/HostnameConflict@1",
        "True/ResolvedRefs@1",
        "True/HostnameConflict@1",
    ],
    [
        "True/Accepted@1",
        "False/Invalid@1",
        "False/RefNotPermitted@1",
        "False/NoConflicts@1",
    ],
];

#[tokio::test]
async fn what_one_tenant_gets_wrong_is_told_refused_and_nothing_to_its_neighbour() {
    let scene = Scene::set().await;
    let _parts = scene.serve().await;
    let cluster = &scene.cluster;
    let good = cluster.tenant();
    let bad = format!("{good}-bad");
    cluster.kubectl(&["create", "namespace", &bad]).await;
    scene.api.apply(&scene.gateway(&[])).await;
    scene.api.apply(&scene.shop("good")).await;
    let neighbour = [
        at("httproutes", &good, "web"),
        at("listenersets", &good, "shop"),
    ];
    // The last that is said of the neighbour.
    let counts = |it: &Value| it["status"]["listeners"][0]["attachedRoutes"] == 1;
    scene.until(&neighbour[1], counts).await;
    let mut versions = Vec::new();
    for path in &neighbour {
        versions.push(version(&scene.until(path, is_live).await));
    }
    let mut visits = cluster.watch("https://shop.test:8443/");
    visits.all_well(5).await;

    listeners(&scene, (&good, &bad)).await;
    let faulty = faulty_routes(&good);
    for it in &faulty {
        let text = route(&bad, it.name, &it.parent, &it.spec);
        scene.api.apply(&text).await;
    }
    for it in &faulty {
        let (kind, wanted) = it.condition;
        let says =
            |object: &Value| told(&object["status"]["parents"][0]["conditions"], kind) == wanted;
        scene.until(&at("httproutes", &bad, it.name), says).await;
    }
    for path in REFUSED {
        scene.until(&at("httproutes", &bad, path), is_live).await;
        let url = format!("https://fine.test:8443/{path}");
        assert_eq!(cluster.ask(&url).await.status, 500, "{path}");
    }
    let answer = cluster.get("fine.test").await;
    assert_eq!(answer.told()["headers"]["x-word"], "fine");
    grants(&scene, (&good, &bad)).await;

    visits.all_well(10).await;
    let answer = cluster.get("shop.test").await;
    assert_eq!(answer.told()["headers"]["x-word"], "good");
    for (path, version_before) in neighbour.iter().zip(versions) {
        let now = version(&scene.api.get(path).await);
        assert_eq!(now, version_before, "nothing is said anew of {path}");
    }
}

/// A ListenerSet of which one listener serves, and of the others each says why it does not.
async fn listeners(scene: &Scene, (good, bad): (&str, &str)) {
    let of = [
        https("fine", "fine.test"),
        https_by("missing", "missing.test", "name: nowhere"),
        https_by("taken", "shop.test", "name: fine-test"),
        https_by("borrowed", "borrowed.test", &borrowed(good)),
    ];
    let objects = [
        scene.backend(bad, "fine.test"),
        scene.listener_set((bad, "odd"), &of.each_ref().map(String::as_str)),
        route(
            bad,
            "fine",
            "kind: ListenerSet, name: odd",
            &telling("fine", "", "fine-test"),
        ),
    ];
    scene.api.apply(&objects.join("---\n")).await;
    let set = at("listenersets", bad, "odd");
    let says_all = |object: &Value| {
        let status = &object["status"];
        told(&status["conditions"], "Accepted") == "True/ListenersNotValid@1"
            && (0..LISTENERS_TOLD.len()).all(|number| {
                let words = ["Accepted", "Programmed", "ResolvedRefs", "Conflicted"];
                let conditions = &status["listeners"][number]["conditions"];
                words.map(|word| told(conditions, word)) == LISTENERS_TOLD[number]
            })
    };
    scene.until(&set, says_all).await;
    scene.until(&set, is_live).await;
    scene
        .cluster
        .eventually("fine.test", |it| it.status == 200)
        .await;
    for host in ["missing.test", "borrowed.test"] {
        let answer = scene.cluster.get(host).await;
        assert!(answer.error.contains(NO_HANDSHAKE), "{host}: {answer:?}");
    }
    let answer = scene.cluster.get("shop.test").await;
    assert_eq!(
        answer.told()["headers"]["x-word"],
        "good",
        "of the older one"
    );
}

fn borrowed(good: &str) -> String {
    format!("name: shop-test, namespace: {good}")
}

fn faulty_routes(good: &str) -> [FaultyRoute; 6] {
    let own = || "kind: ListenerSet, name: odd".to_owned();
    let at_path = |path: &str, reference: &str| {
        format!(
            "  rules:\n  - matches: [{{path: {{value: /{path}}}}}]\n    \
             backendRefs: [{{{reference}}}]\n"
        )
    };
    let well = telling("bad", "bad", "fine-test");
    [
        FaultyRoute {
            name: "lost",
            parent: own(),
            spec: at_path("lost", "name: nowhere, port: 80"),
            condition: ("ResolvedRefs", "False/BackendNotFound@1"),
        },
        FaultyRoute {
            name: "denied",
            parent: own(),
            spec: at_path("denied", &format!("{}, port: 80", borrowed(good))),
            condition: ("ResolvedRefs", "False/RefNotPermitted@1"),
        },
        FaultyRoute {
            name: "strange",
            parent: own(),
            spec: at_path(
                "strange",
                "group: example.com, kind: Thing, name: fine-test",
            ),
            condition: ("ResolvedRefs", "False/InvalidKind@1"),
        },
        FaultyRoute {
            name: "unnamed",
            parent: "kind: ListenerSet, name: odd, sectionName: nowhere".to_owned(),
            spec: well.clone(),
            condition: ("Accepted", "False/NoMatchingParent@1"),
        },
        FaultyRoute {
            name: "uninvited",
            parent: format!("kind: ListenerSet, name: shop, namespace: {good}"),
            spec: well.clone(),
            condition: ("Accepted", "False/NotAllowedByListeners@1"),
        },
        FaultyRoute {
            name: "elsewhere",
            parent: own(),
            spec: format!("  hostnames: [other.test]\n{well}"),
            condition: ("Accepted", "False/NoMatchingListenerHostname@1"),
        },
    ]
}

/// A grant resolves what it permits, and nothing when it is gone.
async fn grants(scene: &Scene, (good, bad): (&str, &str)) {
    let cluster = &scene.cluster;
    let grant = format!(
        "apiVersion: {GROUP}/v1\nkind: ReferenceGrant\n\
         metadata:\n  name: to-bad\n  namespace: {good}\n\
         spec:\n  from:\n  \
         - {{group: {GROUP}, kind: HTTPRoute, namespace: {bad}}}\n  \
         - {{group: {GROUP}, kind: ListenerSet, namespace: {bad}}}\n  \
         to: [{{group: '', kind: Service}}, {{group: '', kind: Secret}}]\n"
    );
    scene.api.apply(&grant).await;
    let denied = at("httproutes", bad, "denied");
    let says = |wanted: &'static str| {
        move |it: &Value| told(&it["status"]["parents"][0]["conditions"], "ResolvedRefs") == wanted
    };
    scene.until(&denied, says("True/ResolvedRefs@1")).await;
    scene.until(&denied, is_live).await;
    let url = "https://fine.test:8443/denied";
    assert_eq!(cluster.ask(url).await.status, 200);
    let is_resolved = |it: &Value| {
        let conditions = &it["status"]["listeners"][3]["conditions"];
        told(conditions, "ResolvedRefs") == "True/ResolvedRefs@1"
            && told(conditions, "Programmed") == "True/Programmed@1"
    };
    scene
        .until(&at("listenersets", bad, "odd"), is_resolved)
        .await;

    scene.api.delete(&grant).await;
    scene.until(&denied, says("False/RefNotPermitted@1")).await;
    scene.until(&denied, is_live).await;
    assert_eq!(cluster.ask(url).await.status, 500);
    // Without a certificate there is no handshake any more.
    let is_refused_again = |it: &Value| {
        let conditions = &it["status"]["listeners"][3]["conditions"];
        told(conditions, "ResolvedRefs") == "False/RefNotPermitted@1"
    };
    let set = at("listenersets", bad, "odd");
    scene.until(&set, is_refused_again).await;
    scene.until(&set, is_live).await;
    let answer = cluster.get("borrowed.test").await;
    assert!(answer.error.contains(NO_HANDSHAKE), "{answer:?}");
}
