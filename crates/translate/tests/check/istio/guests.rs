//! Rules of tenants at the Gateways of the operator: for all hosts they answer where their own
//! namespace may, and for none that others claim, be it requests or handshakes.

use std::collections::BTreeSet;

use myriad_api::Finding;
use myriad_model::Value;
use myriad_translate::{CatchAll, Engine, Settings};

use crate::{render, world};

/// The lists of two tenants, beside which nobody but the operator claims anything.
const TENANTS: &str = "good *.good.example;evil *.evil.example;unlisted nothing";

/// The same where one of them may answer for hosts that nobody names.
const WITH_ALL: &str = "good *.good.example;evil *;unlisted nothing";

/// The hosts of good, of plain HTTP alone, the latter of which a narrower server has.
const PLAIN: &str = "plain.good.example";
const WIDE: &str = "plain.wide.example";

/// An engine with Gateways of the operator, which let everybody in, and what good has.
fn engine(settings: Settings) -> Engine {
    let mut engine = world::engine(settings);
    let pass = "tls: {mode: PASSTHROUGH}";
    let edge = format!(
        "{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: ['*/*']}}, {{port: {{number: \
         443, name: tls, protocol: TLS}}, hosts: ['*/*'], {pass}}}, {{port: {{number: 5432, name: \
         tcp, protocol: TCP}}, hosts: ['*']}}"
    );
    let wide = format!(
        "{{port: {{number: 443, name: tls, protocol: TLS}}, hosts: ['*/*.wide.example'], {pass}}}"
    );
    let objects = [
        gateway("edge", &edge),
        gateway("wide", &wide),
        ingress(PLAIN),
        ingress(WIDE),
        service("istio-system"),
        service("good"),
        service("evil"),
    ];
    apply(&mut engine, &objects.join("---\n"));
    engine
}

fn gateway(name: &str, servers: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: istio-system, \
         name: {name}, creationTimestamp: 2019-01-01T00:00:00Z}}\nspec: {{selector: {{istio: \
         ingressgateway}}, servers: [{servers}]}}\n"
    )
}

fn ingress(host: &str) -> String {
    let name = host.replace('.', "-");
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: good, name: \
         {name}, creationTimestamp: 2021-01-01T00:00:00Z}}\nspec: {{rules: [{{host: {host}, http: \
         {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: web, port: {{number: \
         80}}}}}}}}]}}}}]}}\n"
    )
}

fn service(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {namespace}, name: web}}\nspec: \
         {{ports: [{{name: http, port: 80}}]}}\n"
    )
}

/// A VirtualService of a namespace for a host by a Gateway of the operator, with one rule.
fn rule((namespace, year): (&str, u32), (gateway, host): (&str, &str), kind: &str) -> String {
    let matches = match kind {
        "tls" => format!("match: [{{sniHosts: ['{host}']}}], "),
        _ => String::new(),
    };
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: \
         {namespace}, name: r, creationTimestamp: {year}-01-01T00:00:00Z}}\nspec:\n  hosts: \
         ['{host}']\n  gateways: [istio-system/{gateway}]\n  {kind}: [{{{matches}route: \
         [{{destination: {{host: web, port: {{number: 80}}}}}}]}}]\n"
    )
}

/// The rules of a tenant for all hosts that ask for a name.
fn for_all(namespace: &str, year: u32) -> [String; 2] {
    ["http", "tls"].map(|kind| rule((namespace, year), ("edge", "*"), kind))
}

fn apply(engine: &mut Engine, text: &str) {
    engine.apply(world::changes(text), world::NOW);
    while engine.has_postponed() {
        engine.apply(Vec::new(), world::NOW);
    }
}

fn tenants(text: &str) -> Settings {
    Settings {
        tenants: world::tenants(text),
        ..Settings::default()
    }
}

/// Settings where some namespaces answer for hosts that nobody names.
fn only(namespaces: &[&str]) -> Settings {
    let listed = namespaces.iter().map(|it| (*it).to_owned());
    Settings {
        catch_all_namespaces: CatchAll::Only(listed.collect::<BTreeSet<String>>()),
        ..Settings::default()
    }
}

/// Whether anything leads to a namespace by its rule.
fn has_rows(engine: &Engine, namespace: &str) -> bool {
    let text = render::resources(engine.snapshot());
    text.contains(&format!("route {namespace}/r/"))
}

/// Whether handshakes for a host go no further than its own domain.
fn is_closed(engine: &Engine, host: &str) -> bool {
    let mut all = engine.snapshot().iter();
    all.any(|sealed| {
        let value = sealed.resource().map(|resource| &resource.value);
        matches!(value, Some(Value::Domain(domain)) if domain.host.as_str() == host)
    })
}

/// How many findings say something.
fn told(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}

#[test]
fn rules_for_all_handshakes_take_none_of_a_host_that_others_claim() {
    for text in ["", WITH_ALL] {
        for (namespace, year, expected) in [
            ("evil", 2022, true),
            ("evil", 2018, true),
            ("good", 2022, false),
            ("istio-system", 2022, false),
        ] {
            let mut engine = engine(tenants(text));
            assert!(!is_closed(&engine, PLAIN));
            let [_, tls] = for_all(namespace, year);
            apply(&mut engine, &tls);
            // They take what nobody claims, where the lists let them.
            let is_listed = text.is_empty() || namespace != "good";
            assert_eq!(has_rows(&engine, namespace), is_listed, "{namespace}");
            let what = format!("{text}: {namespace} {year}");
            assert_eq!(is_closed(&engine, PLAIN), expected, "{what}");
            let removed = format!("remove VirtualService {namespace}/r");
            apply(&mut engine, &removed);
            assert!(!is_closed(&engine, PLAIN), "{what}");
        }
    }
}

