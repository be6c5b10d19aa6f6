//! How many members there may be, and how much of the product one of them.

use super::graph::Graph;
use super::table::{Kind, MEMBERS_MAX, SHARE_FROM_LINES, wall};
use super::{Broken, in_manifest};
use crate::survey::Survey;
use crate::violation::Violation;

/// Checks the count of members and the shares of the product crates.
pub(super) fn check(graph: &Graph, survey: &Survey) -> Vec<Violation> {
    let mut found = Vec::new();
    let members = graph.members.len();
    if members > MEMBERS_MAX {
        found.push(Violation {
            path: "Cargo.toml".to_owned(),
            line: 1,
            rule: "members",
            what: format!("{members} members, limit {MEMBERS_MAX}"),
            remedy: "join two that change together",
        });
    }
    let sizes: Vec<(&str, usize)> = graph
        .members
        .iter()
        .filter(|m| wall(&m.name).is_some_and(|wall| wall.kind == Kind::Product))
        .map(|m| {
            let below = format!("{}/src/", m.folder);
            (&*m.folder, survey.production_lines_below(&below))
        })
        .collect();
    let total: usize = sizes.iter().map(|(_, lines)| lines).sum();
    if total > SHARE_FROM_LINES {
        let large = sizes.into_iter().filter(|(_, lines)| lines * 2 > total);
        found.extend(large.map(|(folder, lines)| {
            let what = format!("{lines} of {total} product lines, limit one half");
            let broken = Broken {
                rule: "share",
                what,
                remedy: "divide the crate where it forbids a direction",
            };
            in_manifest(survey, folder, "name", broken)
        }));
    }
    found
}
