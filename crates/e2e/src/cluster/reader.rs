//! A reader of the documents, who follows them in a copy of this repository.

use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::process::Command;

use super::Cluster;
use crate::document::Document;
use crate::world::repository;

/// A copy of the repository, and the programs that a reader has.
pub struct Reader {
    enter: PathBuf,
    place: PathBuf,
}

impl Cluster {
    /// A reader who has this cluster.
    ///
    /// # Panics
    /// Where helm is unknown.
    pub fn reader(&self) -> Reader {
        let place = self.path("newcomer");
        std::fs::create_dir_all(place.join("bin")).expect("a directory");
        for name in ["deploy", "examples"] {
            link(&repository(name), &place.join(name));
        }
        play_docker(&place.join("bin/docker"));
        let helm = std::env::var_os("MYRIAD_HELM")
            .expect("MYRIAD_HELM is the path of helm; the stages of `cargo xtask test` set it");
        link(Path::new(&helm), &place.join("bin/helm"));
        let myriad = std::env::var_os("MYRIAD_BIN")
            .expect("MYRIAD_BIN is the path of the binary; `cargo xtask test` sets it");
        link(Path::new(&myriad), &place.join("bin/myriad"));
        let enter = self.enter.clone();
        Reader { enter, place }
    }
}

impl Reader {
    /// Gives the reader a file.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn keep(&self, name: &str, text: &str) {
        std::fs::write(self.place.join(name), text).expect("a file");
    }

    /// Runs the commands of a document in one shell, behind those of `before`.
    ///
    /// # Panics
    /// Where there is no shell.
    pub async fn follow(&self, document: &Document, before: &str) -> Output {
        self.run(&format!("{before}{}", document.script())).await
    }

    /// Runs a script as somebody would who stands in a copy of this repository.
    ///
    /// # Panics
    /// Where there is no shell.
    pub async fn run(&self, script: &str) -> Output {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.place.join("bin")].into_iter();
        let folders: Vec<PathBuf> = folders.chain(std::env::split_paths(&path)).collect();
        let path = std::env::join_paths(folders).expect("folders");
        let mut command = Command::new(&self.enter);
        command.args(["sh", "-c", script]).current_dir(&self.place);
        command.env("PATH", path).env("HOME", &self.place);
        command.env_remove("http_proxy").env_remove("https_proxy");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command.output().await.expect("a shell")
    }
}

/// A link, unless it is there.
fn link(to: &Path, at: &Path) {
    if let Err(error) = symlink(to, at) {
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    }
}

/// There is no engine that builds images here; this one sees that it is asked for files that are
/// there.
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
