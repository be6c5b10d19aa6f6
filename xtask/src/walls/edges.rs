//! Edges between members, and packages that a member must not lead to.

use super::graph::{Graph, Member};
use super::table::{Kind, Wall, wall};
use super::{Broken, in_manifest};
use crate::survey::Survey;
use crate::violation::Violation;

/// Checks every member against its wall.
pub(super) fn check(graph: &Graph, survey: &Survey) -> Vec<Violation> {
    let members = graph.members.iter();
    let found = members.flat_map(|member| match wall(&member.name) {
        Some(wall) => check_member(graph, survey, member, wall),
        None => vec![in_manifest(survey, &member.folder, "name", unknown(member))],
    });
    found.collect()
}

fn check_member(graph: &Graph, survey: &Survey, member: &Member, wall: &Wall) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut add = |dependency: &str, broken: Broken| {
        found.push(in_manifest(survey, &member.folder, dependency, broken));
    };
    if member.folder != wall.folder {
        add("name", misplaced(member, wall));
    }
    let normal = graph.normal(member);
    for to in &normal {
        if graph.members.iter().any(|m| m.name == *to) && !wall.sees.contains(to) {
            add(to, forbidden_edge(wall, to));
        }
        if wall.never_directly.contains(to) {
            add(to, forbidden_directly(wall, to));
        }
    }
    for to in graph.all(member) {
        let tool = super::table::wall(to).is_some_and(|wall| wall.kind == Kind::Tool);
        if tool && !normal.contains(to) {
            add(to, depends_on_tool(wall, to));
        }
    }
    for never in wall.never {
        if let Some(way) = graph.way(member, never) {
            add(way.first().unwrap_or(never), reaches(wall, never, &way));
        }
    }
    found
}

fn unknown(member: &Member) -> Broken {
    Broken {
        rule: "member",
        what: format!("`{}` is not among the known members", member.name),
        remedy: "add it to xtask/src/walls/table.rs with what it may see, and the reason",
    }
}

fn misplaced(member: &Member, wall: &Wall) -> Broken {
    Broken {
        rule: "member",
        what: format!(
            "`{}` lies in {}, not in {}",
            member.name, member.folder, wall.folder
        ),
        remedy: "move it, or change the table",
    }
}

fn forbidden_edge(wall: &Wall, to: &str) -> Broken {
    Broken {
        rule: "edge",
        what: format!("`{}` must not depend on `{to}`: {}", wall.name, wall.reason),
        remedy: "turn the edge round, or let the app join the two",
    }
}

fn forbidden_directly(wall: &Wall, to: &str) -> Broken {
    Broken {
        rule: "edge",
        what: format!("`{}` must not depend on `{to}` itself", wall.name),
        remedy: "write a small error type that says who is to blame and whether to retry",
    }
}

fn depends_on_tool(wall: &Wall, to: &str) -> Broken {
    Broken {
        rule: "edge",
        what: format!("`{}` depends on the tool `{to}`", wall.name),
        remedy: "move the test to the tool: no product crate depends on one, not even for tests",
    }
}

fn reaches(wall: &Wall, never: &str, way: &[&str]) -> Broken {
    Broken {
        rule: "reach",
        what: format!(
            "`{}` must not reach `{never}`, but does by {}: {}",
            wall.name,
            way.join(" -> "),
            wall.reason
        ),
        remedy: "drop the dependency or the feature that pulls it in",
    }
}
