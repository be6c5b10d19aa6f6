//! The page about Istio's API against Istio's reference: each field of each message is said to be
//! honoured, equal by default or refused.

use std::collections::BTreeMap;

use super::reference::{REFERENCE, all_messages, json_name};

const PAGE: &str = include_str!("../../../../../docs/istio-reference.md");

/// The states that a row may give its fields.
const STATES: [&str; 3] = ["honoured", "equal by default", "refused"];

/// Per message, what the page says of its fields by their names in JSON.
fn read_page() -> BTreeMap<&'static str, BTreeMap<&'static str, &'static str>> {
    let mut messages: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut message = None;
    for line in PAGE.lines() {
        if line.starts_with('#') {
            message = line.strip_prefix("#### ");
            continue;
        }
        let (Some(message), Some(row)) = (message, line.strip_prefix("| `")) else {
            continue;
        };
        let mut cells = row.split(" | ");
        let fields = cells.next().unwrap_or_default().split("`, `");
        let state = cells.next().unwrap_or_default().trim_end_matches(" |");
        assert!(STATES.contains(&state), "{message}: {line}");
        for field in fields {
            let field = field.trim_end_matches('`');
            let known = messages.entry(message).or_default().insert(field, state);
            assert_eq!(known, None, "{message}: {field} stands twice");
        }
    }
    messages
}

#[test]
fn the_page_says_of_each_field_what_becomes_of_it() {
    let page = read_page();
    let ours = all_messages();
    let mut missing = Vec::new();
    for (message, names) in REFERENCE.lines().filter_map(|line| line.split_once(": ")) {
        let refused = ours.iter().find(|(known, _)| *known == message);
        let refused = refused.map_or(&[][..], |(_, ours)| ours.refused);
        let rows = page.get(message);
        let names: Vec<String> = names.split(' ').map(json_name).collect();
        for name in &names {
            match rows.and_then(|rows| rows.get(name.as_str())) {
                None => missing.push(format!("{message}: {name}")),
                Some(&state) => assert!(
                    state == "refused" || !refused.contains(&name.as_str()),
                    "{message}: {name} is not read and said to be {state}"
                ),
            }
        }
        for name in rows.into_iter().flat_map(BTreeMap::keys) {
            let is_known = names.iter().any(|known| known == name);
            assert!(is_known, "{message} has no field {name}");
        }
    }
    assert!(missing.is_empty(), "not on the page: {missing:#?}");
}
