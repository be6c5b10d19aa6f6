//! The machine that all was measured on.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::folder;

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// The processor's model, as it says it.
    pub processor: String,
    /// Cores that this process may run on.
    pub cores: usize,
    /// Memory.
    pub memory_mib: u64,
    /// The kernel's version.
    pub kernel: String,
}

impl Machine {
    /// The machine that this runs on. What cannot be read stays empty.
    pub(super) fn look() -> Machine {
        let text = |path: &str| folder::read(Path::new(path)).unwrap_or_default();
        let memory = field(&text("/proc/meminfo"), "MemTotal");
        let memory = memory
            .split(' ')
            .next()
            .and_then(|it| it.parse::<u64>().ok());
        Machine {
            processor: field(&text("/proc/cpuinfo"), "model name"),
            cores: cores(),
            memory_mib: memory.unwrap_or(0) / 1_024,
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// Cores that this process may run on.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The value behind a name and a colon, on the first line that has it.
fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_the_text_behind_its_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(field(text, "model name"), "Some CPU @ 2 GHz");
        assert_eq!(field("MemTotal:  8192 kB\n", "MemTotal"), "8192 kB");
        assert_eq!(field(text, "flags"), "");
        let machine = Machine::look();
        assert!(machine.cores > 0 && machine.memory_mib > 0, "{machine:?}");
    }
}
