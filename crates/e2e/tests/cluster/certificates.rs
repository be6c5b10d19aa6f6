//! Certificates that the controllers obtain of a real authority, which refuses good nonces now and
//! then.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use myriad_e2e::cluster::{Api, Cluster, Launch, Process};
use myriad_e2e::world::{eventually_within, repository};
use myriad_e2e::{Answer, CertificateAuthority, Curl, Site};
use tokio::process::Command;

/// How long a certificate may take on a machine that does much else; a leader may have to wait for
/// the Lease of the one before.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// An authority that asks the proxies of the story, to which these names lead.
pub(super) fn authority(cluster: &Cluster, hosts: &[String]) -> CertificateAuthority {
    let mut ca = CertificateAuthority::down();
    (ca.http, ca.https) = (8080, cluster.https().port());
    ca.rise();
    let address = cluster.https().ip().to_string();
    for host in hosts {
        let said = ca.names().say(host, &[&address]);
        said.expect("the server of names answers");
    }
    ca
}

/// A controller that orders there.
pub(super) fn controller(cluster: &Cluster, replica: u16, ca: &CertificateAuthority) -> Launch {
    cluster
        .controller_launch(replica)
        .set("--acme-directory", ca.directory())
        .set("--acme-ca", ca.directory_root().display())
        .set("--acme-proof", ca.http)
        .set("--resolver", ca.names().address)
}

fn site(cluster: &Cluster, host: &str) -> Site {
    Site::new(host)
        .namespace(&cluster.tenant())
        .class(&cluster.class())
        .to(cluster.endpoint())
        .issued_by("default")
}

/// Asks a host over HTTPS, trusting what the authority issues, until it answers.
pub(super) async fn answers(
    cluster: &Cluster,
    ca: &CertificateAuthority,
    host: &str,
) -> Option<Answer> {
    answers_by(cluster, ca.root().await, host).await
}

/// The same, trusting what has this root.
pub(super) async fn answers_by(cluster: &Cluster, root: PathBuf, host: &str) -> Option<Answer> {
    let proxies = cluster.https();
    let url = format!("https://{host}:{}/", proxies.port());
    let resolve = [format!("{host}:{}:{}", proxies.port(), proxies.ip())];
    eventually_within(PATIENCE, async || {
        let answer = Curl::new(&url, &resolve, &root).ask().await;
        (answer.status == 200).then_some(answer)
    })
    .await
}

/// Waits until the authority has issued so many certificates.
async fn issued(ca: &CertificateAuthority, count: usize) {
    let issued = eventually_within(PATIENCE, async || (ca.issued() >= count).then_some(()));
    assert!(issued.await.is_some(), "{}", ca.log());
    assert_eq!(ca.issued(), count);
}

/// The Secrets of orders and accounts, each with its version.
async fn kept(cluster: &Cluster, api: &Api) -> BTreeSet<String> {
    let home = cluster.home();
    let path = format!("/api/v1/namespaces/{home}/secrets?labelSelector=myriad.dev/acme");
    let list = api.get(&path).await;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let names = items.iter().map(|item| {
        let metadata = &item["metadata"];
        format!("{} {}", metadata["name"], metadata["resourceVersion"])
    });
    names.collect()
}

/// Waits until nothing is left of any order.
async fn forgotten(cluster: &Cluster, api: &Api) {
    let mut left = BTreeSet::new();
    let forgotten = eventually_within(PATIENCE, async || {
        left = kept(cluster, api).await;
        let orders = left.iter().any(|it| it.contains("myriad-order-"));
        (!orders).then_some(())
    });
    assert!(forgotten.await.is_some(), "{left:?}");
}

/// How many certificates a controller says that it has obtained.
pub(super) async fn obtained(cluster: &Cluster, process: &Process) -> u64 {
    let page = cluster.admin(process, "/metrics").await.body;
    let mut lines = page.lines();
    let count = lines.find_map(|it| it.strip_prefix("myriad_acme_issued_total "));
    count.and_then(|it| it.parse().ok()).expect("a number")
}

