//! The resources that a process has used, as the kernel counts them.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// The longest of the files that are read.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// Resident memory now and at its peak, in MiB.
///
/// # Errors
/// The process has ended.
pub fn memory_mib(process: u32) -> anyhow::Result<(f64, f64)> {
    let text = read(format!("/proc/{process}/status").as_ref())?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<f64>().ok()
    };
    let (now, peak) = (field("VmRSS:"), field("VmHWM:"));
    Ok((
        now.context("VmRSS")? / 1_024.0,
        peak.context("VmHWM")? / 1_024.0,
    ))
}

/// Processor time of all threads that run now.
///
/// # Errors
/// The process has ended.
pub fn processor_time(process: u32) -> anyhow::Result<Duration> {
    let mut sum = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may have ended since it was listed.
        if let Ok(text) = read(&thread?.path().join("schedstat")) {
            sum += worked(&text)?;
        }
    }
    Ok(sum)
}

/// Processor time of a thread of this process.
///
/// # Errors
/// It has ended.
pub fn thread_time(thread: i32) -> anyhow::Result<Duration> {
    worked(&read(
        format!("/proc/self/task/{thread}/schedstat").as_ref(),
    )?)
}

fn worked(schedstat: &str) -> anyhow::Result<Duration> {
    let nanos = schedstat
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok());
    Ok(Duration::from_nanos(nanos.context("schedstat")?))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_has_worked() {
        let own = std::process::id();
        let (now, peak) = memory_mib(own).unwrap();
        assert!(now > 0.0 && peak >= now, "{now} of {peak}");
        assert!(processor_time(own).unwrap() > Duration::ZERO);
    }
}
