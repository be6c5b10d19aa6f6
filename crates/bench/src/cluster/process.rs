//! A process of ours in the cluster's network, with its log and its admin address.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::usage;

/// How long a process may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Between two looks at its readiness.
const READY_INTERVAL: Duration = Duration::from_millis(5);

/// How long an answer of its admin address may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// The bytes that are shown of the log of a process that failed.
const LOG_END_BYTES: usize = 2_000;

/// A process; it is killed when this is dropped.
pub struct Process {
    child: Child,
    admin: SocketAddr,
    log: PathBuf,
    started: Instant,
}

/// The metrics of a process at one moment, by name.
pub struct Figures(BTreeMap<String, f64>);

impl Process {
    /// Starts `myriad` with these arguments; its log goes to a file.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn start(
        admin: SocketAddr,
        arguments: &[String],
        environment: &[(&str, &str)],
        log: &Path,
    ) -> anyhow::Result<Process> {
        let mut command = Command::new(program()?);
        command.args(arguments).arg(format!("--admin={admin}"));
        command.envs(environment.iter().copied());
        command.stdout(Stdio::null());
        Process::spawn(command, admin, log)
    }

    /// Starts a command that becomes such a process; what it says of itself goes to the log.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn spawn(mut command: Command, admin: SocketAddr, log: &Path) -> anyhow::Result<Process> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(log)?;
        let started = Instant::now();
        let child = command.stdin(Stdio::null()).stderr(file).spawn();
        let child = child.with_context(|| format!("{command:?} does not start"))?;
        Ok(Process {
            child,
            admin,
            log: log.to_owned(),
            started,
        })
    }

    /// Waits until it is ready, and says how long after its start that was.
    ///
    /// # Errors
    /// It ended, or took too long.
    pub fn wait_ready(&mut self) -> anyhow::Result<Duration> {
        loop {
            if self.get("/readyz").is_ok_and(|(status, _)| status == 200) {
                return Ok(self.started.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}:\n{}", self.log_end());
            }
            if self.started.elapsed() > READY_TIMEOUT {
                bail!("it is not ready in {READY_TIMEOUT:?}:\n{}", self.log_end());
            }
            std::thread::sleep(READY_INTERVAL);
        }
    }

    /// Its metrics.
    ///
    /// # Errors
    /// It does not answer.
    pub fn figures(&self) -> anyhow::Result<Figures> {
        Ok(Figures::parse(&self.page("/metrics")?))
    }

    /// One of its admin pages.
    ///
    /// # Errors
    /// It does not answer, or not with such a page.
    pub fn page(&self, path: &str) -> anyhow::Result<String> {
        let (status, text) = self.get(path)?;
        ensure!(status == 200, "{path} answers {status}");
        Ok(text)
    }

    /// Resident memory now and at its peak, in MiB.
    ///
    /// # Errors
    /// It has ended.
    pub fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        usage::memory_mib(self.child.id())
    }

    /// Processor time since its start.
    ///
    /// # Errors
    /// It has ended.
    pub fn processor_time(&self) -> anyhow::Result<Duration> {
        usage::processor_time(self.child.id())
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Streams that it has led to an endpoint.
    ///
    /// # Errors
    /// It does not answer.
    pub fn streams(&self) -> anyhow::Result<u64> {
        let figures = self.figures()?;
        let opened = figures.0.get("myriad_streams_total{event=\"opened\"}");
        Ok(*opened.context("there is no count of streams")? as u64)
    }

    /// Whether its metrics have this name.
    ///
    /// # Errors
    /// It does not answer.
    pub fn counts(&self, name: &str) -> anyhow::Result<bool> {
        let (_, text) = self.get("/metrics")?;
        Ok(text.lines().any(|line| line.starts_with(name)))
    }

    /// Kills it, as if the machine had.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.admin)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let admin = self.admin;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("there is a head")?;
        let status = head.split(' ').nth(1).context("there is a status")?;
        Ok((status.parse()?, body.to_owned()))
    }

    fn log_end(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let end = text.get(text.len().saturating_sub(LOG_END_BYTES)..);
        String::from_utf8_lossy(end.unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail where it has been killed and waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Figures {
    fn parse(text: &str) -> Figures {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        });
        Figures(pairs.collect())
    }

    /// A counter, by its name without prefix and `_total`.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn counter(&self, name: &str) -> anyhow::Result<u64> {
        let value = self.0.get(&format!("myriad_{name}_total"));
        let value = value.with_context(|| format!("there is no counter {name}"))?;
        Ok(*value as u64)
    }

    /// A gauge, by its name without prefix.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn gauge(&self, name: &str) -> anyhow::Result<f64> {
        let value = self.0.get(&format!("myriad_{name}"));
        Ok(*value.with_context(|| format!("there is no gauge {name}"))?)
    }
}

/// The binary: that of `MYRIAD_BIN`, or the one built beside this program.
///
/// # Errors
/// There is none.
pub fn program() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("MYRIAD_BIN") {
        return Ok(path.into());
    }
    let path = std::env::current_exe()?.with_file_name("myriad");
    ensure!(path.exists(), "{}: build it first", path.display());
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "# HELP myriad_sync_commits Commits.\nmyriad_sync_commits_total 17\n\
                    myriad_sync_proxies 2\n# EOF\n";
        let figures = Figures::parse(text);
        assert_eq!(figures.counter("sync_commits").unwrap(), 17);
        assert!(figures.counter("sync_proxies").is_err(), "it is a gauge");
        assert_eq!(figures.gauge("sync_proxies").unwrap(), 2.0);
        assert!(figures.gauge("sync_commits").is_err(), "it is a counter");
    }
}
