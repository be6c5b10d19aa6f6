//! The way of a newcomer through `docs/kubernetes.md`: every command in it, in its order.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use myriad_e2e::cluster::{Cluster, Kubelet};
use myriad_e2e::document::Document;
use myriad_e2e::world::repository;
use tokio::process::Command;

#[tokio::test]
async fn every_command_of_the_document_does_what_it_says() {
    let cluster = Cluster::join().await;
    let api = cluster.api().await;
    // Others may have looked at the manifests before.
    let manifests = repository("deploy/manifests/myriad.yaml");
    let manifests = format!("--filename={}", manifests.display());
    let gone = ["delete", "--ignore-not-found", "--namespace=myriad"];
    cluster.kubectl(&[&gone[..], &[&manifests]].concat()).await;
    let gone = ["delete", "--ignore-not-found", "namespace", "myriad"];
    cluster.kubectl(&gone).await;

    let document = Document::read("docs/kubernetes.md");
    assert!(document.steps().len() > 4, "the document has commands");
    // It outlives what may fail below, for the sake of the logs of its pods.
    let kubelet = Kubelet::new(&cluster, &api, &["myriad", "shop"]);
    let mut kubelet = std::pin::pin!(kubelet.run());
    let output = tokio::select! {
        output = follow(&cluster, &document) => output,
        () = &mut kubelet => unreachable!("it runs on"),
    };
    document.check(&output);
}

/// Runs the commands in one shell, as somebody would who stands in a copy of this repository.
async fn follow(cluster: &Cluster, document: &Document) -> Output {
    let place = cluster.path("newcomer");
    std::fs::create_dir_all(place.join("bin")).expect("a directory");
    for name in ["deploy", "examples"] {
        symlink(repository(name), place.join(name)).expect("a link");
    }
    play_docker(&place.join("bin/docker"));
    let helm = std::env::var_os("MYRIAD_HELM")
        .expect("MYRIAD_HELM is the path of helm; `cargo xtask test --stage cluster` sets it");
    symlink(helm, place.join("bin/helm")).expect("a link");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [place.join("bin")].into_iter();
    let folders: Vec<PathBuf> = folders.chain(std::env::split_paths(&path)).collect();
    let path = std::env::join_paths(folders).expect("folders");
    let mut command = Command::new(std::env::var_os("MYRIAD_CLUSTER").expect("a cluster"));
    command
        .args(["sh", "-c", &document.script()])
        .current_dir(&place);
    command.env("PATH", path).env("HOME", &place);
    command.env_remove("http_proxy").env_remove("https_proxy");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.expect("a shell")
}

/// There is no container engine here; this one sees that it is asked for files that are there.
fn play_docker(path: &Path) {
    let script = "#!/bin/sh\n\
                  case \"$1 $2 $3\" in\n\
                  'build --file deploy/Dockerfile') test -f \"$3\" ;;\n\
                  'push '*) ;;\n\
                  *) echo \"docker $*: unknown\" >&2; exit 1 ;;\n\
                  esac\n";
    std::fs::write(path, script).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("a mode");
}
