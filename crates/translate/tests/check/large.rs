//! Single objects that are large: what one of them makes is bounded, whatever it writes.

use myriad_translate::{Bounds, Engine, Settings};

use crate::goldens::BASE;
use crate::world;

/// An engine with the usual Services and these objects.
fn engine(objects: &[String]) -> Engine {
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(BASE), world::NOW);
    engine.apply(world::changes(&objects.join("---\n")), world::NOW);
    engine
}

/// How many findings are of a field of an object, with this text in their remedies.
fn count(engine: &Engine, field: &str, remedy: &str) -> usize {
    let findings = engine.findings();
    let found = findings.filter(|it| *it.field == *field && it.remedy.contains(remedy));
    found.count()
}

/// A text of many entries, as YAML writes a list.
fn list(count: usize, entry: impl Fn(usize) -> String) -> String {
    let entries: Vec<String> = (0..count).map(entry).collect();
    format!("[{}]", entries.join(", "))
}

#[test]
fn gateways_beyond_the_bound_are_told() {
    for (number, told) in [(64, 0), (65, 1)] {
        let gateways = list(number, |at| format!("g{at}"));
        let engine = engine(&[format!(
            "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: v}}
spec:
  hosts: [a.example]
  gateways: {gateways}
  http: [{{route: [{{destination: {{host: web}}}}]}}]
"
        )]);
        assert_eq!(count(&engine, "spec.gateways[64]", "fewer Gateways"), told);
    }
}

#[test]
fn ways_in_to_a_host_beyond_the_bound_are_told() {
    for (number, told) in [(256, 0), (257, 1)] {
        let servers = list(number, |at| {
            let port = 1_000 + at;
            format!("{{port: {{number: {port}, name: p, protocol: HTTP}}, hosts: [a.example]}}")
        });
        let engine = engine(&[format!(
            "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{namespace: shop, name: edge}}
spec: {{servers: {servers}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: v}}
spec:
  hosts: [a.example]
  gateways: [edge]
  http: [{{route: [{{destination: {{host: web}}}}]}}]
"
        )]);
        assert_eq!(count(&engine, "spec.gateways", "fewer Gateways"), told);
    }
}

/// A Gateway for a host, and a VirtualService on it with so many matches that delegates to one with
/// so many.
fn delegating(matches: usize, delegated: usize) -> String {
    let tests = |count: usize, name: &str| {
        list(count, |at| {
            format!("{{headers: {{{name}{at}: {{exact: a}}}}}}")
        })
    };
    let (above, below) = (tests(matches, "x"), tests(delegated, "y"));
    format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{namespace: shop, name: edge}}
spec: {{servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [a.example]}}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: root}}
spec:
  hosts: [a.example]
  gateways: [edge]
  http: [{{match: {above}, delegate: {{name: below}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: below}}
spec:
  http:
  - {{match: [{{uri: {{exact: /first}}}}], directResponse: {{status: 200}}}}
  - {{match: {below}, directResponse: {{status: 200}}}}
"
    )
}

/// The routes that such objects make, and how many findings say that they are beyond.
fn delegated(matches: usize) -> (usize, usize) {
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(BASE), world::NOW);
    engine.apply(world::changes(&delegating(matches, matches)), world::NOW);
    let told = count(&engine, "spec.http[0].delegate", "divide the delegate");
    let routes = engine.snapshot().iter().flat_map(|sealed| sealed.routes());
    (routes.count(), told)
}

#[test]
fn the_matches_of_a_delegate_are_no_product_beyond_the_bound() {
    let (one, told) = delegated(1);
    assert_eq!(told, 0);
    // The routes beside the two of one match each.
    assert_eq!(delegated(15), (one - 2 + 15 + 15 * 15, 0));
    // What is beyond is closed by the matches of the root, behind the first rule.
    assert_eq!(delegated(16), (one - 2 + 16 + 16, 1));
}

