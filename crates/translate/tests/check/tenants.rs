//! Lists of hosts and quotas of single namespaces, counted.

use std::collections::BTreeMap;

use myriad_api::{Change, Object, ObjectKey, ObjectKind};
use myriad_translate::{Engine, Settings, Work};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::goldens::BASE;
use crate::properties::run_any;
use crate::universe::{self, history};
use crate::views::digests;
use crate::world;

/// An engine with these tenants, and the objects of the base.
fn engine(tenants: &str) -> Engine {
    let mut engine = world::engine(Settings {
        tenants: world::tenants(tenants),
        ..Settings::default()
    });
    engine.apply(world::changes(BASE), world::NOW);
    engine
}

/// An Ingress of that number and age, with a host of its own.
fn ingress(namespace: &str, number: usize) -> String {
    let (day, hour) = (number / 24 + 1, number % 24);
    format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{namespace: {namespace}, name: i{number:03}, \
         creationTimestamp: 2026-01-{day:02}T{hour:02}:00:00Z}}
spec: {{rules: [{{host: h{number:03}.{namespace}.example, http: {{paths: [{{path: /, \
         pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]}}
"
    )
}

fn put(engine: &mut Engine, namespace: &str, numbers: impl Iterator<Item = usize>) -> Work {
    let all: Vec<String> = numbers.map(|number| ingress(namespace, number)).collect();
    let changes = world::changes(&all.join("---\n"));
    engine.apply(changes, world::NOW).work
}

/// The numbers of the Ingresses of a namespace that are served.
fn served(engine: &Engine, namespace: &str) -> Vec<usize> {
    let all = engine.served().filter_map(|id| {
        let (own, name) = id.split_once("/i")?;
        (own == namespace).then(|| name.parse().expect("a number"))
    });
    let mut all: Vec<usize> = all.collect();
    all.sort_unstable();
    all
}

fn told(engine: &Engine, text: &str) -> usize {
    let all = engine.findings().map(ToString::to_string);
    all.filter(|it| it.contains(text)).count()
}

#[test]
fn of_a_namespace_beyond_its_quota_exactly_the_oldest_stay() {
    let mut engine = engine("shop hosts=10");
    put(&mut engine, "shop", (0..100).rev());
    put(&mut engine, "blog", 0..100);
    let remedy = "raise hosts: 10 of namespace shop in --tenants";
    assert_eq!(served(&engine, "shop"), Vec::from_iter(0..10));
    assert_eq!(served(&engine, "blog"), Vec::from_iter(0..100));
    assert_eq!(told(&engine, remedy), 90);
    let key = ObjectKey::new(ObjectKind::Ingress, "shop", "i003");
    engine.apply(vec![Change::Remove(key)], world::NOW);
    let expected = (0..11).filter(|number| *number != 3);
    assert_eq!(served(&engine, "shop"), Vec::from_iter(expected));
    assert_eq!(told(&engine, remedy), 89);
    put(&mut engine, "shop", 3..4);
    assert_eq!(served(&engine, "shop"), Vec::from_iter(0..10));
}

#[test]
fn a_change_of_a_tenant_costs_what_changes_however_many_there_are() {
    let work_at = |count: usize| {
        let listed = (0..count).map(|number| format!("n{number} *.n{number}.example hosts=1"));
        let listed: Vec<String> = listed
            .chain(["shop *.shop.example hosts=9".into()])
            .collect();
        let mut engine = engine(&listed.join(";"));
        put(&mut engine, "shop", 0..8);
        put(&mut engine, "shop", 8..9)
    };
    assert_eq!(work_at(1), work_at(1_000));
}

#[test]
fn a_host_that_is_refused_is_free_for_whoever_may_claim_it() {
    let mut engine = engine("shop *.shop.example");
    let thief = ingress("blog", 0).replace("h000.blog.example", "h001.shop.example");
    engine.apply(world::changes(&thief), world::NOW);
    assert!(served(&engine, "blog").is_empty());
    assert_eq!(
        told(&engine, "--tenants keeps host h001.shop.example from"),
        1
    );
    put(&mut engine, "shop", 1..2);
    assert_eq!(served(&engine, "shop"), [1]);
    assert_eq!(told(&engine, "h001.shop.example"), 1);
    let key = ObjectKey::new(ObjectKind::Ingress, "blog", "i000");
    let outcome = engine.apply(vec![Change::Remove(key)], world::NOW);
    assert!(outcome.delta.is_empty(), "it had no part in anything");
    assert_eq!(engine.findings().count(), 0);
}

#[test]
fn other_lists_and_quotas_take_effect_in_turns_of_the_namespaces() {
    let mut engine = engine("shop *.shop.example hosts=40");
    put(&mut engine, "shop", 0..100);
    put(&mut engine, "blog", 0..100);
    assert_eq!(served(&engine, "shop").len(), 40);
    // One may hold more, and the other claim nothing.
    engine.set_tenants(world::tenants("shop *.shop.example hosts=90;blog -"));
    let outcome = engine.apply_taken_in(world::NOW);
    assert_eq!(outcome.work, Work::default());
    assert_eq!(engine.postponed().filter(|it| *it == "blog").count(), 1);
    let single = ingress("news", 0);
    let mut turns = 0;
    while let Some((_, outcome)) = engine.work_off(world::NOW, &mut || true, &|_| true) {
        assert!(
            outcome.work.units_translated <= 16 * 4,
            "{:?}",
            outcome.work
        );
        turns += 1;
        if turns == 3 {
            engine.take_in(Change::Put(world::object(&single)), world::NOW);
            let outcome = engine.apply_taken_in(world::NOW);
            assert_eq!(outcome.served, ["news/i000".into()]);
            assert!(engine.has_postponed());
        }
    }
    assert!(turns >= 200 / 16, "{turns}");
    assert_eq!(served(&engine, "shop"), Vec::from_iter(0..90));
    assert_eq!(served(&engine, "blog").len(), 0);
    assert_eq!(
        told(&engine, "the hosts of namespace blog in --tenants"),
        100
    );
    // What is the same concerns nobody.
    engine.set_tenants(world::tenants("shop *.shop.example hosts=90;blog -"));
    assert!(!engine.has_postponed());
    engine.set_tenants(world::tenants(""));
    assert_eq!(engine.apply_taken_in(world::NOW).work, Work::default());
    engine.apply(Vec::new(), world::NOW);
    assert_eq!(
        served(&engine, "shop").len() + served(&engine, "blog").len(),
        200
    );
    assert_eq!(told(&engine, "--tenants"), 0);
}

/// The oldest Ingress of evil, for so many hosts.
fn oldest(hosts: usize) -> String {
    let rule = |number: usize| {
        format!(
            "{{host: a{number}.evil.example, http: {{paths: [{{path: /, pathType: Prefix, \
             backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}"
        )
    };
    let rules: Vec<String> = (0..hosts).map(rule).collect();
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: evil, name: \
         oldest, creationTimestamp: 2025-01-01T00:00:00Z}}\nspec: {{rules: [{}]}}\n",
        rules.join(", ")
    )
}

/// Takes one object in where there is no time for anything that may wait.
fn take_in(engine: &mut Engine, text: &str) -> Work {
    engine.take_in(Change::Put(world::object(text)), world::NOW);
    let outcome = engine.apply_taken_in_while(world::NOW, &mut || false);
    outcome.work
}

#[test]
fn what_one_object_moves_over_a_bound_of_its_namespace_follows_in_turns() {
    let of_evil = |hosts: usize| {
        let mut engine = engine("evil hosts=400");
        put(&mut engine, "evil", 0..300);
        engine.apply(world::changes(&oldest(hosts)), world::NOW);
        engine
    };
    let mut engine = of_evil(1);
    for (hosts, stay) in [(350, 50), (1, 300), (350, 50)] {
        // Of 250 some at once: each tells of itself, and claims what it did.
        let work = take_in(&mut engine, &oldest(hosts));
        assert!(work.units_translated < 200, "{work:?}");
        take_in(&mut engine, &ingress("news", 0));
        assert_eq!(served(&engine, "news"), [0]);
        let mut turns = 0;
        while let Some((_, outcome)) = engine.work_off(world::NOW, &mut || true, &|_| true) {
            let work = outcome.work;
            assert!(work.units_translated <= 16 * 4, "{work:?}");
            turns += 1;
        }
        assert!(turns >= (250 - 64) / 16, "{turns}");
        assert_eq!(served(&engine, "evil"), Vec::from_iter(0..stay));
        let mut fresh = of_evil(hosts);
        put(&mut fresh, "news", 0..1);
        assert_eq!(digests(&engine), digests(&fresh));
        assert!(engine.findings().eq(fresh.findings()));
        assert_eq!(engine.usage(), fresh.usage());
    }
}

#[test]
fn with_each_change_of_a_namespace_some_of_it_go_that_wait_to_be_beyond() {
    let mut engine = engine("evil hosts=400");
    put(&mut engine, "evil", 0..300);
    engine.apply(world::changes(&oldest(1)), world::NOW);
    take_in(&mut engine, &oldest(350));
    let beyond = |engine: &Engine| told(engine, "raise hosts: 400 of namespace evil in --tenants");
    // Its namespace waits for what it owes meanwhile, and so do its turns.
    for expected in [64, 128, 192, 250, 250] {
        assert_eq!(beyond(&engine), expected);
        take_in(&mut engine, &ingress("evil", 0));
    }
    // What came back before it went has never gone.
    take_in(&mut engine, &oldest(1));
    take_in(&mut engine, &oldest(350));
    take_in(&mut engine, &oldest(1));
    engine.apply(Vec::new(), world::NOW);
    assert_eq!(beyond(&engine), 0);
    assert_eq!(served(&engine, "evil"), Vec::from_iter(0..300));
}

/// Tenants of the universe.
const UNIVERSE: [&str; 8] = [
    "",
    "one *.example hosts=2",
    "two *.example",
    "one -;two * routes=3",
    "unlisted nothing;two *.a.example b.example hosts=1 endpoints=1",
    "one object-bytes=200;two object-bytes=100",
    "one certificates=1 regex-kib=0;two certificates=1 routes=1",
    "two a.example b.example hosts=3",
];

/// Puts the objects that an engine wants again, until it wants none.
fn put_again(
    engine: &mut Engine,
    current: &BTreeMap<ObjectKey, Object>,
    mut wanted: Vec<ObjectKey>,
    now: i64,
) {
    while !wanted.is_empty() {
        for key in wanted {
            let change = match current.get(&key) {
                Some(object) => Change::Put(object.clone()),
                None => Change::Remove(key),
            };
            engine.take_in(change, now);
        }
        wanted = engine.apply_taken_in(now).wanted;
    }
}

#[test]
fn tenants_that_change_leave_what_a_fresh_engine_has() {
    let histories = (
        history(),
        vec(select(&UNIVERSE[..]), 16),
        vec(0..5_usize, 16),
    );
    run_any(histories, |(batches, tenants, turns)| {
        let mut settings = universe::settings();
        settings.root_namespace = Some("one".into());
        settings.views = vec![world::view("beside two x=1 sidecar")];
        let mut incremental = world::engine(settings.clone());
        let mut now = world::NOW;
        let mut current = BTreeMap::new();
        for (((passed, changes), text), turns) in batches.into_iter().zip(tenants).zip(turns) {
            now += passed;
            for change in changes {
                match &change {
                    Change::Put(object) => current.insert(object.key().clone(), object.clone()),
                    Change::Remove(key) => current.remove(key),
                };
                incremental.take_in(change, now);
            }
            settings.tenants = world::tenants(text);
            incremental.set_tenants(settings.tenants.clone());
            let wanted = incremental.apply_taken_in(now).wanted;
            put_again(&mut incremental, &current, wanted, now);
            for _ in 0..turns {
                if let Some((_, outcome)) = incremental.work_off(now, &mut || true, &|_| true) {
                    put_again(&mut incremental, &current, outcome.wanted, now);
                }
            }
        }
        let wanted = incremental.apply(Vec::new(), now).wanted;
        put_again(&mut incremental, &current, wanted, now);
        incremental.apply(Vec::new(), now);
        let mut fresh = world::engine(settings);
        fresh.apply(current.into_values().map(Change::Put).collect(), now);
        prop_assert_eq!(digests(&incremental), digests(&fresh));
        let [incremental_findings, fresh_findings] =
            [&incremental, &fresh].map(|it| it.findings().cloned().collect::<Vec<_>>());
        prop_assert_eq!(incremental_findings, fresh_findings);
        prop_assert_eq!(incremental.usage(), fresh.usage());
        Ok(())
    });
}
