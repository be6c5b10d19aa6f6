//! Runs points, each as a process of its own, in a cluster where it needs one.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::folder::{self, Folder};
use super::point::{Outcome, Point};
use super::programs::Programs;
use super::{Mode, now};
use crate::cluster::Shared;

/// How often a running point is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The longest reason that is kept, in letters.
const REASON_LETTERS_MAX: usize = 800;

/// How deep children of children are looked for.
const DEPTH_MAX: usize = 8;

/// Whatever runs points.
pub(super) struct Runner<'a> {
    folder: &'a Folder,
    programs: &'a Programs,
    limit: Duration,
    /// Whether points of another build of this program count.
    pub(super) other_builds: bool,
    /// The cluster of all points that need one, once it was needed; or why there is none.
    cluster: Option<Result<Shared, String>>,
    /// The program that is run.
    program: PathBuf,
}

impl<'a> Runner<'a> {
    /// One that has run nothing yet.
    pub(super) fn new(folder: &'a Folder, programs: &'a Programs, mode: Mode) -> Runner<'a> {
        let minutes = mode.pick(3, 30, 12 * 60);
        Runner {
            folder,
            programs,
            limit: Duration::from_secs(60 * minutes),
            other_builds: false,
            cluster: None,
            // Not by path: a build that replaces the file meanwhile must not change what runs.
            program: "/proc/self/exe".into(),
        }
    }

    /// The same with another program, for tests.
    #[cfg(test)]
    pub(super) fn running(self, program: PathBuf) -> Runner<'a> {
        Runner { program, ..self }
    }

    /// Takes a point, unless it was finished before.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn point(&mut self, experiment: &str, point: &Point) -> anyhow::Result<Outcome> {
        let (mut outcome, words) = point.prepare(self.programs);
        let Some(words) = words else {
            return Ok(outcome);
        };
        if let Some(kept) = self.folder.kept(experiment, &outcome.key) {
            return Ok(kept);
        }
        if self.other_builds
            && let Some(kept) = self.folder.kept_of_another_build(experiment, &outcome)
        {
            return Ok(kept);
        }
        let mut command = Command::new(&self.program);
        command.arg0("myriad-bench").args(&words);
        command.envs(self.programs.variables());
        if point.needs_cluster {
            match self.cluster.get_or_insert_with(start) {
                Ok(cluster) => cluster.enter_by(&mut command),
                Err(reason) => {
                    outcome.lack(format!("no cluster: {reason}"));
                    return Ok(outcome);
                }
            }
        }
        let begun = Instant::now();
        let ran = self.run(command);
        outcome.seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        outcome.ended = now()?;
        match ran {
            Ok((rows, failure)) => {
                outcome.rows = rows;
                failure.into_iter().for_each(|it| outcome.fail(it));
            }
            Err(error) => outcome.fail(format!("{error:#}")),
        }
        if outcome.is_finished() {
            self.folder.keep(experiment, &outcome)?;
        }
        Ok(outcome)
    }

    /// Ends the cluster, where there is one.
    ///
    /// # Errors
    /// It stays.
    pub(super) fn end(self) -> anyhow::Result<()> {
        match self.cluster {
            Some(Ok(cluster)) => cluster.end(),
            Some(Err(_)) | None => Ok(()),
        }
    }

    /// Runs a command to its end; its rows, and why it failed if it did.
    fn run(&self, mut command: Command) -> anyhow::Result<(Vec<Value>, Option<String>)> {
        let [rows, log] = self.folder.running();
        command.stdin(Stdio::null());
        command
            .stdout(File::create(&rows)?)
            .stderr(File::create(&log)?);
        let mut child = command.spawn()?;
        let status = wait(&mut child, self.limit)?;
        let text = folder::read(&rows)?;
        let mut all = Vec::new();
        let mut failure = None;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match serde_json::from_str::<Value>(line) {
                Ok(row) if row.is_object() => all.push(row),
                _ => failure = Some(format!("no JSON object: {}", shortened(line))),
            }
        }
        let complaint = || reason(&folder::read(&log).unwrap_or_default());
        match status {
            None => failure = Some(format!("cut off after {:?}", self.limit)),
            Some(status) if !status.success() => {
                failure = Some(format!("{status}: {}", complaint()));
            }
            Some(_) if all.is_empty() && failure.is_none() => {
                failure = Some(format!("no figures: {}", complaint()));
            }
            Some(_) => (),
        }
        for path in [rows, log] {
            // What stays behind is written over by the next point.
            let _ = std::fs::remove_file(path);
        }
        Ok((all, failure))
    }
}

fn start() -> Result<Shared, String> {
    Shared::start().map_err(|error| shortened(&format!("{error:#}")))
}

/// Waits for the end; a process that takes too long is ended with all that it started.
fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= limit {
            for process in descendants(child.id(), DEPTH_MAX) {
                // It may have ended by itself.
                let _ = kill_process(process, Signal::KILL);
            }
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// All processes that a process has started and that still run.
fn descendants(process: u32, depth: usize) -> Vec<Pid> {
    let mut all = Vec::new();
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let Some(deeper) = depth.checked_sub(1) else {
        return all;
    };
    for thread in threads.into_iter().flatten().flatten() {
        let children = folder::read(&thread.path().join("children")).unwrap_or_default();
        for child in children
            .split_whitespace()
            .filter_map(|it| it.parse::<i32>().ok())
        {
            all.extend(Pid::from_raw(child));
            all.extend(descendants(child.unsigned_abs(), deeper));
        }
    }
    all
}

/// The error of a log: from where it begins to where its stack does, or else its last lines.
fn reason(log: &str) -> String {
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect();
    let from = lines.iter().rposition(|line| line.starts_with("Error:"));
    let from = from.unwrap_or(lines.len().saturating_sub(3));
    let lines = &lines[from..];
    let stack = lines.iter().position(|line| *line == "Stack backtrace:");
    shortened(&lines[..stack.unwrap_or(lines.len())].join(" "))
}

fn shortened(text: &str) -> String {
    text.chars().take(REASON_LETTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_error_and_not_what_came_before() {
        let log = "starting\nError: no route\n\nCaused by:\n    gone\n";
        assert_eq!(reason(log), "Error: no route Caused by: gone");
        let log = format!("{log}\nStack backtrace:\n   0: main\n");
        assert_eq!(reason(&log), "Error: no route Caused by: gone");
        assert_eq!(reason("a\nb\nc\nd\n"), "b c d");
        assert_eq!(reason(""), "");
    }

    #[test]
    fn a_process_that_takes_too_long_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut line = [0; 16];
        let count = std::io::Read::read(&mut output, &mut line).unwrap();
        let sleeper = String::from_utf8_lossy(&line[..count]).trim().to_owned();
        let ended = wait(&mut child, Duration::from_millis(100)).unwrap();
        assert_eq!(ended, None);
        // A killed process may run on for a moment before the kernel ends it.
        let until = Instant::now() + Duration::from_secs(10);
        let path = format!("/proc/{sleeper}/stat");
        loop {
            let stat = folder::read(path.as_ref()).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z") {
                return;
            }
            assert!(Instant::now() < until, "{stat}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
