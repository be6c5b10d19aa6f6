//! The peer: where its binary comes from, and its process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// A running Envoy; it is killed when this is dropped.
pub struct Envoy {
    child: Child,
    /// Its configuration, as long as it runs.
    _directory: tempfile::TempDir,
}

/// The pinned version, out of the cache of our tools.
///
/// # Errors
/// It is neither there nor to be had.
pub fn provide() -> anyhow::Result<PathBuf> {
    provided("envoy").context("name its binary with --envoy, or leave it out with --alone")
}

/// What `cargo xtask peer` provides by this name.
///
/// # Errors
/// It is neither there nor to be had.
pub fn provided(name: &str) -> anyhow::Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.args(["xtask", "peer", name]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "no {name}: {text}");
    let path = text.trim_end().lines().last().map(PathBuf::from);
    let path = path.filter(|path| path.is_file());
    path.with_context(|| format!("no {name}: {text}"))
}

/// Its name and version, as it says them.
///
/// # Errors
/// It does not run.
pub fn version(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // "envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL"
    let version = text.split('/').find(|part| is_version(part));
    let version = version.with_context(|| format!("no version: {}", text.trim()))?;
    Ok(format!("envoy {version}"))
}

fn is_version(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    text.split('.').count() == 3 && text.split('.').all(is_number)
}

/// An address that nobody listens on.
///
/// # Errors
/// No port is to be had.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

impl Envoy {
    /// Starts it with this configuration and so many threads.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(program: &Path, config: &Value, threads: usize) -> anyhow::Result<Envoy> {
        Envoy::spawn(Command::new(program), config, threads, Stdio::null())
    }

    /// Starts a command that becomes it once it gets its arguments; its output goes there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn spawn(
        mut command: Command,
        config: &Value,
        threads: usize,
        output: Stdio,
    ) -> anyhow::Result<Envoy> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("envoy.json");
        std::fs::write(&file, serde_json::to_vec(config)?)?;
        command.arg("--config-path").arg(&file);
        // Its options and their values are words of their own.
        command.args(["--concurrency", &threads.to_string()]);
        command.args(["--disable-hot-restart", "--log-level", "error"]);
        command.stdin(Stdio::null()).stdout(output);
        let child = command.spawn();
        let child = child.with_context(|| format!("{command:?} does not start"))?;
        Ok(Envoy {
            child,
            _directory: directory,
        })
    }

    /// An error once it has ended.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("Envoy ended with {status}"),
            None => Ok(()),
        }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_three_numbers() {
        assert!(is_version("1.40.0"));
        for text in ["1.40", "1.40.", "1.40.0-dev", "Clean", ""] {
            assert!(!is_version(text), "{text}");
        }
    }
}
