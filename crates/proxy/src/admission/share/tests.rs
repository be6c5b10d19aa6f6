use std::rc::Rc;
use std::sync::Arc;

use super::{FLOOR, Fairness, HeldShare, Owner, Shares};
use crate::admission::pressure::Pressure;
use crate::admission::waiting::{ClientWait, Standing};
use crate::limits::Limits;
use crate::net::deadline::{Deadline, tick};
use crate::random::hash::hash_stable;
use crate::telemetry::count::{Count, Counts};

fn shares(max: usize) -> (Rc<Shares>, Arc<Pressure>) {
    let pressure = Arc::new(Pressure::new(Some(100)));
    (Rc::new(Shares::new(max, pressure.clone())), pressure)
}

/// A domain of a namespace, as `namespace/domain`, whose places are the same in every run: two
/// of sixty domains that share one by chance would change what the others get.
fn owner(name: &str) -> Owner {
    let (namespace, _) = name.split_once('/').unwrap();
    Owner {
        namespace: hash_stable(namespace.as_bytes()),
        domain: hash_stable(name.as_bytes()),
    }
}

fn fill(shares: &Rc<Shares>, name: &str) -> Vec<HeldShare> {
    std::iter::from_fn(|| shares.take(owner(name), 0)).collect()
}

#[test]
fn one_domain_leaves_a_tenth_to_those_of_its_namespace_and_a_fifth_to_other_namespaces() {
    let (shares, _) = shares(1_000);
    let flood = fill(&shares, "a/flood");
    assert_eq!(flood.len(), 800);
    let beside = fill(&shares, "a/beside");
    assert_eq!(beside.len(), 100);
    let other = fill(&shares, "b/other");
    // A fifth of its share, which is a third.
    assert_eq!((other.len(), shares.held()), (66, 966));
    drop((flood, beside, other));
    assert_eq!(shares.held(), 0);
    let active = [&shares.namespaces, &shares.domains].map(|it| it.active.get());
    assert_eq!(active, [0, 0]);
    assert_eq!(
        super::lowest(&shares.inhabited, super::spots(owner("a/").namespace)),
        0
    );
    let flood = fill(&shares, "a/flood");
    let other = fill(&shares, "b/other");
    assert_eq!((flood.len(), other.len()), (800, 100));
}

#[test]
fn two_namespaces_that_take_all_they_get_leave_some_to_a_third_and_a_fourth() {
    let (shares, _) = shares(200);
    let all = ["a", "b", "c", "d"].map(|name| fill(&shares, &format!("{name}/host")));
    let counts = all.each_ref().map(Vec::len);
    assert_eq!(counts, [160, 20, 10, 8]);
}

#[test]
fn many_domains_of_one_namespace_are_no_more_than_the_namespace() {
    let (shares, _) = shares(100);
    let mut flood: Vec<HeldShare> = Vec::new();
    // Each of them has little.
    for number in (0..60).cycle().take(600) {
        flood.extend(shares.take(owner(&format!("a/{number}")), 0));
    }
    assert_eq!(flood.len(), 90);
    let victim = fill(&shares, "b/victim");
    assert_eq!(victim.len(), 6);
    // What the others end is the victim's, up to what a third namespace may want.
    flood.truncate(50);
    for number in 0..60 {
        flood.extend(shares.take(owner(&format!("a/{number}")), 0));
    }
    assert_eq!(flood.len(), 84);
    flood.truncate(60);
    assert_eq!(fill(&shares, "b/victim").len(), 21);
}

#[test]
fn a_thousand_quiet_domains_are_not_refused_while_one_floods() {
    let (shares, _) = shares(10_000);
    let mut quiet: Vec<HeldShare> = Vec::new();
    let flood = fill(&shares, "a/flood");
    for number in 0..500 {
        for _ in 0..2 {
            let taken = shares.take(owner(&format!("b/{number}")), 0);
            quiet.push(taken.expect("it has little"));
        }
        assert!(shares.take(owner("a/flood"), 0).is_none());
    }
    assert_eq!((flood.len(), quiet.len()), (8_000, 1_000));
}

#[test]
fn under_pressure_the_largest_get_no_more_and_then_newcomers_next_to_nothing() {
    let (shares, pressure) = shares(1_000);
    let mut held: Vec<HeldShare> = Vec::new();
    held.extend((0..40).filter_map(|_| shares.take(owner("n/a"), 0)));
    held.extend((0..4).filter_map(|_| shares.take(owner("n/b"), 0)));
    held.extend((0..4).filter_map(|_| shares.take(owner("n/c"), 0)));
    assert_eq!(held.len(), 48);
    pressure.look(91);
    assert!(shares.take(owner("n/a"), 0).is_none());
    assert!(shares.take(owner("n/b"), 0).is_some());
    pressure.look(96);
    assert!(shares.take(owner("n/b"), 0).is_none());
    assert!(shares.take(owner("n/e"), 0).is_some());
    let newcomers = fill(&shares, "m/a");
    assert_eq!(newcomers.len(), FLOOR);
    assert!(shares.take(owner("n/e"), 0).is_none());
    pressure.look(50);
    assert!(shares.take(owner("n/a"), 0).is_some());
}

