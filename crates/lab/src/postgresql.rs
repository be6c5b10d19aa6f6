//! PostgreSQL, a database whose server runs as nobody. It comes from Debian.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::network::Network;

/// The user and the database that there are; nobody is asked for a password.
pub const NAME: &str = "postgres";

/// Debian's folder with a folder for each version, which no path names.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The user and the group `nobody`: the server refuses to run as root.
const NOBODY: u32 = 65_534;

/// How long it may take to start.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes that are shown of the log of a server that does not start.
const LOG_END_BYTES: usize = 2_000;

/// A running server with data of its own; both end when dropped.
pub struct PostgresServer {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl PostgresServer {
    /// Starts one at a port of a network, for so many connections, and waits until it answers.
    ///
    /// # Errors
    /// It is not there, does not start, or this is not root.
    pub fn start(network: &Network, port: u16, connections_max: usize) -> Result<PostgresServer> {
        let folder = tempfile::tempdir()?;
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).context("a folder of nobody's")?;
        let data = folder.path().join("data");
        make(folder.path(), &data)?;
        let log = File::create(folder.path().join("log"))?;
        let mut command = network.command("setpriv");
        as_nobody(&mut command, folder.path());
        // It ends at once with the one that started it, should that be cut off.
        command.arg("--pdeathsig=QUIT").arg(program("postgres")?);
        command.arg("-D").arg(&data);
        let settings = [
            "listen_addresses=0.0.0.0".to_owned(),
            format!("port={port}"),
            format!("unix_socket_directories={}", folder.path().display()),
            format!("max_connections={connections_max}"),
            "fsync=off".to_owned(),
            // No other kind goes with the folder.
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        for setting in &settings {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(log).spawn().context("postgres starts")?;
        let mut server = PostgresServer {
            child,
            folder,
            port,
        };
        server.wait()?;
        Ok(server)
    }

    /// The socket by which this machine reaches it, whatever network it is in.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(format!(".s.PGSQL.{}", self.port))
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.log().contains("ready to accept connections") {
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "postgres has ended: {}", self.log_end());
            ensure!(Instant::now() < deadline, "no start: {}", self.log_end());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn log_end(&self) -> String {
        let text = self.log().into_bytes();
        let end = text.get(text.len().saturating_sub(LOG_END_BYTES)..);
        String::from_utf8_lossy(end.unwrap_or_default()).into_owned()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // At once, but with its own processes. All fail where it has ended by itself.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if pid.is_none_or(|pid| kill_process(pid, Signal::QUIT).is_err()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Makes the data of a server, which trusts whoever reaches it.
fn make(folder: &Path, data: &Path) -> Result<()> {
    let mut command = Command::new("setpriv");
    as_nobody(&mut command, folder);
    command.arg(program("initdb")?).arg("--pgdata").arg(data);
    command.args([
        "--auth=trust",
        "--encoding=UTF8",
        "--no-locale",
        "--no-sync",
    ]);
    command.arg(format!("--username={NAME}"));
    let output = command.stdin(Stdio::null()).output();
    let Output { status, stderr, .. } = output.context("`setpriv` (util-linux) starts")?;
    let text = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "initdb: {status}: {text}");
    let file = data.join("pg_hba.conf");
    let mut file = OpenOptions::new().append(true).open(file)?;
    Ok(writeln!(file, "host all all 0.0.0.0/0 trust")?)
}

/// Lets `setpriv` run a program as that user, in its folder.
fn as_nobody(command: &mut Command, folder: &Path) {
    command.arg(format!("--reuid={NOBODY}"));
    command.arg(format!("--regid={NOBODY}"));
    command.arg("--clear-groups").current_dir(folder);
}

/// The folders of its programs, that of the newest version first.
pub fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    in_order(entries.map(|entry| entry.path()).collect())
}

fn in_order(mut versions: Vec<PathBuf>) -> Vec<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
    versions.iter().map(|path| path.join("bin")).collect()
}

fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = folders().into_iter().chain(std::env::split_paths(&path));
    let mut files = folders.map(|folder| folder.join(name));
    let found = files.find(|file| file.is_file());
    found.with_context(|| format!("there is no {name}; it is in Debian's package postgresql"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_taken_by_its_number() {
        let of = |names: [&str; 3]| in_order(Vec::from(names.map(PathBuf::from)));
        let expected = ["a/15/bin", "a/9/bin", "a/common/bin"].map(PathBuf::from);
        assert_eq!(of(["a/9", "a/15", "a/common"]), expected);
        assert_eq!(of(["a/common", "a/15", "a/9"]), expected);
    }
}
