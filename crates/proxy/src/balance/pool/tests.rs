mod parts;

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{
    Balancer, HashBalancer, HashSource, HashTable, Outlier, UpstreamOptions, Warmup,
};

use super::{Choice, Member, Pool};
use crate::balance::outlier::EndpointOutcome;
use crate::balance::{Endpoint, Flight, TransportSettings};
use crate::random::rng::Rng;

fn members(weights: &[u32]) -> Vec<Member> {
    let member = |(index, weight): (usize, &u32)| Member {
        target: Arc::new(Endpoint::new(
            ([192, 0, 2, index as u8], 80).into(),
            TransportSettings::shared(None),
        )),
        weight: *weight,
        priority: 0,
    };
    weights.iter().enumerate().map(member).collect()
}

fn pool(weights: &[u32]) -> Pool {
    Pool::new(members(weights).into_iter())
}

fn pool_of(weights: &[u32], balancer: Balancer) -> Pool {
    let options = UpstreamOptions {
        balancer,
        ..UpstreamOptions::default()
    };
    Pool::with(members(weights).into_iter(), &options)
}

fn member(pool: &Pool, index: usize) -> &Member {
    pool.members().nth(index).unwrap()
}

/// How often each endpoint is taken, given the hashes of requests and a time.
fn shares_at(pool: &Pool, hashes: impl Iterator<Item = Option<u64>>, now_ms: u64) -> Vec<usize> {
    let dice = Rng::new(7);
    let mut taken = vec![0; pool.len()];
    for hash in hashes {
        let choice = Choice {
            dice: &dice,
            tried: None,
            hash,
            now_ms: Some(now_ms),
        };
        if let Some(picked) = pool.choose(&choice) {
            let index = pool.members().position(|m| m.target.id == picked.id);
            taken[index.unwrap()] += 1;
        }
    }
    taken
}

fn shares(pool: &Pool, rolls: usize) -> Vec<usize> {
    shares_at(pool, std::iter::repeat_n(None, rolls), 1)
}

fn outlier(ejection_percent_max: u8, health_percent_min: u8) -> Outlier {
    Outlier {
        server_errors: 1,
        gateway_errors: 0,
        local_errors: 0,
        is_split: false,
        interval: Duration::from_secs(10),
        ejection_time: Duration::from_secs(30),
        ejection_percent_max,
        health_percent_min,
        error_statuses: Box::default(),
    }
}

fn sparing(weights: &[u32], rule: Outlier, balancer: Balancer) -> Pool {
    let options = UpstreamOptions {
        balancer,
        outlier: Some(Box::new(rule)),
        ..UpstreamOptions::default()
    };
    Pool::with(members(weights).into_iter(), &options)
}

fn fail(pool: &Pool, index: usize, now_ms: u64) -> bool {
    let target = &member(pool, index).target;
    pool.note(target, EndpointOutcome::Response(500), || now_ms)
}

fn hashing(table: HashTable) -> Balancer {
    let source = HashSource::SourceIp;
    Balancer::Hash(Box::new(HashBalancer {
        source,
        parts: Box::default(),
        table,
    }))
}

#[test]
fn idle_endpoints_share_evenly() {
    for share in shares(&pool(&[1, 1, 1, 1]), 8_000) {
        assert!((1_700..2_300).contains(&share), "{share}");
    }
}

#[test]
fn the_busier_of_two_is_left_alone() {
    let pool = pool(&[1, 1]);
    let busy = Flight::start(member(&pool, 0).target.clone());
    assert_eq!(shares(&pool, 100), [0, 100]);
    drop(busy);
    assert!(shares(&pool, 100)[0] > 0);
}

