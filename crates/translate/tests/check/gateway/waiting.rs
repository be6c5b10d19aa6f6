//! Units that an edit of a Gateway wakes beside its own: they follow in turns where there is no
//! time for all of them, and until then nobody has what was not his before.

use std::collections::BTreeSet;

use myriad_translate::{Engine, Outcome, Settings};

use super::work::{gateway, listener, route, sections};
use super::{apply, told};
use crate::properties::{findings, statuses};
use crate::world;

/// How many routes of evil name its Gateway.
const ROUTES: usize = 300;

/// The most units of one namespace that run in its turn.
const TURN_UNITS: usize = 16;

/// The Gateway of evil, for hosts below a name.
fn edge(below: &str) -> String {
    let listener = listener("all", 80, &format!(", hostname: '*.{below}'"));
    gateway(("evil", "edge"), 2022, &listener)
}

/// So many routes of evil at its Gateway.
fn routes(count: usize, hosts: impl Fn(usize) -> String) -> String {
    let route = |number: usize| {
        let name = format!("r{number}");
        route(("evil", &name), 2023, "{name: edge}", &hosts(number))
    };
    let all: Vec<String> = (0..count).map(route).collect();
    all.join("---\n")
}

/// The Gateway of shop, which is older.
fn of_shop() -> String {
    let listener = listener("it", 80, ", hostname: shop.test");
    gateway(("shop", "own"), 2020, &listener)
}

fn engine(texts: &[&str]) -> Engine {
    let mut engine = world::engine(Settings::default());
    for text in texts {
        apply(&mut engine, text);
    }
    engine
}

/// Time for so many units that may wait.
fn time_for(mut units: usize) -> impl FnMut() -> bool {
    move || {
        let has_time = units > 0;
        units = units.saturating_sub(1);
        has_time
    }
}

/// Applies changes with time for so many units that may wait.
fn apply_with_time(engine: &mut Engine, text: &str, units: usize) -> Outcome {
    for change in world::changes(text) {
        engine.take_in(change, world::NOW);
    }
    engine.apply_taken_in_while(world::NOW, &mut time_for(units))
}

/// The next turn of what waits, with time for so many units.
fn turn(engine: &mut Engine, units: usize) -> Outcome {
    let ran = engine.work_off(world::NOW, &mut time_for(units), &|_| true);
    let (_, outcome) = ran.expect("a turn");
    outcome
}

fn assert_same(engine: &Engine, whole: &Engine) {
    assert_eq!(engine.snapshot().digest(), whole.snapshot().digest());
    assert_eq!(statuses(engine), statuses(whole));
    assert_eq!(findings(engine), findings(whole));
    assert_eq!(engine.usage(), whole.usage());
}

#[test]
fn routes_that_an_edit_of_their_own_gateway_wakes_follow_in_turns() {
    let routes = routes(ROUTES, |number| format!("h{number}.evil.test"));
    let mut engine = engine(&[&edge("evil.test"), &routes]);
    let mut whole = self::engine(&[&edge("evil.test"), &routes]);
    for below in ["else.test", "evil.test"] {
        // The Gateway, ten routes and what follows from them.
        let outcome = apply_with_time(&mut engine, &edge(below), 10);
        assert!(outcome.work.units_translated < 60, "{:?}", outcome.work);
        let postponed: BTreeSet<&str> = engine.postponed().collect();
        assert!(postponed.contains("evil"), "{postponed:?}");
        // Whoever comes now waits for none of them.
        let outcome = apply_with_time(&mut engine, &of_shop(), 100);
        assert!(outcome.work.units_translated < 20, "{:?}", outcome.work);
        assert_eq!(sections(&engine, "shop.test"), ["gateway/shop/own/it"]);
        let mut turns = 0;
        while engine.has_postponed() {
            let outcome = turn(&mut engine, 2 * TURN_UNITS);
            let units = outcome.work.units_translated;
            assert!(units <= 6 * TURN_UNITS as u64, "{:?}", outcome.work);
            turns += 1;
        }
        assert!(turns >= (ROUTES - 10) / TURN_UNITS, "{turns}");
        let refused = told(&engine, "no listener of Gateway evil/edge has a host");
        assert_eq!(refused, if below == "else.test" { ROUTES } else { 0 });
        apply(&mut whole, &edge(below));
        apply(&mut whole, &of_shop());
        assert_same(&engine, &whole);
    }
}

#[test]
fn an_object_that_changed_itself_never_waits() {
    let hosts = |number: usize| format!("h{number}.evil.test");
    let mut engine = engine(&[&edge("evil.test"), &routes(ROUTES, hosts)]);
    let mut whole = self::engine(&[&edge("else.test"), &routes(ROUTES, hosts)]);
    let last = format!("r{}", ROUTES - 1);
    let moved = route(("evil", &last), 2023, "{name: gone}", "h.evil.test");
    let edits = format!("{}---\n{moved}", edge("else.test"));
    apply_with_time(&mut engine, &edits, 0);
    // Its parent is nobody's; the others are told of what they were.
    let key = |name: &str| format!("evil/{name}");
    let has_status = |engine: &Engine, name: &str| {
        let mut all = statuses(engine).into_iter();
        all.any(|it| **it.object.id() == *key(name))
    };
    assert!(!has_status(&engine, &last) && has_status(&engine, "r0"));
    while engine.has_postponed() {
        turn(&mut engine, 0);
    }
    apply(&mut whole, &moved);
    assert_same(&engine, &whole);
}

#[test]
fn a_host_of_very_many_routes_runs_once_in_a_turn_of_them() {
    let routes = routes(ROUTES, |_| "one.evil.test".into());
    let mut engine = engine(&[&edge("evil.test"), &routes]);
    let outcome = apply_with_time(&mut engine, &edge("test"), 0);
    let mut units = outcome.work.units_translated;
    while engine.has_postponed() {
        units += turn(&mut engine, ROUTES).work.units_translated;
    }
    // Each route and its rows once, and in each turn of them the host.
    let most = 2 * ROUTES + 8 * ROUTES / TURN_UNITS;
    assert!((ROUTES as u64..most as u64).contains(&units), "{units}");
    assert_same(&engine, &self::engine(&[&edge("test"), &routes]));
}

#[test]
fn a_host_stays_with_its_owner_however_little_time_there_is_for_strangers() {
    let routes = routes(40, |number| format!("h{number}.evil.test, shop.test"));
    let texts = [of_shop(), edge("evil.test"), routes];
    let texts = texts.each_ref().map(String::as_str);
    let fresh = engine(&texts);
    for time in 0..6 {
        let mut engine = engine(&texts);
        for below in ["test", "evil.test"] {
            apply_with_time(&mut engine, &edge(below), time);
            loop {
                assert_eq!(sections(&engine, "shop.test"), ["gateway/shop/own/it"]);
                if !engine.has_postponed() {
                    break;
                }
                turn(&mut engine, 0);
            }
        }
        assert_same(&engine, &fresh);
    }
}
