mod fairness;

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use myriad_api::{Batch, Change, Object, ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};
use myriad_model::{Digest, Form, Sealer, Writer};
use myriad_translate::Engine;
use proptest::prelude::*;
use serde_json::json;

use super::{Fairness, Holders, Positions, Queue, Shares, Turn};

/// A cut, and the changes that were taken in with it.
struct WholeCut {
    changes: Vec<Change>,
    positions: Positions,
    since: Instant,
    holders: Holders,
    wanted: Vec<ObjectKey>,
}

impl Queue {
    /// The next changes to translate, however long they take to take in.
    fn cut(&mut self, now: Instant) -> WholeCut {
        let mut changes = Vec::new();
        let cut = self.cut_while(now, &mut |change| {
            changes.push(change);
            true
        });
        assert_eq!(changes.len(), cut.count);
        WholeCut {
            changes,
            positions: cut.positions,
            since: cut.since,
            holders: cut.holders,
            wanted: cut.wanted,
        }
    }
}

fn ingress(namespace: &str, number: usize, service: &str) -> Object {
    let value = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"namespace": namespace, "name": format!("i{number}")},
        "spec": {"rules": [{
            "host": format!("h{number}.{namespace}.test"),
            "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {
                "service": {"name": service, "port": {"number": 80}}
            }}]}
        }]}
    });
    Object::deserialize(ObjectKind::Ingress, value).expect("an Ingress")
}

fn put(namespace: &str, numbers: std::ops::Range<usize>) -> Batch {
    let changes = numbers.map(|number| Change::Put(ingress(namespace, number, "s")));
    batch(changes.collect(), 0)
}

fn batch(changes: Vec<Change>, revision: u64) -> Batch {
    Batch {
        changes,
        positions: vec![(ObjectKind::Ingress, revision)],
        ..Batch::default()
    }
}

fn queue() -> Queue {
    sharing(Shares::FAIR)
}

/// A queue where one costly namespace may have a fifth of the time.
fn sharing(shares: Shares) -> Queue {
    let settings = myriad_translate::Settings::default();
    Queue::new(Fairness::new(shares, 20, &settings))
}

#[test]
fn one_change_does_not_wait_for_ten_thousand_of_another_namespace() {
    let mut queue = queue();
    let now = clock::now();
    queue.push(put("a", 0..10_000), now);
    let first = queue.cut(now);
    assert_eq!(first.changes.len(), 64);
    queue.push(put("b", 0..1), now);
    queue.push(put("a", 0..10_000), now);
    let second = queue.cut(now);
    let namespaces = second.changes.iter().map(|change| change.key().namespace());
    assert_eq!(namespaces.filter(|namespace| *namespace == "b").count(), 1);
    assert_eq!(second.changes.len(), 65);
}

#[test]
fn everybody_has_a_turn_before_anybody_has_a_second() {
    let mut queue = queue();
    let now = clock::now();
    for number in 0..3_000 {
        let namespace = format!("n{number}");
        queue.push(put(&namespace, 0..2), now);
    }
    // Two of each fit into a share, so that no namespace needs a second turn.
    let mut seen = HashMap::new();
    for cut in 0..12 {
        for change in queue.cut(now).changes {
            seen.insert(change.key().namespace().to_owned(), cut);
        }
    }
    assert_eq!(seen.len(), 3_000);
    assert!(queue.is_empty());
}

#[test]
fn a_flapping_object_waits_once_and_with_its_newest_change() {
    let mut queue = queue();
    let now = clock::now();
    for service in ["s1", "s2", "s3"] {
        queue.push(batch(vec![Change::Put(ingress("a", 0, service))], 0), now);
    }
    let cut = queue.cut(now);
    assert_eq!(cut.changes, [Change::Put(ingress("a", 0, "s3"))]);
    assert!(queue.is_empty());
}

#[test]
fn a_position_is_claimed_when_nothing_up_to_it_waits() {
    let mut queue = queue();
    let now = clock::now();
    let changes = put("a", 0..100).changes;
    queue.push(batch(changes, 7), now);
    queue.push(batch(put("b", 0..1).changes, 8), now);
    assert_eq!(queue.cut(now).positions, []);
    // The change that waited since 7 is written over by a newer one, and still holds 7 back.
    let last = Change::Remove(ingress("a", 99, "s").key().clone());
    queue.push(batch(vec![last], 9), now);
    let kind = ObjectKind::Ingress;
    let claimed = queue.cut(now).positions;
    assert_eq!(claimed, [(kind, 9)], "and with it all that came before");
    assert!(queue.is_empty());
    queue.push(batch(Vec::new(), 10), now);
    assert!(!queue.is_empty(), "a position alone is handled too");
    assert_eq!(queue.cut(now).positions, [(kind, 10)]);
}

#[test]
fn the_wait_is_that_of_the_oldest_change_in_the_cut() {
    let mut queue = queue();
    let now = clock::now();
    let later = now + std::time::Duration::from_secs(1);
    queue.push(put("a", 0..100), now);
    queue.push(put("b", 0..1), later);
    assert_eq!(queue.cut(later).since, now);
    queue.push(put("c", 0..1), later);
    assert_eq!(queue.cut(later).since, now);
    queue.push(put("c", 0..1), later);
    assert_eq!(queue.cut(later).since, later);
}