#[test]
fn an_endpoint_that_was_tried_is_not_tried_again_while_there_is_another() {
    for balancer in [
        Balancer::LeastRequest,
        Balancer::RoundRobin,
        Balancer::Random,
        hashing(HashTable::Ring(64)),
        hashing(HashTable::Maglev(251)),
    ] {
        let pool = pool_of(&[1, 1], balancer);
        let dice = Rng::new(7);
        let tried = member(&pool, 0).target.id;
        for hash in 0..100_u64 {
            let choice = Choice {
                dice: &dice,
                tried: Some(tried),
                hash: Some(hash << 56),
                now_ms: None,
            };
            assert_ne!(pool.choose(&choice).unwrap().id, tried);
        }
    }
    let (pool, dice) = (pool(&[1]), Rng::new(7));
    let only = member(&pool, 0).target.id;
    assert_eq!(pool.pick(&dice, Some(only)).unwrap().id, only);
}

#[test]
fn a_mark_leads_back_to_its_endpoint() {
    let pool = pool(&[1, 1, 1]);
    for member in pool.members() {
        let found = pool.marked(member.target.mark()).unwrap();
        assert_eq!(found.id, member.target.id);
    }
    assert!(pool.marked(1).is_none());
}

#[test]
fn turns_go_around_by_weight() {
    assert_eq!(
        shares(&pool_of(&[1, 1, 1], Balancer::RoundRobin), 300),
        [100; 3]
    );
    assert_eq!(
        shares(&pool_of(&[1, 0, 3], Balancer::RoundRobin), 400),
        [100, 300]
    );
}

#[test]
fn chance_goes_by_weight() {
    let taken = shares(&pool_of(&[1, 3], Balancer::Random), 8_000);
    assert!((1_800..2_200).contains(&taken[0]), "{taken:?}");
}

