//! A proxy that the kernel kills, since its container has used up its memory.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use myriad_e2e::cluster::Release;
use tokio::process::Command;

use crate::scene::{PODS_DEADLINE, Scene};

/// The largest depth of control groups that is looked at.
const DEPTH_MAX: usize = 12;

#[tokio::test]
async fn a_proxy_that_is_killed_for_memory_comes_back_with_what_it_served() {
    let scene = Scene::set().await;
    let (cluster, home) = (&scene.cluster, scene.cluster.home());
    let settings = ["proxy.replicas=1", "proxy.resources.limits.memory=256Mi"];
    let release = Release::install(cluster, &settings).await;
    let traffic = release.traffic("heavy.test", 1).await;
    for client in traffic {
        client.go_on(60).await;
        client.stop().assert_flawless();
    }
    // No controller tells it anything from now on.
    let controller = format!("deployment/{}", release.part("controller"));
    let line = ["scale", &controller, "--replicas=0", "--namespace", &home];
    cluster.kubectl(&line).await;
    scene.pods(&release, "controller", 0).await;

    let pod = scene.pods(&release, "proxy", 1).await.remove(0);
    let status =
        |field: &str| format!("--output=jsonpath={{.status.containerStatuses[0].{field}}}");
    let ask = async |field: &str| {
        let form = status(field);
        let line = ["get", "pod", &pod, "--namespace", &home, &form];
        cluster.kubectl(&line).await
    };
    let id = ask("containerID").await;
    let id = id.rsplit('/').next().unwrap_or_default().to_owned();
    let group = group_of(Path::new("/sys/fs/cgroup"), &id, DEPTH_MAX);
    let group = group.expect("the container has a control group");
    let line = command_line(&group);
    assert!(line.contains("--locality=here/zone-"), "{line}");
    let mut hog = exhaust(&group);

    let form = status("lastState.terminated.reason");
    let line = ["get", "pod", &pod, "--namespace", &home, &form];
    let told = cluster.until(PODS_DEADLINE, &line, |reason| !reason.is_empty());
    assert_eq!(told.await, "OOMKilled");
    let form = status("ready");
    let line = ["get", "pod", &pod, "--namespace", &home, &form];
    cluster
        .until(PODS_DEADLINE, &line, |ready| ready == "true")
        .await;
    drop(hog.kill().await);
    assert_eq!(ask("restartCount").await, "1");
    let answer = release.ask("heavy.test").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    release.uninstall().await;
}

/// The words that the first process of a control group was started with.
fn command_line(group: &Path) -> String {
    let processes = std::fs::read_to_string(group.join("cgroup.procs")).expect("a list");
    let first = processes.lines().next().expect("a process");
    let words = std::fs::read_to_string(format!("/proc/{first}/cmdline")).expect("its words");
    words.replace('\0', " ")
}

/// Takes up memory within a control group, until there is none. The kernel prefers to kill what
/// the kubelet has marked for that, and then this.
fn exhaust(group: &Path) -> tokio::process::Child {
    let script = "echo $$ >\"$0/cgroup.procs\" && exec tail /dev/zero";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(group).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("a shell")
}

/// The control group of a container that bounds its memory.
fn group_of(folder: &Path, id: &str, depth: usize) -> Option<PathBuf> {
    let bounds = |folder: &Path| {
        let mut files = ["memory.limit_in_bytes", "memory.max"].iter();
        files.any(|file| folder.join(file).exists())
    };
    let entries = std::fs::read_dir(folder).ok()?;
    let folders = entries.flatten().map(|entry| entry.path());
    let mut folders = folders.filter(|path| path.is_dir() && !path.is_symlink());
    folders.find_map(|path| {
        let is_its = path.file_name().is_some_and(|name| name == id);
        match is_its && bounds(&path) {
            true => Some(path),
            false if depth > 0 => group_of(&path, id, depth - 1),
            false => None,
        }
    })
}
