//! Gives back the pages of the binary that only the start of the process needed.
//!
//! The system maps 64 KiB around each page of code that is touched, and a start touches most of
//! them once: the command line, settings, the first configuration. At rest a proxy runs a few
//! hundred KiB. The rest would count as its memory for as long as it lives, on a node with a
//! sidecar per Pod in each of them. Pages that are wanted again come back from the page cache,
//! by a fault that reads no disk.
#![allow(
    unsafe_code,
    reason = "unmapping pages has no safe form; the ranges are the kernel's own, and unwritten"
)]

use std::ops::Range;
use std::time::Duration;

use myriad_base::kernel;
use myriad_base::readiness::Readiness;
use rustix::mm::{Advice, madvise};

/// How long after readiness the start counts as over.
const SETTLED: Duration = Duration::from_secs(1);

/// The longest list of mappings that is read, in bytes; one has about 600.
const MAPPINGS_BYTES_MAX: u64 = 1 << 20;

/// Waits until the process is ready, and gives back once. A failure costs only memory.
pub async fn give_back_when_ready(readiness: Readiness) {
    loop {
        tokio::time::sleep(SETTLED).await;
        if readiness.pending().is_empty() {
            break;
        }
    }
    match give_back() {
        Ok(bytes) => tracing::debug!(bytes, "gave back the pages of the start"),
        Err(error) => tracing::debug!(%error, "the pages of the start stay"),
    }
}

/// Unmaps the resident pages of the binary's code and constants, and says how many bytes of
/// address space they are in.
fn give_back() -> std::io::Result<usize> {
    let binary = std::fs::read_link("/proc/self/exe")?;
    let mappings = kernel::text("/proc/self/smaps", MAPPINGS_BYTES_MAX)?;
    let mut bytes = 0;
    for range in unwritten(&mappings, &binary.to_string_lossy()) {
        let length = range.end - range.start;
        // SAFETY: the range is a whole mapping of this process, of a file, that cannot be written
        // and holds no page of its own: whatever is read there next is read from the file again.
        unsafe { madvise(range.start as *mut _, length, Advice::LinuxDontNeed) }?;
        bytes += length;
    }
    Ok(bytes)
}

/// The mappings of `binary` that nobody can write, and in which nothing differs from the file:
/// what the loader relocated is left out, for it would be lost.
fn unwritten(mappings: &str, binary: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in mappings.lines() {
        if let Some(anonymous) = line.strip_prefix("Anonymous:") {
            let range = candidate.take();
            found.extend(range.filter(|_| anonymous.trim() == "0 kB"));
        } else if let Some(range) = range_of(line) {
            candidate = is_unwritable_part(line, binary).then_some(range);
        }
    }
    found
}

/// The addresses at the start of a mapping's first line.
fn range_of(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

fn is_unwritable_part(line: &str, binary: &str) -> bool {
    let mode = line.split_whitespace().nth(1);
    matches!(mode, Some("r--p" | "r-xp")) && line.ends_with(&format!(" {binary}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_equals_the_file_is_given_back() {
        let mappings = "\
            1000-2000 r--p 00000000 fe:00 7    /bin/myriad\nRss: 4 kB\nAnonymous: 0 kB\n\
            2000-5000 r-xp 00001000 fe:00 7    /bin/myriad\nRss: 4 kB\nAnonymous:   0 kB\n\
            5000-6000 r--p 00004000 fe:00 7    /bin/myriad\nRss: 4 kB\nAnonymous: 4 kB\n\
            6000-7000 rw-p 00005000 fe:00 7    /bin/myriad\nRss: 4 kB\nAnonymous: 0 kB\n\
            8000-9000 r-xp 00001000 fe:00 8    /lib/libc.so\nRss: 4 kB\nAnonymous: 0 kB\n";
        let found = unwritten(mappings, "/bin/myriad");
        assert_eq!(found, vec![0x1000..0x2000, 0x2000..0x5000]);
    }

    #[test]
    fn the_process_goes_on_with_less_of_its_code() {
        static RELOCATED: [&str; 2] = ["kept", "here"];
        let bytes = give_back().unwrap();
        assert!(bytes > 64 << 10, "no code was found: {bytes}");
        assert_eq!(std::hint::black_box(RELOCATED).concat(), "kepthere");
    }
}
