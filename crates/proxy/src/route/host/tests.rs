mod listeners;

use std::sync::Arc;

use myriad_model::{
    Action, Cors, Draft, Form, Host, Label, Name, Origin, PathMatch, Policy, Resource, Route,
    SealedArc, Sealer, Source, Test, Value, ValueMatch, divide,
};
use proptest::prelude::*;
use regex_automata::{Anchored, Input, meta::Regex};

use super::{BlockArc, HostEntry, RouteEntry};
use crate::codec::head::{self, Head};
use crate::failure::FailureKind;
use crate::limits::Limits;
use crate::pattern::{Budget, STEPS_MAX};
use crate::route::entry::BlockEntry;

/// The parts of a route of a test.
#[derive(Clone, Debug)]
struct Sketch {
    path: PathMatch,
    rank: u64,
    listener: &'static str,
    method: Option<&'static str>,
}

fn entry(name: &str, sketch: &Sketch) -> BlockArc {
    sealed(name, route(sketch))
}

fn route(sketch: &Sketch) -> Route {
    let method = sketch.method.map(|method| ValueMatch {
        source: Source::Method,
        name: "".into(),
        test: Test::Exact(method.into()),
        invert: false,
    });
    Route {
        listeners: [Name::from(sketch.listener)].into(),
        hosts: [Host::any()].into(),
        path: sketch.path.clone(),
        conditions: method.into_iter().collect(),
        rank: sketch.rank,
        action: Action::Forward(Arc::default()),
        policy: Arc::default(),
    }
}

fn sealed(name: &str, route: Route) -> BlockArc {
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Route(Box::new(route)),
    };
    compiled(name.into(), resource)
}

fn compiled(name: Name, resource: Resource) -> BlockArc {
    let sealed = Sealer::new([0; 32], Form::Value).seal(name, resource);
    BlockArc::new(BlockEntry::new(SealedArc::new(sealed)).unwrap().unwrap())
}

fn entries(sketches: &[Sketch]) -> Vec<BlockArc> {
    let named = sketches.iter().enumerate();
    named
        .map(|(number, sketch)| entry(&format!("r{number:04}"), sketch))
        .collect()
}

/// The same in blocks.
fn blocks(sketches: &[Sketch]) -> Vec<BlockArc> {
    divided(sketches.iter().map(route))
}

/// Routes in blocks, named by their numbers.
fn divided(routes: impl Iterator<Item = Route>) -> Vec<BlockArc> {
    let drafts = routes.enumerate().map(|(number, route)| Draft {
        origin: Origin::settings(),
        label: Label::Whole(format!("r{number:04}").into()),
        rule: 0,
        matched: 0,
        route,
    });
    let divided = divide("", &Origin::settings(), drafts.collect()).into_iter();
    divided
        .map(|(name, resource)| compiled(name, resource))
        .collect()
}

/// The rule of the model, word by word.
fn matches(sketch: &Sketch, listener: &str, method: &str, path: &str) -> bool {
    let path_matches = match &sketch.path {
        PathMatch::Exact(wanted) => path == &**wanted,
        PathMatch::Prefix(prefix) if &**prefix == "/" => true,
        PathMatch::Prefix(prefix) => path == &**prefix || path.starts_with(&format!("{prefix}/")),
        PathMatch::Start(start) => path.starts_with(&**start),
        PathMatch::Regex(regex) => Regex::new(regex)
            .unwrap()
            .is_match(Input::new(path).anchored(Anchored::Yes)),
    };
    path_matches && sketch.listener == listener && sketch.method.is_none_or(|own| own == method)
}

fn naive(sketches: &[Sketch], listener: &str, method: &str, path: &str) -> Option<String> {
    let mut order: Vec<usize> = (0..sketches.len()).collect();
    order.sort_by_key(|number| (sketches[*number].rank, *number));
    let found = order
        .into_iter()
        .find(|number| matches(&sketches[*number], listener, method, path))?;
    Some(format!("r{found:04}"))
}

