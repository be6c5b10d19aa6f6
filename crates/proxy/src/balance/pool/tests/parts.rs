//! Pools whose endpoints lie in parts.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Balancer, HashTable, LocalityShares, Outlier, UpstreamOptions, Warmup};

use super::super::ACTIVE_LOOKS;
use super::{fail, hashing, member, members, outlier, shares, shares_at};
use crate::balance::outlier::EndpointOutcome;
use crate::balance::part::LOOKS;
use crate::balance::{Choice, Endpoint, Flight, Member, Pool, PoolPart, TransportSettings};
use crate::random::rng::Rng;

fn with(balancer: Balancer) -> UpstreamOptions {
    UpstreamOptions {
        balancer,
        ..UpstreamOptions::default()
    }
}

/// Parts of so many of the members each.
fn divided(
    members: Vec<Member>,
    counts: &[usize],
    options: &UpstreamOptions,
) -> Vec<Arc<PoolPart>> {
    let mut members = members.into_iter();
    let part = |count: &usize| {
        let own = members.by_ref().take(*count).map(|member| (0, member));
        PoolPart::divide(own, &options.balancer).into_vec()
    };
    counts.iter().flat_map(part).collect()
}

fn pool_of(weights: &[&[u32]], options: &UpstreamOptions) -> Pool {
    let counts: Vec<usize> = weights.iter().map(|part| part.len()).collect();
    let parts = divided(members(&weights.concat()), &counts, options);
    Pool::of_parts(None, parts.iter(), options, (None, 0))
}

/// The ways of choosing, each with whether it goes by hashes.
fn balancers() -> [(Balancer, bool); 5] {
    [
        (Balancer::LeastRequest, false),
        (Balancer::RoundRobin, false),
        (Balancer::Random, false),
        (hashing(HashTable::Ring(1_024)), true),
        (hashing(HashTable::Maglev(65_537)), true),
    ]
}

