//! Each wall is shown to fail when something breaks it, on a workspace made up for it.

use super::graph::Graph;
use super::{cycles, edges, order, size};
use crate::survey::{Role, Root, Survey, Tree};

/// Members with their folders, and edges; a package is known by its name alone.
fn graph(members: &[(&str, &str)], edges: &[(&str, &str, bool)]) -> Graph {
    let mut graph = Graph::default();
    for (name, folder) in members {
        graph.add_member(name, folder, name);
        graph.add_package(name, name);
    }
    for name in edges.iter().flat_map(|(from, to, _)| [from, to]) {
        if !members.iter().any(|(member, _)| member == name) {
            graph.add_package(name, name);
        }
    }
    for (from, to, normal) in edges {
        graph.add_dependency(from, to, *normal);
    }
    graph
}

fn no_files() -> Survey {
    Survey::new(Tree::default(), &[])
}

/// `path:line rule` of all violations of edges and reach.
fn broken_edges(edges_: &[(&str, &str, bool)]) -> Vec<String> {
    let members = [
        ("myriad", "crates/app"),
        ("myriad-api", "crates/api"),
        ("myriad-base", "crates/base"),
        ("myriad-e2e", "crates/e2e"),
        ("myriad-lab", "crates/lab"),
        ("myriad-model", "crates/model"),
        ("myriad-proxy", "crates/proxy"),
        ("myriad-source", "crates/source"),
        ("myriad-translate", "crates/translate"),
    ];
    let files = [(
        "crates/translate/Cargo.toml",
        "[package]\nname = \"myriad-translate\"\n\n[dependencies]\nrustls.workspace = true\n",
    )];
    let survey = Survey::new(Tree::from(files), &[]);
    let found = edges::check(&graph(&members, edges_), &survey).into_iter();
    found
        .map(|v| format!("{}:{} {}", v.path, v.line, v.rule))
        .collect()
}

const NORMAL: bool = true;
const FOR_TESTS: bool = false;

#[test]
fn allowed_edges_and_wider_ones_for_tests_are_no_violations() {
    let edges = [
        ("myriad", "myriad-proxy", NORMAL),
        ("myriad", "anyhow", NORMAL),
        ("myriad-e2e", "myriad", NORMAL),
        ("myriad-proxy", "myriad-model", NORMAL),
        ("myriad-proxy", "tokio", NORMAL),
        ("myriad-source", "myriad-model", FOR_TESTS),
        ("myriad-model", "tokio", FOR_TESTS),
    ];
    assert_eq!(broken_edges(&edges), Vec::<String>::new());
}

#[test]
fn an_edge_that_the_table_does_not_name_is_found() {
    let edges = [("myriad-model", "myriad-api", NORMAL)];
    assert_eq!(broken_edges(&edges), ["crates/model/Cargo.toml:1 edge"]);
    let edges = [("myriad-base", "myriad", NORMAL)];
    assert_eq!(broken_edges(&edges), ["crates/base/Cargo.toml:1 edge"]);
}

#[test]
fn a_forbidden_package_is_found_however_far_and_blamed_on_the_line_that_leads_there() {
    let edges = [
        ("myriad-translate", "rustls", NORMAL),
        ("rustls", "middle", NORMAL),
        ("middle", "tokio", NORMAL),
    ];
    assert_eq!(
        broken_edges(&edges),
        ["crates/translate/Cargo.toml:5 reach"]
    );
    let edges = [
        ("myriad-translate", "rustls", NORMAL),
        ("rustls", "tokio", FOR_TESTS),
    ];
    assert_eq!(broken_edges(&edges), Vec::<String>::new());
}

#[test]
fn a_sibling_that_is_reached_by_another_member_is_found_at_both() {
    let edges = [
        ("myriad-source", "myriad-api", NORMAL),
        ("myriad-api", "myriad-model", NORMAL),
    ];
    assert_eq!(
        broken_edges(&edges),
        [
            "crates/api/Cargo.toml:1 edge",
            "crates/source/Cargo.toml:1 reach"
        ]
    );
}

#[test]
fn errors_without_a_type_stay_in_the_app() {
    let edges = [("myriad-proxy", "anyhow", NORMAL)];
    assert_eq!(broken_edges(&edges), ["crates/proxy/Cargo.toml:1 edge"]);
    let below = [
        ("myriad-model", "prost", NORMAL),
        ("prost", "anyhow", NORMAL),
    ];
    assert_eq!(broken_edges(&below), Vec::<String>::new());
}

#[test]
fn nothing_of_the_product_depends_on_a_tool_not_even_for_tests() {
    let found = ["crates/proxy/Cargo.toml:1 edge"];
    let edges = [("myriad-proxy", "myriad-e2e", FOR_TESTS)];
    assert_eq!(broken_edges(&edges), found);
    let edges = [("myriad-proxy", "myriad-e2e", NORMAL)];
    assert_eq!(broken_edges(&edges), found);
    let edges = [("myriad-proxy", "myriad-lab", FOR_TESTS)];
    assert_eq!(broken_edges(&edges), found);
    let edges = [("myriad-e2e", "myriad-lab", NORMAL)];
    assert_eq!(broken_edges(&edges), Vec::<String>::new());
}

