//! The way of a newcomer through `docs/kubernetes.md` and `docs/mesh.md`: every command in them, in
//! their order.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use myriad_e2e::cluster::{Cluster, Kubelet};
use myriad_e2e::document::Document;
use myriad_e2e::world::repository;
use tokio::process::Command;

use super::injection::WEBHOOKS;
use super::istio::installed;

/// A script that runs a command in a container, by the network that its pod has, if it has one of
/// its own.
const EXEC: &str = r#"kubectl() {
  [ "$1" = exec ] || { command kubectl "$@"; return; }
  owner=${2#deployment/} namespace=$4
  shift 5
  pod=$(command kubectl get pods --namespace "$namespace" --selector "app=$owner" \
    --output=jsonpath='{.items[0].metadata.name}')
  held=../$namespace.$pod.pid
  if [ -f "$held" ]; then enter="nsenter --target $(cat "$held") --net"; else enter=; fi
  $enter unshare --mount sh -c 'mount --bind ../hosts /etc/hosts && exec "$@"' exec \
    setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
"#;

#[tokio::test]
async fn every_command_of_the_documents_does_what_they_say() {
    installed().await;
    let _alone = WEBHOOKS.lock().await;
    let cluster = Cluster::join().await;
    let api = cluster.api().await;
    // Others may have looked at the manifests before.
    let manifests = repository("deploy/manifests/myriad.yaml");
    let manifests = format!("--filename={}", manifests.display());
    let gone = ["delete", "--ignore-not-found", "--namespace=myriad"];
    cluster.kubectl(&[&gone[..], &[&manifests]].concat()).await;
    let gone = ["delete", "--ignore-not-found", "namespace", "myriad"];
    cluster.kubectl(&gone).await;

    furnish(&cluster);
    // It outlives what may fail below, for the sake of the logs of its pods.
    let kubelet = Kubelet::new(&cluster, &api, &["myriad", "shop", "outside"]);
    let mut kubelet = std::pin::pin!(kubelet.run());
    for path in ["docs/kubernetes.md", "docs/mesh.md"] {
        let document = Document::read(path);
        assert!(document.steps().len() > 4, "{path} has commands");
        let output = tokio::select! {
            output = follow(&cluster, &document) => output,
            () = &mut kubelet => unreachable!("it runs on"),
        };
        document.check(&output);
    }
}

/// A copy of this repository, and the programs that a reader has.
fn furnish(cluster: &Cluster) {
    let place = cluster.path("newcomer");
    std::fs::create_dir_all(place.join("bin")).expect("a directory");
    for name in ["deploy", "examples"] {
        symlink(repository(name), place.join(name)).expect("a link");
    }
    play_docker(&place.join("bin/docker"));
    let helm = std::env::var_os("MYRIAD_HELM")
        .expect("MYRIAD_HELM is the path of helm; `cargo xtask test --stage cluster` sets it");
    symlink(helm, place.join("bin/helm")).expect("a link");
}

/// Runs the commands in one shell, as somebody would who stands in a copy of this repository.
async fn follow(cluster: &Cluster, document: &Document) -> Output {
    let place = cluster.path("newcomer");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [place.join("bin")].into_iter();
    let folders: Vec<PathBuf> = folders.chain(std::env::split_paths(&path)).collect();
    let path = std::env::join_paths(folders).expect("folders");
    let mut command = Command::new(std::env::var_os("MYRIAD_CLUSTER").expect("a cluster"));
    let script = format!("{EXEC}{}", document.script());
    command.args(["sh", "-c", &script]).current_dir(&place);
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