fn keys(count: u64) -> impl Iterator<Item = Option<u64>> {
    (0..count).map(|key| Some(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

#[test]
fn endpoints_of_large_and_small_parts_have_equal_shares() {
    for (balancer, by_hash) in balancers() {
        let pool = pool_of(&[&[1; 5], &[1], &[1; 4]], &with(balancer));
        assert_eq!((pool.len(), pool.members().count()), (10, 10));
        for share in shares(&pool, 10_000) {
            assert!((800..1_200).contains(&share), "{share}");
        }
        let by_key = shares_at(&pool, keys(10_000), 1);
        let bounds = if by_hash { 400..1_900 } else { 800..1_200 };
        assert!(by_key.iter().all(|it| bounds.contains(it)), "{by_key:?}");
    }
}

#[test]
fn endpoints_of_parts_are_taken_by_weight() {
    let weights: [&[u32]; 3] = [&[1, 3], &[2], &[1, 1, 2]];
    let turns = pool_of(&weights, &with(Balancer::RoundRobin));
    assert_eq!(shares(&turns, 1_000), [100, 300, 200, 100, 100, 200]);
    let chance = pool_of(&weights, &with(Balancer::Random));
    let taken = shares(&chance, 10_000);
    for (taken, wanted) in taken.iter().zip([1_000, 3_000, 2_000, 1_000, 1_000, 2_000]) {
        assert!(taken.abs_diff(wanted) < 300, "{taken} of {wanted}");
    }
}

#[test]
fn everybody_has_one_turn_in_a_round_however_many_there_are() {
    let counts = [16, 128, 71, 33, 2];
    let options = with(Balancer::RoundRobin);
    let member = |number: u16| Member {
        target: Arc::new(Endpoint::new(
            ([192, 0, 2, 1], number).into(),
            TransportSettings::shared(None),
        )),
        weight: 7,
        priority: 0,
    };
    let parts = divided((0..250).map(member).collect(), &counts, &options);
    let pool = Pool::of_parts(None, parts.iter(), &options, (None, 0));
    assert_eq!(shares(&pool, 250), [1; 250]);
    // What has become of a part's turns is not forgotten with the pool.
    let next = Pool::of_parts(None, parts.iter(), &options, (None, 0));
    assert_eq!(shares(&next, 500), [2; 250]);
}

#[test]
fn equal_requests_go_where_they_would_without_parts() {
    for table in [HashTable::Ring(1_024), HashTable::Maglev(65_537)] {
        let options = with(hashing(table));
        let whole = members(&[1, 2, 3, 1, 1, 4, 1]);
        let copy = |member: &Member| Member {
            target: member.target.clone(),
            ..*member
        };
        let parts = divided(whole.iter().map(copy).collect(), &[3, 1, 3], &options);
        let parts = Pool::of_parts(None, parts.iter(), &options, (None, 0));
        let whole = Pool::with(whole.into_iter(), &options);
        let dice = Rng::new(7);
        for hash in keys(2_000) {
            let choice = Choice {
                dice: &dice,
                tried: None,
                hash,
                now_ms: None,
            };
            let [one, other] = [&whole, &parts].map(|pool| pool.choose(&choice).unwrap().id);
            assert_eq!(one, other);
        }
        assert_eq!((whole.weighed(), parts.weighed()), (7, 7));
    }
}

#[test]
fn another_part_has_what_was_not_tried_and_is_less_busy() {
    for (balancer, _) in balancers() {
        let pool = pool_of(&[&[1], &[1]], &with(balancer));
        let (dice, tried) = (Rng::new(7), member(&pool, 0).target.id);
        for hash in keys(100) {
            let choice = Choice {
                dice: &dice,
                tried: Some(tried),
                hash,
                now_ms: None,
            };
            assert_ne!(pool.choose(&choice).unwrap().id, tried);
        }
    }
    let pool = pool_of(&[&[1], &[1]], &with(Balancer::LeastRequest));
    let _busy = Flight::start(member(&pool, 0).target.clone());
    assert_eq!(shares(&pool, 100), [0, 100]);
    assert_eq!(pool.active(), 1);
    let found = pool.marked(member(&pool, 1).target.mark());
    assert_eq!(found.unwrap().id, member(&pool, 1).target.id);
}

#[test]
fn a_mark_leads_to_its_endpoint_in_whatever_part_it_is() {
    let pool = pool_of(&[&[1; 128], &[1; 7], &[1]], &with(Balancer::Random));
    for index in 0..136 {
        let target = &member(&pool, index).target;
        assert_eq!(pool.marked(target.mark()).unwrap().id, target.id);
        assert!(pool.marked(target.mark() ^ 1).is_none());
    }
    assert!(pool.marked(0).is_none() && pool.marked(u64::MAX).is_none());
}

#[test]
fn who_is_out_of_a_part_is_so_in_the_next_pool_that_has_it() {
    for (balancer, _) in balancers() {
        let options = UpstreamOptions {
            outlier: Some(Box::new(outlier(100, 0))),
            ..with(balancer)
        };
        let parts = divided(members(&[1; 5]), &[2, 3], &options);
        let pool = || Pool::of_parts(None, parts.iter(), &options, (None, 0));
        let first = pool();
        assert!(fail(&first, 1, 1_000) && !fail(&first, 1, 1_000));
        let pools = [first, pool()];
        for pool in &pools {
            let taken = shares_at(pool, keys(600), 1_001);
            let all: usize = taken.iter().sum();
            assert_eq!((taken[1], all), (0, 600), "{taken:?}");
            assert_eq!(pool.out(), 1);
        }
        for pool in &pools {
            assert!(shares_at(pool, keys(600), 31_000)[1] > 0);
            assert_eq!(pool.out(), 0);
        }
    }
}

#[test]
fn parts_that_are_left_out_as_a_whole_are_passed_over() {
    for (balancer, _) in balancers() {
        let options = UpstreamOptions {
            outlier: Some(Box::new(outlier(100, 0))),
            ..with(balancer)
        };
        let pool = pool_of(&[&[1; 5], &[1; 2], &[1; 5]], &options);
        let mut others = (0..12).filter(|index| *index != 6);
        assert!(others.all(|index| fail(&pool, index, 1_000)));
        let row = pool.levels[0].row().unwrap();
        for from in 0..12 {
            let looked_at: Vec<usize> = row.in_service(from, 1_001).collect();
            assert!(looked_at.iter().all(|it| [5, 6].contains(it)), "{from}");
            assert!(looked_at.contains(&6), "{from}");
        }
        assert_eq!(shares_at(&pool, keys(100), 1_001)[6], 100);
        assert!(fail(&pool, 6, 1_002));
        assert_eq!(row.in_service(0, 1_003).count(), 0);
        assert_eq!(shares_at(&pool, keys(100), 1_003), [0; 12]);
        assert!((0..12).all(|index| row.in_service(index, 31_000).count() >= 12));
    }
}

#[test]
fn of_very_many_endpoints_some_tell_how_many_requests_are_in_flight() {
    const COUNT: u32 = 100_000;
    let options = with(Balancer::Random);
    let member = |number: u32| Member {
        target: Arc::new(Endpoint::new(
            ((0x0a00_0000 + number).to_be_bytes(), 80).into(),
            TransportSettings::shared(None),
        )),
        weight: 1,
        priority: 0,
    };
    let members: Vec<Member> = (0..COUNT).map(member).collect();
    let targets = members.iter().map(|member| member.target.clone());
    let flights: Vec<Flight> = targets.map(Flight::start).collect();
    let parts = divided(members, &[128; 782], &options);
    let pool = Pool::of_parts(None, parts.iter(), &options, (None, 0));
    assert!(pool.active().abs_diff(COUNT) < COUNT / 100);
    assert!(pool.looked_at(pool.step()).count() <= ACTIVE_LOOKS);
    drop(flights);
    assert_eq!(pool.active(), 0);
}

/// Half of 20,480 endpoints fail within 100 ms, and come back one after the other 100 ms later.
#[test]
fn of_very_many_endpoints_that_fail_and_come_back_an_attempt_looks_at_few() {
    const COUNT: u32 = 20_480;
    let options = UpstreamOptions {
        outlier: Some(Box::new(Outlier {
            ejection_time: Duration::from_millis(100),
            ..outlier(100, 0)
        })),
        ..with(Balancer::Random)
    };
    let member = |number: u32| Member {
        target: Arc::new(Endpoint::new(
            ((0x0a00_0000 + number).to_be_bytes(), 80).into(),
            TransportSettings::shared(None),
        )),
        weight: 1,
        priority: 0,
    };
    let members: Vec<Member> = (0..COUNT).map(member).collect();
    let parts = divided(members, &[128; COUNT as usize / 128], &options);
    let pool = Pool::of_parts(None, parts.iter(), &options, (None, 0));
    let row = pool.levels[0].row().unwrap();
    LOOKS.set(0);
    for (index, member) in pool.members().enumerate().step_by(2) {
        // As it is once an endpoint was taken.
        row.remember(index, &member.target);
        let now = 1_000 + index as u64 % 100;
        assert!(pool.note(&member.target, EndpointOutcome::Response(500), || now));
    }
    // All of them once, and then one part for each that fails.
    let (all, failed) = (COUNT as usize, COUNT as usize / 2);
    assert!(LOOKS.take() <= all + failed * (128 + 1));
    assert_eq!(pool.out(), COUNT / 2);
    for now in 1_100..1_200 {
        take_one(&pool, now);
    }
    // All of them every 20 ms, and a part now and then to find somebody in it.
    let looked_at = LOOKS.take();
    assert!((1..=7 * all).contains(&looked_at), "{looked_at}");
    take_one(&pool, 1_300);
    assert_eq!(pool.out(), 0);
    // In another row it is elsewhere, and found there.
    let others = Pool::of_parts(None, parts.iter().rev(), &options, (None, 0));
    assert!(fail(&others, 1_000, 2_000));
    assert_eq!(others.out(), 1);
}

/// Takes one endpoint.
fn take_one(pool: &Pool, now_ms: u64) {
    let choice = Choice {
        dice: &Rng::new(now_ms),
        tried: None,
        hash: None,
        now_ms: Some(now_ms),
    };
    let taken = pool.choose(&choice).unwrap();
    assert!(!taken.record.is_out(now_ms));
}

#[test]
fn priorities_go_through_all_parts() {
    let options = UpstreamOptions {
        outlier: Some(Box::new(outlier(100, 0))),
        ..with(Balancer::Random)
    };
    let mut members = members(&[1; 6]);
    for member in members.iter_mut().step_by(2) {
        member.priority = 1;
    }
    let parts = divided(members, &[3, 3], &options);
    assert_eq!(parts.len(), 4);
    let pool = Pool::of_parts(None, parts.iter(), &options, (None, 0));
    let first = |now| {
        let taken = shares_at(&pool, std::iter::repeat_n(None, 10_000), now);
        taken[..3].iter().sum::<usize>()
    };
    assert_eq!(first(1), 10_000);
    // A third of the first is 33 percent, of which 140 percent are 46.
    assert!(fail(&pool, 0, 1_000) && fail(&pool, 2, 1_000));
    let taken = first(1_001);
    assert!((4_300..4_900).contains(&taken), "{taken}");
    assert!(fail(&pool, 1, 1_002));
    assert_eq!(first(1_003), 0);
}

#[test]
fn a_cold_endpoint_of_a_part_gets_a_smaller_share() {
    let options = UpstreamOptions {
        warmup: Some(Warmup {
            duration: Duration::from_secs(100),
            percent_min: 10,
            aggression: 1_000,
        }),
        ..with(Balancer::RoundRobin)
    };
    let mut members = members(&[1, 1]);
    let cold = Endpoint {
        born_ms: 1_000_000,
        ..Endpoint::new(members[1].target.address, TransportSettings::shared(None))
    };
    members[1].target = Arc::new(cold);
    let parts = divided(members, &[1, 1], &options);
    let pool = Pool::of_parts(None, parts.iter(), &options, (None, 0));
    let part = |now| {
        let taken = shares_at(&pool, std::iter::repeat_n(None, 11_000), now);
        taken[1] as f32 / taken[0] as f32
    };
    let (begin, end) = (part(1_000_000), part(1_100_000));
    assert!((0.05..0.2).contains(&begin), "{begin}");
    assert!((0.9..1.1).contains(&end), "{end}");
}

#[test]
fn groups_of_localities_have_their_shares_wherever_their_endpoints_lie() {
    let shares_of_groups = LocalityShares {
        from: "*".into(),
        to: [("a".into(), 80), ("b".into(), 20), ("c".into(), 0)].into(),
    };
    // One of the first group, and three of the second; the last is of one without a share.
    let groups = [0, 1, 1, 1, 2];
    for balancer in [
        Balancer::Random,
        Balancer::LeastRequest,
        Balancer::RoundRobin,
    ] {
        let options = with(balancer);
        let mut grouped = groups.into_iter().zip(members(&[1; 5]));
        let parts = [2, 3].map(|count| {
            let own = grouped.by_ref().take(count);
            PoolPart::divide(own, &options.balancer)
        });
        let pool = Pool::of_parts(
            None,
            parts.iter().flatten(),
            &options,
            (Some(&shares_of_groups), 0),
        );
        assert_eq!((pool.len(), pool.weighed()), (4, 0));
        if options.balancer == Balancer::LeastRequest {
            // Idle ones are taken by their weight, of which two are compared.
            let taken = shares(&pool, 10_000);
            assert!(taken[0] > 8_000, "{taken:?}");
            continue;
        }
        let taken = shares(&pool, 10_000);
        assert!((7_800..8_200).contains(&taken[0]), "{taken:?}");
        assert!(
            taken[1..].iter().all(|it| (550..800).contains(it)),
            "{taken:?}"
        );
    }
}
