//! The local log of a proxy is damaged, or there is no room for it.

use std::fs;
use std::os::unix::fs::FileExt as _;

use myriad_e2e::cluster::Servers;

use crate::scene::{Scene, is_served};

/// Less than what the domains of the story take.
const SMALL: &str = "mount -t tmpfs -o size=32k tmpfs \"$0\" && exec \"$@\"";

/// A place in what the first record holds, behind the heads of the file and of the record. The
/// first is of the proxy's start, so the domain's come after it.
const IN_FIRST_RECORD: u64 = 40;

#[tokio::test]
async fn a_damaged_log_is_cut_off_there_and_the_rest_is_fetched() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let (controller, proxy) = scene.serve().await;
    scene.apply(&["logged.test"]).await;
    cluster.eventually("logged.test", is_served).await;

    // One byte, while nobody can tell the proxy what it should be.
    controller.kill().await;
    proxy.kill().await;
    let log = cluster.path("state/commits.log");
    let mut file = fs::File::options();
    let file = file.read(true).write(true).open(&log).expect("a log");
    let mut byte = [0];
    file.read_exact_at(&mut byte, IN_FIRST_RECORD)
        .expect("it is read");
    file.write_all_at(&[!byte[0]], IN_FIRST_RECORD)
        .expect("it is written");
    let proxy = cluster.restart_proxy(0, "proxy");
    let _controller = cluster.controller(0).await;
    cluster.ready(&proxy).await;
    cluster.eventually("logged.test", is_served).await;
    let told = proxy.log();
    assert!(told.contains("cannot be read from here on"), "{told}");
}

#[tokio::test]
async fn a_torn_log_serves_what_is_whole_of_it() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let (controller, proxy) = scene.serve().await;
    for host in ["older.test", "newer.test"] {
        scene.apply(&[host]).await;
        cluster.eventually(host, is_served).await;
    }

    controller.kill().await;
    proxy.kill().await;
    let log = cluster.path("state/commits.log");
    let file = fs::File::options().write(true).open(&log).expect("a log");
    let length = file.metadata().expect("a length").len();
    file.set_len(length - 1).expect("it is cut");
    let proxy = cluster.restart_proxy(0, "proxy");
    cluster.ready(&proxy).await;
    assert!(
        is_served(&cluster.get("older.test").await),
        "without a controller"
    );
    let _controller = cluster.controller(0).await;
    cluster.eventually("newer.test", is_served).await;
}

#[tokio::test]
async fn a_full_disk_is_told_and_serving_goes_on() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let (_controller, proxy) = scene.serve().await;
    proxy.kill().await;
    let state = cluster.path("small");
    fs::create_dir(&state).expect("a directory");
    let state = state.display().to_string();
    let launch = cluster.proxy_launch(0, "proxy").set("--state-dir", &state);
    let proxy = launch
        .through(&["unshare", "--mount", "sh", "-c", SMALL, &state])
        .start();
    cluster.ready(&proxy).await;
    let traffic = scene.traffic();
    let hosts: Vec<String> = (0..30).map(|at| format!("full-{at}.test")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    scene.apply(&hosts[..1]).await;
    traffic.add(hosts[0]).await;
    scene.apply(&hosts).await;
    for host in &hosts[1..] {
        traffic.add(host).await;
    }
    assert!(proxy.log().contains("commits.log"), "{}", proxy.log());
    traffic.stop().assert_flawless();
}
