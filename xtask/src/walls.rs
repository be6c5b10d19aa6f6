//! Allowed dependencies between crates, and between modules of those whose modules have an order.
//!
//! A wall is a crate border that Cargo enforces one way; the table says which way. An edge is
//! added by changing the table, where a reviewer sees it.

mod cycles;
mod edges;
mod graph;
mod order;
mod paths;
mod size;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use graph::Graph;

use crate::survey::Survey;
use crate::violation::Violation;

/// All violations, in order of path and line. A wall holds or is moved; only for cycles of files
/// there is a ratchet.
pub(crate) fn check(graph: &Graph, survey: &Survey) -> Vec<Violation> {
    let mut found = edges::check(graph, survey);
    found.extend(size::check(graph, survey));
    found.extend(order::check(survey));
    found.extend(cycles::check(survey, table::KNOWN_CYCLES));
    found.sort();
    found
}

/// A violation that stands in the manifest of a member, at the line that names `dependency`.
fn in_manifest(survey: &Survey, folder: &str, dependency: &str, broken: Broken) -> Violation {
    let path = format!("{folder}/Cargo.toml");
    let text = survey.tree.text(&path).unwrap_or_default();
    let named = text.lines().position(|line| {
        let rest = line.strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    });
    Violation {
        path,
        line: named.map_or(1, |index| index + 1),
        rule: broken.rule,
        what: broken.what,
        remedy: broken.remedy,
    }
}

/// A manifest that breaks a rule, and how.
struct Broken {
    rule: &'static str,
    what: String,
    remedy: &'static str,
}
