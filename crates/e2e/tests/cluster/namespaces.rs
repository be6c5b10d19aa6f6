//! A controller that may look into some namespaces only.

use myriad_e2e::cluster::Cluster;
use myriad_e2e::{Site, world};
use tokio::process::Command;

use crate::is_refused;

#[tokio::test]
async fn a_controller_of_some_namespaces_needs_no_right_to_others() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("mine");
    let (home, mine) = (cluster.home(), cluster.tenant());
    let (also_mine, theirs) = (format!("{mine}-also"), format!("{mine}-theirs"));
    for namespace in [&also_mine, &theirs] {
        cluster.kubectl(&["create", "namespace", namespace]).await;
    }
    // The rights are those of the chart, and the account has no other.
    let account = format!("{home}-controller");
    let line = ["create", "serviceaccount", &account, "--namespace", &home];
    cluster.kubectl(&line).await;
    cluster
        .apply(&roles(&home, &[&mine, &also_mine]).await)
        .await;
    let kubeconfig = cluster.kubeconfig_of(&home, &account, cluster.server());
    let kubeconfig = format!("KUBECONFIG={}", kubeconfig.await.display());
    for (namespace, is_right) in [(&mine, true), (&also_mine, true), (&theirs, false)] {
        let who = format!("--as=system:serviceaccount:{home}:{account}");
        let within = format!("--namespace={namespace}");
        let line = ["auth", "can-i", "list", "secrets", &who, &within];
        let may = cluster.try_kubectl(&line, "").await.is_ok();
        assert_eq!(may, is_right, "Secrets of {namespace}");
    }

    let controller = cluster
        .controller_launch(0)
        .through(&["env", &kubeconfig])
        .set("--namespaces", format!("{mine},{also_mine}"))
        .set("--publish-service", format!("{home}/{home}-proxy"))
        .start();
    cluster.ready(&controller).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    let site = |host: &str, namespace: &str| {
        Site::new(host)
            .namespace(namespace)
            .class(&cluster.class())
            .to(cluster.endpoint())
            .tls(&cluster.authority.issue(&[host]))
            .yaml()
    };
    // What is not watched comes first, so that it would be there by the time of the others.
    cluster.apply(&site("theirs.test", &theirs)).await;
    cluster.apply(&site("mine.test", &mine)).await;
    cluster.apply(&site("also-mine.test", &also_mine)).await;
    for host in ["mine.test", "also-mine.test"] {
        cluster.eventually(host, |it| it.status == 200).await;
    }
    let answer = cluster.get("theirs.test").await;
    assert!(is_refused(&answer), "{answer:?}");
    cluster.ready(&proxy).await;
    let log = controller.log();
    assert!(!log.contains("forbidden"), "it asks for no more: {log}");
}

/// The Roles that the chart gives a controller of these namespaces.
async fn roles(release: &str, namespaces: &[&str]) -> String {
    let helm = std::env::var_os("MYRIAD_HELM")
        .expect("MYRIAD_HELM is the path of helm; `cargo xtask test --stage cluster` sets it");
    let mut command = Command::new(helm);
    command.args(["template", release]);
    command.arg(world::repository("deploy/helm/myriad"));
    command.args(["--namespace", release, "--kube-version=1.36.0"]);
    command.args(["--show-only", "templates/rbac.yaml", "--set"]);
    command.arg(format!("namespaces={{{}}}", namespaces.join(",")));
    let output = command.output().await.expect("helm starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8(output.stdout).expect("YAML")
}
