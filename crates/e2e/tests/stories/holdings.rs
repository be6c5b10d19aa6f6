//! The bounds of what one namespace makes a gateway hold.

use myriad_e2e::Backend;
use myriad_e2e::istio::{Scene, destination_rule};

const SUBSETS: usize = 100;

#[tokio::test]
async fn a_hundred_subsets_with_the_largest_rings_share_one_of_bounded_size() {
    let (one, other) = (Backend::start("one").await, Backend::start("other").await);
    let names = || (0..SUBSETS).map(|number| format!("s{number}"));
    let rules = names().map(|name| {
        format!(
            "match: [{{uri: {{prefix: /{name}/}}}}], \
             route: [{{destination: {{host: api, subset: {name}, port: {{number: 80}}}}}}]"
        )
    });
    let rules: Vec<String> = rules.collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let ring = "{useSourceIp: true, ringHash: {minimumRingSize: 1048576}}";
    let policy = format!("trafficPolicy: {{loadBalancer: {{consistentHash: {ring}}}}}");
    let subsets: Vec<String> = names().map(|name| format!("{{name: {name}}}")).collect();
    let policy = format!("{policy}, subsets: [{}]", subsets.join(", "));
    let world = Scene::new()
        .to(&[one.address(), other.address()])
        .rules(&rules)
        .with(&destination_rule("api", &policy))
        .argument("--bound=hash-slots=0")
        .serve()
        .await;
    assert_eq!(world.get("http://a.test/s7/").await.status, 200);
    let findings = world.findings().await;
    assert!(
        findings.iter().any(|it| it.contains("so 65537 is used")),
        "{findings:?}"
    );
    // One table of 65,537 points takes 768 KiB; other stories of this process have few and small
    // ones.
    let bytes = world.metric("myriad_hash_table_bytes").await;
    assert!(bytes < 8.0 * 1024.0 * 1024.0, "{bytes}");
    let status = world.admin("/status").await.body;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let holds = &status["holdings"]["namespaces"][0];
    assert_eq!(holds["namespace"], "default");
    assert_eq!(holds["parts"]["hash_tables"]["count"], SUBSETS, "{holds}");
    world.stop().await;
}
