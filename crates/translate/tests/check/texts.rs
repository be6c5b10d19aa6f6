//! Texts of objects, counted: one is read once in a batch, however many hosts and paths ask.

use std::ops::Range;

use myriad_model::Kind;
use myriad_translate::{Engine, Settings};

use crate::goldens::BASE;
use crate::world;

/// An engine with the usual Services.
fn engine() -> Engine {
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(BASE), world::NOW);
    engine
}

/// The number of texts that are read where these objects come together.
fn read(engine: &mut Engine, objects: &[String]) -> u64 {
    let outcome = engine.apply(world::changes(&objects.join("---\n")), world::NOW);
    outcome.work.texts_read
}

/// An Ingress with these annotations, these hosts of `example` and what else its `spec` has. Each
/// host has these paths.
fn ingress(
    name: &str,
    annotations: &[(&str, &str)],
    hosts: impl Iterator<Item = usize>,
    paths: &[String],
    rest: &str,
) -> String {
    let annotations = annotations.iter();
    let annotations = annotations
        .map(|(key, value)| format!("    nginx.ingress.kubernetes.io/{key}: {value:?}\n"));
    let annotations: String = annotations.collect();
    let paths = paths.join(", ");
    let rules =
        hosts.map(|at| format!("  - {{host: h{at}.example, http: {{paths: [{paths}]}}}}\n"));
    let rules: String = rules.collect();
    format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: {name}
  annotations:
    myriad.dev/ssl-redirect: 'true'
{annotations}spec:
{rest}  rules:
{rules}"
    )
}

/// A path that leads to a port of a Service.
fn path(text: &str, service: &str, port: usize) -> String {
    format!(
        "{{path: {text}, pathType: Prefix, backend: {{service: {{name: {service}, \
         port: {{number: {port}}}}}}}}}"
    )
}

/// One path of an Ingress of this number.
fn own_path(number: usize) -> Vec<String> {
    vec![path(&format!("/{number}"), "web", 80)]
}

const SNIPPET: &str = "more_set_headers \"X-A: b\"; # and so on\n";

#[test]
fn annotations_are_read_once_for_all_hosts_of_an_ingress() {
    for hosts in [1, 4, 5, 200] {
        let of = |timeout: &str| {
            let snippet = SNIPPET.repeat(20);
            let commas = ",".repeat(1_000);
            let annotations = [
                ("configuration-snippet", &*snippet),
                ("proxy-read-timeout", timeout),
                ("server-alias", &*commas),
                ("unknown", "x"),
            ];
            ingress("one", &annotations, 0..hosts, &own_path(0), "")
        };
        let mut engine = engine();
        assert_eq!(read(&mut engine, &[of("5")]), 1, "{hosts} hosts");
        assert_eq!(read(&mut engine, &[of("6")]), 1, "{hosts} hosts");
    }
}

#[test]
fn ingresses_with_the_same_hosts_are_read_once_each() {
    for count in [2, 3, 64] {
        let of = |number: usize, timeout: &str| {
            let name = format!("i{number}");
            let timeout = [("proxy-read-timeout", timeout)];
            ingress(&name, &timeout, 0..20, &own_path(number), "")
        };
        let mut engine = engine();
        let all: Vec<String> = (0..count).map(|number| of(number, "5")).collect();
        assert_eq!(read(&mut engine, &all), count as u64);
        // All hosts of one run again, and they read the others as well.
        assert_eq!(read(&mut engine, &[of(0, "6")]), count as u64);
    }
}

#[test]
fn ingresses_whose_hosts_take_turns_are_read_once_each() {
    let of = |number: usize| {
        let hosts = (0..60).filter(move |at| at % 3 == number);
        ingress(&format!("i{number}"), &[], hosts, &own_path(number), "")
    };
    let all: Vec<String> = (0..3).map(of).collect();
    assert_eq!(read(&mut engine(), &all), 3);
}

/// A Secret with a certificate for these names.
fn certificate(names: &str) -> String {
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{namespace: shop, name: cert}}
type: kubernetes.io/tls
stringData:
  tls.crt: <certificate {names}>
  tls.key: <key {names}>
