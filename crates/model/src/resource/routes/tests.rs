use std::collections::HashMap;
use std::sync::Arc;

use super::{Draft, Label, ResourcePlace, Routes, divide, in_order};
use crate::{
    Action, Form, Host, Name, Origin, OriginKind, PathMatch, Policy, Resource, Route, Sealer,
    Source, Test, Value, ValueMatch, Version, WeightedUpstream,
};

const PREFIX: &str = "shop/web/a.example/";

fn origin(id: &str) -> Origin {
    Origin {
        kind: OriginKind::VirtualService,
        id: id.into(),
    }
}

/// The rule of a number, whose match, action and policy differ from those of others now and then.
fn draft(number: usize, path: &str) -> Draft {
    let text: Box<str> = path.into();
    let upstream = WeightedUpstream {
        upstream: Name::new(format!("shop/web-{}:80", number % 3)),
        weight: 1,
        headers: None,
        filters: None,
    };
    let condition = ValueMatch {
        source: Source::Header,
        name: "x-a".into(),
        test: Test::Present,
        invert: false,
    };
    let policy = Policy {
        request_body_bytes_max: (number % 2) as u64,
        ..Policy::default()
    };
    let listeners: Vec<Name> = match number % 11 {
        0 => vec![Name::from("http")],
        _ => vec![Name::from("http"), Name::from("https")],
    };
    Draft {
        origin: origin(if number % 13 == 5 {
            "shop/other"
        } else {
            "shop/web"
        }),
        label: Label::Rule(Box::default()),
        rule: number as u32,
        matched: 0,
        route: Route {
            listeners: listeners.into(),
            hosts: [Host::parse("a.example").unwrap()].into(),
            path: match number % 4 {
                0 => PathMatch::Prefix(text),
                1 => PathMatch::Regex(text),
                2 => PathMatch::Start(text),
                _ => PathMatch::Exact(text),
            },
            conditions: number
                .is_multiple_of(7)
                .then_some(condition)
                .into_iter()
                .collect(),
            rank: (number % 50 / 49) as u64,
            action: Action::Forward([upstream].into()),
            policy: Arc::new(policy),
        },
    }
}

/// As many rules, numbered as they stand.
fn drafts(paths: &[String]) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    for (rule, path) in paths.iter().enumerate() {
        // What a rule says does not depend on its place.
        let digits = path.rsplit('/').next().unwrap_or_default();
        let mut draft = draft(digits.parse().unwrap(), path);
        draft.rule = rule as u32;
        drafts.push(draft);
    }
    drafts
}

fn paths(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("/p/{number}")).collect()
}

fn divided(paths: &[String]) -> Vec<(Name, Resource)> {
    divide(PREFIX, &origin("shop/web"), drafts(paths))
}

fn block(resource: &Resource) -> Option<&Routes> {
    match &resource.value {
        Value::Routes(block) => Some(block),
        _ => None,
    }
}

fn named(resources: &[(Name, Resource)]) -> Vec<(&Name, Option<&Routes>)> {
    let named = resources.iter();
    named
        .map(|(name, resource)| (name, block(resource)))
        .collect()
}

fn texts<'a>(resources: impl Iterator<Item = &'a (Name, Resource)>) -> Vec<&'a str> {
    let routes = resources.flat_map(|(_, resource)| resource.value.routes());
    routes.map(|route| route.path.text()).collect()
}

/// The names of all routes, in order, each with the object that it came from.
fn listed(resources: &[(Name, Resource)]) -> Vec<(String, String)> {
    let named = named(resources);
    let mut listed = Vec::new();
    for ResourcePlace { at, mut rule } in in_order(&named) {
        let (name, resource) = &resources[at];
        let Some(block) = block(resource) else {
            listed.push((name.to_string(), resource.origin.to_string()));
            continue;
        };
        for (number, row) in block.rows().iter().enumerate() {
            rule += u32::from(row.step);
            let label = block.label(number, rule);
            let origin = resource.origin_of(number).to_string();
            listed.push((format!("{}{label}", Routes::prefix(name)), origin));
        }
    }
    listed
}

