//! Session tickets of the replicas of a gateway, whose keys the controllers make and replace: what
//! the chart installs, on a machine that mounts what it says.

use std::net::SocketAddr;

use myriad_e2e::Site;
use myriad_e2e::cluster::{Api, Cluster, Kubelet};
use myriad_e2e::world::{eventually_within, repository};
use serde_json::Value;
use tokio::process::Command;

/// Images, so to speak, are started, and a Secret is looked at every 30 s.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(90);

const SECRET: &str = "myriad-tickets";

#[tokio::test]
async fn replicas_resume_sessions_by_keys_that_the_controllers_make_and_replace() {
    let cluster = Cluster::join().await;
    let api = cluster.api().await;
    let _endpoint = cluster.backend("a");
    cluster.apply(&chart(&cluster).await).await;
    let home = cluster.home();
    let kubelet = Kubelet::new(&cluster, &api, &[&home]).run();
    tokio::select! {
        () = kubelet => unreachable!("it runs on"),
        () = play(&cluster, &api) => {}
    }
}

async fn play(cluster: &Cluster, api: &Api) {
    let [one, other] = pods(cluster, "proxy").await;
    for proxy in [one, other] {
        counts(cluster, proxy, "myriad_ticket_keys{source=\"file\"} 2\n").await;
    }
    let site = Site::new("a.test")
        .namespace(&cluster.tenant())
        .class(&cluster.class())
        .to(cluster.endpoint())
        .tls(&cluster.authority.issue(&["a.test"]));
    cluster.apply(&site.yaml()).await;
    let [first, last] = ["first", "last"].map(|name| cluster.path(name));
    let shaken = eventually_within(DEADLINE, async || {
        let shaken = cluster
            .shaker(https(one), "a.test")
            .keeping(&first)
            .resumes();
        shaken.await.ok()
    });
    assert_eq!(shaken.await, Some(false));
    let resumed = eventually_within(DEADLINE, async || {
        let shaken = cluster.shaker(https(other), "a.test").resuming(&first);
        shaken.keeping(&last).resumes().await.ok()
    });
    assert_eq!(resumed.await, Some(true));

    // Long ago, as far as anybody knows.
    let before = keys(cluster, api).await;
    let patch = r#"{"stringData":{"_since":"1"}}"#;
    let within = format!("--namespace={}", cluster.home());
    let line = ["patch", "secret", SECRET, &within, "--patch", patch];
    cluster.kubectl(&line).await;
    for proxy in [one, other] {
        counts(cluster, proxy, "myriad_ticket_keys{source=\"file\"} 3\n").await;
    }
    let after = keys(cluster, api).await;
    assert_eq!((&after[0], &after[2]), (&before[1], &before[0]));
    assert!(!before.contains(&after[1]));
    let shaken = cluster.shaker(https(other), "a.test").resuming(&first);
    assert_eq!(shaken.resumes().await, Ok(true));
    let shaken = cluster.shaker(https(one), "a.test").resuming(&last);
    assert_eq!(shaken.resumes().await, Ok(true));

    // Two controllers have seen it, and one has done it; the first keys count as well.
    let mut replaced = 0;
    for controller in pods(cluster, "controller").await {
        let page = metrics(cluster, controller).await;
        let mut lines = page.lines();
        let count = lines.find_map(|it| it.strip_prefix("myriad_ticket_keys_replaced_total "));
        replaced += count
            .expect("it is there")
            .parse::<u32>()
            .expect("a number");
    }
    assert_eq!(replaced, 2);
}

/// The objects of the chart, without what other stories have.
async fn chart(cluster: &Cluster) -> String {
    let helm = std::env::var_os("MYRIAD_HELM")
        .expect("MYRIAD_HELM is the path of helm; `cargo xtask test --stage cluster` sets it");
    let (home, tenant, class) = (cluster.home(), cluster.tenant(), cluster.class());
    let mut command = Command::new(helm);
    command
        .args(["template", &home])
        .arg(repository("deploy/helm/myriad"));
    command.args(["--namespace", &home, "--kube-version=1.36.0"]);
    for setting in [
        format!("namespaces={{{tenant}}}"),
        format!("ingressClass.name={class}"),
        format!("ingressClass.controller=stories.test/{class}"),
        "istio.watch=off".to_owned(),
        "proxy.workers=1".to_owned(),
    ] {
        command.args(["--set", &setting]);
    }
    let output = command.output().await.expect("helm starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8(output.stdout).expect("YAML")
}

/// The addresses of the two pods of a part, once they are ready.
async fn pods(cluster: &Cluster, part: &str) -> [SocketAddr; 2] {
    let home = cluster.home();
    let selector = format!("--selector=app.kubernetes.io/component={part}");
    let line = ["get", "pods", "--namespace", &home, &selector];
    let output = "--output=jsonpath={.items[*].status.podIP}";
    let found = eventually_within(DEADLINE, async || {
        let all = cluster.kubectl(&[&line[..], &[output]].concat()).await;
        let all: Vec<SocketAddr> = all
            .split_whitespace()
            .map(|ip| SocketAddr::new(ip.parse().expect("an address"), 9901))
            .collect();
        <[SocketAddr; 2]>::try_from(all).ok()
    });
    found.await.expect("both get ready")
}

fn https(admin: SocketAddr) -> SocketAddr {
    SocketAddr::new(admin.ip(), 8443)
}

async fn metrics(cluster: &Cluster, admin: SocketAddr) -> String {
    let url = format!("http://{admin}/metrics");
    cluster.curl(&url, &[]).ask().await.body
}

async fn counts(cluster: &Cluster, admin: SocketAddr, line: &str) {
    let mut last = String::new();
    let counted = eventually_within(DEADLINE, async || {
        last = metrics(cluster, admin).await;
        last.contains(line).then_some(())
    });
    assert!(counted.await.is_some(), "no {line:?} in {last}");
}

/// The keys of the first gateway, as they are in the Secret.
async fn keys(cluster: &Cluster, api: &Api) -> Vec<String> {
    let path = format!("/api/v1/namespaces/{}/secrets/{SECRET}", cluster.home());
    let secret: Value = api.get(&path).await;
    let text = secret["data"]["gateway"].as_str().expect("keys");
    let text = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text);
    let text = String::from_utf8(text.expect("base64")).expect("digits");
    text.lines().map(str::to_owned).collect()
}
