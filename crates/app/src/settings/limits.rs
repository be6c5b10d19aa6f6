//! Limits of what clients can make grow, and what becomes of their paths.

use myriad_proxy::{Limits, PathRule};

use crate::cli::RawTraffic;

/// The rule of a name.
pub fn path_rule(name: &str) -> Option<PathRule> {
    let mut rules = PathRule::ALL.into_iter();
    rules
        .find(|(known, _)| *known == name)
        .map(|(_, rule)| rule)
}

/// Checks settings.
pub fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> Limits {
    let mut limits = Limits::default();
    for text in &raw.limits {
        if let Err(error) = limits.set(text) {
            problems.push(format!("--limit: {error}"));
        }
    }
    let Some(written) = &raw.path_normalization else {
        return limits;
    };
    match path_rule(written) {
        Some(rule) => limits.paths = rule,
        None => {
            let names = PathRule::ALL.map(|(name, _)| name).join(", ");
            problems.push(format!(
                "--path-normalization is {written:?}, not one of {names}"
            ));
        }
    }
    limits
}
