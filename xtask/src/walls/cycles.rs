//! Files of one crate that name each other in a circle: none can be read or tested alone.
//!
//! A module that names its own submodules is no part of a circle, since they are its parts; a
//! submodule that names its parent may be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::paths;
use super::table::{Kind, WALLS};
use crate::survey::{Role, RustFile, Survey};
use crate::violation::Violation;

/// The file that lists the cycles that are left.
const TABLE: &str = "xtask/src/walls/table.rs";

/// The files that each file of a crate names, by path; its own submodules are left out.
type Names<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Checks every crate of the product. Each row of `known` has the files of a cycle that is still
/// allowed: it may lose files, and none may join.
pub(super) fn check(survey: &Survey, known: &[&[&str]]) -> Vec<Violation> {
    let crates = WALLS.iter().filter(|wall| wall.kind == Kind::Product);
    let mut found = Vec::new();
    let mut entangled: BTreeSet<&str> = BTreeSet::new();
    for wall in crates {
        let names = names(survey, &format!("{}/src/", wall.folder));
        for cycle in cycles(&names) {
            entangled.extend(&cycle);
            let is_known = |row: &&[&str]| cycle.iter().all(|file| row.contains(file));
            if !known.iter().any(is_known) {
                found.extend(broken(&names, &cycle));
            }
        }
    }
    let listed = known.iter().copied().flatten();
    let free = listed.filter(|file| !entangled.contains(*file));
    found.extend(free.map(|file| Violation {
        path: TABLE.to_owned(),
        line: 1,
        rule: "cycle",
        what: format!("`{file}` is in no cycle any more"),
        remedy: "delete it from KNOWN_CYCLES: the table may only get shorter",
    }));
    found
}

/// The modules that the production files below a folder name.
fn names<'a>(survey: &'a Survey, source: &str) -> Names<'a> {
    let files = survey.rust.iter();
    let files = files.filter(|file| file.role == Role::Production);
    let files: Vec<(Vec<String>, &RustFile)> = files
        .filter_map(|file| Some((modules_of(file.path.strip_prefix(source)?), file)))
        .collect();
    let by_module: BTreeMap<&[String], &str> = files
        .iter()
        .map(|(modules, file)| (&**modules, &*file.path))
        .collect();
    let mut names = Names::new();
    for (modules, file) in &files {
        let named = names.entry(&file.path).or_default();
        for (path, _) in paths::named(&file.syntax, modules.clone()) {
            let target = (0..=path.len()).rev().find_map(|length| {
                let target = path.get(..length)?;
                Some((target, *by_module.get(target)?))
            });
            if let Some((target, to)) = target
                && !target.starts_with(modules)
            {
                named.insert(to);
            }
        }
    }
    names
}

/// The modules that lead to a file, from the root of its crate.
fn modules_of(within: &str) -> Vec<String> {
    let within = within.strip_suffix(".rs").unwrap_or(within);
    let within = within.strip_suffix("/mod").unwrap_or(within);
    match within {
        "lib" | "main" => Vec::new(),
        within => within.split('/').map(str::to_owned).collect(),
    }
}

/// The sets of files of which each leads to each other, in order of their first files.
fn cycles<'a>(names: &Names<'a>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = names
        .keys()
        .map(|file| (*file, reached_from(names, file)))
        .collect();
    let leads = |from: &str, to: &str| reached.get(from).is_some_and(|files| files.contains(to));
    let mut cycles: Vec<Vec<&str>> = Vec::new();
    for file in names.keys().filter(|file| leads(file, file)) {
        if !cycles.iter().flatten().any(|other| other == file) {
            let members = names.keys().copied();
            cycles.push(
                members
                    .filter(|other| leads(file, other) && leads(other, file))
                    .collect(),
            );
        }
    }
    cycles
}

/// All files that a file leads to; itself only where something leads back.
fn reached_from<'a>(names: &Names<'a>, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut queue: Vec<&str> = vec![file];
    while let Some(from) = queue.pop() {
        for to in names.get(from).into_iter().flatten() {
            if reached.insert(*to) {
                queue.push(to);
            }
        }
    }
    reached
}

/// A cycle that is not known, shown by the shortest way round from its first file.
fn broken(names: &Names<'_>, cycle: &[&str]) -> Option<Violation> {
    let first = cycle.first()?;
    let mut way = way_round(names, first);
    way.push(first);
    Some(Violation {
        path: (*first).to_owned(),
        line: 1,
        rule: "cycle",
        what: format!(
            "{} files name each other in a circle: {}",
            cycle.len(),
            way.join(" -> ")
        ),
        remedy: "move what they share into a file below them, or hand it in from above",
    })
}

/// The shortest way from a file back to it, without the end.
fn way_round<'a>(names: &Names<'a>, first: &'a str) -> Vec<&'a str> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([first]);
    while let Some(from) = queue.pop_front() {
        for to in names.get(from).into_iter().flatten() {
            if *to == first {
                let back = |file: &&str| came_from.get(file).copied();
                let mut way: Vec<&str> = std::iter::successors(Some(from), back).collect();
                way.reverse();
                return way;
            }
            if !came_from.contains_key(to) {
                came_from.insert(to, from);
                queue.push_back(to);
            }
        }
    }
    vec![first]
}
