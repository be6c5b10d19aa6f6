//! Limits of what clients can make grow, and what becomes of their paths.

use myriad_proxy::{Limits, PathRule};

use crate::cli::RawTraffic;

/// Checks settings.
pub fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> Limits {
    let mut limits = Limits::default();
    for text in &raw.limits {
        if let Err(error) = limits.set(text) {
            problems.push(format!("--limit: {error}"));
        }
    }
    let written = &raw.path_normalization;
    let mut rules = PathRule::ALL.into_iter();
    match rules.find(|(name, _)| name == written) {
        Some((_, rule)) => limits.paths = rule,
        None => {
            let names = PathRule::ALL.map(|(name, _)| name).join(", ");
            problems.push(format!(
                "--path-normalization is {written:?}, not one of {names}"
            ));
        }
    }
    limits
}
