//! The network of a cluster: a namespace in which every address of a pod is a local one.
//!
//! It lives as long as a process does that holds it and does nothing else. Root makes just a
//! network; an ordinary user has no right to that, but to a user namespace and a network inside.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::folder::{Folder, Lock};
use super::process::{self, Process};
use crate::network;

/// How a cluster is kept apart from the rest of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// A network namespace, which only root can make.
    Network,
    /// A user namespace with a network namespace inside.
    UserNamespace,
}

/// A network that exists.
pub(super) struct Namespace {
    holder: Process,
    isolation: Isolation,
}

/// The part that the holder plays.
pub(super) const HOLDER: &str = "network";

/// Makes the addresses of pods and Services local, says so by a line, and then only holds the
/// namespace.
///
/// Loopback addresses would be local without that, but no EndpointSlice takes them.
const HOLD: &str = "exec 3>&1 1>&2 && ip link set lo up && \
    ip route add local 10.244.0.0/16 dev lo && ip route add local 10.96.0.0/12 dev lo && \
    echo made >&3 && exec sleep infinity 3>&-";

/// The arguments that keep an ordinary user's rights on the way in.
const ENTER_USER: [&str; 2] = ["--user", "--preserve-credentials"];

impl Isolation {
    /// The isolation that this user has the right to.
    pub fn of_this_user() -> Isolation {
        match rustix::process::geteuid().is_root() {
            true => Isolation::Network,
            false => Isolation::UserNamespace,
        }
    }
}

impl Namespace {
    /// The one that was made before, if it is still held.
    pub(super) fn find(folder: &Folder) -> Result<Option<Namespace>> {
        let holder = Process::read(&folder.process(HOLDER));
        let Some(holder) = holder.filter(|holder| holder.runs()) else {
            return Ok(None);
        };
        let isolation = match user_namespace(&holder.pid().to_string())? == user_namespace("self")?
        {
            true => Isolation::Network,
            false => Isolation::UserNamespace,
        };
        Ok(Some(Namespace { holder, isolation }))
    }

    /// Makes it, ready for use.
    pub(super) fn create(folder: &Folder, lock: &Lock, isolation: Isolation) -> Result<Namespace> {
        let mut command = process::detached(Path::new("unshare"));
        command.arg("--net");
        if isolation == Isolation::UserNamespace {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["sh", "-c", HOLD]);
        command.current_dir(folder.path());
        command
            .stdout(Stdio::piped())
            .stderr(lock.open_log(HOLDER)?);
        let mut child = command.spawn().context("`setsid` does not start")?;
        let holder = Process::of(child.id());
        if let Some(holder) = holder {
            lock.write(&folder.process(HOLDER), &holder.to_line(), 0o600)?;
        }
        let output = child.stdout.take().context("it was piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        match holder {
            Some(holder) if line == "made\n" => Ok(Namespace { holder, isolation }),
            _ => bail!(
                "no network can be made: {}",
                folder.end_of_log(HOLDER).trim()
            ),
        }
    }

    /// A command that runs in the network.
    pub(super) fn command(&self, program: &Path) -> Command {
        let prefix = self.prefix();
        let (enter, arguments) = prefix
            .split_first()
            .map_or((network::ENTER, &[][..]), |(enter, rest)| {
                (enter.as_str(), rest)
            });
        let mut command = Command::new(enter);
        command.args(arguments).arg(program);
        command
    }

    /// The number of the process that holds it.
    pub(super) fn holder(&self) -> u32 {
        self.holder.pid()
    }

    /// The words that, before a command, run it in the network.
    pub(super) fn prefix(&self) -> Vec<String> {
        let mut words = network::entering(self.holder.pid()).to_vec();
        if self.isolation == Isolation::UserNamespace {
            words.extend(ENTER_USER.map(str::to_owned));
        }
        words
    }
}

/// Says which user namespace a process is in.
fn user_namespace(pid: &str) -> Result<PathBuf> {
    let link = format!("/proc/{pid}/ns/user");
    std::fs::read_link(&link).context(link)
}
