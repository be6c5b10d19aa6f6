//! What operators see, and what nobody does.

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};

#[tokio::test]
async fn readiness_metrics_and_counts_are_served() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test"]));
    let world = World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await;
    assert_eq!(world.admin("/healthz").await.status, 200);
    assert_eq!(world.admin("/readyz").await.body, "ready\n");
    let metrics = world.admin("/metrics").await.body;
    for name in [
        "myriad_translate_units_total",
        "myriad_control_commits_total",
    ] {
        assert!(metrics.contains(name), "{name} is not in: {metrics}");
    }
    let dump: serde_json::Value =
        serde_json::from_str(&world.admin("/config").await.body).expect("JSON");
    assert_eq!(dump["resources"]["domain"], 1);
    assert_eq!(dump["resources"]["certificate"], 1);
    assert_eq!(dump["findings_total"], 0, "{dump}");
    world.stop().await;
}

#[tokio::test]
async fn a_key_shows_up_nowhere() {
    let authority = Authority::new();
    let pair = authority.issue(&["a.test"]);
    let other = authority.issue(&["b.test"]);
    // A key that does not fit, a key that is no key, and a Secret that is no YAML: each makes
    // a finding, and none may quote what it is about.
    let canary = "c4n4ry-c4n4ry-c4n4ry";
    let misfit = myriad_e2e::authority::Pair {
        key: other.key.clone(),
        ..pair.clone()
    };
    let garbage = myriad_e2e::authority::Pair {
        key: canary.to_owned(),
        ..pair.clone()
    };
    let broken = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\ntype: kubernetes.io/tls\n\
         data:\n  tls.key: [{canary}\nstringData: {canary}\n"
    );
    let typed = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: y}}\ntype: kubernetes.io/tls\n\
         data: {canary}\n"
    );
    let files = [
        ("a.yaml", Site::new("a.test").tls(&misfit).yaml()),
        ("b.yaml", Site::new("b.test").tls(&garbage).yaml()),
        ("c.yaml", broken),
        ("d.yaml", typed),
    ];
    let world = World::serve_with(authority, &files, &[]).await;
    let findings = world.findings().await;
    assert!(
        findings.len() >= 4,
        "each of the four is a finding: {findings:?}"
    );
    let secret_line = other
        .key
        .lines()
        .nth(1)
        .expect("a line of the key")
        .to_owned();
    for page in ["/config", "/metrics", "/"] {
        let body = world.admin(page).await.body;
        assert!(
            !body.contains(canary) && !body.contains(&secret_line),
            "{page}: {body}"
        );
    }
    world.stop().await;
}