"
    )
}

/// An Ingress whose hosts have that certificate.
fn secured(hosts: Range<usize>) -> String {
    let names: Vec<String> = hosts.clone().map(|at| format!("h{at}.example")).collect();
    let tls = format!(
        "  tls: [{{hosts: [{}], secretName: cert}}]\n",
        names.join(", ")
    );
    ingress("secured", &[], hosts, &own_path(0), &tls)
}

#[test]
fn a_certificate_is_read_once_for_all_hosts_that_have_it() {
    for hosts in [1, 50] {
        let objects = [certificate("*.example"), secured(0..hosts)];
        let mut engine = engine();
        // The annotations and the names.
        assert_eq!(read(&mut engine, &objects), 2, "{hosts} hosts");
        assert_eq!(engine.findings().count(), 0);
    }
}

#[test]
fn a_certificate_beyond_the_bound_is_not_served() {
    let served = |names: usize| {
        let names: Vec<String> = (0..names).map(|at| format!("h{at:020}.example")).collect();
        let mut engine = engine();
        read(&mut engine, &[certificate(&names.join(",")), secured(0..1)]);
        let mut all = engine.snapshot().iter();
        let is_served = all.any(|sealed| sealed.key().kind == Kind::Certificate);
        let findings = engine.findings();
        let told =
            findings.filter(|it| it.field == "data[tls.crt]" && it.message.contains("64 KiB"));
        (is_served, told.count())
    };
    assert_eq!(served(1_000), (true, 0));
    assert_eq!(served(2_500), (false, 1));
}

/// An Ingress of so many paths that ask for the passwords of users with these hashes.
fn asking(hash: &str, paths: usize) -> [String; 2] {
    let annotations = [("auth-type", "basic"), ("auth-secret", "users")];
    let paths: Vec<String> = (0..paths).flat_map(own_path).collect();
    let users: String = (0..100).map(|at| format!("    u{at}:{hash}\n")).collect();
    let secret = format!(
        "apiVersion: v1
kind: Secret
metadata: {{namespace: shop, name: users}}
type: Opaque
stringData:
  auth: |
{users}"
    );
    [ingress("asking", &annotations, 0..2, &paths, ""), secret]
}

#[test]
fn users_are_read_once_for_all_paths_that_ask_for_them() {
    let unusable = "$2y$14$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
    for hash in ["{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", unusable] {
        for paths in [1, 50] {
            // The annotations and the users.
            assert_eq!(
                read(&mut engine(), &asking(hash, paths)),
                2,
                "{hash}, {paths}"
            );
        }
    }
}

#[test]
fn header_fields_are_read_once_for_all_hosts() {
    let map = "apiVersion: v1
kind: ConfigMap
metadata: {namespace: shop, name: fields}
data: {X-A: a, X-B: b}
";
    for hosts in [1, 50] {
        let annotations = [("custom-headers", "shop/fields")];
        let ingress = ingress("fields", &annotations, 0..hosts, &own_path(0), "");
        // The annotations, the fields to tell of them, and the fields to set them.
        assert_eq!(
            read(&mut engine(), &[map.to_owned(), ingress]),
            3,
            "{hosts} hosts"
        );
    }
}

#[test]
fn what_a_service_is_told_is_read_where_it_is_asked_and_not_for_each_host_of_tls() {
    let of = |hosts: usize| {
        let annotations = [
            ("auth-url", "http://web.shop.svc/"),
            ("auth-proxy-set-headers", "shop/told"),
        ];
        let named: Vec<String> = (0..hosts).map(|at| format!("t{at}.example")).collect();
        let tls = format!("  tls: [{{hosts: [{}]}}]\n", named.join(", "));
        let told = "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: shop, name: told}\n\
                    data: {X-A: b}\n";
        let one = ingress("one", &annotations, 0..1, &own_path(0), &tls);
        let mut engine = engine();
        read(&mut engine, &[told.to_owned(), one])
    };
    assert_eq!(of(10), of(200));
}
