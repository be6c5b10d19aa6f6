//! A process that outlives the command which started it, and how to find it again.
//!
//! A number alone would not do: the system gives it to another process some time after the first
//! has ended. Number and start time together name one process.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// One process, which may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: Pid,
    /// When it started, in clock ticks since the system did.
    started_ticks: u64,
}

/// How long a killed process may take to end: it frees all its memory.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Closes what the process has inherited beyond its three standard streams, such as the lock of
/// the shell that started us, and becomes the program which the further arguments name.
const CLOSE_INHERITED: &str = r#"
    for fd in /proc/self/fd/*; do
        fd=${fd##*/}
        if ((fd > 2)); then exec {fd}>&-; fi
    done
    exec "$@""#;

/// A command whose process keeps nothing of ours: no session, no descriptor, no environment but
/// the path. Its number is that of the child which is spawned.
pub(super) fn detached(program: &Path) -> Command {
    let mut command = Command::new("setsid");
    command.args(["bash", "-c", CLOSE_INHERITED, "bash"]);
    command.arg(program).stdin(Stdio::null());
    command.env_clear().env("PATH", search_path());
    command
}

/// Ours, and where the administrator's programs are: an ordinary user needs `ip` too.
pub(super) fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

impl Process {
    /// The process that has this number now, and has not ended.
    pub(super) fn of(pid: u32) -> Option<Process> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let started_ticks = started_ticks(&line)?;
        Some(Process { pid, started_ticks })
    }

    /// The process that a file tells of; none if there is no such file.
    pub(super) fn read(file: &Path) -> Option<Process> {
        let text = fs::read_to_string(file).ok()?;
        let (pid, started_ticks) = text.trim_end().split_once(' ')?;
        Some(Process {
            pid: Pid::from_raw(pid.parse().ok()?)?,
            started_ticks: started_ticks.parse().ok()?,
        })
    }

    /// The line that `read` understands.
    pub(super) fn to_line(self) -> String {
        format!("{} {}\n", self.pid, self.started_ticks)
    }

    pub(super) fn pid(self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub(super) fn runs(self) -> bool {
        Process::of(self.pid()) == Some(self)
    }

    /// Resident memory.
    pub(super) fn memory_mib(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
        Some(kib / 1024)
    }

    /// Kills it, unless it has ended, and waits until it has.
    ///
    /// At once, without asking: whoever ends a cluster, or a part of it, throws its state away.
    pub(super) fn kill(self) -> Result<()> {
        let handle = match pidfd_open(self.pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Ok(()),
            handle => handle.with_context(|| format!("process {}", self.pid))?,
        };
        // The handle stays on whom it was opened for, so it is now that identity is asked for.
        if !self.runs() {
            return Ok(());
        }
        match pidfd_send_signal(&handle, Signal::KILL) {
            Err(Errno::SRCH) => return Ok(()),
            sent => sent.with_context(|| format!("process {} cannot be killed", self.pid))?,
        }
        let mut ends = [PollFd::new(&handle, PollFlags::IN)];
        let timeout = Timespec::try_from(END_TIMEOUT)?;
        let ended = poll(&mut ends, Some(&timeout))?;
        ensure!(ended == 1, "process {} does not end", self.pid);
        Ok(())
    }
}

/// The start in a line of `/proc/PID/stat`, unless the process is one that has ended and only waits
/// for its parent to take notice.
fn started_ticks(line: &str) -> Option<u64> {
    // The second field is a name in parentheses, in which anything may stand.
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The state is the third field, the start time the 22nd.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_process_has_a_session_of_its_own_and_nothing_inherited() {
        let script = "exec 5</dev/null 12</dev/null; exec \"$@\"";
        let listing = "readlink /proc/self/fd/5 /proc/self/fd/12; ps -o sid= -p $$; echo $$; env";
        let detached = detached(Path::new("bash"));
        let mut command = Command::new("bash");
        command
            .args(["-c", script, "bash"])
            .arg(detached.get_program());
        command.args(detached.get_args()).args(["-c", listing]);
        let output = command.stdin(Stdio::null()).output().expect("it runs");
        let output = String::from_utf8(output.stdout).expect("text");
        let lines: Vec<&str> = output.lines().map(str::trim).collect();
        assert_eq!(lines[0], lines[1], "{output}");
    }

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let line = "7 (a) R 1) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 11 12";
        assert_eq!(started_ticks(line), Some(4242));
        assert_eq!(started_ticks(&line.replace(" S ", " Z ")), None);
        assert_eq!(started_ticks("7 (a) S 1 2"), None);
        assert_eq!(started_ticks(""), None);
    }

    #[test]
    fn a_process_is_found_again_until_it_is_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("process");
        assert_eq!(Process::read(&file), None);

        let mut child = Command::new("cat");
        let child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut child = child.expect("a process");
        let process = Process::of(child.id()).expect("it runs");
        fs::write(&file, process.to_line()).expect("a file");
        assert_eq!(Process::read(&file), Some(process));
        assert!(process.runs() && process.memory_mib().is_some());

        // Another that has got the number is left alone.
        let other = Process {
            started_ticks: process.started_ticks + 1,
            ..process
        };
        other.kill().expect("nothing to do");
        assert!(process.runs());

        process.kill().expect("killed");
        assert!(
            !process.runs(),
            "it has ended, although nobody has waited for it"
        );
        assert!(!child.wait().expect("ended").success());
        process.kill().expect("nothing to do");
    }
}
