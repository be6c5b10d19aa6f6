//! Mistakes of people: a finding each that names object, field and remedy, and every other
//! domain keeps working.

use std::io::Write;

use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::world::eventually;
use myriad_e2e::{Backend, Site, World};

fn ingress(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{name: {name}, namespace: default}}\nspec:\n{spec}"
    )
}

fn rule(host: &str, path: &str, service: &str, port: &str) -> String {
    format!(
        "  rules:\n  - host: '{host}'\n    http:\n      paths:\n      - path: '{path}'\n        \
         pathType: Prefix\n        backend: {{service: {{name: {service}, port: {port}}}}}\n"
    )
}

/// One mistake a file, and what its finding has to say: object, field, and words of the remedy.
fn mistakes(authority: &Authority) -> Vec<(&'static str, String, [&'static str; 3])> {
    let good = authority.issue(&["pair.test"]);
    let misfit = Pair {
        key: authority.issue(&["other.test"]).key,
        ..good.clone()
    };
    let garbled = Pair {
        certificate: good.certificate.replace("MII", "AAA"),
        ..good.clone()
    };
    let expired = authority.issue_expired(&["expired.test"]);
    let port = "{number: 80}";
    vec![
        (
            "misfit.yaml",
            Site::new("misfit.test").tls(&misfit).yaml(),
            ["default/misfit-test", "tls.key", "certificate"],
        ),
        (
            "garbled.yaml",
            Site::new("garbled.test").tls(&garbled).yaml(),
            ["default/garbled-test", "tls.crt", "certificate"],
        ),
        (
            "expired.yaml",
            Site::new("expired.test").tls(&expired).yaml(),
            ["default/expired-test", "tls.crt", "renew"],
        ),
        (
            "port.yaml",
            Site::new("port.test").yaml()
                + "---\n"
                + &ingress(
                    "noport",
                    &rule("noport.test", "/", "port-test", "{number: 81}"),
                ),
            ["default/noport", "port", "81"],
        ),
        (
            "path.yaml",
            ingress("path", &rule("path.test", "not/absolute", "x", port)),
            ["default/path", "path", "'/'"],
        ),
        (
            "host.yaml",
            ingress("host", &rule("under_score..test", "/", "x", port)),
            ["default/host", "host", "name"],
        ),
        (
            "older.yaml",
            Site::new("good.test").namespace("thief").yaml(),
            ["thief/good-test", "host", "default"],
        ),
        (
            "broken.yaml",
            "kind: Ingress\n  spec: [\n".to_owned(),
            ["broken.yaml", "2", "YAML"],
        ),
        (
            "twice.yaml",
            Site::new("a-first.test").yaml(),
            ["default/a-first-test", "twice.yaml", "remove"],
        ),
    ]
}

#[tokio::test]
async fn each_mistake_is_a_finding_and_every_other_domain_is_served() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("good.test")
        .to(backend.address())
        .tls(&authority.issue(&["good.test"]));
    let mistakes = mistakes(&authority);
    let mut files = vec![
        ("a-first.yaml", Site::new("a-first.test").yaml()),
        // The oldest claim of a host holds.
        (
            "good.yaml",
            site.yaml().replacen(
                "metadata:\n",
                "metadata:\n  creationTimestamp: 2020-01-01T00:00:00Z\n",
                1,
            ),
        ),
    ];
    for (file, text, _) in &mistakes {
        files.push((file, text.clone()));
    }
    let world = World::serve_with(authority, &files, &[]).await;
    let findings = world.findings().await;
    for (file, _, words) in &mistakes {
        let found = findings
            .iter()
            .find(|finding| words.iter().all(|word| finding.contains(word)));
        assert!(
            found.is_some(),
            "{file}: no finding with {words:?} in {findings:#?}"
        );
    }
    for finding in &findings {
        let finding: serde_json::Value = serde_json::from_str(finding).expect("an object");
        let remedy = finding["remedy"].as_str().unwrap_or_default();
        assert!(!remedy.is_empty(), "{finding} says what to do");
    }
    assert_eq!(world.get("https://good.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn hosts_are_read_in_every_way_people_write_them() {
    let backend = Backend::start("a").await;
    let site = |host: &str| Site::new(host).to(backend.address()).yaml();
    let upper = site("upper.test").replace("host: 'upper.test'", "host: 'UPPER.Test'");
    let dotted = site("dotted.test").replace("host: 'dotted.test'", "host: 'dotted.test.'");
    let idna = site("idna.test").replace("host: 'idna.test'", "host: 'bücher.test'");
    let files = [("u.yaml", upper), ("d.yaml", dotted), ("i.yaml", idna)];
    let world = World::serve(&files).await;
    for host in ["upper.test", "dotted.test", "xn--bcher-kva.test"] {
        let answer = world.get(&format!("http://{host}/")).await;
        assert_eq!(answer.status, 200, "{host}: {:?}", world.findings().await);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_file_of_100_mb_is_a_finding_and_is_never_held() {
    let backend = Backend::start("a").await;
    let good = Site::new("good.test").to(backend.address()).yaml();
    let world = World::serve(&[("good.yaml", good)]).await;
    let before = world.metric("myriad_source_read_bytes_total").await;
    let huge = world.served().join(".huge");
    let mut file = std::fs::File::create(&huge).expect("a file");
    let line = [b'x'; 1_000];
    for _ in 0..100_000 {
        file.write_all(&line).expect("room on the disk");
    }
    std::fs::rename(&huge, world.served().join("huge.yaml")).expect("a rename");
    let found = eventually(async || {
        let findings = world.findings().await;
        let about =
            |finding: &&String| finding.contains("huge.yaml") && finding.contains("is not read");
        findings.iter().find(about).cloned()
    });
    assert!(found.await.is_some(), "{:?}", world.findings().await);
    let after = world.metric("myriad_source_read_bytes_total").await;
    assert_eq!(before, after, "not a byte of it was read");
    assert_eq!(world.get("http://good.test/").await.status, 200);
    world.stop().await;
}