#[test]
fn a_request_takes_the_place_of_one_that_waits_for_its_client() {
    let limits = Limits {
        requests_max: 10,
        ..Limits::default()
    };
    let fairness = Fairness::new(&limits, &Arc::default());
    let (counts, deadline) = (Counts::new(), Deadline::new());
    let take = || fairness.take_request(owner("n/a"), 1, &counts);
    let all: Vec<HeldShare> = std::iter::from_fn(&take).collect();
    assert_eq!(all.len(), 8);
    let wait = |held: &HeldShare| {
        let mut standing = held.standing();
        standing.wait(ClientWait::Body, 0, deadline.number());
        standing
    };
    let waiting: Vec<Standing> = all.iter().map(wait).collect();
    assert!(take().is_none());
    (0..20).for_each(|_| tick());
    let one = take();
    assert!(one.is_some() && waiting[0].is_evicted() && !waiting[1].is_evicted());
    assert_eq!(counts.get(Count::EvictedBody), 1);
}

#[test]
fn where_a_domain_has_its_share_the_source_with_most_makes_room_for_another() {
    let limits = Limits {
        requests_max: 40,
        ..Limits::default()
    };
    let fairness = Fairness::new(&limits, &Arc::default());
    let (counts, deadline) = (Counts::new(), Deadline::new());
    let take = |name: &str, source| fairness.take_request(owner(name), source, &counts);
    let wait = |held: &HeldShare, waits| {
        let mut standing = held.standing();
        standing.wait(waits, 0, deadline.number());
        standing
    };
    // Those of others have waited longest.
    let few: Vec<HeldShare> = (0..6).filter_map(|_| take("n/a", 2)).collect();
    let many: Vec<HeldShare> = std::iter::from_fn(|| take("n/a", 1)).collect();
    assert_eq!((few.len(), many.len()), (6, 26));
    let of_few = Vec::from_iter(few.iter().map(|held| wait(held, ClientWait::Endpoint)));
    let of_many = Vec::from_iter(many.iter().enumerate().map(|(number, held)| {
        // Of some the answer has begun.
        let waits = [ClientWait::Endpoint, ClientWait::More][number % 2];
        wait(held, waits)
    }));
    assert!(take("n/a", 3).is_none(), "nobody has waited for long");
    (0..20).for_each(|_| tick());
    assert!(take("n/a", 1).is_none(), "it has most itself");
    let evicted = |all: &[Standing]| all.iter().filter(|it| it.is_evicted()).count();
    let mut newcomers = Vec::new();
    for count in 1..=4 {
        newcomers.push(take("n/a", 3).expect("another makes room"));
        assert_eq!((evicted(&of_few), evicted(&of_many)), (0, count));
    }
    assert_eq!(counts.get(Count::EvictedEndpoint), 4);
    drop((many, of_many));
    let others = Vec::from_iter(std::iter::from_fn(|| take("n/a", 4)));
    assert_eq!(others.len(), 22);
    assert!(take("n/a", 2).is_none(), "none of the others waits");
    drop((few, of_few, newcomers, others));
    assert_eq!(fairness.requests.sources.active.get(), 0);
}

#[test]
fn requests_of_other_domains_make_no_room_for_one() {
    let limits = Limits {
        requests_max: 40,
        ..Limits::default()
    };
    let fairness = Fairness::new(&limits, &Arc::default());
    let (counts, deadline) = (Counts::new(), Deadline::new());
    let take = |name: &str| fairness.take_request(owner(name), 1, &counts);
    let other: Vec<HeldShare> = (0..20).filter_map(|_| take("n/b")).collect();
    let waiting = Vec::from_iter(other.iter().map(|held| {
        let mut standing = held.standing();
        standing.wait(ClientWait::Endpoint, 0, deadline.number());
        standing
    }));
    let _own: Vec<HeldShare> = std::iter::from_fn(|| take("n/a")).collect();
    (0..20).for_each(|_| tick());
    assert!(fairness.take_request(owner("n/a"), 2, &counts).is_none());
    assert!(!waiting.iter().any(Standing::is_evicted));
}

#[test]
fn where_memory_is_short_requests_end_that_wait_for_their_clients() {
    let pressure = Arc::new(Pressure::new(Some(100)));
    let fairness = Fairness::new(&Limits::default(), &pressure);
    let (counts, deadline) = (Counts::new(), Deadline::new());
    let held = fairness.take_request(owner("n/a"), 1, &counts).unwrap();
    let mut standing = held.standing();
    standing.wait(ClientWait::Read, 0, deadline.number());
    (0..20).for_each(|_| tick());
    for (used, evicted) in [(89, 0), (90, 1), (96, 1)] {
        pressure.look(used);
        fairness.relieve(&counts);
        assert_eq!(counts.get(Count::EvictedRead), evicted, "{used}");
        assert_eq!(standing.is_evicted(), evicted > 0);
    }
}

#[test]
fn a_reserve_is_nobodys_however_many_namespaces_want_it() {
    let pressure = Arc::new(Pressure::new(None));
    let shares = Rc::new(Shares::leaving(200, super::reserve(200), pressure));
    let mut held: Vec<HeldShare> = Vec::new();
    for namespace in 0..50 {
        held.extend(fill(&shares, &format!("{namespace}/host")));
    }
    assert_eq!((held.len(), shares.held()), (180, 180));
    let reserves = [1, 16, 40, 65_536].map(super::reserve);
    assert_eq!(reserves, [0, 4, 4, 6_553]);
}

#[test]
fn what_no_domain_holds_counts_too_and_nothing_is_beyond_the_limit() {
    let (shares, _) = shares(100);
    assert!(shares.take(owner("n/a"), 100).is_none());
    let held: Vec<HeldShare> = (0..FLOOR)
        .filter_map(|_| shares.take(owner("n/a"), 85))
        .collect();
    assert_eq!(held.len(), FLOOR);
}