/// The routes of a root with so many rules that delegate to rules of so many matches, and how
/// many findings say that they are beyond.
fn delegated_often(rules: usize, matches: usize) -> (usize, usize) {
    let all = delegating(1, matches);
    let once = "http: [{match: [{headers: {x0: {exact: a}}}], delegate: {name: below}}]";
    assert!(all.contains(once), "{all}");
    let http = list(rules, |at| {
        format!("{{match: [{{headers: {{x{at}: {{exact: a}}}}}}], delegate: {{name: below}}}}")
    });
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(BASE), world::NOW);
    let objects = world::changes(&all.replace(once, &format!("http: {http}")));
    engine.apply(objects, world::NOW);
    let findings = engine.findings();
    let told = findings.filter(|it| it.remedy.contains("divide the delegate"));
    let routes = engine.snapshot().iter().flat_map(|sealed| sealed.routes());
    (routes.count(), told.count())
}

#[test]
fn the_rules_of_a_root_share_what_they_count_for() {
    let (one, told) = delegated_often(1, 1);
    assert_eq!(told, 0);
    // Eight rules count for 64 rows each. One may have more than that, and all of them no more.
    let (all, told) = delegated_often(8, 63);
    assert_eq!((all, told), (one - 2 + 8 * 64, 0));
    let (all, told) = delegated_often(8, 127);
    // Four times the first rule and its 127 matches; then the first again, or what closes.
    assert!(told > 0 && all <= one - 2 + 8 * 64 + 8, "{all} and {told}");
}

/// The number of objects beyond a bound of routes.
fn beyond(routes: u64, object: &str) -> usize {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            routes,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    engine.apply(world::changes(object), world::NOW);
    count(&engine, "", "--bound routes")
}

#[test]
fn a_rule_that_delegates_counts_for_some_of_the_routes_it_may_have() {
    let all = delegating(1, 1);
    let root = all.split("---\n").nth(1).expect("the root");
    assert_eq!([beyond(64, root), beyond(63, root)], [0, 1]);
}

#[test]
fn hosts_for_tls_alone_count_for_routes() {
    let hosts = list(30, |at| format!("h{at}.example"));
    let ingress = format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{namespace: shop, name: i}}
