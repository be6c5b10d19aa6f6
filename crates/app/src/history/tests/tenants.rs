//! Namespaces that share a history.

use myriad_model::{Delta, Form, Key, Kind, Name, Origin, OriginKind, Resource, Value};
use myriad_translate::MAIN;

use super::super::entry::FINDINGS_MAX;
use super::super::{NewCommit, TimelineFilter};
use super::{World, endpoints, finding, key, large};

const BYTES_MAX: usize = 64 << 10;

/// Puts resources that are made from objects of namespaces, in one commit a second later.
fn put(world: &mut World, resources: Vec<(&str, &str, Value)>) {
    let mut delta = Delta::default();
    for (namespace, name, value) in resources {
        let resource = Resource {
            origin: Origin {
                kind: OriginKind::Service,
                id: format!("{namespace}/web").as_str().into(),
            },
            value,
        };
        let known: [Key; 1] = [key(Kind::Endpoints, name)];
        let outputs = vec![(Name::from(name), resource)];
        world.writer.replace(&known, outputs, &mut delta);
    }
    world.now += 1_000;
    world.commit(NewCommit::default(), delta);
}

/// The commits that are kept, the oldest first.
fn numbers(world: &World) -> Vec<u64> {
    let filter = TimelineFilter {
        count_max: 500,
        ..TimelineFilter::default()
    };
    let report = world.history.timeline(&filter, None);
    assert!(report.bytes <= BYTES_MAX, "{}", report.bytes);
    report.entries.iter().rev().map(|it| it.number).collect()
}

/// Whether the resource of the namespace that writes little is as it was.
fn is_of_port(world: &World, at: i64, port: u16) -> bool {
    let past = world.history.past(MAIN, at).expect("it is known");
    let ports = super::ports(past.snapshot());
    ports.get("good") == Some(&port)
}

#[test]
fn a_namespace_that_writes_much_loses_its_own_commits_and_none_of_others() {
    let mut world = World::new(BYTES_MAX, Form::Encoded);
    put(&mut world, vec![("good", "good", endpoints(1))]);
    let first = world.now;
    put(&mut world, vec![("good", "good", endpoints(2))]);
    for port in 1..100 {
        put(&mut world, vec![("evil", "evil", large(port))]);
    }
    // One that the other namespace wrote at the same time.
    put(
        &mut world,
        vec![("evil", "evil", large(100)), ("good", "good", endpoints(3))],
    );
    let third = world.now;
    for port in 101..200 {
        put(&mut world, vec![("evil", "evil", large(port))]);
    }
    let kept = numbers(&world);
    assert!(kept.starts_with(&[1, 2, 102]), "{kept:?}");
    assert!(kept.len() > 5 && kept.len() < 60, "{kept:?}");
    assert!(is_of_port(&world, first, 1));
    assert!(is_of_port(&world, third - 1, 2));
    assert!(is_of_port(&world, third, 3));
    let past = world.history.past(MAIN, first).unwrap();
    let told = past.not_kept();
    assert!(told.len() == 1 && told[0].contains("namespace evil"));
    let now = world.history.past(MAIN, world.now).unwrap();
    assert!(now.not_kept().is_empty());
    let entry = world.history.entry(102, None).unwrap();
    assert_eq!(
        (entry.lost, entry.resources.len()),
        (vec!["evil".into()], 1)
    );
}

#[test]
fn a_commit_of_one_namespace_that_is_too_large_hides_nothing_of_others() {
    let mut world = World::new(BYTES_MAX, Form::Value);
    put(&mut world, vec![("good", "good", endpoints(1))]);
    let first = world.now;
    put(&mut world, vec![("good", "good", endpoints(2))]);
    let names: Vec<String> = (0..50).map(|number| format!("e{number}")).collect();
    for port in 1..3 {
        let all = names.iter().map(|name| ("evil", &**name, large(port)));
        put(&mut world, all.collect());
    }
    assert_eq!(numbers(&world), [1, 2, 3, 4]);
    assert!(is_of_port(&world, first, 1));
    let entry = world.history.entry(4, None).unwrap();
    assert!(!entry.is_whole && entry.lost == ["evil"]);
    assert!(
        entry
            .to_string()
            .contains("not kept: the part of namespace evil")
    );
}

#[test]
fn findings_count_for_the_namespace_of_their_objects() {
    let mut world = World::new(BYTES_MAX, Form::Value);
    put(&mut world, vec![("good", "good", endpoints(1))]);
    let first = world.now;
    put(&mut world, vec![("good", "good", endpoints(2))]);
    for round in 0..10 {
        world.now += 1_000;
        let mut commit = NewCommit::default();
        let added = (0..=FINDINGS_MAX / 64 * round).map(|number| finding(&number.to_string()));
        commit.findings.added = added.collect();
        world.commit(commit, Delta::default());
    }
    assert!(numbers(&world).starts_with(&[1, 2]));
    assert!(is_of_port(&world, first, 1));
    let past = world.history.past(MAIN, first).unwrap();
    assert!(past.not_kept()[0].contains("namespace shop"));
}
