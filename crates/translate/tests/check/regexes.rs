//! How many regexes a host may have, whichever dialect they are written in.

use std::fmt::Write as _;

use myriad_model::{Action, PathView, RouteView};
use myriad_translate::{Bounds, Settings, regex_bytes};

use crate::world;

/// An Ingress with so many regexes on a host, the last of which stands twice.
fn ingress(count: usize) -> String {
    let mut text =
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  namespace: shop\n  \
                    name: web\n  annotations: {myriad.dev/use-regex: \"true\"}\nspec:\n  rules:\n  \
                    - host: a.example\n    http:\n      paths:\n"
            .to_owned();
    for number in (0..count).chain([count - 1]) {
        writeln!(
            text,
            "      - {{path: \"/u{number}/(\\\\w+)/(\\\\w+)/edit\", \
             pathType: ImplementationSpecific, \
             backend: {{service: {{name: web, port: {{number: 80}}}}}}}}"
        )
        .unwrap();
    }
    text
}

/// A VirtualService with so many regexes, half of them in conditions.
fn virtual_service(count: usize) -> String {
    let mut text =
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {namespace: shop, \
                    name: edge}\nspec:\n  selector: {istio: ingressgateway}\n  servers:\n  - \
                    {port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example]}\n---\n\
                    apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: \
                    {namespace: shop, name: web}\nspec:\n  hosts: [a.example]\n  gateways: \
                    [edge]\n  http:\n  - match:\n"
            .to_owned();
    for number in 0..count / 2 {
        writeln!(
            text,
            "    - {{uri: {{regex: \"/u{number}/.*\"}}, headers: {{x-a: \
             {{regex: \"v{number}\"}}}}}}"
        )
        .unwrap();
    }
    text + "    route: [{destination: {host: web, port: {number: 80}}}]\n"
}

/// The routes that an object has, and the fields of the findings about its regexes.
fn translated(text: &str, settings: Settings) -> (usize, Vec<String>) {
    let mut engine = world::engine(settings);
    let outcome = engine.apply(world::changes(text), world::NOW);
    let routes = engine.snapshot().iter().flat_map(|sealed| sealed.routes());
    let about = outcome.findings.added.iter();
    let fields = about
        .filter(|finding| finding.message.contains("that a host may have"))
        .map(|finding| finding.field.to_string());
    (routes.count(), fields.collect())
}

#[test]
fn the_first_regexes_of_a_host_hold_and_each_other_is_named() {
    // Few, since a unit lists a hundred findings, and its backends are missing as well.
    let few = Settings {
        regexes_per_host: 8,
        ..Settings::default()
    };
    let (routes, fields) = translated(&ingress(10), few);
    assert_eq!(routes, 8);
    // The last one stands twice.
    let paths = [10, 8, 9].map(|at| format!("spec.rules[0].http.paths[{at}].path"));
    assert_eq!(fields, paths);
    let (routes, fields) = translated(&virtual_service(400), Settings::default());
    assert_eq!(routes, 128);
    let matches: Vec<String> = (128..200)
        .map(|at| format!("spec.http[0].match[{at}]"))
        .collect();
    assert_eq!(fields, matches);
}

#[test]
fn a_hundred_regexes_are_nothing_to_speak_of() {
    let settings = Settings::default;
    assert_eq!(translated(&ingress(100), settings()), (100, Vec::new()));
    assert_eq!(
        translated(&virtual_service(100), settings()),
        (50, Vec::new())
    );
}

#[test]
fn the_bound_can_be_raised() {
    let settings = Settings {
        regexes_per_host: 10_000,
        ..Settings::default()
    };
    assert_eq!(translated(&ingress(10_000), settings), (10_000, Vec::new()));
}

/// A path that restricts is not opened by a shorter one because it is one too many.
#[test]
fn a_path_beyond_the_bound_that_restricts_is_closed() {
    let restricted = |annotation: &str| {
        ingress(3).replace("annotations: {", &format!("annotations: {{{annotation}, "))
    };
    let settings = || Settings {
        regexes_per_host: 2,
        ..Settings::default()
    };
    let closed = |text: &str| {
        let mut engine = world::engine(settings());
        engine.apply(world::changes(text), world::NOW);
        let routes = engine.snapshot().iter();
        let routes = routes.flat_map(|sealed| sealed.routes());
        let is_closed =
            |route: &RouteView<'_>| matches!(route.action, Action::Respond(it) if it.status == 503);
        let paths = routes.filter(is_closed).map(|route| match route.path {
            PathView::Regex(pattern) => pattern.to_string(),
            other => format!("{other:?}"),
        });
        paths.collect::<Vec<_>>()
    };
    let sources = "myriad.dev/whitelist-source-range: 192.0.2.0/24";
    assert_eq!(closed(&restricted(sources)), ["(?i)/u2/"]);
    assert_eq!(closed(&ingress(3)), Vec::<String>::new());
}

/// The attack: one object of 646 KB with 20 hosts of 256 regexes took 866 MB. What it may take is
/// known before anything is compiled, and its namespace may not hold it.
#[test]
fn an_object_of_many_regexes_counts_for_what_they_take() {
    let mut text = String::new();
    for host in 0..20 {
        let one = ingress(255).replace("/u", &format!("/host-{host}/u"));
        let (head, paths) = one.split_once("  - host: a.example\n").unwrap();
        if host == 0 {
            text.push_str(head);
        }
        writeln!(text, "  - host: h{host}.example").unwrap();
        text.push_str(paths);
    }
    let bounds = |routes| Settings {
        bounds: Bounds {
            routes,
            ..Bounds::of_tenants()
        },
        ..Settings::default()
    };
    // 256 rows on each of 20 hosts, and ten or eleven more for each regex: as many as it has KiB.
    let of_one = |host: usize, number: usize| {
        let pattern = format!("(?i)/host-{host}/u{number}/(\\w+)/(\\w+)/edit");
        1 + regex_bytes(&pattern).unwrap().div_ceil(1 << 10)
    };
    let of_host = |host| {
        (0..255)
            .chain([254])
            .map(move |number| of_one(host, number))
    };
    let weight: u64 = (0..20).flat_map(of_host).sum();
    assert!((20 * 256 * 11..=20 * 256 * 12).contains(&weight));
    assert_eq!(translated(&text, bounds(weight)).0, 20 * 255);
    assert_eq!(translated(&text, bounds(weight - 1)).0, 0);
}

#[test]
fn a_repetition_counts_for_each_of_its_turns() {
    let text = ingress(1).replace("/u0/(\\\\w+)/(\\\\w+)/edit", "/a{3000}");
    let bounds = |routes| Settings {
        bounds: Bounds {
            routes,
            ..Bounds::of_tenants()
        },
        ..Settings::default()
    };
    // It stands twice, and is 24 KiB and some each time.
    let weight = 2 * (1 + 25);
    assert_eq!(translated(&text, bounds(weight)).0, 1);
    assert_eq!(translated(&text, bounds(weight - 1)).0, 0);
}
