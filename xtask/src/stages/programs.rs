//! The programs of clusters, and k6, which Go builds while cargo compiles: each waits for the
//! network, or for the other half of the machine, now and then.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use myriad_lab::{cluster, tool};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{Place, is_root};
use crate::peer::{self, Peer};

/// The stage that waits until all are there.
pub(super) const STAGE: &str = "programs";

/// A build that goes on beside other stages. It yields to them, and ends with this.
pub(super) struct Building {
    child: Child,
    log: PathBuf,
}

impl Building {
    /// Starts it, as the command that people have for it.
    pub(super) fn start(place: &Place) -> Result<Building> {
        fs::create_dir_all(&place.cache)?;
        let log = format!("programs.{}.log", std::process::id());
        let log = place.cache.join(log);
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(tool::this_program()?);
        command.args(["cluster", "build"]);
        if is_root() {
            command.arg("--node");
        }
        command.stdin(Stdio::null());
        command.stderr(output.try_clone()?).stdout(output);
        // Whatever it starts ends with it.
        command.process_group(0);
        let child = command.spawn().context("`nice` does not start")?;
        Ok(Building { child, log })
    }

    /// Waits for its end, and says what it said.
    fn wait(mut self) -> Result<()> {
        let status = self.child.wait()?;
        print!("{}", fs::read_to_string(&self.log)?);
        ensure!(status.success(), "the programs of clusters: {status}");
        Ok(())
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // It may have ended by itself, and so may what it has started.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
        let _ = fs::remove_file(&self.log);
    }
}

/// Waits for what is built already, or builds what is missing.
pub(super) fn run(place: &Place) -> Result<()> {
    match place.meanwhile.take() {
        Some(building) => building.wait(),
        None => {
            cluster::build_programs(&place.root, &place.cache, is_root())?;
            peer::provide(&place.root, Peer::K6, &place.cache).map(drop)
        }
    }
}
