//! The memory that the process may have: as written, or as the system limits it.

use std::path::{Path, PathBuf};

use myriad_base::kernel;
use rustix::process::{Resource, getrlimit};

/// The longest file of a control group that is read.
const FILE_BYTES_MAX: u64 = 4_096;

/// Beyond this a limit is none: kernels write no limit as a very large one.
const LIMIT_MAX: u64 = 1 << 60;

/// Checks the setting; `auto` takes the least of what the system allows, and 0 is no budget.
pub(super) fn read(written: &str, problems: &mut Vec<String>) -> Option<u64> {
    if written == "auto" {
        return allowed();
    }
    let bytes = parse(written);
    if bytes.is_none() {
        problems.push(format!(
            "--memory-max is {written:?}, not auto, 0, or bytes with KiB, MiB or GiB"
        ));
    }
    bytes.filter(|bytes| *bytes > 0)
}

/// Bytes with a unit.
pub(super) fn parse(written: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let found = units
        .iter()
        .find_map(|(unit, shift)| Some((written.strip_suffix(unit)?, *shift)));
    let (number, shift) = found.unwrap_or((written, 0));
    let number: u64 = number.parse().ok()?;
    number.checked_mul(1 << shift)
}

/// The least of the limits of the control group, of those above it, and of the process.
fn allowed() -> Option<u64> {
    let of_process = [Resource::As, Resource::Data]
        .into_iter()
        .filter_map(|resource| getrlimit(resource).current);
    let of_group = own_group().into_iter().flat_map(|group| {
        let above: Vec<PathBuf> = group.ancestors().map(Path::to_owned).collect();
        above
            .into_iter()
            .filter_map(|group| kernel::number(&small(&group.join("memory.max"))?, 0))
    });
    of_process
        .chain(of_group)
        .filter(|limit| *limit < LIMIT_MAX)
        .min()
}

/// The directory of the process's control group (version 2). Within a container it is the root.
fn own_group() -> Option<PathBuf> {
    let groups = small(Path::new("/proc/self/cgroup"))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new("/sys/fs/cgroup").join(group))
}

fn small(path: &Path) -> Option<String> {
    kernel::text(path, FILE_BYTES_MAX).ok()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_budget_is_bytes_with_a_unit_or_none() {
        let mut problems = Vec::new();
        let of = |text: &str, problems: &mut Vec<String>| read(text, problems);
        assert_eq!(of("512MiB", &mut problems), Some(512 << 20));
        assert_eq!(of("1000", &mut problems), Some(1_000));
        assert_eq!(of("0", &mut problems), None);
        assert!(problems.is_empty());
        for wrong in ["", "MiB", "-1", "1 MiB", "1MB", "99999999999GiB"] {
            assert_eq!(of(wrong, &mut problems), None);
        }
        assert_eq!(problems.len(), 6, "{problems:?}");
    }
}