spec:
  tls: [{{hosts: {hosts}, secretName: none}}]
  rules: [{{host: h0.example, http: {{paths: [{{path: /, pathType: Prefix, backend: \
         {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]
"
    );
    assert_eq!([beyond(30, &ingress), beyond(29, &ingress)], [0, 1]);
}

/// A VirtualService with this rule on ten hosts.
fn on_ten_hosts(rule: &str) -> String {
    let hosts = list(10, |at| format!("h{at}.example"));
    format!(
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: v}}
spec: {{hosts: {hosts}, gateways: [edge], http: [{rule}]}}
"
    )
}

#[test]
fn what_a_rule_says_counts_for_routes_on_each_host() {
    let body = |length: usize| {
        let text = "x".repeat(length);
        format!("directResponse: {{status: 200, body: {{string: {text}}}}}")
    };
    // 512 bytes are those of the row, and each 256 that are begun are one more.
    for (length, rows) in [(1, 1), (512, 1), (513, 2), (768, 2), (769, 3), (20_480, 79)] {
        let object = on_ten_hosts(&format!("{{{}}}", body(length)));
        let around = [beyond(10 * rows, &object), beyond(10 * rows - 1, &object)];
        assert_eq!(around, [0, 1], "{length}");
    }
    // Each match has what the rule says.
    let matches = list(3, |at| format!("{{uri: {{exact: /{at}}}}}"));
    let object = on_ten_hosts(&format!("{{match: {matches}, {}}}", body(700)));
    assert_eq!([beyond(60, &object), beyond(59, &object)], [0, 1]);
}

#[test]
fn all_texts_that_hosts_repeat_count_for_routes() {
    let text = "x".repeat(2_000);
    let web = "destination: {host: web}";
    for rule in [
        format!("redirect: {{uri: /{text}}}"),
        format!("redirect: {{authority: {text}}}"),
        format!("route: [{{{web}}}], rewrite: {{uri: /{text}}}"),
        format!("route: [{{{web}}}], headers: {{request: {{set: {{a: {text}}}}}}}"),
        format!("route: [{{{web}}}], headers: {{response: {{remove: [{text}]}}}}"),
        format!("route: [{{{web}, headers: {{response: {{add: {{a: {text}}}}}}}}}]"),
        format!("route: [{{{web}}}], corsPolicy: {{allowOrigins: [{{exact: 'https://{text}'}}]}}"),
        format!("route: [{{{web}}}], corsPolicy: {{allowHeaders: [{text}]}}"),
        format!("route: [{{{web}}}], mirrors: [{{destination: {{host: {text}}}}}]"),
        format!("route: [{{{web}}}], match: [{{uri: {{exact: /{text}}}}}]"),
        format!("route: [{{{web}}}], match: [{{headers: {{a: {{exact: {text}}}}}}}]"),
    ] {
        let object = on_ten_hosts(&format!("{{{rule}}}"));
        assert_eq!(beyond(69, &object), 1, "{rule}");
        assert_eq!(beyond(280, &object), 0, "{rule}");
    }
}

#[test]
fn what_annotations_say_counts_for_routes_on_each_path() {
    let ingress = |annotation: &str, text: &str| {
        let rules = list(10, |at| {
            format!(
                "{{host: h{at}.example, http: {{paths: [{{path: /, pathType: Prefix, backend: \
                 {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}"
            )
        });
        format!(
            "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{namespace: shop, name: i, annotations: {{{annotation}: '{text}'}}}}
spec: {{rules: {rules}}}
"
        )
    };
    // Twice, since a canary divides a path.
    for (length, rows) in [(256, 1), (257, 2), (20_480, 159)] {
        let object = ingress("myriad.dev/respond", &"x".repeat(length));
        let around = [beyond(10 * rows, &object), beyond(10 * rows - 1, &object)];
        assert_eq!(around, [0, 1], "{length}");
    }
    // A network takes more than these four bytes.
    let networks = ingress("myriad.dev/whitelist-source-range", &["::1"; 512].join(","));
    assert_eq!([beyond(950, &networks), beyond(949, &networks)], [0, 1]);
    let denied = ingress("myriad.dev/denylist-source-range", &["::1"; 512].join(","));
    assert_eq!([beyond(950, &denied), beyond(949, &denied)], [0, 1]);
    // The entries of a ConfigMap may be 8 KiB.
    let headers = ingress("myriad.dev/custom-headers", "shop/headers");
    assert_eq!([beyond(630, &headers), beyond(629, &headers)], [0, 1]);
    let pages = ingress("myriad.dev/custom-http-errors", "404,503");
    assert_eq!([beyond(40, &pages), beyond(39, &pages)], [0, 1]);
    // An alias has all paths once more, and its name is in none of them.
    let name = format!("{}.example", ["x".repeat(60).as_str(); 3].join("."));
    let aliases = ingress("myriad.dev/server-alias", &format!("{name},a{name}"));
    assert_eq!([beyond(30, &aliases), beyond(29, &aliases)], [0, 1]);
    let redirects = ingress("myriad.dev/from-to-www-redirect", "true");
    assert_eq!([beyond(20, &redirects), beyond(19, &redirects)], [0, 1]);
    let unknown = ingress("example.com/respond", &"x".repeat(20_480));
    assert_eq!(beyond(10, &unknown), 0);
    // One that no path has is read once for all of them.
    let key = "nginx.ingress.kubernetes.io/configuration-snippet";
    let snippet = ingress(key, &"x".repeat(20_480));
    assert_eq!([beyond(89, &snippet), beyond(88, &snippet)], [0, 1]);
    let canary = ingress("myriad.dev/canary", "true");
    assert_eq!([beyond(50, &canary), beyond(49, &canary)], [0, 1]);
}

/// The bytes that are encoded for a body of so many KiB on so many hosts, where a namespace may
/// have 1,000 rows.
fn encoded(kib: usize, hosts: usize) -> u64 {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            routes: 1_000,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    engine.apply(world::changes(BASE), world::NOW);
    let hosts = list(hosts, |at| format!("h{at}.example"));
    let body = "x".repeat(kib << 10);
    let objects = format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{namespace: shop, name: edge}}
spec: {{servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: ['*']}}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: v}}
spec: {{hosts: {hosts}, gateways: [edge], http: [{{directResponse: {{status: 200, \
         body: {{string: {body}}}}}}}]}}
"
    );
    let outcome = engine.apply(world::changes(&objects), world::NOW);
    outcome.work.bytes_encoded
}

