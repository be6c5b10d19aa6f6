//! Secrets of type `Opaque`, as `kubectl create secret generic` makes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_e2e::Site;
use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::cluster::Cluster;

const HOST: &str = "private.test";
const NGINX: &str = "nginx.ingress.kubernetes.io";

#[tokio::test]
async fn users_of_an_opaque_secret_are_admitted_for_as_long_as_it_names_them() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("inside");
    let _controller = cluster.controller(0).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let site = Site::new(HOST)
        .namespace(&cluster.tenant())
        .class(&cluster.class())
        .to(cluster.endpoint())
        .annotation(&format!("{NGINX}/auth-type"), "basic")
        .annotation(&format!("{NGINX}/auth-secret"), "users")
        .tls(&cluster.authority.issue(&[HOST]));
    cluster.apply(&site.yaml()).await;
    // Without its Secret nothing is open.
    cluster.eventually(HOST, |it| it.status == 503).await;

    cluster
        .apply(&secret(&cluster, "auth", "ann:{PLAIN}one"))
        .await;
    cluster.eventually(HOST, |it| it.status == 401).await;
    assert_eq!(ask(&cluster, "one").await, 200);

    // One that says nothing to a gateway is as good as none.
    cluster.apply(&secret(&cluster, "password", "hush")).await;
    cluster.eventually(HOST, |it| it.status == 503).await;
    cluster
        .apply(&secret(&cluster, "auth", "ann:{PLAIN}two"))
        .await;
    cluster.eventually(HOST, |it| it.status == 401).await;
    assert_eq!(ask(&cluster, "two").await, 200);
    assert_eq!(ask(&cluster, "one").await, 401);

    let within = format!("--namespace={}", cluster.tenant());
    let line = ["delete", "secret", "users", &within];
    cluster.kubectl(&line).await;
    cluster.eventually(HOST, |it| it.status == 503).await;
}

#[tokio::test]
async fn clients_are_verified_by_the_authorities_in_an_opaque_secret() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("inside");
    let _controller = cluster.controller(0).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let clients = Authority::new();
    let site = Site::new(HOST)
        .namespace(&cluster.tenant())
        .class(&cluster.class())
        .to(cluster.endpoint())
        .annotation(&format!("{NGINX}/auth-tls-secret"), "users")
        .tls(&cluster.authority.issue(&[HOST]));
    cluster.apply(&site.yaml()).await;
    cluster.eventually(HOST, |it| it.status == 503).await;

    cluster
        .apply(&secret(&cluster, "ca.crt", clients.root()))
        .await;
    cluster.eventually(HOST, |it| it.status == 400).await;
    let known = clients.issue_client("spiffe://mesh/ns/a/sa/b");
    let stranger = Authority::new().issue_client("spiffe://mesh/ns/a/sa/b");
    assert_eq!(show(&cluster, &known).await, 200);
    assert_eq!(show(&cluster, &stranger).await, 400);

    let within = format!("--namespace={}", cluster.tenant());
    let line = ["delete", "secret", "users", &within];
    cluster.kubectl(&line).await;
    cluster.eventually(HOST, |it| it.status == 503).await;
}

/// The status of a request of a client that shows a certificate.
async fn show(cluster: &Cluster, client: &Pair) -> u16 {
    let [certificate, key] = ["client.crt", "client.key"].map(|name| cluster.path(name));
    std::fs::write(&certificate, &client.certificate).expect("a file");
    std::fs::write(&key, &client.key).expect("a file");
    let connect = format!("::{}:", cluster.https().ip());
    let [certificate, key] = [&certificate, &key].map(|it| it.to_str().expect("UTF-8"));
    let url = format!("https://{HOST}:8443/");
    let curl = cluster.curl(&url, &[]).args(&["--connect-to", &connect]);
    let shown = curl.args(&["--cert", certificate, "--key", key]);
    shown.ask().await.status
}

fn secret(cluster: &Cluster, key: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: users\n  namespace: {}\n\
         type: Opaque\ndata:\n  {key}: {}\n",
        cluster.tenant(),
        STANDARD.encode(value),
    )
}

/// The status of a request with a password of ann's.
async fn ask(cluster: &Cluster, password: &str) -> u16 {
    let url = format!("https://ann:{password}@{HOST}:8443/");
    cluster.ask(&url).await.status
}
