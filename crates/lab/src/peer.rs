//! Other proxies: where their programs come from, how they are started, and one as a process.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// A running Envoy; it is killed when this is dropped.
pub struct Envoy {
    child: Child,
    /// Its configuration, as long as it runs.
    _directory: tempfile::TempDir,
}

/// Envoy of the pinned version, out of the cache of our tools.
///
/// # Errors
/// It is neither there nor to be had.
pub fn provide() -> Result<PathBuf> {
    provided("envoy").context("name its binary with --envoy, or leave it out with --alone")
}

/// The variable that names a peer's program, for those who have found it already.
pub fn variable(name: &str) -> String {
    format!("MYRIAD_PEER_{}", name.to_uppercase().replace('-', "_"))
}

/// The program that its variable names, or else that `cargo xtask peer` provides by this name.
///
/// # Errors
/// It is neither there nor to be had.
pub fn provided(name: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable(name)) {
        return Ok(path.into());
    }
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

/// The name and version of an Envoy, as it says them.
///
/// # Errors
/// It does not run.
pub fn version(program: &Path) -> Result<String> {
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

/// HAProxy with a configuration, in the foreground.
pub fn haproxy(program: impl AsRef<OsStr>, config: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(config);
    command
}

/// nginx with a configuration, which has to keep it in the foreground.
pub fn nginx(program: impl AsRef<OsStr>, config: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("-c").arg(config);
    command
}

/// Makes Envoy of a command, with a configuration and so many threads.
pub fn envoy(mut command: Command, config: &Path, threads: usize) -> Command {
    command.arg("--config-path").arg(config);
    // Its options and their values are words of their own.
    command.args(["--concurrency", &threads.to_string()]);
    command.args(["--disable-hot-restart", "--log-level", "error"]);
    command
}

impl Envoy {
    /// Starts it with this configuration and so many threads.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn start(program: &Path, config: &Value, threads: usize) -> Result<Envoy> {
        Envoy::spawn(Command::new(program), config, threads, Stdio::null())
    }

    /// Starts a command that becomes it once it gets its arguments; its output goes there.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn spawn(command: Command, config: &Value, threads: usize, output: Stdio) -> Result<Envoy> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("envoy.json");
        std::fs::write(&file, serde_json::to_vec(config)?)?;
        let mut command = envoy(command, &file, threads);
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
    pub fn check(&mut self) -> Result<()> {
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
    fn a_peer_has_a_variable() {
        assert_eq!(variable("envoy"), "MYRIAD_PEER_ENVOY");
        assert_eq!(
            variable("istio-definitions"),
            "MYRIAD_PEER_ISTIO_DEFINITIONS"
        );
    }

    #[test]
    fn a_version_has_three_numbers() {
        assert!(is_version("1.40.0"));
        for text in ["1.40", "1.40.", "1.40.0-dev", "Clean", ""] {
            assert!(!is_version(text), "{text}");
        }
    }
}
