use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};

use super::{FINDING_BYTES, FINDING_BYTES_LEAST, Room, namespace_told, weight};
use crate::engine::Unit;
use crate::engine::unit::UnitId;

/// The findings that fit in a namespace.
const FIT: u64 = 5;

/// A ledger of so many findings as units tell, beside the room.
struct World {
    room: Room,
    told: BTreeMap<UnitId, Vec<Arc<Finding>>>,
    crowded: BTreeSet<Arc<str>>,
}

fn unit(id: UnitId) -> Unit {
    Unit::upstream(format!("u{id}").into())
}

fn finding(namespace: &str, number: usize) -> Finding {
    let key = ObjectKey::new(ObjectKind::VirtualService, namespace, "a");
    let field = format!("spec.gateways[{number}]");
    Finding::new(Severity::Error, &key, field, "is not there", "name another")
}

impl World {
    fn new() -> Self {
        World {
            room: Room::new(Some(FIT * FINDING_BYTES_LEAST)),
            told: BTreeMap::new(),
            crowded: BTreeSet::new(),
        }
    }

    /// A unit finds so much about each namespace. Returns the units that run again then.
    fn find(&mut self, id: UnitId, found: &[(&str, usize)]) -> Vec<Unit> {
        let findings = found.iter();
        let findings = findings.flat_map(|(namespace, count)| {
            let numbers = 0..*count;
            numbers.map(move |number| finding(namespace, number))
        });
        let mut findings: Vec<Finding> = findings.collect();
        let former = self.told.remove(&id).unwrap_or_default();
        let crowding = self.room.admit((id, &unit(id)), &former, &mut findings);
        self.told
            .insert(id, findings.into_iter().map(Arc::new).collect());
        for (other, namespace) in crowding.out {
            let other = (0..9).find(|it| unit(*it) == other).expect("a unit");
            let told = self.told.get_mut(&other).expect("it told something");
            told.retain(|it| namespace_told(it) != Some(&*namespace));
            self.room.leave_out(other, namespace);
        }
        for (namespace, is_crowded) in crowding.turned {
            let is_other = match is_crowded {
                true => self.crowded.insert(namespace),
                false => self.crowded.remove(&namespace),
            };
            assert!(is_other, "told once");
        }
        self.room.take_back().into_iter().collect()
    }

    /// How many findings each unit tells about a namespace.
    fn told(&self, namespace: &str) -> Vec<usize> {
        let of = |told: &Vec<Arc<Finding>>| {
            let told = told
                .iter()
                .filter(|it| namespace_told(it) == Some(namespace));
            told.count()
        };
        self.told.values().map(of).collect()
    }

    fn is_crowded(&self, namespace: &str) -> bool {
        self.crowded.contains(namespace)
    }
}

#[test]
fn the_first_units_tell_what_they_find_whatever_order_they_ran_in() {
    let found = [(0, 2), (1, 2), (2, 3), (3, 1)];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let mut world = World::new();
        for at in order {
            let (id, count) = found[at];
            world.find(id, &[("shop", count), ("blog", 1)]);
        }
        // The third does not fit, and so nobody behind it tells anything.
        assert_eq!(world.told("shop"), [2, 2, 0, 0], "{order:?}");
        assert_eq!(world.told("blog"), [1, 1, 1, 1], "{order:?}");
        assert!(world.is_crowded("shop") && !world.is_crowded("blog"));
    }
}

#[test]
fn a_unit_for_whose_findings_there_is_room_runs_again() {
    let mut world = World::new();
    for id in 0..3 {
        assert!(world.find(id, &[("shop", 2)]).is_empty());
    }
    assert_eq!(world.told("shop"), [2, 2, 0]);
    // The same again moves nobody, whether it is told or not.
    assert!(world.find(1, &[("shop", 2)]).is_empty());
    assert!(world.find(2, &[("shop", 2)]).is_empty());
    assert_eq!(world.told("shop"), [2, 2, 0]);
    assert_eq!(world.find(0, &[("shop", 1)]), [unit(2)]);
    assert!(!world.is_crowded("shop"), "all have room");
    assert!(world.find(2, &[("shop", 2)]).is_empty());
    assert_eq!(world.told("shop"), [1, 2, 2]);
    // Whoever finds more takes the place of those behind it.
    assert!(world.find(0, &[("shop", 4)]).is_empty());
    assert_eq!(world.told("shop"), [4, 0, 0]);
    assert_eq!(world.find(0, &[]), [unit(1), unit(2)]);
    for id in 1..3 {
        world.find(id, &[("shop", 2)]);
    }
    assert_eq!(world.told("shop"), [0, 2, 2]);
    for id in 1..3 {
        world.find(id, &[]);
    }
    assert!(world.room.rows.is_empty() && world.room.left_out.is_empty());
}

#[test]
fn one_that_tells_nothing_and_goes_leaves_nothing() {
    let mut world = World::new();
    world.find(0, &[("shop", 5)]);
    world.find(1, &[("shop", 1), ("blog", 2)]);
    assert_eq!(
        (world.told("shop"), world.told("blog")),
        (vec![5, 0], vec![0, 2])
    );
    assert!(world.find(1, &[]).is_empty());
    assert!(!world.is_crowded("shop"));
    assert!(world.room.left_out.is_empty() && world.room.rows.len() == 1);
}

#[test]
fn findings_count_for_their_texts_and_for_some_bytes_at_least() {
    assert_eq!(weight(&finding("shop", 1)), FINDING_BYTES_LEAST);
    let key = ObjectKey::new(ObjectKind::Ingress, "shop", "a");
    let long = "x".repeat(1 << 10);
    let long = Finding::new(Severity::Info, &key, long.as_str(), long.as_str(), "");
    assert_eq!(weight(&long), FINDING_BYTES + (2 << 10));
}

#[test]
fn where_nothing_is_bounded_nothing_is_noted() {
    let mut room = Room::new(None);
    let mut findings: Vec<Finding> = (0..100).map(|at| finding("shop", at)).collect();
    let crowding = room.admit((1, &unit(1)), &[], &mut findings);
    assert!(crowding.out.is_empty() && crowding.turned.is_empty());
    assert!(findings.len() == 100 && room.rows.is_empty());
}
