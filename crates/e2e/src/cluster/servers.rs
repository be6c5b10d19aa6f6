//! The servers of the cluster itself, for stories in which they fail.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lock for servers: a story that makes them fail holds it alone.
static USE: RwLock<()> = RwLock::const_new(());

/// The right to make servers of the cluster fail.
pub struct Servers {
    control: PathBuf,
    _alone: RwLockWriteGuard<'static, ()>,
}

/// The state that the cluster had stored at some time.
pub struct Saved {
    path: PathBuf,
}

impl Servers {
    /// Waits until no other story of this process uses the cluster.
    ///
    /// # Panics
    /// Where the cluster is not one whose servers may be killed.
    pub async fn alone() -> Servers {
        let control = std::env::var_os("MYRIAD_CLUSTER_CONTROL")
            .expect("MYRIAD_CLUSTER_CONTROL kills and starts servers; `cargo xtask test` sets it");
        Servers {
            control: control.into(),
            _alone: USE.write().await,
        }
    }

    /// Waits until no story makes servers fail, and keeps them from it.
    pub async fn shared() -> RwLockReadGuard<'static, ()> {
        USE.read().await
    }

    /// Kills one, as if the machine had.
    pub async fn kill(&self, part: &str) {
        self.control(&["kill", part]).await;
    }

    /// Starts what was killed, and returns when the API is ready.
    pub async fn start(&self) {
        self.control(&["up"]).await;
    }

    /// Saves what the cluster has stored. Its store is killed for that, and started again.
    pub async fn save(&self) -> Saved {
        self.kill("etcd").await;
        let saved = Saved {
            path: self.folder().join("etcd.saved"),
        };
        copy(&self.folder().join("etcd"), &saved.path).await;
        self.start().await;
        saved
    }

    /// Puts back what was stored then. The store and the API are down when this returns.
    pub async fn restore(&self, saved: Saved) {
        for part in ["kube-apiserver", "etcd"] {
            self.kill(part).await;
        }
        let store = self.folder().join("etcd");
        std::fs::remove_dir_all(&store).expect("the store is there");
        std::fs::rename(saved.path, store).expect("the copy is there");
    }

    /// Lets the store forget all of its history up to now, as it does by itself after minutes.
    pub async fn compact(&self) {
        let status = store("maintenance/status", &json!({})).await;
        let revision = status.pointer("/header/revision").cloned();
        let revision = revision.expect("the store tells its revision");
        let forgotten = json!({"revision": revision, "physical": true});
        store("kv/compaction", &forgotten).await;
    }

    fn folder(&self) -> &Path {
        self.control
            .parent()
            .expect("it lies in the cluster's folder")
    }

    async fn control(&self, arguments: &[&str]) {
        let mut command = Command::new(&self.control);
        command.args(arguments).stdin(Stdio::null());
        let output = command.output().await.expect("the script starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
    }
}

/// Asks the store of the cluster, as JSON.
async fn store(path: &str, body: &Value) -> Value {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail", "--data"]);
    command.arg(body.to_string());
    command.arg(format!("http://127.0.0.1:2379/v3/{path}"));
    let output = command.output().await.expect("curl starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{path}: {complaint}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Copies a folder that nobody writes.
async fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.arg("--archive").arg(from).arg(to);
    let status = command.status().await.expect("cp starts");
    assert!(status.success(), "{} is copied", from.display());
}