fn with_head<R>(method: &str, path: &str, run: impl FnOnce(&Head<'_>) -> R) -> R {
    let text = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    run(&head::parse(text.as_bytes(), &Limits::default()).unwrap())
}

fn find(host: &HostEntry, listener: &str, method: &str, path: &str) -> Option<String> {
    with_head(method, path, |head| {
        let found = host.find(&listener.into(), head, None, &Budget::default());
        let found = found.ok()?;
        Some(found.name())
    })
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("a|b|ab|", 0..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn path_match() -> impl Strategy<Value = PathMatch> {
    prop_oneof![
        path().prop_map(|path| PathMatch::Exact(path.into())),
        path().prop_map(|path| {
            let prefix = path.trim_end_matches('/');
            PathMatch::Prefix(if prefix.is_empty() { "/" } else { prefix }.into())
        }),
        path().prop_map(|path| PathMatch::Start(path.into())),
        prop::sample::select(vec![
            "/a", "/a/", "/(a|b)/b", "/.*b", "/a(/|$)", "", "/ab?$"
        ])
        .prop_map(|regex| PathMatch::Regex(regex.into())),
    ]
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let listener = prop::sample::select(vec!["http", "https"]);
    let method = prop::option::weighted(0.2, prop::sample::select(vec!["GET", "POST"]));
    (path_match(), 0_u64..6, listener, method).prop_map(|(path, rank, listener, method)| Sketch {
        path,
        rank,
        listener,
        method,
    })
}

proptest! {
    #[test]
    fn a_compiled_host_finds_what_trying_all_in_order_finds(
        sketches in prop::collection::vec(sketch(), 1..40),
        paths in prop::collection::vec(path(), 1..12),
    ) {
        let host = HostEntry::new(Host::any(), &entries(&sketches));
        let divided = HostEntry::new(Host::any(), &blocks(&sketches));
        for path in &paths {
            for (listener, method) in [("http", "GET"), ("https", "POST")] {
                prop_assert_eq!(
                    find(&divided, listener, method, path),
                    naive(&sketches, listener, method, path)
                );
                prop_assert_eq!(
                    find(&host, listener, method, path),
                    naive(&sketches, listener, method, path),
                    "{} {} {}", listener, method, path
                );
            }
        }
    }
}

#[test]
fn many_regexes_are_scanned_at_once_and_the_first_wins() {
    let sketch = |number: u64| Sketch {
        path: PathMatch::Regex(format!("/(x|p{number})/").into()),
        rank: 100 - number,
        listener: "http",
        method: None,
    };
    let sketches: Vec<Sketch> = (0..40).map(sketch).collect();
    let host = HostEntry::new(Host::any(), &entries(&sketches));
    assert_eq!(find(&host, "http", "GET", "/p7/").as_deref(), Some("r0007"));
    assert_eq!(find(&host, "http", "GET", "/x/").as_deref(), Some("r0039"));
    assert_eq!(find(&host, "http", "GET", "/y/"), None);
}

#[test]
fn a_bad_regex_is_an_error_and_not_a_route() {
    let route = Route {
        listeners: [Name::from("http")].into(),
        hosts: [Host::any()].into(),
        path: PathMatch::Regex("/(".into()),
        conditions: Box::default(),
        rank: 0,
        action: Action::Forward(Arc::default()),
        policy: Arc::default(),
    };
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Route(Box::new(route)),
    };
    let sealed = Sealer::new([0; 32], Form::Value).seal("r".into(), resource);
    let error = BlockEntry::new(SealedArc::new(sealed))
        .unwrap()
        .err()
        .unwrap();
    assert_eq!(&*error.0, "/(");
}

/// Prints how long a host of 10,000 routes takes. The budget is 5 ms in a release build.
#[test]
fn a_host_of_ten_thousand_routes_is_compiled_whole() {
    let sketches: Vec<Sketch> = (0..10_000)
        .map(|number| Sketch {
            path: if number % 2 == 0 {
                PathMatch::Exact(format!("/a/{number}").into())
            } else {
                PathMatch::Prefix(format!("/b/{}/{number}", number % 100).into())
            },
            rank: number,
            listener: "http",
            method: None,
        })
        .collect();
    let entries = entries(&sketches);
    let before = myriad_base::clock::now();
    let host = HostEntry::new(Host::any(), &entries);
    let took = myriad_base::clock::now() - before;
    eprintln!("10,000 routes compiled in {took:?}");
    assert_eq!(
        find(&host, "http", "GET", "/a/9998").as_deref(),
        Some("r9998")
    );
    assert_eq!(
        find(&host, "http", "GET", "/b/99/9999/x").as_deref(),
        Some("r9999")
    );
    assert_eq!(find(&host, "http", "GET", "/b/98/9999"), None);
}

#[test]
fn starts_end_wherever_and_rank_decides_among_them() {
    let mut sketches: Vec<Sketch> = (0..2_000)
        .map(|number| Sketch {
            path: PathMatch::Start(format!("/s{number:04}").into()),
            rank: number,
            listener: "http",
            method: None,
        })
        .collect();
    sketches[7].path = PathMatch::Start("/s".into());
    let host = HostEntry::new(Host::any(), &entries(&sketches));
    for (path, found) in [
        ("/s0003x/y", Some("r0003")),
        ("/s1999", Some("r0007")),
        ("/s", Some("r0007")),
        ("/t", None),
    ] {
        assert_eq!(find(&host, "http", "GET", path).as_deref(), found, "{path}");
    }
}

#[test]
fn routes_of_one_policy_share_its_regexes() {
    let cors = Cors {
        origins: Box::default(),
        methods: "".into(),
        headers_allowed: "".into(),
        headers_exposed: "".into(),
        credentials: false,
        age_max_s: 0,
        origin_patterns: ["https://shared[0-9]".into()].into(),
        forwards_unmatched: false,
        echoes_wildcards: false,
        exposes_in_preflights: false,
    };
    let policy = Arc::new(Policy {
        cors: Some(Box::new(cors)),
        ..Policy::default()
    });
    let made: Vec<RouteEntry> = (0..2)
        .map(|number| {
            let route = Route {
                listeners: [Name::from("http")].into(),
                hosts: [Host::any()].into(),
                path: PathMatch::Prefix("/".into()),
                conditions: Box::default(),
                rank: number,
                action: Action::Forward(Arc::default()),
                policy: policy.clone(),
            };
            RouteEntry::first(sealed(&format!("r{number}"), route))
        })
        .collect();
    let [first, second] = [&made[0], &made[1]].map(|entry| &entry.origin_regexes()[0]);
    assert!(Arc::ptr_eq(first, second));
}

#[test]
fn a_regex_costs_little_memory_until_it_is_used() {
    let sketch = Sketch {
        path: PathMatch::Regex("/service-1(/|$)(.*)".into()),
        rank: 0,
        listener: "http",
        method: None,
    };
    let entry = RouteEntry::first(entry("r", &sketch));
    let bytes = entry.path_regex().unwrap().memory_usage();
    assert!(bytes < 16 << 10, "{bytes}");
}

/// A hundred thousand routes are nothing unusual.
#[test]
fn a_route_takes_little_beside_its_resource() {
    assert_eq!(size_of::<BlockEntry>(), 24);
    assert_eq!(size_of::<RouteEntry>(), 16);
}

#[test]
fn a_route_to_several_upstreams_knows_each_of_them() {
    let to = |names: &[&str]| {
        let share = |name: &&str| myriad_model::WeightedUpstream {
            upstream: Name::from(*name),
            weight: 1,
            headers: None,
            filters: None,
        };
        sealed(
            "r",
            Route {
                listeners: [Name::from("http")].into(),
                hosts: [Host::any()].into(),
                path: PathMatch::Prefix("/".into()),
                conditions: Box::default(),
                rank: 0,
                action: Action::Forward(names.iter().map(share).collect()),
                policy: Arc::default(),
            },
        )
    };
    for names in [&["a"][..], &["a", "b", "c"]] {
        let entry = RouteEntry::first(to(names));
        for (number, name) in names.iter().enumerate() {
            let hash = crate::upstream::entry::hash_of(name);
            assert_eq!(entry.upstream_hash(number), Some(hash));
        }
        assert_eq!(entry.upstream_hash(names.len()), None);
    }
}

/// A host of regexes, in the order of their numbers.
fn host_of(count: u64, pattern: impl Fn(u64) -> String) -> HostEntry {
    let sketch = |number| Sketch {
        path: PathMatch::Regex(pattern(number).into()),
        rank: number,
        listener: "http",
        method: None,
    };
    HostEntry::new(
        Host::any(),
        &entries(&(0..count).map(sketch).collect::<Vec<_>>()),
    )
}

/// The route that is found on a host, and how many steps of regexes it takes.
fn steps(host: &HostEntry, path: &str) -> (Option<String>, u32, bool) {
    with_head("GET", path, |head| {
        let budget = Budget::default();
        let found = host.find(&"http".into(), head, None, &budget);
        let name = found.ok().map(|found| found.name());
        (name, budget.taken(), budget.is_spent())
    })
}

fn bytes(host: &HostEntry) -> usize {
    let patterns = host.routes().iter().filter_map(|route| route.path_regex());
    patterns.map(|pattern| pattern.memory_usage()).sum()
}

#[test]
fn of_many_regexes_with_prefixes_of_their_own_one_is_tried() {
    for count in [256, 10_000] {
        let host = host_of(count, |number| format!("(?i)/u{number}/(\\w+)/(\\w+)/edit"));
        let path = "/u255/some-one/a_long_name_of_a_thing/edit";
        // A look at one hint, and 11 bytes up to the dash, which is none of \w.
        assert_eq!(steps(&host, path), (None, 6 + 11, false));
        let path = "/u255/some_one/a_long_name_of_a_thing/edit";
        assert_eq!(steps(&host, path), (Some("r0255".into()), 6 + 43, false));
        assert_eq!(steps(&host, "/v1/a/b/edit"), (None, 0, false));
        let bytes = bytes(&host);
        assert!(bytes < count as usize * (10 << 10), "{bytes}");
    }
}

#[test]
fn regexes_that_differ_within_are_told_apart_by_their_letters() {
    let host = host_of(256, |number| format!("(?i)/(\\w+)/(\\w+)/edit-{number:03}"));
    let path = "/some_one/a_long_name_of_a_thing/EDIT-255";
    // A look at each hint, and one regex.
    assert_eq!(
        steps(&host, path),
        (Some("r0255".into()), 256 * 6 + 42, false)
    );
}

#[test]
fn hostile_regexes_spend_the_budget_and_no_more() {
    let host = host_of(256, |number| format!("/(a{{1,200}}){{1,3}}b{number}"));
    let path = format!("/{}c", "a".repeat(2_000));
    let (found, _, is_spent) = steps(&host, &path);
    assert!(is_spent && found.is_none());
    let bytes = bytes(&host);
    assert!(bytes < 256 * (16 << 10), "{bytes}");
    // What needs few steps is served beside them.
    assert_eq!(steps(&host, "/aab7").0.as_deref(), Some("r0007"));
}

/// The steps that a request takes on a host whose routes differ in conditions alone, and how it
/// fails.
fn steps_of_conditions(
    count: u64,
    conditions: impl Fn(u64) -> Vec<ValueMatch>,
    query: &str,
    fields: &str,
) -> (u32, Option<FailureKind>) {
    let routes = (0..count).map(|number| Route {
        listeners: [Name::from("http")].into(),
        hosts: [Host::any()].into(),
        path: PathMatch::Prefix("/".into()),
        conditions: conditions(number).into(),
        rank: number,
        action: Action::Forward(Arc::default()),
        policy: Arc::default(),
    });
    let text = format!("GET /?{query} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
    let named = routes.clone().enumerate();
    let alone = named.map(|(number, route)| sealed(&format!("r{number:05}"), route));
    let [alone, in_blocks] = [alone.collect(), divided(routes)].map(|blocks: Vec<BlockArc>| {
        let host = HostEntry::new(Host::any(), &blocks);
        let budget = Budget::default();
        let failure = host.find(&"http".into(), &head, None, &budget).err();
        (budget.taken(), failure)
    });
    // Rows of blocks pay what routes do.
    assert_eq!(alone, in_blocks);
    alone
}

fn condition(source: Source, name: &str, test: Test) -> ValueMatch {
    ValueMatch {
        source,
        name: name.into(),
        test,
        invert: false,
    }
}

#[test]
fn conditions_are_paid_for_by_what_they_look_at() {
    let parameters = "+&".repeat(8_000);
    let cookies = format!("Cookie: {}\r\n", "a=;".repeat(10_000));
    let fields = "Y: 1\r\n".repeat(120);
    for (source, query, fields, first, each) in [
        // The query is taken apart once, however many conditions there are.
        (Source::Query, &*parameters, "", 16_001 / 16, 1 + 8_001 / 4),
        (Source::Cookie, "", &*cookies, 30_001 / 16, 1 + 10_000 / 4),
        (Source::Header, "", &*fields, 0, 1 + 121 / 4),
        (Source::Method, "", "", 0, 1),
    ] {
        let of = |number: u64| {
            vec![condition(
                source,
                &format!("q{number}"),
                Test::Exact("a".into()),
            )]
        };
        for count in [1, 2, 12] {
            let taken = steps_of_conditions(count, of, query, fields);
            let wanted = first + count as u32 * each;
            assert_eq!(taken, (wanted, Some(FailureKind::NoRoute)), "{source:?}");
        }
        if each > 1 {
            let taken = steps_of_conditions(5_000, of, query, fields);
            assert_eq!(
                taken,
                (STEPS_MAX, Some(FailureKind::RegexBudget)),
                "{source:?}"
            );
        }
    }
}

#[test]
fn a_hundred_rules_with_three_conditions_take_a_small_part_of_the_budget() {
    let of = |number: u64| {
        vec![
            condition(Source::Header, "x-group", Test::Exact("blue".into())),
            condition(Source::Cookie, "c9", Test::Present),
            condition(
                Source::Query,
                "user",
                Test::Exact(format!("u{number}").into()),
            ),
        ]
    };
    let numbered = |start: &str, end: &str| -> String {
        (0..20)
            .map(|number| format!("{start}{number}{end}"))
            .collect()
    };
    let query = numbered("q", "=value&");
    let cookies = numbered("c", "=0123456789abcdef; ");
    let fields = numbered("x-field-", ": value\r\n");
    let fields = format!("{fields}X-Group: blue\r\nCookie: {cookies}\r\n");
    let (taken, failure) = steps_of_conditions(100, of, &query, &fields);
    assert_eq!(failure, Some(FailureKind::NoRoute));
    assert!((300..STEPS_MAX / 40).contains(&taken), "{taken}");
}

#[test]
fn a_route_before_all_regexes_costs_no_step() {
    let mut sketches: Vec<Sketch> = (0..256)
        .map(|number| Sketch {
            path: PathMatch::Regex(format!("/(a{{1,200}}){{1,3}}b{number}").into()),
            rank: number + 1,
            listener: "http",
            method: None,
        })
        .collect();
    sketches.push(Sketch {
        path: PathMatch::Start("/aaa".into()),
        rank: 0,
        listener: "http",
        method: None,
    });
    let host = HostEntry::new(Host::any(), &entries(&sketches));
    let path = format!("/{}", "a".repeat(2_000));
    assert_eq!(steps(&host, &path), (Some("r0256".into()), 0, false));
}

#[test]
fn twenty_hosts_of_the_same_regexes_hold_each_once() {
    let pattern = |number: u64| format!("/twenty/{number}/(\\w+)/(\\w+)/edit");
    let hosts: Vec<HostEntry> = (0..20).map(|_| host_of(256, pattern)).collect();
    let [first, last] = [&hosts[0], &hosts[19]].map(|host| host.routes()[7].path_regex().unwrap());
    assert!(std::ptr::eq(first, last));
}
