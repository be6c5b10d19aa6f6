//! Istio's objects of the small universe, as text that is read like that of people.

use myriad_api::Object;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::world;

mod guests;
mod hosts;
mod mesh;
mod others;

/// A Gateway, a VirtualService, a policy, or what says where hosts are.
pub(crate) fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        4 => gateway(),
        4 => virtual_service(),
        1 => policy(),
        2 => hosts::destination_rule(),
        2 => hosts::service_entry(),
        1 => hosts::workload_entry(),
        1 => hosts::pod(),
        2 => mesh::sidecar(),
        1 => mesh::peers(),
    ]
    .prop_map(|text| world::object(&text))
}

fn policy() -> impl Strategy<Value = String> {
    let spec = select(
        &[
            "action: ALLOW",
            "action: AUDIT",
            "selector: {matchLabels: {istio: ingressgateway}}",
            "selector: {matchLabels: {app: other}}",
            "rules: broken",
            "action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]",
            "rules: [{when: [{key: destination.ip, values: [a]}]}]",
            "jwtRules: [{issuer: 'https://a.example'}]",
        ][..],
    );
    let kind = select(&["AuthorizationPolicy", "RequestAuthentication"][..]);
    let namespace = select(&["one", "two", "istio-system"][..]);
    (namespace, kind, spec).prop_map(|(namespace, kind, spec)| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{namespace: \
             {namespace}, name: p}}\nspec: {{{spec}}}\n"
        )
    })
}

fn head(kind: &str, namespace: &str, name: &str, year: u32) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{namespace: {namespace}, \
         name: {name}, creationTimestamp: {year}-01-01T00:00:00Z}}\nspec:\n"
    )
}

fn namespace() -> impl Strategy<Value = &'static str> {
    select(&["one", "one", "two"][..])
}

fn year() -> impl Strategy<Value = u32> {
    select(&[2020, 2021][..])
}

fn gateway() -> impl Strategy<Value = String> {
    let port = select(
        &[
            "port: {number: 80, name: p, protocol: HTTP}",
            "port: {number: 80, name: p, protocol: HTTP}, tls: {httpsRedirect: true}",
            "port: {number: 443, name: t, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: s}",
            "port: {number: 443, name: t, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: t}",
            "port: {number: 443, name: t, protocol: HTTPS}, tls: {mode: MUTUAL}",
            "port: {number: 443, name: t, protocol: TLS}, tls: {mode: PASSTHROUGH}",
            "port: {number: 443, name: t, protocol: TLS}, tls: {mode: PASSTHROUGH}",
            "port: {number: 9000, name: x, protocol: TCP}",
        ][..],
    );
    let host = select(
        &[
            "a.example",
            "b.example",
            "'*.example'",
            "'*'",
            "one/a.example",
            "./b.example",
            "two/*.example",
            "a..b",
        ][..],
    );
    let server = (port, vec(host, 1..3))
        .prop_map(|(port, hosts)| format!("  - {{{port}, hosts: [{}]}}\n", hosts.join(", ")));
    let selector = select(
        &[
            "ingressgateway",
            "ingressgateway",
            "ingressgateway",
            "other",
        ][..],
    );
    let name = select(&["edge", "side"][..]);
    (namespace(), name, year(), selector, vec(server, 0..4)).prop_map(
        |(namespace, name, year, selector, servers)| {
            let head = head("Gateway", namespace, name, year);
            let servers = servers.concat();
            format!(
                "{head}  selector: {{istio: {selector}}}\n  servers:\n{servers}  - {{port: \
                     {{number: 80, name: z, protocol: HTTP}}, hosts: [z.example]}}\n"
            )
        },
    )
}

fn virtual_service() -> impl Strategy<Value = String> {
    let host = select(
        &[
            "a.example",
            "b.example",
            "'*.example'",
            "'*'",
            "c.d.example",
        ][..],
    );
    let gateway = select(&["edge", "side", "one/edge", "two/side", "mesh"][..]);
    let rule = (option::of(matching()), action())
        .prop_map(|(matching, action)| format!("  - {{{}{action}}}\n", matching.unwrap_or("")));
    let export = select(
        &[
            "",
            "",
            "",
            "  exportTo: ['.']\n",
            "  exportTo: [istio-system]\n",
        ][..],
    );
    let name = select(&["v", "w", "part"][..]);
    let parts = (
        namespace(),
        name,
        year(),
        vec(host, 0..3),
        vec(gateway, 0..3),
    );
    let rules = (vec(rule, 0..3), option::weighted(0.4, names()));
    (parts, rules, export).prop_map(|(parts, (rules, names), export)| {
        let (namespace, name, year, hosts, gateways) = parts;
        let head = head("VirtualService", namespace, name, year);
        let (hosts, gateways) = (hosts.join(", "), gateways.join(", "));
        let rules = match rules.is_empty() {
            true => String::new(),
            false => format!("  http:\n{}", rules.concat()),
        };
        let names = names.unwrap_or_default();
        format!("{head}  hosts: [{hosts}]\n  gateways: [{gateways}]\n{export}{rules}{names}")
    })
}

/// A rule for TLS.
fn names() -> impl Strategy<Value = String> {
    let name = select(
        &[
            "a.example",
            "b.example",
            "'*.example'",
            "c.d.example",
            "'*.d.example'",
        ][..],
    );
    vec(name, 1..4).prop_map(|names| {
        let names = names.join(", ");
        format!(
            "  tls:\n  - {{match: [{{sniHosts: [{names}]}}], route: [{{destination: {{host: v, \
             port: {{number: 80}}}}}}]}}\n"
        )
    })
}

fn matching() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "match: [{uri: {exact: /a}}], ",
            "match: [{uri: {prefix: /a}, port: 80}], ",
            "match: [{uri: {regex: '/(x|y)'}}, {headers: {a: {}}}], ",
            "match: [{uri: {regex: '('}}], ",
            "match: [{sourceLabels: {app: other}}], ",
            "match: [{gateways: [edge]}], ",
        ][..],
    )
}

fn action() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "route: [{destination: {host: v, port: {number: 80}}}]",
            "route: [{destination: {host: w}}]",
            "route: [{destination: {host: v.two.svc.cluster.local, port: {number: 81}}, \
             weight: 3}, {destination: {host: w, port: {number: 80}}, weight: 1}]",
            "route: [{destination: {host: v, subset: a, port: {number: 80}}}]",
            "route: [{destination: {host: out.example, port: {number: 80}}, weight: 1}, \
             {destination: {host: out.example, subset: a}, weight: 1}]",
            "redirect: {uri: /x}",
            "directResponse: {status: 200}",
            "delegate: {name: part}",
            "delegate: {name: part, namespace: two}",
            "timeout: 3s, mirror: {host: w, port: {number: 80}}, \
             route: [{destination: {host: v, port: {number: 80}}}]",
        ][..],
    )
}