#[test]
fn a_rule_without_effect_closes_nothing_of_what_the_operator_hands_on() {
    let [_, operators] = for_all("istio-system", 2020);
    let mut engine = engine(Settings::default());
    apply(&mut engine, &operators);
    let [_, tls] = for_all("evil", 2022);
    apply(&mut engine, &tls);
    assert!(has_rows(&engine, "istio-system") && !has_rows(&engine, "evil"));
    assert!(!is_closed(&engine, PLAIN));
}

#[test]
fn whom_the_operator_trusts_hands_on_handshakes_of_all() {
    let [_, tls] = for_all("evil", 2022);
    let mut engine = engine(only(&["evil"]));
    apply(&mut engine, &tls);
    assert!(has_rows(&engine, "evil"));
    assert!(!is_closed(&engine, PLAIN));
}

#[test]
fn rules_at_a_wildcard_of_the_operator_take_the_handshakes_of_later_hosts_alone() {
    for host in ["*", "*.example", "*.wide.example"] {
        for (namespace, year, expected) in [
            ("evil", 2022, true),
            ("evil", 2020, false),
            ("good", 2022, false),
            ("istio-system", 2022, false),
        ] {
            let mut engine = engine(Settings::default());
            assert!(!is_closed(&engine, WIDE));
            apply(&mut engine, &rule((namespace, year), ("wide", host), "tls"));
            assert!(has_rows(&engine, namespace), "{host} {namespace}");
            let what = format!("{host}: {namespace} {year}");
            assert_eq!(is_closed(&engine, WIDE), expected, "{what}");
        }
    }
}

#[test]
fn lists_of_hosts_hold_for_rules_for_all_hosts() {
    for rule in for_all("evil", 2022) {
        let mut free = engine(Settings::default());
        apply(&mut free, &rule);
        assert!(has_rows(&free, "evil"), "{rule}");
        assert_eq!(told(&free, "--tenants"), 0);
        let mut engine = engine(tenants(TENANTS));
        let before = engine.snapshot().digest();
        apply(&mut engine, &rule);
        assert_eq!(engine.snapshot().digest(), before, "{rule}");
        let why = "VirtualService evil/r: spec.hosts[0]: is without effect: the hosts of \
                   namespace evil in --tenants do not cover the answer for hosts that nobody names";
        assert_eq!(told(&engine, why), 1, "{rule}");
    }
}

#[test]
fn plain_connections_of_a_port_have_no_names() {
    let mut engine = engine(tenants(TENANTS));
    apply(&mut engine, &rule(("evil", 2022), ("edge", "*"), "tcp"));
    assert!(has_rows(&engine, "evil"));
    assert_eq!(told(&engine, "VirtualService evil/r"), 0);
}

#[test]
fn who_may_not_answer_for_hosts_that_nobody_names_does_so_by_no_gateway_of_others() {
    let why = "VirtualService evil/r: spec.hosts[0]: has no effect for hosts that nobody names, \
               for which --catch-all-namespaces does not list namespace evil";
    for rule in for_all("evil", 2022) {
        let mut unlisted = engine(only(&["istio-system"]));
        apply(&mut unlisted, &rule);
        assert!(!has_rows(&unlisted, "evil"), "{rule}");
        assert_eq!(told(&unlisted, why), 1, "{rule}");
        let mut listed = engine(only(&["istio-system", "evil"]));
        apply(&mut listed, &rule);
        assert!(has_rows(&listed, "evil"), "{rule}");
        assert_eq!(told(&listed, why), 0, "{rule}");
    }
    // The operator's own need no list.
    for rule in for_all("istio-system", 2022) {
        let mut engine = engine(only(&[]));
        apply(&mut engine, &rule);
        assert!(has_rows(&engine, "istio-system"), "{rule}");
    }
}

#[test]
fn an_edit_of_the_lists_leaves_what_a_start_with_them_has() {
    let of = |engine: &Engine| {
        let findings: Vec<Finding> = engine.findings().cloned().collect();
        (engine.snapshot().digest(), findings)
    };
    let [http, tls] = for_all("evil", 2022);
    let wide = rule(("evil", 2022), ("wide", "*"), "tls");
    for rule in [http, tls, wide] {
        let start = |text: &str| {
            let mut engine = engine(tenants(text));
            apply(&mut engine, &rule);
            engine
        };
        let mut edited = start("");
        assert!(has_rows(&edited, "evil"), "{rule}");
        for text in [TENANTS, "good *.good.example", WITH_ALL, TENANTS, ""] {
            edited.set_tenants(world::tenants(text));
            apply(&mut edited, "");
            assert_eq!(has_rows(&edited, "evil"), text != TENANTS, "{text}: {rule}");
            assert_eq!(of(&edited), of(&start(text)), "{text}: {rule}");
        }
    }
}