/// The Roles that the chart gives controllers that obtain certificates in one namespace.
async fn roles(release: &str, namespace: &str) -> String {
    let helm = std::env::var_os("MYRIAD_HELM")
        .expect("MYRIAD_HELM is the path of helm; `cargo xtask test --stage cluster` sets it");
    let mut command = Command::new(helm);
    command.args(["template", release]);
    command.arg(repository("deploy/helm/myriad"));
    command.args(["--namespace", release, "--kube-version=1.36.0"]);
    command.args(["--show-only", "templates/rbac.yaml"]);
    command.args(["--set", "acme.enabled=true", "--set"]);
    command.arg(format!("namespaces={{{namespace}}}"));
    let output = command.output().await.expect("helm starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8(output.stdout).expect("YAML")
}

#[tokio::test]
async fn an_ingress_gets_its_certificate_on_kubernetes() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("shop");
    let ca = authority(&cluster, &["a.test".to_owned()]);
    let (home, tenant) = (cluster.home(), cluster.tenant());
    // The rights are those of the chart, and the account has no other.
    let account = format!("{home}-controller");
    let line = ["create", "serviceaccount", &account, "--namespace", &home];
    cluster.kubectl(&line).await;
    cluster.apply(&roles(&home, &tenant).await).await;
    let kubeconfig = cluster.kubeconfig_of(&home, &account, cluster.server());
    let kubeconfig = format!("KUBECONFIG={}", kubeconfig.await.display());
    let start = |replica: u16| {
        controller(&cluster, replica, &ca)
            .through(&["env", &kubeconfig])
            .set("--namespaces", &tenant)
            .set("--publish-service", format!("{home}/{home}-proxy"))
            .start()
    };
    let first = start(0);
    cluster.ready(&first).await;
    let leads = eventually_within(PATIENCE, async || {
        first.log().contains("this controller leads").then_some(())
    });
    assert!(leads.await.is_some(), "{}", first.log());
    // The proxy follows another replica than the one that orders.
    let second = start(1);
    cluster.ready(&second).await;
    let proxy = cluster.proxy(1, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let api = cluster.api().await;

    cluster.apply(&site(&cluster, "a.test").yaml()).await;
    answers(&cluster, &ca, "a.test").await.expect("it serves");
    issued(&ca, 1).await;
    forgotten(&cluster, &api).await;
    let path = format!("/api/v1/namespaces/{tenant}/secrets/a-test");
    let secret = api.get(&path).await;
    assert_eq!(secret["type"], "kubernetes.io/tls");
    let annotations = &secret["metadata"]["annotations"];
    assert_eq!(annotations["myriad.dev/issuer"], "default");
    let counts = [
        obtained(&cluster, &first).await,
        obtained(&cluster, &second).await,
    ];
    assert_eq!(counts, [1, 0], "whoever leads has obtained it");

    // One that somebody takes away or spoils is obtained again.
    let within = format!("--namespace={tenant}");
    let line = ["delete", "secret", "a-test", &within];
    cluster.kubectl(&line).await;
    issued(&ca, 2).await;
    answers(&cluster, &ca, "a.test").await.expect("it serves");
    let patch = r#"{"data":{"tls.crt":"c3BvaWxlZA=="}}"#;
    let line = ["patch", "secret", "a-test", &within, "--patch", patch];
    cluster.kubectl(&line).await;
    issued(&ca, 3).await;
    answers(&cluster, &ca, "a.test").await.expect("it serves");

    // So is the next one, by whoever leads then.
    first.kill().await;
    let line = ["delete", "secret", "a-test", &within];
    cluster.kubectl(&line).await;
    issued(&ca, 4).await;
    answers(&cluster, &ca, "a.test").await.expect("it serves");
    assert_eq!(obtained(&cluster, &second).await, 1);
    let log = second.log();
    assert!(!log.contains("forbidden"), "it asks for no more: {log}");
}

#[tokio::test]
async fn the_leader_is_killed_at_any_step() {
    const SITES: usize = 6;
    const KILLS: usize = 14;
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("shop");
    let hosts: Vec<String> = (0..SITES).map(|number| format!("k{number}.test")).collect();
    let ca = authority(&cluster, &hosts);
    let launch = controller(&cluster, 0, &ca);
    let first = launch.start();
    cluster.ready(&first).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let api = cluster.api().await;
    let home = cluster.home();
    for host in &hosts {
        api.apply(&site(&cluster, host).yaml()).await;
    }
    let mut leader = Some(first);
    let mut before = BTreeSet::new();
    for kill in 0..KILLS {
        let running = leader.take().unwrap_or_else(|| launch.start());
        // It dies after the first, the second or the third change of what is kept.
        for _ in 0..=kill % 3 {
            let changed = eventually_within(PATIENCE, async || {
                let now = kept(&cluster, &api).await;
                (now != before || ca.issued() >= SITES).then_some(now)
            });
            before = changed.await.expect("it goes on");
        }
        running.kill().await;
        // Whoever comes next need not wait for the Lease of the dead.
        let line = ["delete", "lease", "myriad", "--namespace", &home];
        let line = [&line[..], &["--ignore-not-found"]].concat();
        cluster.kubectl(&line).await;
    }
    let _last = launch.start();
    for host in &hosts {
        answers(&cluster, &ca, host).await.expect("it serves");
    }
    forgotten(&cluster, &api).await;
    assert_eq!(ca.issued(), SITES, "none was ordered twice: {}", ca.log());
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("shop");
    let ca = authority(&cluster, &["own.test".to_owned(), "b.test".to_owned()]);
    let _controller = controller(&cluster, 0, &ca).start();
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let api = cluster.api().await;
    let own = cluster.authority.issue(&["own.test"]);
    let documents = site(&cluster, "own.test").tls(&own).yaml();
    cluster.apply(&documents).await;
    let path = format!("/api/v1/namespaces/{}/secrets/own-test", cluster.tenant());
    let before = api.get(&path).await;
    // The other one is obtained meanwhile.
    cluster.apply(&site(&cluster, "b.test").yaml()).await;
    answers(&cluster, &ca, "b.test").await.expect("it serves");
    issued(&ca, 1).await;
    assert_eq!(api.get(&path).await, before);
    cluster
        .eventually("own.test", |answer| answer.status == 200)
        .await;

    // Once it is gone, the issuer provides one.
    let within = format!("--namespace={}", cluster.tenant());
    cluster
        .kubectl(&["delete", "secret", "own-test", &within])
        .await;
    answers(&cluster, &ca, "own.test").await.expect("it serves");
    issued(&ca, 2).await;
}
