//! Properties of the engine over generated histories of a small universe. Each test prints its
//! seed; `MYRIAD_SEED=<number>` runs that one again.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use myriad_api::gateway::status::Status;
use myriad_api::{Change, Finding, Object, ObjectKey};
use myriad_model::{
    Action, Kind, Name, ShareAnswer, Snapshot, Value, WeightedUpstream, on_demand_host,
};
use myriad_translate::{Engine, GatewayCredentials, Rival, Settings, StatedIssuer, Usage, Wish};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::universe::{self, history, object};
use crate::world;

/// Histories of one test.
const CASES: u32 = 300;

/// Changes, each some seconds after those before.
pub(crate) type Batches = Vec<(i64, Vec<Change>)>;

fn run(test: impl Fn(Batches) -> Result<(), TestCaseError>) {
    run_any(history(), test);
}

/// Runs a test over any kind of histories.
pub(crate) fn run_any<S: Strategy>(
    histories: S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let seed = std::env::var("MYRIAD_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    eprintln!("MYRIAD_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&histories, test);
    if let Err(error) = outcome {
        panic!("MYRIAD_SEED={seed}: {error}");
    }
}

fn engine() -> Engine {
    world::engine(Settings {
        late_claims: true,
        ..universe::settings()
    })
}

/// The same where every Gateway may use what lies beside its workload, for half of the histories.
fn engine_for(batches: &Batches) -> Engine {
    let credentials = match batches.len() % 2 {
        0 => GatewayCredentials::Any,
        _ => GatewayCredentials::Named,
    };
    world::engine(Settings {
        late_claims: true,
        gateway_credentials: credentials,
        ..universe::settings()
    })
}

pub(crate) fn findings(engine: &Engine) -> Vec<Finding> {
    engine.findings().cloned().collect()
}

pub(crate) fn statuses(engine: &Engine) -> Vec<Status> {
    engine.statuses().cloned().collect()
}

fn wishes(engine: &Engine) -> Vec<Wish> {
    engine.wishes().cloned().collect()
}

fn issuers(engine: &Engine) -> Vec<StatedIssuer> {
    engine.issuers().cloned().collect()
}

fn rivals(engine: &Engine) -> Vec<Rival> {
    engine.rivals().cloned().collect()
}

/// The objects that are left after a history.
pub(crate) fn survivors(batches: &Batches) -> Vec<Object> {
    let mut objects: BTreeMap<ObjectKey, Object> = BTreeMap::new();
    for change in batches.iter().flat_map(|(_, changes)| changes) {
        match change {
            Change::Put(object) => objects.insert(object.key().clone(), object.clone()),
            Change::Remove(key) => objects.remove(key),
        };
    }
    objects.into_values().collect()
}

#[test]
fn incremental_equals_from_scratch() {
    run(|batches| {
        let mut incremental = engine_for(&batches);
        let mut now = world::NOW;
        for (passed, changes) in &batches {
            now += passed;
            incremental.apply(changes.clone(), now);
        }
        let mut fresh = engine_for(&batches);
        // History that no object tells.
        fresh.learn(incremental.late_claims());
        let objects = survivors(&batches).into_iter().map(Change::Put).collect();
        fresh.apply(objects, now);
        prop_assert_eq!(findings(&incremental), findings(&fresh));
        prop_assert_eq!(wishes(&incremental), wishes(&fresh));
        prop_assert_eq!(issuers(&incremental), issuers(&fresh));
        prop_assert_eq!(rivals(&incremental), rivals(&fresh));
        prop_assert_eq!(statuses(&incremental), statuses(&fresh));
        prop_assert_eq!(incremental.snapshot().digest(), fresh.snapshot().digest());
        prop_assert_eq!(incremental.next_deadline(), fresh.next_deadline());
        prop_assert_eq!(incremental.usage(), fresh.usage());
        prop_assert_eq!(incremental.late_claims(), fresh.late_claims());
        Ok(())
    });
}

