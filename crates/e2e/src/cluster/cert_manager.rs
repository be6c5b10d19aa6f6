//! cert-manager in a cluster, as a program of its own packages.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::{Child, Command};
use tokio::sync::{Mutex, MutexGuard};

use super::Cluster;

/// The definitions and the controllers of cert-manager are the cluster's, so one story has them at
/// a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A running cert-manager; it is killed when this is dropped.
pub struct CertManager {
    _child: Child,
    log: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Keeps cert-manager away from a story that plays it itself.
    pub async fn without_cert_manager(&self) -> MutexGuard<'static, ()> {
        ALONE.lock().await
    }

    /// Starts cert-manager with its definitions, for all namespaces. The Secrets of its issuers for
    /// all namespaces are in one of them.
    ///
    /// # Panics
    /// Where it is unknown or does not start.
    pub async fn cert_manager(&self, namespace: &str) -> CertManager {
        let alone = ALONE.lock().await;
        let variable = |name: &str| {
            let value = std::env::var(name);
            value.unwrap_or_else(|_| panic!("{name} is a path; `cargo xtask test` sets it"))
        };
        let definitions = variable("MYRIAD_CERT_MANAGER_DEFINITIONS");
        let definitions = format!("--filename={definitions}");
        self.kubectl(&["apply", "--server-side", &definitions])
            .await;
        let line = ["wait", "--for=condition=Established", "--timeout=60s"];
        self.kubectl(&[&line[..], &[&definitions]].concat()).await;
        let log = self.path("cert-manager.log");
        let file = std::fs::File::create(&log).expect("a file");
        let mut command = Command::new(&self.enter);
        command.arg(variable("MYRIAD_CERT_MANAGER")).arg(namespace);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(file).kill_on_drop(true);
        CertManager {
            _child: command.spawn().expect("it starts"),
            log,
            _alone: alone,
        }
    }
}

impl CertManager {
    /// The log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for CertManager {
    fn drop(&mut self) {
        // Where a story fails, what it has to say is wanted, and about to be deleted.
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log());
        }
    }
}
