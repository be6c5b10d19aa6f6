//! Rows on other listeners, which may be strangers', against those of the host's owner.

use std::sync::Arc;

use myriad_model::{Action, Host, Name, PathMatch, PathReading, Policy, Respond, Route};

use super::{BlockArc, HostEntry, Sketch, entries, route, sealed, steps, with_head};
use crate::failure::FailureKind;
use crate::pattern::Budget;
use crate::route::entry::RouteEntry;

/// Listeners of strangers.
const STRANGERS: [&str; 4] = ["a", "gateway/x/y/z", "htt", "https"];

/// The numbers of strangers' routes for which all are tried, and for which they are parted.
const COUNTS: [usize; 3] = [0, 7, 3_000];

fn sketch(path: PathMatch, rank: u64, listener: &'static str) -> Sketch {
    Sketch {
        path,
        rank,
        listener,
        method: None,
    }
}

/// The rows of the owner at `http`, and in front of them so many of strangers that spend all they
/// may.
fn with_strangers(own: &[Sketch], count: usize) -> HostEntry {
    let mut sketches = own.to_vec();
    sketches.extend((0..count).map(|number| {
        let regex = format!("/(a{{1,200}}){{1,3}}b{number}");
        let listener = STRANGERS[number % STRANGERS.len()];
        sketch(PathMatch::Regex(regex.into()), 0, listener)
    }));
    HostEntry::new(Host::any(), &entries(&sketches))
}

/// How many routes stand in the parts that are visited at a listener.
fn visited(host: &HostEntry, listener: &str) -> usize {
    let (parting, listener) = (host.parting.as_ref().unwrap(), Name::from(listener));
    parting.on(&listener).map(|part| part.numbers.len()).sum()
}

#[test]
fn regexes_on_other_listeners_cost_no_step_and_are_not_visited() {
    let path = format!("/{}c", "a".repeat(2_000));
    let owners = [
        vec![sketch(PathMatch::Prefix("/".into()), 9, "http")],
        (0..10)
            .map(|number| {
                let regex = format!("/a+{}", ["x", "c"][usize::from(number == 9)]);
                sketch(PathMatch::Regex(regex.into()), 9 + number, "http")
            })
            .collect(),
    ];
    for own in owners {
        let alone = steps(&with_strangers(&own, 0), &path);
        assert!(alone.0.is_some() && !alone.2);
        for count in COUNTS {
            let host = with_strangers(&own, count);
            assert_eq!(steps(&host, &path), alone, "{count}");
            if host.parting.is_some() {
                assert_eq!(visited(&host, "http"), own.len());
            }
        }
    }
    // They are there for who comes to theirs.
    let host = with_strangers(&[], 3_000);
    assert_eq!(visited(&host, "https"), 750);
    with_head("GET", &path, |head| {
        let budget = Budget::default();
        let found = host.find(&"https".into(), head, None, &budget);
        assert_eq!(found.err(), Some(FailureKind::RegexBudget));
    });
}

#[test]
fn exact_paths_on_other_listeners_are_not_visited() {
    let own = sketch(PathMatch::Exact("/".into()), 9, "http");
    for count in [100, 10_000] {
        let mut sketches = vec![own.clone()];
        sketches.extend((0..count).map(|number| {
            let listener = STRANGERS[number % STRANGERS.len()];
            sketch(PathMatch::Exact("/".into()), 0, listener)
        }));
        let host = HostEntry::new(Host::any(), &entries(&sketches));
        assert_eq!(visited(&host, "http"), 1);
        assert_eq!(steps(&host, "/"), (Some("r0000".into()), 0, false));
    }
}

/// Routes with listeners of their own beside `http`.
fn apart(count: usize) -> HostEntry {
    let blocks = (0..count).map(|number| {
        let mut own = route(&sketch(PathMatch::Exact("/".into()), 1, "http"));
        own.listeners = [Name::from("http"), Name::from(&*format!("x{number}"))].into();
        sealed(&format!("r{number:04}"), own)
    });
    HostEntry::new(Host::any(), &blocks.collect::<Vec<BlockArc>>())
}

#[test]
fn each_further_list_of_listeners_is_paid_for() {
    let path = format!("/{}", "a".repeat(1_599));
    // The first is free, as where there is one list.
    for count in [9, 100] {
        let steps = steps(&apart(count), &path);
        assert_eq!(steps, (None, (count as u32 - 1) * 104, false));
    }
    let (found, _, is_spent) = steps(&apart(2_000), &path);
    assert!(found.is_none() && is_spent);
    // None is looked into behind the one that matches.
    assert_eq!(steps(&apart(2_000), "/"), (Some("r0000".into()), 0, false));
}

/// A route at a listener that compares a reading, and whether it answers.
fn reading(listener: &str, rank: u64, path_reading: PathReading, answers: bool) -> Route {
    let policy = Policy {
        path_reading,
        ..Policy::default()
    };
    let mut read = route(&sketch(PathMatch::Prefix("/".into()), rank, "http"));
    read.listeners = [Name::from(listener)].into();
    read.policy = Arc::new(policy);
    if answers {
        read.action = Action::Respond(Box::new(Respond {
            status: 200,
            body: Arc::default(),
        }));
    }
    read
}

#[test]
fn what_strangers_read_and_refuse_is_no_concern_of_a_listener() {
    for strangers in [3, 300] {
        let mut blocks = vec![sealed("own", reading("http", 9, PathReading::Base, true))];
        blocks.extend((0..strangers).map(|number| {
            let other = reading("x", 0, PathReading::Decoded, false);
            sealed(&format!("r{number}"), other)
        }));
        let host = HostEntry::new(Host::any(), &blocks);
        let (own, other) = (Name::from("http"), Name::from("x"));
        assert_eq!(host.readings(&own)[..], [PathReading::Base]);
        assert_eq!(host.readings(&other)[..], [PathReading::Decoded]);
        assert!(!host.is_restricted(&own) && host.is_restricted(&other));
        let first = |listener: &Name| host.first_on(listener).map(RouteEntry::name);
        assert_eq!(first(&own).as_deref(), Some("own"));
        assert_eq!(first(&other).as_deref(), Some("r0"));
        assert_eq!(first(&"y".into()), None);
        for (listener, is_on) in [("http", true), ("x", true), ("a", false), ("y", false)] {
            assert_eq!(host.is_on(&listener.into()), is_on, "{listener}");
        }
    }
}
