//! Certificates on demand, by controllers: a proxy follows another replica than the one that
//! orders.

use myriad_e2e::ask::AskEndpoint;
use myriad_e2e::cluster::{Api, Cluster, Process};
use myriad_e2e::world::eventually_within;
use myriad_e2e::{Answer, CertificateAuthority, Curl, Site};

use super::certificates::{PATIENCE, authority, controller, obtained};

/// An Ingress for every host that no other names, without TLS.
fn catch_all(cluster: &Cluster) -> String {
    let site = Site::new("all.test").namespace(&cluster.tenant());
    let site = site.class(&cluster.class()).to(cluster.endpoint()).yaml();
    let every = site.replace("  - host: 'all.test'\n    http:", "  - http:");
    assert_ne!(every, site);
    every
}

/// Asks a host over HTTPS once, trusting what the authority issues.
async fn ask(cluster: &Cluster, ca: &CertificateAuthority, host: &str) -> Answer {
    let proxies = cluster.https();
    let url = format!("https://{host}:{}/", proxies.port());
    let resolve = [format!("{host}:{}:{}", proxies.port(), proxies.ip())];
    let root = ca.root().await;
    let curl = Curl::new(&url, &resolve, &root);
    curl.args(&["--max-time", "90"]).ask().await
}

fn is_refused(answer: &Answer) -> bool {
    answer.status == 0 && answer.error.contains("unrecognized name")
}

/// Starts two replicas, the first of which leads, and a proxy that follows the second.
async fn start(
    cluster: &Cluster,
    ca: &CertificateAuthority,
    endpoint: &AskEndpoint,
) -> [Process; 3] {
    let start = |replica: u16| {
        controller(cluster, replica, ca)
            .set("--acme-on-demand-ask", endpoint.url())
            .set("--catch-all-namespaces", cluster.tenant())
            .start()
    };
    let first = start(0);
    cluster.ready(&first).await;
    let leads = eventually_within(PATIENCE, async || {
        first.log().contains("this controller leads").then_some(())
    });
    assert!(leads.await.is_some(), "{}", first.log());
    let second = start(1);
    cluster.ready(&second).await;
    cluster.provide_trust("proxy", "myriad").await;
    let proxy = cluster.proxy_launch(1, "proxy");
    // As long as clients wait.
    let proxy = proxy.set("--limit", "park_timeout=1m").start();
    cluster.ready(&proxy).await;
    [first, second, proxy]
}

/// The Secrets with a label, by name and type.
async fn secrets(cluster: &Cluster, api: &Api, label: &str) -> Vec<(String, String)> {
    let home = cluster.home();
    let path = format!("/api/v1/namespaces/{home}/secrets?labelSelector={label}");
    let list = api.get(&path).await;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let found = items
        .iter()
        .map(|item| (text(&item["metadata"]["name"]), text(&item["type"])));
    found.collect()
}

#[tokio::test]
async fn the_first_handshake_of_an_allowed_name_gets_its_certificate_in_a_cluster() {
    let cluster = Cluster::join().await;
    let _backend = cluster.backend("shop");
    let ca = authority(&cluster, &["a.ok.test".to_owned()]);
    let endpoint = AskEndpoint::start().await;
    let api = cluster.api().await;
    cluster.apply(&catch_all(&cluster)).await;
    let [first, second, proxy] = start(&cluster, &ca, &endpoint).await;

    // Until proxies know that names may be told, and after that, one that is refused is an alert.
    let asked = eventually_within(PATIENCE, async || {
        let answer = ask(&cluster, &ca, "x.no.test").await;
        assert!(is_refused(&answer), "{answer:?}");
        (endpoint.count("x.no.test") > 0).then_some(())
    });
    assert!(asked.await.is_some(), "{}", proxy.log());
    let answer = ask(&cluster, &ca, "x.no.test").await;
    assert!(is_refused(&answer), "{answer:?}");
    assert!(!ca.log().contains("x.no.test"));

    let answer = ask(&cluster, &ca, "a.ok.test").await;
    assert_eq!(
        answer.status,
        200,
        "{answer:?}\n{}\n{}",
        first.log(),
        second.log()
    );
    assert_eq!(ca.issued(), 1);
    let counts = [
        obtained(&cluster, &first).await,
        obtained(&cluster, &second).await,
    ];
    assert_eq!(counts, [1, 0], "whoever leads has obtained it");
    let kept = secrets(&cluster, &api, "myriad.dev/acme=on-demand").await;
    let expected = ("on-demand.a.ok.test", "kubernetes.io/tls");
    assert_eq!(kept, [(expected.0.to_owned(), expected.1.to_owned())]);
    let over = eventually_within(PATIENCE, async || {
        let wishes = secrets(&cluster, &api, "myriad.dev/acme=wish").await;
        wishes.is_empty().then_some(())
    });
    assert!(over.await.is_some(), "no wish is left");
    assert_eq!(endpoint.count("x.no.test"), 1, "an answer is remembered");

    // After a restart of everything it is served without an order, and without a question.
    let before = endpoint.count("a.ok.test");
    for process in [first, second, proxy] {
        process.kill().await;
    }
    let home = cluster.home();
    let line = ["delete", "lease", "myriad", "--namespace", &home];
    let line = [&line[..], &["--ignore-not-found"]].concat();
    cluster.kubectl(&line).await;
    let _all = start(&cluster, &ca, &endpoint).await;
    let answer = ask(&cluster, &ca, "a.ok.test").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((ca.issued(), endpoint.count("a.ok.test")), (1, before));
}