#[test]
fn a_delta_is_the_difference_of_two_snapshots() {
    run(|batches| {
        let mut engine = engine();
        let mut known = Snapshot::new();
        for (_, changes) in batches {
            let outcome = engine.apply(changes, world::NOW);
            let mut keys = Vec::new();
            prop_assert!(outcome.delta.groups().all(|group| !group.is_empty()));
            for change in outcome.delta.changes() {
                known.apply(change);
                keys.push(change.key.clone());
            }
            keys.sort();
            let count = keys.len();
            keys.dedup();
            prop_assert_eq!(keys.len(), count, "a key stands once in a delta");
            prop_assert_eq!(known.digest(), engine.snapshot().digest());
            prop_assert_eq!(outcome.work.resources_changed, count as u64);
        }
        Ok(())
    });
}

#[test]
fn findings_changes_add_up() {
    run(|batches| {
        let mut engine = engine();
        let mut known = Vec::new();
        for (_, changes) in batches {
            let change = engine.apply(changes, world::NOW).findings;
            for removed in &change.removed {
                let at = known.iter().position(|known| known == &**removed);
                prop_assert!(at.is_some(), "{} was not there", removed);
                known.remove(at.unwrap());
            }
            known.extend(change.added.iter().map(|added| Finding::clone(added)));
            known.sort();
            prop_assert_eq!(&known, &findings(&engine));
        }
        Ok(())
    });
}

#[test]
fn the_same_objects_again_change_nothing() {
    run(|batches| {
        let mut engine = engine();
        for (_, changes) in &batches {
            engine.apply(changes.clone(), world::NOW);
        }
        let again = survivors(&batches).into_iter().map(Change::Put).collect();
        let outcome = engine.apply(again, world::NOW);
        prop_assert!(outcome.delta.is_empty() && outcome.findings.is_empty());
        prop_assert_eq!(outcome.work, myriad_translate::Work::default());
        Ok(())
    });
}

#[test]
fn the_order_inside_a_batch_does_not_matter() {
    run(|batches| {
        let (mut forth, mut back) = (engine(), engine());
        for (_, changes) in batches {
            let mut reversed = changes.clone();
            reversed.reverse();
            let one = forth.apply(changes, world::NOW);
            let other = back.apply(reversed, world::NOW);
            let keys = |delta: &myriad_model::Delta| -> Vec<_> {
                let changes = delta.changes().iter();
                changes.map(|change| change.key.clone()).collect()
            };
            prop_assert_eq!(keys(&one.delta), keys(&other.delta));
            // What is still open from the unit before, which is not read again, depends on it.
            let counted = |work| myriad_translate::Work {
                texts_read: 0,
                entries_visited: 0,
                ..work
            };
            prop_assert_eq!(counted(one.work), counted(other.work));
            prop_assert_eq!(forth.snapshot().digest(), back.snapshot().digest());
            prop_assert_eq!(findings(&forth), findings(&back));
        }
        Ok(())
    });
}

#[test]
fn nothing_is_left_when_all_is_removed() {
    run(|batches| {
        let mut engine = engine();
        for (_, changes) in &batches {
            engine.apply(changes.clone(), world::NOW);
        }
        for object in survivors(&batches) {
            engine.apply(vec![Change::Remove(object.key().clone())], world::NOW);
        }
        prop_assert_eq!(engine.usage(), Usage::default());
        prop_assert_eq!(engine.snapshot().len(), 2, "the listeners");
        prop_assert_eq!(engine.next_deadline(), None);
        prop_assert_eq!(statuses(&engine), Vec::new());
        Ok(())
    });
}

/// The upstreams that get the requests of a share, or copies of them.
fn upstreams_of(share: &WeightedUpstream) -> Vec<Name> {
    let filters = share.filters.as_deref();
    let mirrors = filters.map_or(&[][..], |it| &it.mirrors);
    let copied = mirrors.iter().map(|mirror| mirror.upstream.clone());
    match filters.and_then(|it| it.answer.as_ref()) {
        None => copied.chain([share.upstream.clone()]).collect(),
        Some(ShareAnswer::Redirect(_)) => copied.collect(),
        Some(ShareAnswer::Refuse(_)) => Vec::new(),
    }
}

