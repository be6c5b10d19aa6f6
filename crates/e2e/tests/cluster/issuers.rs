//! Issuers that objects make, with the definitions that are shipped.

use myriad_e2e::cluster::{Api, Cluster, Launch};
use myriad_e2e::world::{eventually_within, repository};
use myriad_e2e::{CertificateAuthority, Site};
use serde_json::Value;

use super::certificates::{PATIENCE, answers, answers_by, authority};

/// An issuer of an authority, for the controllers of a story: the kind, and its metadata.
pub(super) fn issuer(
    cluster: &Cluster,
    ca: &CertificateAuthority,
    kind: &str,
    metadata: &str,
) -> String {
    issuer_of(cluster, (ca, &[ca.directory()]), kind, metadata)
}

/// An issuer of several directories, which have one root.
fn issuer_of(
    cluster: &Cluster,
    (ca, urls): (&CertificateAuthority, &[String]),
    kind: &str,
    metadata: &str,
) -> String {
    let root = std::fs::read_to_string(ca.directory_root()).expect("a file");
    // A JSON string is a YAML string.
    let root = Value::from(root);
    let urls: Vec<String> = urls.iter().map(|url| format!("{{url: '{url}'}}")).collect();
    let urls = urls.join(", ");
    let controller = cluster.controller_name();
    format!(
        "apiVersion: myriad.dev/v1alpha1\nkind: {kind}\nmetadata: {{{metadata}}}\nspec:\n  \
         controller: {controller}\n  \
         acme: {{directories: [{urls}], ca: {{pem: {root}}}}}\n"
    )
}

/// Applies the definitions of issuers.
pub(super) async fn define(cluster: &Cluster) {
    let definitions = repository("deploy/helm/myriad/crds");
    let definitions = definitions.display().to_string();
    let line = ["apply", "--filename", &definitions];
    cluster.kubectl(&line).await;
}

/// A controller whose issuers are those that objects make.
pub(super) fn controller(cluster: &Cluster, ca: &CertificateAuthority) -> Launch {
    cluster
        .controller_launch(0)
        .argument("--acme")
        .set("--acme-proof", ca.http)
        .set("--resolver", ca.names().address)
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
    define(&cluster).await;
    let controller = controller(&cluster, &ca).start();
    cluster.ready(&controller).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let api = cluster.api().await;
    let (tenant, shared) = (cluster.tenant(), format!("le-{}", cluster.home()));
    let of_all = format!("name: {shared}");
    let of_all = issuer(&cluster, &ca, "ClusterIssuer", &of_all);
    let of_tenant = format!("name: le, namespace: {tenant}");
    let of_tenant = issuer(&cluster, &ca, "Issuer", &of_tenant);
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

/// Waits until an issuer is ready, or is not.
async fn is_ready(api: &Api, path: &str, wanted: &str) {
    let mut last = Value::Null;
    let shown = eventually_within(PATIENCE, async || {
        last = condition(api, path).await;
        (last["status"] == wanted).then_some(())
    });
    assert!(shown.await.is_some(), "not {wanted}: {last}");
}

#[tokio::test]
async fn the_second_authority_of_an_issuer_is_asked_while_the_first_is_down_and_no_longer() {
    const LATER: usize = 8;
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("shop");
    let later = (0..LATER).map(|number| format!("later{number}.test"));
    let hosts: Vec<String> = ["meanwhile.test".to_owned()]
        .into_iter()
        .chain(later)
        .collect();
    let mut ca = authority(&cluster, &hosts);
    let second = ca.beside();
    ca.fall();
    define(&cluster).await;
    let controller = controller(&cluster, &ca).start();
    cluster.ready(&controller).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    let api = cluster.api().await;

    let name = format!("two-{}", cluster.home());
    let urls = [ca.directory(), second.directory()];
    let of_all = format!("name: {name}");
    let of_all = issuer_of(&cluster, (&ca, &urls), "ClusterIssuer", &of_all);
    cluster.apply(&of_all).await;
    let path = format!("/apis/myriad.dev/v1alpha1/clusterissuers/{name}");
    is_ready(&api, &path, "False").await;
    let site = |host: &str| {
        let site = Site::new(host).namespace(&cluster.tenant());
        let site = site.class(&cluster.class()).to(cluster.endpoint());
        site.issued_by(&name).yaml()
    };
    let by_second = ca.root_of(&second).await;
    cluster.apply(&site(&hosts[0])).await;
    let served = answers_by(&cluster, by_second, &hosts[0]).await;
    assert!(served.is_some(), "{}\n{}", second.log(), controller.log());

    // Once it is back, it is asked first again, as soon as nobody waits for it any more.
    ca.rise();
    is_ready(&api, &path, "True").await;
    let count = || second.log().matches("Issued certificate serial").count();
    let by_first = ca.root().await;
    let mut of_second = count();
    for host in &hosts[1..] {
        cluster.apply(&site(host)).await;
        let issued = eventually_within(PATIENCE, async || {
            (ca.issued() > 0 || count() > of_second).then_some(())
        });
        assert!(issued.await.is_some(), "{}", controller.log());
        if ca.issued() > 0 {
            let served = answers_by(&cluster, by_first, host).await;
            assert!(served.is_some(), "{}\n{}", ca.log(), controller.log());
            cluster.delete(&of_all).await;
            return;
        }
        of_second = count();
    }
    panic!("the first is not asked any more: {}", controller.log());
}
