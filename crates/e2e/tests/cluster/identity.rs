//! Identities of the mesh: each proxy is given that of its service account, by an authority that
//! may be away, be someone else's, or be exchanged.

use myriad_e2e::cluster::{Cluster, Process};
use myriad_e2e::world::{eventually, eventually_within};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

/// A root, and an intermediate of it as cert-manager would keep it.
fn authority(cluster: &Cluster, name: &str) -> String {
    let params = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    };
    let key = KeyPair::generate().expect("a key");
    let root = CertifiedIssuer::self_signed(params(name), key).expect("a root");
    let key = KeyPair::generate().expect("a key");
    let own = params("own").signed_by(&key, &root).expect("one below");
    secret(cluster, &own.pem(), &key.serialize_pem(), &root.pem())
}

fn secret(cluster: &Cluster, certificate: &str, key: &str, roots: &str) -> String {
    let data = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": cluster.home(), "name": "own-ca"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate, "tls.key": key, "ca.crt": roots},
    });
    data.to_string()
}

/// Waits until the log of a process says something.
async fn says(process: &Process, wanted: &str) {
    let said = eventually(async || process.log().contains(wanted).then_some(()));
    assert!(said.await.is_some(), "no {wanted:?}:\n{}", process.log());
}

/// A proxy that wants an identity, as this account.
async fn proxy(cluster: &Cluster, replica: u16, account: &str) -> Process {
    cluster.provide_trust(account, "myriad").await;
    let state = cluster.path(&format!("state-{replica}"));
    std::fs::create_dir_all(&state).expect("a directory");
    let launch = cluster.proxy_launch(replica, account).argument("--mesh");
    let sync = format!("localhost:{}", cluster.sync_address(0).port());
    let launch = launch.set("--state-dir", state.display());
    // As a sidecar, which awaits its identity.
    let launch = launch.set("--capture-outbound", "127.0.0.1:0");
    launch.set("--controller", sync).start()
}

fn identity(cluster: &Cluster, account: &str) -> String {
    format!("spiffe://cluster.local/ns/{}/sa/{account}", cluster.home())
}

#[tokio::test]
async fn each_proxy_is_given_the_identity_of_its_account_and_a_stranger_none() {
    let cluster = Cluster::join().await;
    let home = cluster.home();
    let line = ["create", "serviceaccount", "other", "--namespace", &home];
    cluster.kubectl(&line).await;
    let accounts = format!("{home}/proxy,{home}/other");
    let controller = cluster.controller_launch(0).argument("--mesh");
    let _controller = controller.set("--proxy-accounts", accounts).start();
    let own = proxy(&cluster, 0, "proxy").await;
    let other = proxy(&cluster, 1, "other").await;
    let stranger = proxy(&cluster, 2, "stranger").await;
    cluster.ready(&own).await;
    cluster.ready(&other).await;
    says(&own, &identity(&cluster, "proxy")).await;
    says(&other, &identity(&cluster, "other")).await;
    assert!(!own.log().contains(&identity(&cluster, "other")));
    says(&stranger, "not accepted").await;
    let answer = cluster.admin(&stranger, "/readyz").await;
    assert!(
        answer.body.contains("an identity of the mesh"),
        "{answer:?}"
    );
    let metrics = cluster.admin(&own, "/metrics").await.body;
    assert!(
        metrics.contains("myriad_mesh_certificates_taken_total 1"),
        "{metrics}"
    );
    // The key is nowhere on the disk of the proxy.
    let kept = std::fs::read(cluster.path("state-0").join("commits.log")).unwrap_or_default();
    assert!(!String::from_utf8_lossy(&kept).contains("spiffe://"));
}

