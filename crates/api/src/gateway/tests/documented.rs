//! The page about Gateway API against its definitions: each field of each message is said to be
//! honoured, without effect, refused or for people.

use std::collections::{BTreeMap, BTreeSet};

use super::schema::SCHEMA;

const PAGE: &str = include_str!("../../../../../docs/gateway-api.md");

/// The beginnings of what a row says.
const STATES: [&str; 4] = ["honoured", "without effect", "refused", "for people"];

/// The texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The fields of each section, with the places that it is about, by its heading.
fn read_page() -> BTreeMap<&'static str, (Vec<&'static str>, Vec<&'static str>)> {
    let (_, tables) = PAGE
        .split_once("\n## Every field\n")
        .expect("the tables are the end");
    let mut sections = BTreeMap::new();
    for section in tables.split("\n#### ").skip(1) {
        let (heading, rest) = section.split_once('\n').expect("a heading");
        let (places, rows) = rest.split_once("\n| fields | |\n").expect("a table");
        assert!(places.trim_start().starts_with("In `"), "{heading}");
        let mut fields = Vec::new();
        for row in rows.lines().filter_map(|line| line.strip_prefix("| `")) {
            let (names, told) = row.split_once("` | ").expect("two cells");
            let is_known = STATES.iter().any(|state| told.starts_with(state));
            assert!(is_known, "{heading}: {told}");
            fields.extend(names.split("`, `"));
        }
        sections.insert(heading, (quoted(places).collect(), fields));
    }
    sections
}

#[test]
fn the_page_says_of_each_field_what_becomes_of_it() {
    let mut open: BTreeSet<String> = BTreeSet::new();
    for line in SCHEMA.lines() {
        let (path, names) = line.split_once(": ").expect("a path and names");
        open.extend(names.split(' ').map(|name| format!("{path}.{name}")));
    }
    let all = open.clone();
    for (heading, (places, fields)) in read_page() {
        for field in fields {
            let mut is_any = false;
            for place in &places {
                let path = format!("{place}.{field}");
                if all.contains(&path) {
                    is_any = true;
                    assert!(open.remove(&path), "{path} stands twice");
                }
            }
            assert!(is_any, "{heading}: nothing has a field {field}");
        }
    }
    assert!(open.is_empty(), "not on the page: {open:#?}");
}
