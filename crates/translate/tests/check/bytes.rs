//! The bytes that a change sends: `tests/goldens/bytes/<what changes>.yaml` says how many rules or
//! endpoints there are and what becomes of one, then the resources and bytes that follow from it.

use myriad_model::Kind;
use myriad_translate::{Engine, Settings};

use crate::goldens::{BASE, check};
use crate::world;

/// The most bytes that one change may send.
const BYTES_MAX: usize = 8 << 10;

/// The endpoints of a slice.
const SLICE: usize = 100;

#[test]
fn a_change_sends_what_its_golden_says() {
    check("bytes", |text| {
        let head = text.split("=== sent\n").next().unwrap_or(text);
        let number = |name: &str| {
            let mut lines = head.lines();
            let number = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            number.map(|number| number.parse::<usize>().expect("a number"))
        };
        let (resources, bytes) = match (number("rules"), number("endpoints")) {
            (Some(rules), _) => sent_for_rules(rules, number),
            (_, Some(endpoints)) => sent_for_endpoints(endpoints, number),
            _ => panic!("rules or endpoints: {head}"),
        };
        assert!(bytes <= BYTES_MAX, "{bytes} bytes: {head}");
        format!("{head}=== sent\n{resources} resources, {bytes} bytes\n")
    });
}

fn sent_for_rules(rules: usize, number: impl Fn(&str) -> Option<usize>) -> (usize, usize) {
    let before: Vec<String> = (0..rules).map(|at| rule(at, "web", 80)).collect();
    let mut after = before.clone();
    if let Some(at) = number("changed") {
        after[at] = rule(at, "api", 8080);
    }
    if let Some(at) = number("inserted") {
        after.insert(at, rule(rules, "web", 80));
    }
    if let Some(at) = number("removed") {
        after.remove(at);
    }
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(BASE), world::NOW);
    apply(&mut engine, Kind::Route, &virtual_service(&before));
    apply(&mut engine, Kind::Route, &virtual_service(&after))
}

/// One of the addresses of a Service becomes another.
fn sent_for_endpoints(count: usize, number: impl Fn(&str) -> Option<usize>) -> (usize, usize) {
    let slice = |first: usize, changed: Option<usize>| {
        let addresses = (first..count.min(first + SLICE)).map(|at| match changed {
            Some(changed) if changed == at => "{addresses: [10.200.0.1]}".to_owned(),
            _ => format!("{{addresses: [10.1.{}.{}]}}", at / 250, at % 250),
        });
        let addresses: Vec<String> = addresses.collect();
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{namespace: shop, \
             name: many-{first}, labels: {{kubernetes.io/service-name: many}}}}\naddressType: \
             IPv4\nports: [{{name: http, port: 9000}}]\nendpoints: [{}]\n",
            addresses.join(", ")
        )
    };
    let mut objects = vec![
        "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: many}\nspec: {ports: \
         [{name: http, port: 80}]}\n"
            .to_owned(),
        virtual_service(&[rule(0, "many", 80)]),
    ];
    objects.extend((0..count).step_by(SLICE).map(|first| slice(first, None)));
    let mut engine = world::engine(Settings::default());
    apply(&mut engine, Kind::Endpoints, &objects.join("---\n"));
    let changed = number("changed").expect("which one changes");
    let slice = slice(changed / SLICE * SLICE, Some(changed));
    apply(&mut engine, Kind::Endpoints, &slice)
}

fn rule(number: usize, service: &str, port: u16) -> String {
    format!(
        "  - {{match: [{{uri: {{exact: /path/{number}}}}}], rewrite: {{uri: /}}, route: \
         [{{destination: {{host: {service}, port: {{number: {port}}}}}}}]}}\n"
    )
}

fn virtual_service(rules: &[String]) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: shop, name: \
         edge}}\nspec: {{servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: \
         [a.example]}}]}}\n---\napiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{namespace: shop, name: web}}\nspec:\n  hosts: [a.example]\n  gateways: \
         [edge]\n  http:\n{}",
        rules.concat()
    )
}

/// Writes objects, and counts the resources of a kind and their bytes that are sent.
fn apply(engine: &mut Engine, kind: Kind, objects: &str) -> (usize, usize) {
    let outcome = engine.apply(world::changes(objects), world::NOW);
    let changes = outcome.delta.changes().iter();
    let changes = changes.filter(|change| change.key.kind == kind);
    let sizes = changes.map(|change| {
        let value = change.new.as_ref().map_or(0, |new| new.bytes_encoded());
        change.key.name.len() + value
    });
    let sizes: Vec<usize> = sizes.collect();
    (sizes.len(), sizes.iter().sum())
}