#[tokio::test]
async fn a_proxy_waits_for_an_authority_that_is_not_there_and_follows_another() {
    let cluster = Cluster::join().await;
    let secret = format!("{}/own-ca", cluster.home());
    let controller = cluster.controller_launch(0).argument("--mesh");
    let controller = controller
        .set("--mesh-ca-secret", &secret)
        .set("--mesh-certificate-lifetime", 60)
        .set("--mesh-root-overlap", 1)
        .start();
    let own = proxy(&cluster, 0, "proxy").await;
    let status = eventually(async || {
        let status = cluster.admin(&controller, "/config").await.body;
        status
            .contains("no workload is given an identity")
            .then_some(())
    });
    assert!(status.await.is_some(), "the missing Secret is a finding");
    let answer = cluster.admin(&own, "/readyz").await;
    assert!(
        answer.body.contains("an identity of the mesh"),
        "{answer:?}"
    );

    cluster.apply(&authority(&cluster, "first")).await;
    cluster.ready(&own).await;
    says(&own, &identity(&cluster, "proxy")).await;

    // Another authority takes over, and is followed by renewal.
    cluster.apply(&authority(&cluster, "second")).await;
    let deadline = std::time::Duration::from_secs(90);
    let renewed = eventually_within(deadline, async || {
        let metrics = cluster.admin(&own, "/metrics").await.body;
        let is_renewed = metrics.contains("myriad_mesh_certificates_taken_total 2");
        is_renewed.then_some(())
    });
    assert!(renewed.await.is_some(), "{}", own.log());
    cluster.ready(&own).await;
}

#[tokio::test]
async fn a_proxy_whose_renewal_nobody_signs_goes_on_and_says_so_until_somebody_does() {
    let cluster = Cluster::join().await;
    let controller = cluster.controller_launch(0).argument("--mesh");
    let launch = controller.set("--mesh-certificate-lifetime", 60);
    let controller = launch.start();
    let own = proxy(&cluster, 0, "proxy").await;
    cluster.ready(&own).await;
    controller.kill().await;
    let tells = async |wanted: &str| {
        let deadline = std::time::Duration::from_secs(90);
        let told = eventually_within(deadline, async || {
            let metrics = cluster.admin(&own, "/metrics").await.body;
            metrics.contains(wanted).then_some(())
        });
        assert!(told.await.is_some(), "no {wanted}:\n{}", own.log());
    };
    tells("myriad_mesh_renewal_overdue 1").await;
    says(&own, "nobody renews the identity of the mesh").await;
    cluster.ready(&own).await;

    let _controller = launch.start();
    tells("myriad_mesh_certificates_taken_total 2").await;
    tells("myriad_mesh_renewal_overdue 0").await;
}

#[tokio::test]
async fn a_restart_while_one_authority_follows_another_keeps_both_and_waits_for_the_overlap() {
    let cluster = Cluster::join().await;
    let secret = format!("{}/own-ca", cluster.home());
    cluster.apply(&authority(&cluster, "first")).await;
    let launch = cluster.controller_launch(0).argument("--mesh");
    let launch = launch
        .set("--mesh-ca-secret", &secret)
        .set("--mesh-certificate-lifetime", 120)
        .set("--mesh-root-overlap", 15);
    let controller = launch.start();
    let own = proxy(&cluster, 0, "proxy").await;
    cluster.ready(&own).await;
    let deadline = std::time::Duration::from_secs(150);
    let kept = async |wanted: &dyn Fn(&[String]) -> bool| {
        let home = cluster.home();
        let output = "--output=go-template={{.data.roots | base64decode}}";
        let line = [
            "get",
            "secret",
            "myriad-mesh-roots",
            "--namespace",
            &home,
            output,
        ];
        let found = eventually_within(deadline, async || {
            let text = cluster.kubectl(&line).await;
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            wanted(&lines).then_some(())
        });
        assert!(found.await.is_some(), "{}", cluster.kubectl(&line).await);
    };
    cluster.apply(&authority(&cluster, "second")).await;
    kept(&|lines| lines.len() == 2).await;
    controller.kill().await;

    // Nobody has the key of the former any more, and the root of the new one is too young.
    let controller = launch.start();
    let status = eventually(async || {
        let status = cluster.admin(&controller, "/config").await.body;
        status.contains("do not know yet").then_some(())
    });
    assert!(status.await.is_some(), "{}", controller.log());
    kept(&|lines| lines.len() == 2 && lines.iter().all(|line| line.contains(" - "))).await;
    // Then it signs, and the former root is kept until what it signed has ended.
    let renewed = eventually_within(deadline, async || {
        let metrics = cluster.admin(&own, "/metrics").await.body;
        let is_renewed = metrics.contains("myriad_mesh_certificates_taken_total 2");
        is_renewed.then_some(())
    });
    assert!(renewed.await.is_some(), "{}", own.log());
    kept(&|lines| lines.len() == 2 && lines.iter().any(|line| !line.contains(" - "))).await;
    cluster.ready(&own).await;
}
