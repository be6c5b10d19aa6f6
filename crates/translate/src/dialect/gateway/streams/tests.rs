use std::sync::Arc;

use myriad_api::gateway::{BackendRef, StreamRule};
use myriad_api::{ObjectKey, ObjectKind};

use super::{NOWHERE, describe, judge_rules, rank, shares};
use crate::dialect::gateway::backend_problem::{BackendProblem, BackendUse};

fn backend(name: &str, weight: Option<u32>) -> BackendRef {
    BackendRef {
        name: name.into(),
        port: Some(90),
        weight,
        ..BackendRef::default()
    }
}

fn rule(backends: &[(&str, Option<u32>)]) -> StreamRule {
    let backends = backends.iter();
    StreamRule {
        name: None,
        backends: backends
            .map(|(name, weight)| backend(name, *weight))
            .collect(),
    }
}

fn find(backend: &BackendRef) -> Result<Arc<str>, BackendProblem> {
    match &*backend.name {
        "missing" => Err(BackendProblem::BackendNotFound),
        "foreign" => Err(BackendProblem::RefNotPermitted),
        name => Ok(format!("shop/{name}:90").into()),
    }
}

fn judged(rules: &[StreamRule], used: BackendUse) -> super::Judgement {
    let key = ObjectKey::new(ObjectKind::TcpRoute, "shop", "web");
    judge_rules(&key, (rules, used), &mut find)
}

#[test]
fn a_backend_that_is_none_keeps_its_share() {
    let rules = [
        rule(&[("a", Some(7)), ("missing", None), ("b", Some(0))]),
        rule(&[("c", None)]),
    ];
    let shares = shares(&rules, &mut find);
    let shares = shares.iter().map(|it| (it.upstream.as_str(), it.weight));
    let shares: Vec<(&str, u32)> = shares.collect();
    assert_eq!(shares, [("shop/a:90", 7), (NOWHERE, 1)]);
    assert!(super::shares(&[], &mut find).is_empty());
}

#[test]
fn the_first_backend_that_is_none_is_the_reason_of_the_condition() {
    let rules = [rule(&[
        ("a", None),
        ("foreign", Some(0)),
        ("missing", None),
    ])];
    let judgement = judged(&rules, BackendUse::Stream);
    let (problem, message) = judgement.unresolved.expect("a problem");
    assert_eq!(problem, BackendProblem::RefNotPermitted);
    assert!(message.starts_with("spec.rules[0].backendRefs[1] names Service shop/foreign:90"));
    let fields: Vec<&str> = judgement.findings.iter().map(|it| &*it.field).collect();
    assert_eq!(
        fields,
        [
            "spec.rules[0].backendRefs[1]",
            "spec.rules[0].backendRefs[2]"
        ]
    );
    assert!(
        judgement.findings[0]
            .message
            .contains("share of connections is closed")
    );
    assert!(judgement.refused.is_none() && judgement.dropped.is_empty());
    let judgement = judged(&rules, BackendUse::Datagram);
    assert!(
        judgement.findings[0]
            .message
            .contains("share of datagrams is dropped")
    );
}

#[test]
fn rules_behind_one_that_takes_all_are_dropped() {
    let rules = [rule(&[("a", None)]), rule(&[("missing", None)])];
    let judgement = judged(&rules, BackendUse::Stream);
    assert_eq!(judgement.dropped.len(), 1);
    assert!(judgement.dropped[0].starts_with("Dropped Rule 1: spec.rules[1] "));
    assert!(judgement.unresolved.is_none());
    assert_eq!(judgement.findings.len(), 1);
    assert_eq!(&*judgement.findings[0].field, "spec.rules[1]");
}

#[test]
fn a_route_without_a_share_is_told() {
    for rules in [vec![], vec![rule(&[])], vec![rule(&[("a", Some(0))])]] {
        let judgement = judged(&rules, BackendUse::Stream);
        let fields: Vec<&str> = judgement.findings.iter().map(|it| &*it.field).collect();
        assert_eq!(fields, ["spec.rules[0].backendRefs"], "{rules:?}");
    }
    let one = judged(&[rule(&[("a", None)])], BackendUse::Stream);
    assert!(one.findings.is_empty());
}

#[test]
fn the_oldest_goes_first() {
    assert!(rank(1) < rank(2));
    assert_eq!((rank(-1), rank(0)), (0, 0));
    assert_eq!(rank(i64::MAX), rank(i64::MAX - 1));
}

#[test]
fn a_backend_is_named_with_its_port() {
    assert_eq!(describe(&backend("a", None), "shop"), "Service shop/a:90");
    let bare = BackendRef {
        namespace: Some("blog".into()),
        port: None,
        ..backend("a", None)
    };
    assert_eq!(describe(&bare, "shop"), "Service blog/a");
}
