//! Issuers that objects make, with the definitions that are shipped.

use myriad_e2e::cluster::{Api, Cluster};
use myriad_e2e::world::{eventually_within, repository};
use myriad_e2e::{CertificateAuthority, Site};
use serde_json::Value;

use super::certificates::{PATIENCE, answers, authority};

/// An issuer of an authority: the kind, and the rest of its metadata after the name.
fn issuer(ca: &CertificateAuthority, kind: &str, metadata: &str) -> String {
    let root = std::fs::read_to_string(ca.directory_root()).expect("a file");
    // A JSON string is a YAML string.
    let root = Value::from(root);
    let url = ca.directory();
    format!(
        "apiVersion: myriad.dev/v1alpha1\nkind: {kind}\nmetadata: {{{metadata}}}\nspec:\n  \
         acme: {{directories: [{{url: '{url}'}}], ca: {{pem: {root}}}}}\n"
    )
}

/// The condition of an issuer at a path, once it has one.
async fn condition(api: &Api, path: &str) -> Value {
    let shown = eventually_within(PATIENCE, async || {
        let object = api.get(path).await;
        let condition = object["status"]["conditions"].get(0).cloned();
        condition.filter(|it| it["type"] == "Ready")
    });
    shown.await.expect("it shows a condition")
}

#[tokio::test]
async fn an_issuer_for_all_shows_that_it_is_ready_and_one_of_a_tenant_asks_nobody_inside() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("shop");
    let ca = authority(&cluster, &["i.test".to_owned()]);
    let definitions = repository("deploy/helm/myriad/crds");
    let definitions = definitions.display().to_string();
    let line = ["apply", "--filename", &definitions];
    cluster.kubectl(&line).await;
    let controller = cluster
        .controller_launch(0)
        .argument("--acme")
        .set("--acme-proof", ca.http)
        .set("--resolver", ca.names().address)
        .start();
    cluster.ready(&controller).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let api = cluster.api().await;
    let (tenant, shared) = (cluster.tenant(), format!("le-{}", cluster.home()));
    let of_all = issuer(&ca, "ClusterIssuer", &format!("name: {shared}"));
    let of_tenant = issuer(&ca, "Issuer", &format!("name: le, namespace: {tenant}"));
    cluster.apply(&format!("{of_all}---\n{of_tenant}")).await;

    let root = "/apis/myriad.dev/v1alpha1";
    let ready = condition(&api, &format!("{root}/clusterissuers/{shared}")).await;
    assert_eq!(ready["status"], "True", "{ready}");
    assert_eq!(ready["reason"], "AccountRegistered");
    let of_tenant = format!("{root}/namespaces/{tenant}/issuers/le");
    let refused = condition(&api, &of_tenant).await;
    assert_eq!(refused["status"], "False", "{refused}");

    let site = Site::new("i.test")
        .namespace(&tenant)
        .class(&cluster.class());
    let site = site.to(cluster.endpoint()).issued_by(&shared);
    cluster.apply(&site.yaml()).await;
    answers(&cluster, &ca, "i.test").await.expect("it serves");
    assert_eq!(ca.issued(), 1);
    cluster.delete(&of_all).await;
}
