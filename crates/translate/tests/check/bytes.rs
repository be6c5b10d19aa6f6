//! The bytes that a changed rule of a host sends: `tests/goldens/bytes/<what changes>.yaml` says how many
//! rules there are and what becomes of one, then the resources and bytes that follow from it.

use myriad_translate::{Engine, Settings};

use crate::goldens::{BASE, check};
use crate::world;

/// The most bytes that one changed rule may send.
const BYTES_MAX: usize = 8 << 10;

#[test]
fn a_changed_rule_sends_what_its_golden_says() {
    check("bytes", |text| {
        let head = text.split("=== sent\n").next().unwrap_or(text);
        let number = |name: &str| {
            let mut lines = head.lines();
            let number = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            number.map(|number| number.parse::<usize>().expect("a number"))
        };
        let rules = number("rules").expect("how many rules there are");
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
        apply(&mut engine, &before);
        let (resources, bytes) = apply(&mut engine, &after);
        assert!(bytes <= BYTES_MAX, "{bytes} bytes: {head}");
        format!("{head}=== sent\n{resources} resources, {bytes} bytes\n")
    });
}

fn rule(number: usize, service: &str, port: u16) -> String {
    format!(
        "  - {{match: [{{uri: {{exact: /path/{number}}}}}], rewrite: {{uri: /}}, route: \
         [{{destination: {{host: {service}, port: {{number: {port}}}}}}}]}}\n"
    )
}

/// Writes the rules, and counts the routes and their bytes that are sent.
fn apply(engine: &mut Engine, rules: &[String]) -> (usize, usize) {
    let objects = format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: shop, name: \
         edge}}\nspec: {{servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: \
         [a.example]}}]}}\n---\napiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{namespace: shop, name: web}}\nspec:\n  hosts: [a.example]\n  gateways: \
         [edge]\n  http:\n{}",
        rules.concat()
    );
    let outcome = engine.apply(world::changes(&objects), world::NOW);
    let changes = outcome.delta.changes().iter();
    let routes = changes.filter(|change| change.key.kind == myriad_model::Kind::Route);
    let sizes = routes.map(|change| {
        let value = change.new.as_ref().map_or(0, |new| new.bytes_encoded());
        change.key.name.len() + value
    });
    let sizes: Vec<usize> = sizes.collect();
    (sizes.len(), sizes.iter().sum())
}
