//! Several generator processes for one run: each has a segment of it, and all begin at once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, ensure};

use super::outcome::Outcome;

/// The word by which a generator says that its connections are there.
const READY: &str = "ready";

/// The option that makes a process one of several, with its number from 0.
pub(super) const PART: &str = "--part";

/// A generator in a process of its own; it is killed when this is dropped.
struct Generator {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Runs this very command in so many processes, each a part of it.
pub(super) fn run(count: u64) -> anyhow::Result<Outcome> {
    let generators = (0..count).map(Generator::start);
    let mut generators = generators.collect::<anyhow::Result<Vec<_>>>()?;
    for generator in &mut generators {
        let line = generator.line()?;
        ensure!(line == READY, "a generator said {line:?}");
    }
    for generator in &mut generators {
        writeln!(generator.input, "begin").context("a generator has ended")?;
        generator.input.flush().context("a generator has ended")?;
    }
    let mut outcome = Outcome::new()?;
    for mut generator in generators {
        let line = generator.line()?;
        outcome.add(serde_json::from_str(&line)?)?;
        let status = generator.child.wait()?;
        ensure!(status.success(), "a generator ended with {status}");
    }
    Ok(outcome)
}

/// Says, as such a process, that it is ready, and waits until it may begin.
pub(super) fn wait_for_begin() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{READY}")?;
    out.flush()?;
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line)?;
    ensure!(read > 0, "the command of which this is a part has ended");
    Ok(())
}

/// Says, as such a process, what came of it.
pub(super) fn tell(outcome: &Outcome) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, outcome)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

impl Generator {
    fn start(number: u64) -> anyhow::Result<Generator> {
        // Not by path: a build may put another file in its place meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("myriad-bench");
        // Options behind a URL are options still.
        command.args(std::env::args_os().skip(1));
        command.arg(format!("{PART}={number}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let output = child.stdout.take().context("a pipe")?;
        Ok(Generator {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line)?;
        ensure!(read > 0, "a generator has ended");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Both fail where it has ended by itself and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
