//! The list of known offenders: it hides a violation, and tells when it no longer has to.

use crate::violation::Violation;

/// Drops the violations that the list names, and adds one for each entry that names none.
pub(super) fn apply(path: &str, list: &str, found: Vec<Violation>) -> Vec<Violation> {
    let mut entries: Vec<Entry<'_>> = entries(list).collect();
    let mut left = Vec::new();
    for violation in found {
        let entry = entries.iter_mut().find(|entry| entry.names(&violation));
        match entry {
            Some(entry) => entry.used = true,
            None => left.push(violation),
        }
    }
    let unused = entries.iter().filter(|entry| !entry.used);
    left.extend(unused.map(|entry| Violation {
        path: path.to_owned(),
        line: entry.line,
        rule: "ratchet",
        what: format!("`{} {}` no longer offends", entry.rule, entry.place),
        remedy: "delete the entry: the list may only get shorter",
    }));
    left
}

struct Entry<'a> {
    line: usize,
    rule: &'a str,
    place: &'a str,
    used: bool,
}

impl Entry<'_> {
    fn names(&self, violation: &Violation) -> bool {
        self.rule == violation.rule && self.place == violation.path
    }
}

fn entries(list: &str) -> impl Iterator<Item = Entry<'_>> {
    let lines = list.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(index, line)| {
        let (rule, place) = line.split_once(' ').unwrap_or((line, ""));
        Entry {
            line: index + 1,
            rule,
            place: place.trim(),
            used: false,
        }
    })
}