#[test]
fn an_unknown_member_and_a_misplaced_one_are_found() {
    let members = [
        ("myriad-extra", "crates/extra"),
        ("myriad-model", "crates/resources"),
    ];
    let found = edges::check(&graph(&members, &[]), &no_files());
    let rules: Vec<_> = found.iter().map(|v| (&*v.path, v.rule)).collect();
    let expected = [
        ("crates/extra/Cargo.toml", "member"),
        ("crates/resources/Cargo.toml", "member"),
    ];
    assert_eq!(rules, expected);
}

#[test]
fn more_than_sixteen_members_are_found() {
    let names: Vec<String> = (0..17).map(|n| format!("crate-{n}")).collect();
    let members: Vec<(&str, &str)> = names.iter().map(|n| (&**n, "crates/x")).collect();
    let found = size::check(&graph(&members[..16], &[]), &no_files());
    assert!(found.is_empty());
    let found = size::check(&graph(&members, &[]), &no_files());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].rule, "members");
}

#[test]
fn a_crate_above_half_of_a_grown_product_is_found() {
    let members = [("myriad-model", "crates/model"), ("myriad", "crates/app")];
    let shares = |model: usize, app: usize| {
        let texts = [model, app].map(|lines| "// line\n".repeat(lines));
        let tree = Tree::from([
            ("crates/model/src/lib.rs", &*texts[0]),
            ("crates/app/src/lib.rs", &*texts[1]),
        ]);
        let roots = ["crates/model/src/lib.rs", "crates/app/src/lib.rs"].map(production);
        let found = size::check(&graph(&members, &[]), &Survey::new(tree, &roots));
        found.into_iter().map(|v| v.path).collect::<Vec<_>>()
    };
    assert_eq!(shares(8_000, 8_000), Vec::<String>::new());
    assert_eq!(shares(8_001, 8_000), ["crates/model/Cargo.toml"]);
    assert_eq!(
        shares(14_000, 1_000),
        Vec::<String>::new(),
        "too small to say"
    );
}

/// Lines of the violations in one file of a proxy that has every module of the order.
fn out_of_order(path: &str, text: &str) -> Vec<usize> {
    let library = "mod net; mod balance; mod http; mod tls; mod runtime; mod extra;";
    // Of two files with one path the tree keeps the later.
    let files = [
        ("crates/proxy/src/lib.rs", library),
        ("crates/proxy/src/net.rs", "mod inner;"),
        ("crates/proxy/src/http.rs", "mod body;"),
        (path, text),
    ];
    let roots = [production("crates/proxy/src/lib.rs")];
    let survey = Survey::new(Tree::from(files), &roots);
    let found = order::check(&survey).into_iter();
    found
        .inspect(|v| assert_eq!((&*v.path, v.rule), (path, "order")))
        .map(|v| v.line)
        .collect()
}

fn production(path: &str) -> Root {
    Root {
        path: path.to_owned(),
        role: Role::Production,
    }
}

const NONE: [usize; 0] = [];

#[test]
fn a_module_may_name_itself_and_what_is_below_it() {
    let text = "use crate::net::Listener;\n\
                use crate::{balance, http::body};\n\
                use std::net;\n\
                fn a() { crate::route::find(); self::b(); super::http::c(); http::d() }\n";
    assert_eq!(out_of_order("crates/proxy/src/http.rs", text), NONE);
    let deep = "use super::super::net; use super::body; pub(in crate::http) fn a() {}\n";
    assert_eq!(out_of_order("crates/proxy/src/http/body.rs", deep), NONE);
}

#[test]
fn a_module_must_not_name_what_is_above_or_beside_it() {
    let text = "use crate::tls::Settings;\n\
                use crate::{net, runtime};\n\
                use super::mesh as other;\n\
                fn a(b: &crate::tcp::B) {}\n\
                fn c() { crate::udp::d() }\n\
                fn e() { log!(\"{}\", [crate::runtime::F]) }\n\
                mod g { use super::super::tls; }\n";
    assert_eq!(
        out_of_order("crates/proxy/src/http.rs", text),
        [1, 2, 3, 4, 5, 6, 7]
    );
    assert_eq!(
        out_of_order("crates/proxy/src/net/inner.rs", "use crate::http;\n"),
        [1]
    );
    let climb = "use super::super::http;\nuse self::super::super::tls::A;\n";
    assert_eq!(out_of_order("crates/proxy/src/net/inner.rs", climb), [1, 2]);
}

#[test]
fn what_the_library_exports_is_named_by_its_module() {
    let text = "use crate::Proxy;\nuse crate::*;\nuse super::*;\n";
    assert_eq!(out_of_order("crates/proxy/src/net.rs", text), [1, 2, 3]);
}

