//! The parts of a cluster that run, as it is now and without changing anything.

use std::fmt;
use std::path::PathBuf;

use super::daemon::daemons;
use super::folder::{Folder, Name};
use super::namespace::HOLDER;
use super::process::Process;

/// The parts of one cluster that run.
pub struct Status {
    name: Name,
    /// The holder of the network and the daemons, by name; `None` is one that does not run.
    parts: Vec<(&'static str, Option<Running>)>,
    kubeconfig: PathBuf,
}

/// A process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) memory_mib: u64,
}

impl Status {
    /// Looks at the processes that were started.
    pub(crate) fn of(folder: &Folder) -> Status {
        let names = [HOLDER].into_iter();
        let names = names.chain(daemons(folder).into_iter().map(|daemon| daemon.name));
        let parts = names.map(|name| {
            let process = Process::read(&folder.process(name));
            (
                name,
                process.filter(|process| process.runs()).map(Running::of),
            )
        });
        Status {
            name: folder.name().clone(),
            parts: parts.collect(),
            kubeconfig: folder.kubeconfig(),
        }
    }

    /// Whether all parts do.
    pub fn runs(&self) -> bool {
        self.parts.iter().all(|(_, running)| running.is_some())
    }
}

impl Running {
    fn of(process: Process) -> Running {
        Running {
            pid: process.pid(),
            memory_mib: process.memory_mib().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        for (name, running) in &self.parts {
            match running {
                Some(Running { pid, memory_mib }) => {
                    write!(f, "\n  {name:<24} process {pid:>8} {memory_mib:>6} MiB")?;
                }
                None => write!(f, "\n  {name:<24} does not run")?,
            }
        }
        write!(f, "\n  kubeconfig {}", self.kubeconfig.display())
    }
}
