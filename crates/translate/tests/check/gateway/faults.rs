//! Faults of one tenant at a Gateway that it shares: `goldens/gateway-faults/<the fault>.yaml` has
//! a change on the ground of `goldens/gateway-faults.yaml`, and all that is seen of it. What others
//! have stays as it was, to the byte, and the way back is open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use myriad_api::gateway::status::{ObjectCondition, State, Status};
use myriad_api::{Change, Finding, Object, ObjectKey};
use myriad_model::{Key, Kind, Version};
use myriad_translate::{Engine, Outcome};

use crate::goldens::{self, BASE, check};
use crate::{render, world};

/// A Gateway of the platform, `infra`, and what the neighbour `blog` and the tenant have at it.
const GROUND: &str = include_str!("../../goldens/gateway-faults.yaml");

/// The namespace that makes the faults.
const TENANT: &str = "shop";

/// The condition that a listener also gets by what others ask for at its port. It says that names
/// overlap, and changes no answer.
const OVERLAP: &str = "OverlappingTLSConfig";

/// All that others than the tenant have, and are told.
#[derive(Debug, PartialEq)]
struct OfOthers {
    resources: BTreeMap<Key, Version>,
    statuses: Vec<Status>,
    findings: Vec<Finding>,
}

impl OfOthers {
    fn of(engine: &Engine) -> Self {
        let own = format!("{TENANT}/");
        let resources = engine.snapshot().iter().filter_map(|sealed| {
            let resource = sealed.resource().expect("the value is kept");
            let is_own = resource.origin.id.starts_with(&own);
            (!is_own).then(|| (sealed.key().clone(), sealed.version()))
        });
        // Classes are of no namespace, and the tenants' own here.
        let is_theirs = |key: &ObjectKey| ![TENANT, ""].contains(&key.namespace());
        let statuses = engine.statuses().filter(|it| is_theirs(&it.object));
        let findings = engine.findings();
        OfOthers {
            resources: resources.collect(),
            statuses: statuses.cloned().map(without_counts).collect(),
            findings: findings
                .filter(|it| it.object.as_ref().is_some_and(is_theirs))
                .cloned()
                .collect(),
        }
    }
}

impl OfOthers {
    /// The same without domains of hosts that had none: a route of the tenant brings them about at
    /// the listener of another, whose they are then.
    fn beside(mut self, before: &OfOthers) -> Self {
        self.resources
            .retain(|key, _| key.kind != Kind::Domain || before.resources.contains_key(key));
        self
    }
}

/// A status without what it counts of the objects of others, and without overlaps.
fn without_counts(mut status: Status) -> Status {
    let listeners = match &mut status.state {
        State::Gateway(gateway) => {
            gateway.attached_listener_sets = 0;
            &mut gateway.listeners
        }
        State::ListenerSet(set) => &mut set.listeners,
        State::Class(_) | State::Route(_) | State::Policy(_) => return status,
    };
    for listener in listeners.iter_mut() {
        listener.attached_routes = 0;
        let kept = listener.conditions.iter().filter(|it| it.kind != OVERLAP);
        let kept: Vec<ObjectCondition> = kept.cloned().collect();
        listener.conditions = kept.into();
    }
    status
}

/// The objects of the ground, by key.
fn ground() -> BTreeMap<ObjectKey, Object> {
    let changes = [BASE, GROUND].into_iter().flat_map(world::changes);
    let objects = changes.map(|change| match change {
        Change::Put(object) => (object.key().clone(), object),
        Change::Remove(key) => panic!("the ground removes {key}"),
    });
    objects.collect()
}

/// The changes that undo others on the ground.
fn undoing(changes: &[Change], ground: &BTreeMap<ObjectKey, Object>) -> Vec<Change> {
    let undo = |change: &Change| match ground.get(change.key()) {
        Some(object) => Change::Put(object.clone()),
        None => Change::Remove(change.key().clone()),
    };
    changes.iter().map(undo).collect()
}

#[test]
fn a_fault_is_told_to_whoever_made_it_and_seen_by_nobody_else() {
    let ground = ground();
    check("gateway-faults", |text| {
        let change = text.split("=== seen\n").next().unwrap_or(text);
        let mut engine = world::engine(world::settings(change));
        let objects = ground.values().cloned().map(Change::Put);
        engine.apply(objects.collect(), world::NOW);
        let (others, lines) = (OfOthers::of(&engine), render::lines(engine.snapshot()));
        let digest = engine.snapshot().digest();
        let told: Vec<Status> = engine.statuses().cloned().collect();

        let changes = world::changes(change);
        let undo = undoing(&changes, &ground);
        let outcome = engine.apply(changes, world::NOW);
        let seen = seen(&lines, &render::lines(engine.snapshot()), &outcome);
        assert_eq!(OfOthers::of(&engine).beside(&others), others, "{change}");
        assert!(!outcome.statuses.is_empty(), "nobody is told of {change}");

        engine.apply(undo, world::NOW);
        assert_eq!(engine.snapshot().digest(), digest, "once undone: {change}");
        assert!(engine.statuses().eq(&told), "once undone: {change}");
        format!("{change}=== seen\n{seen}")
    });
}

/// The lines of resources that differ, and what people are told.
fn seen(before: &[String], after: &[String], outcome: &Outcome) -> String {
    let mut text = String::new();
    for line in before.iter().filter(|line| !after.contains(line)) {
        text.push_str(&format!("- {line}\n"));
    }
    for line in after.iter().filter(|line| !before.contains(line)) {
        text.push_str(&format!("+ {line}\n"));
    }
    for status in &outcome.statuses.added {
        text.push_str(&render::status_text(status));
    }
    for finding in &outcome.findings.added {
        text.push_str(&format!("{finding}\n"));
    }
    text
}

/// Every row of the page has a test, every fault has a row, and conditions that the page names are
/// those that are seen.
#[test]
fn each_row_of_the_page_is_what_a_test_sees() {
    let page = include_str!("../../../../../docs/faults.md");
    let mut named = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [fault, told, .., tests] = cells[..] else {
            panic!("too few cells: {row}");
        };
        if fault.trim() == "fault" {
            continue;
        }
        let mut seen = String::new();
        let found = links(tests);
        assert!(!found.is_empty(), "no test: {row}");
        for (name, path) in found {
            let file = root().join(path);
            assert!(file.is_file(), "{path} is not there: {row}");
            let text = goldens::read(&file);
            match text.split_once("=== seen\n") {
                Some((_, golden)) => seen.push_str(golden),
                None => assert!(
                    text.contains(&format!("fn {name}(")),
                    "{path} has no {name}"
                ),
            }
            named.push(path);
        }
        let quoted = told.split('`').skip(1).step_by(2);
        for condition in quoted.filter(|it| it.contains('=') && it.contains('/')) {
            let is_seen = seen.is_empty() || seen.contains(condition);
            assert!(is_seen, "{condition} is not seen: {row}");
        }
    }
    for file in goldens::list("gateway-faults") {
        let name = file.file_name().expect("a name").to_string_lossy();
        let is_named = named.iter().any(|path| path.ends_with(&*name));
        assert!(is_named, "the page has no row for {name}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The links of a cell into the repository: texts and paths.
fn links(cell: &str) -> Vec<(&str, &str)> {
    let links = cell.split('[').skip(1).filter_map(|link| {
        let (name, rest) = link.split_once("](../")?;
        let (path, _) = rest.split_once(')')?;
        Some((name, path))
    });
    links.collect()
}