#[test]
fn tests_may_name_any_module() {
    let text = "#[cfg(test)]\nmod tests { use super::*; use crate::runtime; }\n";
    assert_eq!(out_of_order("crates/proxy/src/net.rs", text), NONE);
}

#[test]
fn a_module_without_a_place_in_the_order_is_found() {
    assert_eq!(out_of_order("crates/proxy/src/extra.rs", ""), [1]);
}

#[test]
fn the_app_has_an_order_as_well() {
    let files = [
        (
            "crates/app/src/lib.rs",
            "mod control; mod serve; mod status;",
        ),
        (
            "crates/app/src/control.rs",
            "use crate::serve;\nuse crate::status;\n",
        ),
        ("crates/app/src/serve.rs", "use crate::{control, status};\n"),
        ("crates/app/src/status.rs", ""),
    ];
    let roots = [production("crates/app/src/lib.rs")];
    let survey = Survey::new(Tree::from(files), &roots);
    let found = order::check(&survey).into_iter();
    let found: Vec<_> = found.map(|v| (v.path, v.line, v.rule)).collect();
    let expected = [1, 2].map(|line| ("crates/app/src/control.rs".to_owned(), line, "order"));
    assert_eq!(found, expected);
}

/// A crate of the product with these files, and one that joins them.
fn crate_of<const N: usize>(files: [(&str, &str); N]) -> Survey {
    let roots = [production("crates/pki/src/lib.rs")];
    Survey::new(Tree::from(files), &roots)
}

/// `path what` of the cycles that are found.
fn circles(survey: &Survey, known: &[&[&str]]) -> Vec<String> {
    let found = cycles::check(survey, known).into_iter();
    found
        .inspect(|v| assert_eq!(v.rule, "cycle"))
        .map(|v| format!("{} {}", v.path, v.what))
        .collect()
}

const A: &str = "crates/pki/src/a.rs";
const B: &str = "crates/pki/src/b.rs";
const C: &str = "crates/pki/src/c/inner.rs";

/// Three files in a circle, and one that leads there.
fn circle() -> Survey {
    crate_of([
        ("crates/pki/src/lib.rs", "mod a; mod b; mod c; mod d;"),
        (A, "use crate::b::B; pub struct A;"),
        (B, "pub struct B; fn b() { super::c::inner::c() }"),
        ("crates/pki/src/c.rs", "pub mod inner;"),
        (C, "use crate::{a::A as First}; pub fn c() {}"),
        ("crates/pki/src/d.rs", "use crate::a::A;"),
    ])
}

#[test]
fn files_in_a_circle_are_found_with_the_way_round() {
    let what = format!("3 files name each other in a circle: {A} -> {B} -> {C} -> {A}");
    assert_eq!(circles(&circle(), &[]), [format!("{A} {what}")]);
}

#[test]
fn a_known_circle_may_lose_files_and_none_may_join() {
    assert_eq!(circles(&circle(), &[&[A, B, C]]), Vec::<String>::new());
    let joined = circles(&circle(), &[&[A, B]]);
    assert!(joined[0].starts_with(A), "{joined:?}");
    let d = "crates/pki/src/d.rs";
    let lost = circles(&circle(), &[&[A, B, C, d]]);
    let table = "xtask/src/walls/table.rs";
    let left = format!("{table} `{d}` is in no cycle any more");
    assert_eq!(lost, [left]);
}

#[test]
fn a_module_and_its_parts_are_no_circle() {
    let survey = crate_of([
        ("crates/pki/src/lib.rs", "mod a; mod b; use a::A;"),
        (
            A,
            "mod part; pub use part::Part; use self::part::Other; use crate::b::B;",
        ),
        (
            "crates/pki/src/a/part.rs",
            "use super::A; use crate::b; use crate::Root;",
        ),
        (B, "#[cfg(test)]\nmod tests { use crate::a::A; }"),
    ]);
    assert_eq!(circles(&survey, &[]), Vec::<String>::new());
}

#[test]
fn parts_of_a_module_may_form_a_circle() {
    let survey = crate_of([
        ("crates/pki/src/lib.rs", "mod a;"),
        (A, "mod one; mod two;"),
        ("crates/pki/src/a/one.rs", "use super::two::Two;"),
        (
            "crates/pki/src/a/two.rs",
            "fn two() { log!(\"{}\", super::one::ONE) }",
        ),
    ]);
    assert_eq!(circles(&survey, &[]).len(), 1);
}

#[test]
fn a_circle_in_a_tool_is_left_alone() {
    let files = [
        ("xtask/src/main.rs", "mod a; mod b;"),
        ("xtask/src/a.rs", "use crate::b;"),
        ("xtask/src/b.rs", "use crate::a;"),
    ];
    let survey = Survey::new(Tree::from(files), &[production("xtask/src/main.rs")]);
    assert_eq!(circles(&survey, &[]), Vec::<String>::new());
}