#[test]
fn among_those_who_go_alone_the_oldest_is_first_and_nobody_starves() {
    let mut queue = queue();
    let now = clock::now();
    let alone = |queue: &mut Queue, namespace: &str, changes: usize| {
        queue.push(put(namespace, 0..changes), now);
        assert!(queue.leave_line(namespace));
        queue.stand(namespace.into(), Turn::Alone, now);
    };
    for namespace in ["c", "a", "b"] {
        alone(&mut queue, namespace, 2);
    }
    for oldest in ["c", "a", "b"] {
        assert_eq!(queue.next_alone().as_deref(), Some(oldest));
    }
    alone(&mut queue, "busy", 50);
    let mut order = Vec::new();
    for number in 0..8 {
        let namespace = format!("n{number}");
        alone(&mut queue, &namespace, 1);
        order.push(
            queue
                .next_alone()
                .expect("some stand in line")
                .into_string(),
        );
        if order.ends_with(&["busy".to_owned()]) {
            break;
        }
    }
    assert_eq!(order, ["n0", "n1", "n2", "busy"]);
}

/// A step of a random tenant.
#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize, usize),
    Remove(usize, usize),
    /// A cut that costs so many seconds.
    Cut(u64),
    End,
}

fn step() -> impl Strategy<Value = Step> {
    let object = (0..3usize, 0..6usize);
    prop_oneof![
        6 => (object.clone(), 0..3usize).prop_map(|((ns, it), to)| Step::Put(ns, it, to)),
        3 => object.prop_map(|(ns, it)| Step::Remove(ns, it)),
        2 => (0..3u64).prop_map(Step::Cut),
        2 => Just(Step::End),
    ]
}

fn change(step: &Step) -> Option<Change> {
    let namespace = |number: &usize| format!("n{number}");
    Some(match step {
        Step::Put(at, number, to) => {
            Change::Put(ingress(&namespace(at), *number, &format!("s{to}")))
        }
        Step::Remove(at, number) => {
            let name = format!("i{number}");
            Change::Remove(ObjectKey::new(ObjectKind::Ingress, &namespace(at), &name))
        }
        Step::Cut(_) | Step::End => return None,
    })
}

fn engine() -> Engine {
    let writer = Writer::new(Sealer::new([7; 32], Form::Value));
    Engine::new(myriad_translate::Settings::default(), writer)
}

proptest! {
    /// Cut fairly or taken as it comes, whatever it costs, the end is the same, no object goes back
    /// to what it was before, and no position is claimed while something of before waits.
    #[test]
    fn fair_cuts_lose_nothing(
        steps in proptest::collection::vec(step(), 0..80),
        keeps_batches in any::<bool>(),
    ) {
        let shares = Shares { cut_changes_max: 3, namespace_changes_max: 2, keeps_batches };
        let (mut queue, now) = (sharing(shares), Cell::new(clock::now()));
        let (mut fair, mut plain) = (engine(), engine());
        let mut batched: Vec<Change> = Vec::new();
        // For each batch, the objects that have to be as new as it is once it is claimed.
        let (mut pushed, mut applied) = (Vec::new(), HashMap::new());
        let mut newest: HashMap<ObjectKey, usize> = HashMap::new();
        let mut apply = |queue: &mut Queue, newest: &HashMap<ObjectKey, usize>,
                         pushed: &Vec<Vec<ObjectKey>>, cost: u64| {
            if !queue.is_due(now.get()) {
                now.set(queue.next_due().unwrap_or(now.get()));
            }
            prop_assert!(queue.is_empty() || queue.is_due(now.get()));
            let cut = queue.cut(now.get());
            prop_assert!(cut.changes.len() <= 3);
            let cost = Duration::from_secs(cost);
            now.set(now.get() + cost);
            queue.charge(cut.holders, cost, now.get());
            for change in &cut.changes {
                applied.insert(change.key().clone(), newest[change.key()]);
            }
            for (_, revision) in &cut.positions {
                for (revision, keys) in pushed.iter().enumerate().take(*revision as usize + 1) {
                    for key in keys {
                        prop_assert!(applied.get(key).is_some_and(|at| *at >= revision));
                    }
                }
            }
            fair.apply(cut.changes, 0);
            Ok(())
        };
        for step in steps.iter().chain([&Step::End]) {
            if let Some(change) = change(step) {
                batched.retain(|known| known.key() != change.key());
                batched.push(change);
            } else if matches!(step, Step::End) {
                let keys: Vec<_> = batched.iter().map(|it| it.key().clone()).collect();
                newest.extend(keys.iter().map(|key| (key.clone(), pushed.len())));
                queue.push(batch(batched.clone(), pushed.len() as u64), now.get());
                pushed.push(keys);
                plain.apply(std::mem::take(&mut batched), 0);
            } else if let Step::Cut(cost) = step {
                apply(&mut queue, &newest, &pushed, *cost)?;
            }
        }
        while !queue.is_empty() {
            apply(&mut queue, &newest, &pushed, 1)?;
        }
        let digest = |engine: &Engine| -> Digest { engine.snapshot().digest() };
        // Listeners come with the first batch, whatever is in it.
        let (fair, plain) = (fair, plain);
        prop_assert_eq!(digest(&fair), digest(&plain));
        prop_assert_eq!(fair.snapshot().len(), plain.snapshot().len());
        prop_assert!(fair.findings().eq(plain.findings()));
    }
}