#[test]
fn what_is_there_is_referred_to_and_the_other_way_round() {
    run(|batches| {
        let mut engine = engine();
        for (_, changes) in batches {
            engine.apply(changes, world::NOW);
            let (mut needed, mut there) = (Vec::new(), Vec::new());
            for sealed in engine.snapshot().iter() {
                let name = sealed.name().clone();
                match &sealed.resource().unwrap().value {
                    value @ (Value::Route(_) | Value::Routes(_)) => {
                        for route in value.routes() {
                            if let Action::Forward(targets) = route.action {
                                needed.extend(targets.iter().flat_map(upstreams_of));
                            }
                            let mirrors = route.policy.mirrors.iter();
                            needed.extend(mirrors.map(|mirror| mirror.upstream.clone()));
                            let asked = route.policy.inquiry.iter();
                            needed.extend(asked.map(|inquiry| inquiry.upstream.clone()));
                            let asked = route.policy.authorizer.iter();
                            needed.extend(asked.map(|provider| provider.upstream.clone()));
                        }
                    }
                    Value::StreamRoute(stream_route) => {
                        let shares = stream_route.upstreams.iter();
                        needed.extend(shares.map(|share| share.upstream.clone()));
                    }
                    Value::Domain(domain) => {
                        needed.extend(domain.certificate.clone());
                        needed.extend(domain.alternatives.iter().cloned());
                    }
                    Value::Upstream(upstream) => {
                        let tls = upstream.tls.as_ref();
                        needed.extend(tls.and_then(|tls| tls.certificate.clone()));
                        there.push(name);
                    }
                    // Handshakes find it by its name alone.
                    Value::Certificate(_) if on_demand_host(name.as_str()).is_some() => {}
                    Value::Certificate(_) => there.push(name),
                    _ => {}
                }
                let is_upstream = sealed.key().kind == Kind::Upstream;
                prop_assert!(!is_upstream || sealed.upstream().is_some());
            }
            // A second one of the same algorithm is watched, and shown to nobody.
            let told = findings(&engine);
            let is_spare = |name: &Name| {
                let second = format!("names Secret {name}, which is without effect for ");
                let mut messages = told.iter().map(|finding| &finding.message);
                messages.any(|it| it.starts_with(&second)) || name.as_str().ends_with("-rsa")
            };
            prop_assert!(
                there
                    .iter()
                    .all(|name| needed.contains(name) || is_spare(name))
            );
            // Secrets may be missing or broken; every Service of the universe is sound.
            let upstreams = needed.iter().filter(|name| name.contains(':'));
            for name in upstreams {
                prop_assert!(there.contains(name), "{} is not there", name);
            }
        }
        Ok(())
    });
}

#[test]
fn time_alone_moves_findings_of_certificates() {
    let mut engine = world::engine(Settings {
        default_certificate: Some(("default".into(), "x".into())),
        ..Settings::default()
    });
    let secret = world::secret("<certificate a.example ending>", "<key a.example>", None);
    engine.apply(
        vec![Change::Put(Object::Secret(Arc::new(secret)))],
        world::NOW,
    );
    assert!(findings(&engine)[0].message.contains("within 14 days"));
    let deadline = engine.next_deadline().unwrap();
    assert!(engine.tick(deadline - 1).findings.is_empty());
    let outcome = engine.tick(deadline);
    assert_eq!(outcome.work.units_translated, 1);
    assert!(
        outcome.delta.is_empty(),
        "an expired certificate is still served"
    );
    assert!(findings(&engine)[0].message.contains("has expired"));
    assert_eq!(engine.next_deadline(), None);
}

#[test]
fn any_object_alone_is_translated_without_panic() {
    let mut runner = TestRunner::deterministic();
    runner
        .run(&object(), |object| {
            engine().apply(vec![Change::Put(object)], world::NOW);
            Ok(())
        })
        .unwrap();
}
