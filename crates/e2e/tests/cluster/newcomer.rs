//! The way of a newcomer through `docs/kubernetes.md`: every command in it, in its order.

use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use myriad_e2e::cluster::{Cluster, Kubelet};
use myriad_e2e::world::repository;
use tokio::process::Command;

/// A block of commands, and what the document says one sees then.
#[derive(Default)]
struct Step {
    commands: String,
    seen: Vec<String>,
}

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

    let steps = read_steps(&repository("docs/kubernetes.md"));
    assert!(steps.len() > 4, "the document has commands");
    // It outlives what may fail below, for the sake of the logs of its pods.
    let kubelet = Kubelet::new(&cluster, &api, &["myriad", "shop"]);
    let mut kubelet = std::pin::pin!(kubelet.run());
    let output = tokio::select! {
        output = follow(&cluster, &steps) => output,
        () = &mut kubelet => unreachable!("it runs on"),
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{complaint}");
    for (number, step) in steps.iter().enumerate() {
        let (_, printed) = stdout.split_once(&marker(number)).expect("each step runs");
        let printed = printed
            .split(&marker(number + 1))
            .next()
            .unwrap_or_default();
        for line in &step.seen {
            assert!(printed.contains(line), "`{line}` is not in: {printed}");
        }
    }
}

/// The blocks of `sh`, each with the blocks of `text` that follow it.
fn read_steps(path: &Path) -> Vec<Step> {
    let document = std::fs::read_to_string(path).expect("the document");
    let mut steps: Vec<Step> = Vec::new();
    let mut kind = None;
    for line in document.lines() {
        if let Some(word) = line.strip_prefix("```") {
            kind = kind.is_none().then_some(word);
            if kind == Some("sh") {
                steps.push(Step::default());
            }
            continue;
        }
        let Some(step) = steps.last_mut() else {
            continue;
        };
        match kind {
            Some("sh") => {
                let _ = writeln!(step.commands, "{line}");
            }
            Some("text") => step.seen.push(line.trim().to_owned()),
            _ => {}
        }
    }
    steps
}

/// Runs the commands in one shell, as somebody would who stands in a copy of this repository.
async fn follow(cluster: &Cluster, steps: &[Step]) -> Output {
    let place = cluster.path("newcomer");
    std::fs::create_dir_all(place.join("bin")).expect("a directory");
    for name in ["deploy", "examples"] {
        symlink(repository(name), place.join(name)).expect("a link");
    }
    play_docker(&place.join("bin/docker"));
    let helm = std::env::var_os("MYRIAD_HELM")
        .expect("MYRIAD_HELM is the path of helm; `cargo xtask test --stage cluster` sets it");
    symlink(helm, place.join("bin/helm")).expect("a link");
    let mut script = String::from("set -eu\n");
    for (number, step) in steps.iter().enumerate() {
        let _ = write!(script, "echo '{}'\n{}", marker(number), step.commands);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [place.join("bin")].into_iter();
    let folders: Vec<PathBuf> = folders.chain(std::env::split_paths(&path)).collect();
    let path = std::env::join_paths(folders).expect("folders");
    let mut command = Command::new(std::env::var_os("MYRIAD_CLUSTER").expect("a cluster"));
    command.args(["sh", "-c", &script]).current_dir(&place);
    command.env("PATH", path).env("HOME", &place);
    command.env_remove("http_proxy").env_remove("https_proxy");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.expect("a shell")
}

fn marker(number: usize) -> String {
    format!("== step {number} ==")
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
