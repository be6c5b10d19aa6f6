//! A real cluster around a command: its network, its API, and our processes in it.

pub mod api;
pub mod follower;
pub(crate) mod gateway_api;
pub mod ground;
pub mod observer;
pub mod parts;
pub mod process;
pub mod tenant;
pub mod usage;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use myriad_lab::peer;

/// The path of the script that runs a command in the network of a cluster.
const ENTRY: &str = "MYRIAD_CLUSTER";

/// Set for the process that runs inside.
const INSIDE: &str = "MYRIAD_BENCH_INSIDE";

/// Runs `work` in the network of a cluster: the one that `MYRIAD_CLUSTER` enters, or one that is
/// started for it and ended after it. The program starts itself anew in there.
///
/// # Errors
/// The errors of the work, or the cluster does not come up.
pub fn inside(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return work();
    }
    if let Some(entry) = std::env::var_os(ENTRY) {
        return enter(Path::new(&entry));
    }
    let own = Own::start()?;
    let entered = enter(&own.entry);
    own.end()?;
    entered
}

fn enter(entry: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(entry);
    command.arg(program).args(std::env::args_os().skip(1));
    let status = command.env(INSIDE, "1").status();
    let status = status.with_context(|| format!("{} cannot be run", entry.display()))?;
    ensure!(status.success(), "inside the cluster: {status}");
    Ok(())
}

/// A cluster that was started for one command.
struct Own {
    name: String,
    entry: PathBuf,
}

impl Own {
    fn start() -> anyhow::Result<Own> {
        let name = format!("bench-{}", std::process::id());
        eprintln!(
            "starting a cluster; should this be cut off, `cargo xtask cluster down --name {name}` \
             removes it"
        );
        let output = xtask("up", &name).stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "no cluster came up: {text}");
        let entry = entry_of(&text).context("the cluster names no script to enter it")?;
        Ok(Own { name, entry })
    }

    fn end(self) -> anyhow::Result<()> {
        let output = xtask("down", &self.name).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the cluster stays: {text}");
        Ok(())
    }
}

/// A cluster for several commands, each of which enters it by itself: the one that
/// `MYRIAD_CLUSTER` names, or one that is started for them.
pub(crate) struct Shared {
    entry: PathBuf,
    own: Option<Own>,
    /// The definitions of Gateway API's kinds, where no variable says where they are.
    definitions: Option<PathBuf>,
}

impl Shared {
    /// Finds it, or starts it.
    ///
    /// # Errors
    /// It does not come up.
    pub(crate) fn start() -> anyhow::Result<Shared> {
        // Without them those who need them fail, and say so.
        let definitions = match std::env::var_os(gateway_api::DEFINITIONS) {
            Some(_) => None,
            None => peer::provided("gateway-api-definitions").ok(),
        };
        let (entry, own) = match std::env::var_os(ENTRY) {
            Some(entry) => (PathBuf::from(entry), None),
            None => {
                let own = Own::start()?;
                (own.entry.clone(), Some(own))
            }
        };
        Ok(Shared {
            entry,
            own,
            definitions,
        })
    }

    /// Lets a command enter it, should it need one.
    pub(crate) fn enter_by(&self, command: &mut Command) {
        command.env(ENTRY, &self.entry);
        if let Some(definitions) = &self.definitions {
            command.env(gateway_api::DEFINITIONS, definitions);
        }
    }

    /// Ends it, if it was started for this.
    ///
    /// # Errors
    /// It stays.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        self.own.map_or(Ok(()), Own::end)
    }
}

fn xtask(action: &str, name: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(["xtask", "cluster", action, "--name", name]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command
}

/// The script, out of what `cluster up` prints.
fn entry_of(text: &str) -> Option<PathBuf> {
    let line = text.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix("enter it")?;
        rest.trim().strip_suffix(" kubectl get namespaces")
    })?;
    Some(PathBuf::from(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_found_in_what_the_start_of_a_cluster_prints() {
        let text = "bench is ready after 3.1 s\n  kubeconfig  /c/kubeconfig\n  \
                    enter it    /a b/enter kubectl get namespaces\n";
        assert_eq!(entry_of(text), Some(PathBuf::from("/a b/enter")));
        assert_eq!(entry_of("bench is ready"), None);
    }
}
