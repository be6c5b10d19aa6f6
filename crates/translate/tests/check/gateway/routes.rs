//! Routes of every kind.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{head, namespace, year};

fn parents() -> impl Strategy<Value = String> {
    let parent = select(
        &[
            "{name: edge}",
            "{name: edge, namespace: one}",
            "{name: edge, namespace: one, sectionName: l0}",
            "{name: side, namespace: one, port: 443}",
            "{kind: ListenerSet, name: set}",
            "{kind: ListenerSet, name: more, namespace: one, sectionName: l1}",
            "{group: '', kind: Service, name: v}",
            "{group: '', kind: Service, name: v, namespace: one, port: 80}",
            "{name: gone}",
        ][..],
    );
    let defaults = select(&["", "", "", "  useDefaultGateways: All\n"][..]);
    (vec(parent, 0..3), defaults).prop_map(|(mut parents, defaults)| {
        parents.sort_unstable();
        parents.dedup();
        format!("  parentRefs: [{}]\n{defaults}", parents.join(", "))
    })
}

fn hosts(least: usize) -> impl Strategy<Value = String> {
    let host = select(
        &[
            "a.example",
            "a.example",
            "b.example",
            "c.a.example",
            "'*.example'",
            "'*.a.example'",
            "a..b",
        ][..],
    );
    vec(host, least..3).prop_map(|mut hosts| {
        hosts.sort_unstable();
        hosts.dedup();
        match hosts.is_empty() {
            true => String::new(),
            false => format!("  hostnames: [{}]\n", hosts.join(", ")),
        }
    })
}

/// Backends, of which some are none.
fn backends() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "backendRefs: [{name: v, port: 80}]",
            "backendRefs: [{name: v, port: 80}]",
            "backendRefs: [{name: w, port: 81, weight: 3}, {name: v, port: 80, weight: 0}]",
            "backendRefs: [{name: v, namespace: two, port: 80}]",
            "backendRefs: [{name: v, port: 80}, {name: gone, port: 80}]",
            "backendRefs: [{name: v, port: 80}, {kind: Bucket, group: example.com, name: v}]",
        ][..],
    )
}

/// All that a rule says of requests but for its backends.
fn rule() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "",
            "",
            "matches: [{path: {value: /a}}], ",
            "matches: [{path: {type: Exact, value: /a}, method: GET}], timeouts: {request: 3s}, ",
            "matches: [{path: {type: RegularExpression, value: '/(x|y)'}}], ",
            "matches: [{path: {type: RegularExpression, value: '('}}], ",
            "name: n, matches: [{headers: [{name: x, value: '1'}], queryParams: [{name: q, value: \
             '2'}]}], retry: {attempts: 1}, ",
            "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: w, port: 81}}}], ",
            "filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: w, \
             port: 80}}}], ",
            "filters: [{type: CORS, cors: {allowOrigins: ['*']}}], sessionPersistence: {}, ",
            "filters: [{type: Compress}], ",
        ][..],
    )
}

/// A rule that sends nothing on, or does something to one share.
fn whole_rule() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}",
            "{filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, \
             replaceFullPath: /x}}}]}",
            "{backendRefs: [{name: v, port: 80, filters: [{type: RequestMirror, requestMirror: \
             {backendRef: {name: w, port: 80}}}]}]}",
            "{backendRefs: [{name: v, port: 80, filters: [{type: RequestRedirect, requestRedirect: \
             {hostname: b.example}}]}, {name: v, port: 81}]}",
            "{matches: [{path: {value: /none}}]}",
        ][..],
    )
}

pub(super) fn http() -> impl Strategy<Value = String> {
    let rule = prop_oneof![
        3 => (rule(), backends()).prop_map(|(rule, backends)| format!("{{{rule}{backends}}}")),
        1 => whole_rule().prop_map(str::to_owned),
    ];
    let name = select(&["r", "s", "t"][..]);
    let parts = (
        namespace(),
        name,
        year(),
        parents(),
        hosts(0),
        vec(rule, 0..3),
    );
    parts.prop_map(|(namespace, name, year, parents, hosts, rules)| {
        let head = head("HTTPRoute", namespace, name, year);
        let rules: String = rules.iter().map(|rule| format!("  - {rule}\n")).collect();
        let rules = match rules.is_empty() {
            true => rules,
            false => format!("  rules:\n{rules}"),
        };
        format!("{head}{parents}{hosts}{rules}")
    })
}

pub(super) fn grpc() -> impl Strategy<Value = String> {
    let matches = select(
        &[
            "",
            "matches: [{method: {service: a.B}}], ",
            "matches: [{method: {type: RegularExpression, method: 'C.*'}}], ",
            "filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}], ",
        ][..],
    );
    let name = select(&["r", "s"][..]);
    let parts = (namespace(), name, year(), parents(), hosts(0));
    (parts, matches, backends()).prop_map(|(parts, matches, backends)| {
        let (namespace, name, year, parents, hosts) = parts;
        let head = head("GRPCRoute", namespace, name, year);
        format!("{head}{parents}{hosts}  rules: [{{{matches}{backends}}}]\n")
    })
}

/// A TLSRoute, a TCPRoute or a UDPRoute.
pub(super) fn stream() -> impl Strategy<Value = String> {
    let kind = select(&["TLSRoute", "TLSRoute", "TCPRoute", "UDPRoute"][..]);
    let name = select(&["r", "s"][..]);
    let parts = (namespace(), name, year(), parents(), hosts(1));
    (parts, kind, backends()).prop_map(|(parts, kind, backends)| {
        let (namespace, name, year, parents, hosts) = parts;
        let hosts = if kind == "TLSRoute" { &*hosts } else { "" };
        let head = head(kind, namespace, name, year);
        format!("{head}{parents}{hosts}  rules: [{{{backends}}}]\n")
    })
}
