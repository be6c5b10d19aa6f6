//! Histories in which nearly everything is of Gateway API: what comes and goes, with views that do
//! so too, leaves what a fresh engine has, and statuses are told as they change.

use std::collections::BTreeMap;

use myriad_api::gateway::status::{State, Status};
use myriad_api::{Change, Object, ObjectKey};
use myriad_translate::{Engine, Settings};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties::{Batches, findings, run_any, statuses, survivors};
use crate::views::{Step, digests, take};
use crate::{universe, world};

/// The proxies of one Gateway, and sidecars of callers in two namespaces.
const VIEWS: [&str; 4] = [
    "own one gateway.networking.k8s.io/gateway-name=edge dedicated",
    "other two gateway.networking.k8s.io/gateway-name=edge dedicated",
    "beside one x=1 sidecar",
    "along two x=1 sidecar",
];

/// An object of Gateway API, or what it leads to.
fn object() -> impl Strategy<Value = Object> {
    prop_oneof![4 => super::object(), 1 => universe::object()]
}

fn history() -> impl Strategy<Value = Batches> {
    universe::history_of(object)
}

fn steps() -> impl Strategy<Value = (Batches, Vec<Option<Step>>)> {
    let step = prop_oneof![
        3 => select(&VIEWS[..]).prop_map(Ok),
        1 => select(&["own", "other", "beside", "along"][..]).prop_map(Err),
    ];
    (history(), vec(option::of(step), 16))
}

/// The settings of the universe, where the usual class needs no object.
fn settings() -> Settings {
    Settings {
        serve_classless: true,
        late_claims: true,
        ..universe::settings()
    }
}

#[test]
fn incremental_equals_from_scratch_in_all_views() {
    run_any(steps(), |(batches, steps)| {
        let mut incremental = world::engine(settings());
        let mut now = world::NOW;
        for ((passed, changes), step) in batches.iter().zip(steps) {
            now += passed;
            take(&mut incremental, step);
            incremental.apply(changes.clone(), now);
        }
        let views = incremental.views().skip(1).map(|(view, _)| view.clone());
        let mut fresh = world::engine(Settings {
            views: views.collect(),
            ..settings()
        });
        fresh.learn(incremental.late_claims());
        let objects = survivors(&batches).into_iter().map(Change::Put).collect();
        fresh.apply(objects, now);
        prop_assert_eq!(statuses(&incremental), statuses(&fresh));
        prop_assert_eq!(findings(&incremental), findings(&fresh));
        prop_assert_eq!(digests(&incremental), digests(&fresh));
        prop_assert_eq!(incremental.usage(), fresh.usage());
        Ok(())
    });
}

#[test]
fn incremental_equals_from_scratch_however_little_time_there_is() {
    let histories = (history(), vec(0..6_usize, 16), vec(0..4_usize, 16));
    run_any(histories, |(batches, times, turns)| {
        let mut incremental = world::engine(settings());
        let mut now = world::NOW;
        // A first list is whole.
        incremental.apply(Vec::new(), now);
        for (((passed, changes), mut time), turns) in batches.iter().zip(times).zip(turns) {
            now += passed;
            for change in changes {
                incremental.take_in(change.clone(), now);
            }
            let mut has_time = || {
                let has_time = time > 0;
                time = time.saturating_sub(1);
                has_time
            };
            incremental.apply_taken_in_while(now, &mut has_time);
            for _ in 0..turns {
                incremental.work_off(now, &mut || false, &|_| true);
            }
        }
        while incremental.has_postponed() {
            incremental.work_off(now, &mut || false, &|_| true);
        }
        let mut fresh = world::engine(settings());
        fresh.learn(incremental.late_claims());
        let objects = survivors(&batches).into_iter().map(Change::Put).collect();
        fresh.apply(objects, now);
        prop_assert_eq!(statuses(&incremental), statuses(&fresh));
        prop_assert_eq!(findings(&incremental), findings(&fresh));
        prop_assert_eq!(digests(&incremental), digests(&fresh));
        prop_assert_eq!(incremental.usage().units, fresh.usage().units);
        Ok(())
    });
}

/// Adds up what an engine tells of statuses, as whoever writes them does.
fn add_up(known: &mut BTreeMap<ObjectKey, Status>, engine: &mut Engine, changes: Vec<Change>) {
    let outcome = engine.apply(changes, world::NOW);
    for status in &outcome.statuses.removed {
        if known.get(&status.object) == Some(&**status) {
            known.remove(&status.object);
        }
    }
    for status in &outcome.statuses.added {
        known.insert(status.object.clone(), Status::clone(status));
    }
}

#[test]
fn changes_of_statuses_add_up_and_an_object_has_one() {
    run_any(history(), |batches| {
        let mut engine = world::engine(settings());
        let mut known = BTreeMap::new();
        for (_, changes) in batches {
            add_up(&mut known, &mut engine, changes);
            let told: Vec<Status> = known.values().cloned().collect();
            prop_assert_eq!(told, statuses(&engine));
        }
        Ok(())
    });
}

/// The objects that are attached to others, by what these count.
#[test]
fn counts_are_those_of_the_objects_that_are_there() {
    run_any(history(), |batches| {
        let mut engine = world::engine(settings());
        for (_, changes) in batches {
            engine.apply(changes, world::NOW);
            let told = statuses(&engine);
            let sets = |gateway: &str| {
                let of = told.iter().filter(|it| match &it.state {
                    State::ListenerSet(set) => {
                        let mut programmed = set.conditions.iter();
                        *set.gateway == *gateway
                            && programmed.any(|it| it.kind == "Programmed" && it.is_true())
                    }
                    _ => false,
                });
                of.count()
            };
            for status in &told {
                let State::Gateway(gateway) = &status.state else {
                    continue;
                };
                let counted = usize::try_from(gateway.attached_listener_sets);
                prop_assert_eq!(counted.unwrap(), sets(status.object.id()));
            }
        }
        Ok(())
    });
}
