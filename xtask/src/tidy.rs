//! Limits and habits of style that a machine can hold.
//!
//! Each rule has a short name. A place that breaks a limit and is known to is listed by rule and
//! path in the ratchet file, which may only get shorter.

mod attributes;
mod habits;
mod names;
mod ratchet;
mod sizes;
#[cfg(test)]
mod tests;
mod types;

use crate::survey::{Role, Survey};
use crate::violation::Violation;

/// The file that lists the known offenders.
const RATCHET: &str = "xtask/ratchet.txt";

/// All violations but those on the ratchet, in order of path and line.
pub(crate) fn check(survey: &Survey) -> Vec<Violation> {
    let mut found = survey.unparsable.clone();
    for file in &survey.rust {
        found.extend(names::check(file));
        found.extend(types::check(file));
        found.extend(attributes::check(file));
        if file.role == Role::Orphan {
            found.push(orphan(&file.path));
        }
        if !file.generated {
            found.extend(sizes::check(file));
        }
    }
    for (path, text) in survey.tree.files() {
        found.extend(habits::check(path, text));
    }
    found.extend(habits::check_headers(survey));
    found.extend(attributes::check_denied(survey));
    found.extend(types::check_unique(survey));
    let mut left = ratchet::apply(RATCHET, survey.tree.text(RATCHET).unwrap_or(""), found);
    left.sort();
    left
}

fn orphan(path: &str) -> Violation {
    Violation {
        path: path.to_owned(),
        line: 1,
        rule: "orphan",
        what: "no target reaches this file by its `mod` declarations".to_owned(),
        remedy: "declare it as a module, or delete it",
    }
}
