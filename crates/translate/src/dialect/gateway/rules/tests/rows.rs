//! The rows that become of rules: their names, listeners and order.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_model::{Action, Draft, Host, Label, Name, Origin, OriginKind, RedirectTarget};

use super::super::plan::{PlannedAction, PlannedRule};
use super::super::{RouteGroup, rank};
use super::http;
use crate::engine::{Output, Unit};

fn hosts() -> Arc<[Host]> {
    [Host::parse("a.example").expect("a host")].into()
}

/// A group of three sections: two on port 80, one on port 8080.
fn group(hosts: &Arc<[Host]>, created: i64) -> RouteGroup<'_> {
    let names =
        |names: &[&str]| -> Arc<[Name]> { names.iter().map(|it| Name::from(*it)).collect() };
    RouteGroup {
        prefix: "http/shop/route,a.example/".into(),
        origin: Origin {
            kind: OriginKind::HttpRoute,
            id: "shop/route".into(),
        },
        created,
        hosts,
        listeners: names(&["one", "three", "two"]),
        by_port: BTreeMap::from([(80, names(&["one", "two"])), (8080, names(&["three"]))]),
    }
}

/// The names, listeners and ranks of the routes of rules, in the order of their names.
fn added(rules: Vec<PlannedRule>, created: i64) -> (Vec<(String, String, u64)>, Output) {
    let (hosts, mut output) = (hosts(), Output::default());
    let group = group(&hosts, created);
    for (number, rule) in rules.into_iter().enumerate() {
        group.add(number, rule, &mut output);
    }
    let row = |draft: &Draft| {
        let Label::Rule(label) = &draft.label else {
            panic!("{draft:?}")
        };
        let listeners = draft.route.listeners.iter().map(|name| name.as_str());
        let listeners: Vec<&str> = listeners.collect();
        let name = format!("{}{label}.{}", draft.rule, draft.matched);
        (name, listeners.join(" "), draft.route.rank)
    };
    let rows = output.routes.iter().map(row).collect();
    (rows, output)
}

#[test]
fn a_redirect_without_a_port_is_one_for_each_port_of_the_listeners() {
    let rules = "{name: led, filters: [{type: RequestRedirect, requestRedirect: {}}]}, \
                 {filters: [{type: RequestRedirect, requestRedirect: {port: 9}}]}, \
                 {filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}, \
                 {matches: [{path: {value: /a}}, {path: {value: /b}}], \
                  backendRefs: [{name: a, port: 80}]}";
    let (rows, output) = added(http(rules), 5);
    let places: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.0, &*row.1)).collect();
    assert_eq!(
        places,
        [
            ("0:led@80.0", "one two"),
            ("0:led@8080.0", "three"),
            ("1.0", "one three two"),
            ("2.0", "one three two"),
            ("3.0", "one three two"),
            ("3.1", "one three two"),
        ]
    );
    let ports: Vec<Option<u16>> = output
        .routes
        .iter()
        .filter_map(|draft| match &draft.route.action {
            Action::Redirect(redirect) => match &redirect.target {
                RedirectTarget::Parts(parts) => Some(parts.port),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(ports, [Some(80), Some(8080), Some(9), Some(443)]);
    assert_eq!(output.needs, [Unit::upstream("shop/a:80".into())]);
}

#[test]
fn a_share_that_leads_to_the_port_of_the_listener_is_one_for_each() {
    let rules = http(
        "{backendRefs: [{name: a, port: 80, \
           filters: [{type: RequestRedirect, requestRedirect: {}}]}]}",
    );
    assert!(matches!(rules[0].action, PlannedAction::Forward(_)) && rules[0].action.is_by_port());
    let (rows, output) = added(rules, 5);
    assert_eq!(rows.len(), 2);
    assert!(output.needs.is_empty());
}

#[test]
fn precedence_follows_from_the_match_and_then_from_the_age_of_the_route() {
    let rules = "{matches: [{path: {value: /a}}, {path: {type: Exact, value: /a}}, {}]}";
    let (older, _) = added(http(rules), 5);
    let (younger, _) = added(http(rules), 6);
    let ranks =
        |rows: &[(String, String, u64)]| -> Vec<u64> { rows.iter().map(|it| it.2).collect() };
    let (older, younger) = (ranks(&older), ranks(&younger));
    let mut tried = vec![
        (older[1], "exactly, older"),
        (younger[1], "exactly, younger"),
        (older[0], "below, older"),
        (younger[0], "below, younger"),
        (older[2], "everything, older"),
        (younger[2], "everything, younger"),
    ];
    let written = tried.clone();
    tried.sort_unstable();
    assert_eq!(tried, written);
    let exact = rank::of_http(rank::PathLength::Exact, false, 0, 0);
    assert_eq!(older[1], rank::rank(exact, 5));
}