#[test]
fn equal_requests_go_to_equal_endpoints_and_others_are_spread() {
    for table in [HashTable::Ring(1_024), HashTable::Maglev(65_537)] {
        let pool = pool_of(&[1, 1, 1, 1], hashing(table));
        let one = shares_at(&pool, std::iter::repeat_n(Some(42), 100), 1);
        assert_eq!(
            one.iter().filter(|taken| **taken == 100).count(),
            1,
            "{one:?}"
        );
        let hashes = (0..4_000_u64).map(|key| Some(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for share in shares_at(&pool, hashes, 1) {
            assert!((600..1_500).contains(&share), "{share}");
        }
        for share in shares(&pool, 4_000) {
            assert!((800..1_200).contains(&share), "{share}");
        }
    }
}

#[test]
fn one_that_is_out_gets_nothing_until_it_is_back() {
    for balancer in [
        Balancer::LeastRequest,
        Balancer::RoundRobin,
        Balancer::Random,
        hashing(HashTable::Ring(64)),
        hashing(HashTable::Maglev(251)),
    ] {
        let pool = sparing(&[1, 1, 1], outlier(100, 0), balancer);
        assert!(fail(&pool, 1, 1_000));
        assert_eq!(pool.out(), 1);
        let keys = || (0..600_u64).map(|key| Some(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let taken = shares_at(&pool, keys(), 1_001);
        assert_eq!((taken[1], taken[0] + taken[2]), (0, 600), "{taken:?}");
        assert!(shares_at(&pool, keys(), 31_000)[1] > 0);
        assert_eq!(pool.out(), 0);
    }
}

#[test]
fn no_more_are_out_than_allowed_but_one_always_may() {
    let pool = sparing(&[1; 10], outlier(20, 0), Balancer::Random);
    let failed: Vec<bool> = (0..4).map(|index| fail(&pool, index, 1_000)).collect();
    assert_eq!(failed, [true, true, false, false]);
    let pool = sparing(&[1; 3], outlier(10, 0), Balancer::Random);
    let failed: Vec<bool> = (0..3).map(|index| fail(&pool, index, 1_000)).collect();
    assert_eq!(failed, [true, false, false]);
}

#[test]
fn where_all_are_out_nobody_answers_unless_that_means_to_panic() {
    let calm = sparing(&[1; 2], outlier(100, 0), Balancer::LeastRequest);
    let panicking = sparing(&[1; 2], outlier(100, 51), Balancer::LeastRequest);
    for pool in [&calm, &panicking] {
        assert!(fail(pool, 0, 1_000) && fail(pool, 1, 1_000));
    }
    assert_eq!(
        shares_at(&calm, std::iter::repeat_n(None, 100), 1_001),
        [0, 0]
    );
    let taken = shares_at(&panicking, std::iter::repeat_n(None, 100), 1_001);
    assert!(taken[0] > 0 && taken[1] > 0, "{taken:?}");
}

#[test]
fn the_next_priority_takes_what_the_first_lacks() {
    let rule = UpstreamOptions {
        balancer: Balancer::Random,
        outlier: Some(Box::new(outlier(100, 0))),
        ..UpstreamOptions::default()
    };
    let mut members = members(&[1; 6]);
    for member in &mut members[2..] {
        member.priority = 1;
    }
    // Listed the other way around, they are the same.
    members.reverse();
    let pool = Pool::with(members.into_iter(), &rule);
    let first = |taken: &[usize]| taken[0] + taken[1];
    let ask = |now| shares_at(&pool, std::iter::repeat_n(None, 10_000), now);
    assert_eq!(first(&ask(1)), 10_000);
    // Half of the first is 50 percent, of which 140 percent are 70.
    assert!(fail(&pool, 0, 1_000));
    let taken = first(&ask(1_001));
    assert!((6_700..7_300).contains(&taken), "{taken}");
    assert!(fail(&pool, 1, 1_002));
    assert_eq!(first(&ask(1_003)), 0);
    assert_eq!(first(&ask(40_000)), 10_000);
}

#[test]
fn a_cold_endpoint_gets_a_growing_part() {
    for balancer in [Balancer::RoundRobin, Balancer::LeastRequest] {
        let options = UpstreamOptions {
            balancer,
            warmup: Some(Warmup {
                duration: Duration::from_secs(100),
                percent_min: 10,
                aggression: 1_000,
            }),
            ..UpstreamOptions::default()
        };
        let mut members = members(&[1, 1]);
        let cold = Endpoint {
            born_ms: 1_000_000,
            ..Endpoint::new(members[1].target.address, TransportSettings::shared(None))
        };
        members[1].target = Arc::new(cold);
        let pool = Pool::with(members.into_iter(), &options);
        let part = |now: u64| {
            let taken = shares_at(&pool, std::iter::repeat_n(None, 11_000), now);
            taken[1] as f32 / taken[0] as f32
        };
        let (begin, half, end) = (part(1_000_000), part(1_050_000), part(1_100_000));
        assert!((0.05..0.2).contains(&begin), "{begin}");
        assert!((0.4..0.65).contains(&half), "{half}");
        assert!((0.9..1.1).contains(&end), "{end}");
    }
}

/// The cost of a choice, told on standard error; run it with `--release -- --ignored`.
#[test]
#[ignore = "it measures, and says nothing about right or wrong"]
fn the_cost_of_a_choice() {
    const ROUNDS: u64 = 2_000_000;
    for (name, balancer) in [
        ("least request", Balancer::LeastRequest),
        ("round robin", Balancer::RoundRobin),
        ("random", Balancer::Random),
        ("ring", hashing(HashTable::Ring(1_024))),
        ("maglev", hashing(HashTable::Maglev(65_537))),
    ] {
        let pool = sparing(&[1, 2, 3, 1, 1, 1, 1, 1, 1, 1], outlier(50, 0), balancer);
        let dice = Rng::new(7);
        let start = myriad_base::clock::now();
        let mut sum = 0_u64;
        for round in 0..ROUNDS {
            let choice = Choice {
                dice: &dice,
                tried: None,
                hash: Some(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                now_ms: Some(1),
            };
            sum = sum.wrapping_add(pool.choose(&choice).unwrap().id);
        }
        let passed = myriad_base::clock::now().duration_since(start);
        let nanos = passed.as_nanos() as u64 / ROUNDS;
        eprintln!("{name}: {nanos} ns ({sum})");
    }
}