#[test]
fn a_bound_of_routes_bounds_bytes() {
    let within = encoded(20, 10);
    assert!((200 << 10..300 << 10).contains(&within), "{within}");
    let beyond = encoded(20, 50);
    assert!(beyond < 50 << 10, "{beyond}");
}

/// How many findings say that the texts of a delegate are beyond, which answers with a body of so
/// many bytes; where routes are bounded, or are not.
fn delegated_texts(bytes: usize, routes: u64) -> usize {
    let answer = "- {match: [{uri: {exact: /first}}], directResponse: {status: 200}}";
    let all = delegating(1, 1);
    assert!(all.contains(answer), "{all}");
    let body = "x".repeat(bytes);
    let long = format!(
        "- {{match: [{{uri: {{exact: /first}}}}], directResponse: {{status: 200, \
         body: {{string: {body}}}}}}}"
    );
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            routes,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    engine.apply(world::changes(BASE), world::NOW);
    engine.apply(world::changes(&all.replace(answer, &long)), world::NOW);
    count(&engine, "spec.http[0].delegate", "shorten")
}

#[test]
fn what_delegates_say_is_bounded_where_routes_are() {
    assert_eq!(delegated_texts(60 << 10, 1_000), 0);
    assert_eq!(delegated_texts(70 << 10, 1_000), 1);
    assert_eq!(delegated_texts(70 << 10, 0), 0);
}

/// How many findings say that a VirtualService for a wildcard says too much on the hosts that a
/// Gateway names below it, and how many bytes are encoded.
fn below_a_wildcard(bytes: usize, routes: u64) -> (usize, u64) {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            routes,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    engine.apply(world::changes(BASE), world::NOW);
    let hosts = list(20, |at| format!("h{at}.example"));
    let body = "x".repeat(bytes);
    let objects = format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{namespace: shop, name: edge}}
spec: {{servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: {hosts}}}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: v}}
spec: {{hosts: ['*.example'], gateways: [edge], http: [{{directResponse: {{status: 200, \
         body: {{string: {body}}}}}}}]}}
"
    );
    let outcome = engine.apply(world::changes(&objects), world::NOW);
    let told = count(&engine, "spec.http[0]", "name those hosts");
    (told, outcome.work.bytes_encoded)
}

#[test]
fn what_a_wildcard_says_on_hosts_below_it_is_bounded_where_routes_are() {
    let (told, within) = below_a_wildcard(60 << 10, 250_000);
    assert!(told == 0 && within > 20 * (60 << 10), "{told}, {within}");
    let (told, beyond) = below_a_wildcard(70 << 10, 250_000);
    assert!(told == 1 && beyond < 60 << 10, "{told}, {beyond}");
    // A quarter of what the bound of routes stands for, for all of them.
    let (told, beyond) = below_a_wildcard(60 << 10, 1_000);
    assert!(told == 1 && beyond < 60 << 10, "{told}, {beyond}");
    let (told, _) = below_a_wildcard(70 << 10, 0);
    assert_eq!(told, 0);
}