#[test]
fn every_route_comes_back_out_of_its_block() {
    let paths = paths(300);
    let divided = divided(&paths);
    assert!(divided.len() > 2, "{}", divided.len());
    let all = divided
        .iter()
        .flat_map(|(_, resource)| resource.value.routes());
    let drafts = drafts(&paths);
    assert!(all.eq(drafts.iter().map(|draft| draft.route.view())));
    let called =
        |(rule, draft): (usize, &Draft)| (format!("{PREFIX}{rule}.0"), draft.origin.to_string());
    assert_eq!(
        listed(&divided),
        drafts.iter().enumerate().map(called).collect::<Vec<_>>()
    );
    for (_, resource) in &divided {
        assert!((1..=Routes::ROWS_MAX).contains(&resource.value.routes_len()));
    }
}

#[test]
fn one_route_alone_is_what_it_was() {
    let [(name, resource)] = &divided(&paths(1))[..] else {
        panic!("one resource");
    };
    assert_eq!(name.as_str(), "shop/web/a.example/0.0");
    assert!(matches!(resource.value, Value::Route(_)));
}

#[test]
fn the_order_in_which_blocks_come_does_not_matter() {
    let mut blocks = divided(&paths(500));
    let before = listed(&blocks);
    blocks.reverse();
    blocks.rotate_left(3);
    assert_eq!(listed(&blocks), before);
}

#[test]
fn without_a_block_the_others_keep_their_order() {
    let whole = divided(&paths(500));
    for missing in 0..whole.len() {
        let mut blocks = whole.clone();
        blocks.remove(missing);
        let order = in_order(&named(&blocks)).into_iter();
        let found = texts(order.map(|place| &blocks[place.at]));
        assert_eq!(found.len(), texts(blocks.iter()).len());
        for part in [&whole[..missing], &whole[missing + 1..]] {
            let part = texts(part.iter());
            let mut places = found.windows(part.len().max(1));
            assert!(part.is_empty() || places.any(|it| *it == part));
        }
    }
}

fn versions(resources: Vec<(Name, Resource)>) -> HashMap<Name, Version> {
    let mut sealer = Sealer::new([0; 32], Form::Encoded);
    let sealed = resources.into_iter();
    let sealed = sealed.map(|(name, resource)| sealer.seal(name, resource));
    sealed.map(|it| (it.name().clone(), it.version())).collect()
}

#[test]
fn a_rule_inserted_anywhere_changes_few_blocks() {
    let before = paths(1_000);
    let known = versions(divided(&before));
    let (mut changed, mut tried) = (0, 0);
    for at in (0..=1_000).step_by(20) {
        let mut after = before.clone();
        after.insert(at, "/new/3000".to_owned());
        let now = versions(divided(&after));
        let is_new = |(name, version): &(&Name, &Version)| known.get(*name) != Some(*version);
        let new = now.iter().filter(is_new).count();
        assert!(new <= 5, "{new} blocks at {at}");
        changed += new;
        tried += 1;
    }
    assert!(changed <= tried * 2, "{changed} blocks in {tried} changes");
}

#[test]
fn blocks_say_nothing_of_how_the_list_came_to_be() {
    let mut grown: Vec<String> = Vec::new();
    for path in paths(200).into_iter().rev() {
        grown.insert(0, path);
        let _ = divided(&grown);
    }
    assert_eq!(divided(&grown), divided(&paths(200)));
}

#[test]
fn blocks_have_bounds_in_bytes_too() {
    let long: Vec<String> = (0..300)
        .map(|number| format!("/{}/{number}", "x".repeat(200)))
        .collect();
    let mut sealer = Sealer::new([0; 32], Form::Encoded);
    for (name, resource) in divided(&long) {
        let sealed = sealer.seal(name, resource);
        assert!(
            sealed.bytes_encoded() <= 8 << 10,
            "{}",
            sealed.bytes_encoded()
        );
    }
}
