//! Rolling updates under load, as Deployments do them.

use myriad_e2e::cluster::{PACE, Release};

use crate::scene::{Scene, assert_flawless};

/// Requests of all clients in a second.
const LOAD: u32 = 1_000;

#[tokio::test]
async fn controllers_and_proxies_are_replaced_without_an_error() {
    let scene = Scene::set().await;
    let (cluster, home) = (&scene.cluster, scene.cluster.home());
    let release = Release::install(cluster, &[]).await;
    let clients = usize::try_from(LOAD / PACE).expect("a few");
    let traffic = release.traffic("rolled.test", clients).await;
    for part in ["proxy", "controller"] {
        let former = scene.pods(&release, part, 2).await;
        let deployment = format!("deployment/{}", release.part(part));
        let line = ["rollout", "restart", &deployment, "--namespace", &home];
        cluster.kubectl(&line).await;
        cluster.rolled_out(&deployment, &home).await;
        let now = scene.pods(&release, part, 2).await;
        assert!(former.iter().all(|pod| !now.contains(pod)), "{now:?}");
        for client in &traffic {
            client.keep_pace().await;
        }
    }
    assert_flawless(traffic);
    release.uninstall().await;
}
