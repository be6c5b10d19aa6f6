//! The console of a controller, for those whom the API server lets.

use myriad_e2e::cluster::{Cluster, Process};
use myriad_e2e::{Answer, world};
use tokio::process::Command;

use crate::site;

#[tokio::test]
async fn whoever_the_api_server_lets_sees_the_console_and_a_neighbour_does_not() {
    let cluster = Cluster::join().await;
    let _endpoint = cluster.backend("shown");
    let (home, tenant) = (cluster.home(), cluster.tenant());
    // The rights are those of the chart, and the account has no other.
    let account = format!("{home}-controller");
    let line = ["create", "serviceaccount", &account, "--namespace", &home];
    cluster.kubectl(&line).await;
    cluster.apply(&roles(&home).await).await;
    let kubeconfig = cluster.kubeconfig_of(&home, &account, cluster.server());
    let kubeconfig = format!("KUBECONFIG={}", kubeconfig.await.display());
    for name in ["viewer", "neighbour"] {
        let line = ["create", "serviceaccount", name, "--namespace", &tenant];
        cluster.kubectl(&line).await;
    }
    let (binding, role) = (format!("{home}-viewers"), format!("{home}-console-viewer"));
    let role = format!("--clusterrole={role}");
    let viewer = format!("--serviceaccount={tenant}:viewer");
    let line = ["create", "clusterrolebinding", &binding, &role, &viewer];
    cluster.kubectl(&line).await;

    let controller = cluster
        .controller_launch(0)
        .through(&["env", &kubeconfig])
        .environment("MYRIAD_CONSOLE_REVIEWS", "true")
        .set("--publish-service", format!("{home}/{home}-proxy"))
        .start();
    cluster.ready(&controller).await;
    let proxy = cluster.proxy(0, "proxy", "myriad").await;
    cluster.ready(&proxy).await;
    cluster.apply(&site(&cluster, "shown.test").yaml()).await;
    cluster
        .eventually("shown.test", |it| it.status == 200)
        .await;

    let nobody = cluster.admin(&controller, "/console").await;
    assert_eq!(nobody.status, 401, "{nobody:?}");
    let token = async |account: &str, audience: &[&str]| {
        let line = ["create", "token", account, "--namespace", &tenant];
        let line = [&line[..], audience].concat();
        cluster.kubectl(&line).await.trim().to_owned()
    };
    let wrong = ask(&cluster, &controller, "/console", "wrong").await;
    assert_eq!(wrong.status, 401, "{wrong:?}");
    let neighbour = token("neighbour", &[]).await;
    let refused = ask(&cluster, &controller, "/console", &neighbour).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    // One that proxies show to controllers is none for the API server.
    let elsewhere = token("viewer", &["--audience=myriad"]).await;
    let refused = ask(&cluster, &controller, "/console", &elsewhere).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    let viewer = token("viewer", &[]).await;
    let page = "/console/domain?host=shown.test";
    let shown = ask(&cluster, &controller, page, &viewer).await;
    assert_eq!(shown.status, 200, "{shown:?}");
    let object = format!("Ingress {tenant}/shown-test");
    for part in [&*object, "all 1 proxies", "ends in "] {
        assert!(shown.body.contains(part), "{part} is not in {}", shown.body);
    }
    let log = controller.log();
    for secret in [&neighbour, &viewer, &elsewhere] {
        assert!(!log.contains(&**secret), "{log}");
    }
}

async fn ask(cluster: &Cluster, process: &Process, path: &str, token: &str) -> Answer {
    let url = format!("http://{}{path}", process.admin());
    let header = format!("Authorization: Bearer {token}");
    cluster.curl(&url, &[]).args(&["-H", &header]).ask().await
}

/// The roles that the chart gives a controller with a console, and those who may see it.
async fn roles(release: &str) -> String {
    let helm = std::env::var_os("MYRIAD_HELM")
        .expect("MYRIAD_HELM is the path of helm; `cargo xtask test --stage cluster` sets it");
    let mut command = Command::new(helm);
    command.args(["template", release]);
    command.arg(world::repository("deploy/helm/myriad"));
    command.args(["--namespace", release, "--kube-version=1.36.0"]);
    command.args(["--show-only", "templates/rbac.yaml"]);
    command.args(["--show-only", "templates/console.yaml"]);
    command.args(["--set", "console.reviews=true"]);
    let output = command.output().await.expect("helm starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8(output.stdout).expect("YAML")
}
