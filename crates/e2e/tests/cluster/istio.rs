//! Istio's objects through the API, whose definitions come while a controller runs.

use myriad_e2e::cluster::Cluster;
use myriad_e2e::world::eventually;
use tokio::sync::OnceCell;

use crate::{is_refused, site};

/// Definitions are of the whole cluster, so they are installed once, and stay.
static INSTALLED: OnceCell<()> = OnceCell::const_new();

/// The story of the definitions, which every other one here begins with.
pub(super) async fn installed() {
    INSTALLED.get_or_init(come_late).await;
}

#[tokio::test]
async fn definitions_that_come_after_the_controller_are_watched() {
    installed().await;
}

async fn come_late() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("late");
    let controller = cluster.controller(0).await;
    let _proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&controller).await;

    let definitions = std::env::var("MYRIAD_ISTIO_DEFINITIONS")
        .expect("MYRIAD_ISTIO_DEFINITIONS is a file; `cargo xtask test --stage cluster` sets it");
    let file = format!("--filename={definitions}");
    cluster
        .kubectl(&["apply", "--server-side", "--force-conflicts", &file])
        .await;
    let established = "--for=condition=Established";
    cluster
        .kubectl(&["wait", established, "--timeout=60s", &file])
        .await;
    cluster
        .apply(&shop(&cluster, &cluster.tenant(), "late.test"))
        .await;
    let answer = cluster.eventually("late.test", |it| it.status == 200).await;
    assert!(answer.body.contains("late"), "{answer:?}");
}

#[tokio::test]
async fn a_gateway_and_a_virtual_service_are_served_and_a_change_is_live() {
    installed().await;
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("shop");
    let _controller = cluster.controller(0).await;
    let _proxy = cluster.proxy(0, "proxy", "myriad").await;
    let tenant = cluster.tenant();
    cluster.apply(&shop(&cluster, &tenant, "shop.test")).await;
    let answer = cluster.eventually("shop.test", |it| it.status == 200).await;
    assert!(answer.body.contains("shop"), "{answer:?}");

    let teapot = rules(&tenant, "shop.test", "directResponse: {status: 418}");
    cluster.apply(&teapot).await;
    cluster.eventually("shop.test", |it| it.status == 418).await;

    let closed = format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
         metadata: {{name: closed, namespace: {}}}\n\
         spec: {{action: DENY, rules: [{{}}]}}\n",
        cluster.home()
    );
    cluster.apply(&closed).await;
    cluster.eventually("shop.test", |it| it.status == 403).await;
    cluster.delete(&closed).await;
    cluster.eventually("shop.test", |it| it.status == 418).await;

    cluster.delete(&teapot).await;
    cluster.eventually("shop.test", |it| it.status == 404).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_virtual_service_is_told_as_an_event() {
    installed().await;
    let cluster = Cluster::join().await;
    let _controller = cluster.controller(0).await;
    let tenant = cluster.tenant();
    cluster.apply(&shop(&cluster, &tenant, "told.test")).await;
    let rule = "fault: {delay: {exponentialDelay: 1s}}, directResponse: {status: 418}";
    cluster.apply(&rules(&tenant, "told.test", rule)).await;
    let form = "--output=jsonpath={range .items[*]}\
                {.regarding.kind} {.regarding.name} {.note}{\"\\n\"}{end}";
    let line = ["get", "events.events.k8s.io", "--namespace", &tenant, form];
    let told = eventually(async || {
        let notes = cluster.kubectl(&line).await;
        let about = |note: &str| {
            note.starts_with("VirtualService told-test ") && note.contains("exponentialDelay")
        };
        notes.lines().any(about).then_some(())
    });
    assert!(told.await.is_some(), "an Event names the field");
}

#[tokio::test]
async fn objects_of_namespaces_that_are_not_watched_stay_out() {
    installed().await;
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("mine");
    let mine = cluster.tenant();
    let theirs = format!("{mine}-theirs");
    cluster.kubectl(&["create", "namespace", &theirs]).await;
    let _controller = cluster
        .controller_launch(0)
        .set("--namespaces", &mine)
        .start();
    let _proxy = cluster.proxy(0, "proxy", "myriad").await;
    // What is not watched comes first, so that it would be there by the time of the other.
    cluster.apply(&shop(&cluster, &theirs, "theirs.test")).await;
    cluster.apply(&shop(&cluster, &mine, "mine.test")).await;
    cluster.eventually("mine.test", |it| it.status == 200).await;
    let answer = cluster.get("theirs.test").await;
    assert!(is_refused(&answer), "{answer:?}");
}

/// A Gateway with the certificate of a host, and a VirtualService that leads to its Service; all
/// are named after the host.
pub(super) fn shop(cluster: &Cluster, namespace: &str, host: &str) -> String {
    let name = host.replace('.', "-");
    // The site without its Ingress.
    let site = site(cluster, host).namespace(namespace);
    let mut objects = site.documents().split_off(1);
    objects.push(format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\n\
         metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  selector: {{story: {class}}}\n  servers:\n  \
         - port: {{number: 443, name: https, protocol: HTTPS}}\n    \
         hosts: [{host}]\n    tls: {{mode: SIMPLE, credentialName: {name}}}\n",
        class = cluster.class(),
    ));
    let rule = format!("route: [{{destination: {{host: {name}, port: {{number: 80}}}}}}]");
    objects.push(rules(namespace, host, &rule));
    objects.join("---\n")
}

/// The VirtualService of a host, with one rule.
fn rules(namespace: &str, host: &str, rule: &str) -> String {
    let name = host.replace('.', "-");
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  hosts: [{host}]\n  gateways: [{name}]\n  http:\n  - {{{rule}}}\n"
    )
}
