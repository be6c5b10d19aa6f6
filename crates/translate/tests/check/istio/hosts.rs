//! Objects that say where hosts are and how they are reached.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{head, namespace, year};

fn export() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "",
            "",
            "",
            "  exportTo: ['.']\n",
            "  exportTo: [istio-system]\n",
        ][..],
    )
}

pub(super) fn destination_rule() -> impl Strategy<Value = String> {
    let host = select(
        &[
            "v",
            "w",
            "v.two.svc.cluster.local",
            "'*.two.svc.cluster.local'",
            "'*.cluster.local'",
            "'*'",
            "out.example",
            "'*.example'",
        ][..],
    );
    let policy = || {
        select(
            &[
                "",
                "loadBalancer: {simple: RANDOM}",
                "connectionPool: {tcp: {maxConnections: 3}}, portLevelSettings: \
                 [{port: {number: 80}, outlierDetection: {}}]",
                "tls: {mode: SIMPLE, sni: a}",
                "tls: {mode: ISTIO_MUTUAL}",
                "tls: {mode: MUTUAL, credentialName: s}",
            ][..],
        )
    };
    let subset = option::of((
        select(&["a", "b"][..]),
        select(&["", "x: '1'"][..]),
        policy(),
    ));
    let space = prop_oneof![namespace(), Just("istio-system")];
    let selector = select(
        &[
            "",
            "",
            "  workloadSelector: {matchLabels: {istio: ingressgateway}}\n",
            "  workloadSelector: {matchLabels: {app: other}}\n",
        ][..],
    );
    let name = select(&["d", "e"][..]);
    let parts = (
        space,
        name,
        year(),
        host,
        policy(),
        subset,
        (export(), selector),
    );
    parts.prop_map(
        |(space, name, year, host, policy, subset, (export, selector))| {
            let head = head("DestinationRule", space, name, year);
            let subsets = subset.map_or_else(String::new, |(name, labels, policy)| {
            format!(
                "  subsets: [{{name: {name}, labels: {{{labels}}}, trafficPolicy: {{{policy}}}}}]\n"
            )
        });
            format!(
                "{head}  host: {host}\n  trafficPolicy: {{{policy}}}\n{subsets}{export}{selector}"
            )
        },
    )
}

pub(super) fn service_entry() -> impl Strategy<Value = String> {
    let hosts = select(
        &[
            "out.example",
            "out.example, other.example",
            "v.one.svc.cluster.local",
            "v.one, v, '*.svc.cluster.local'",
            "'*.example'",
        ][..],
    );
    let ports = select(
        &[
            "{number: 80, name: http, protocol: HTTP}",
            "{number: 80, name: h, protocol: GRPC, targetPort: 8080}, \
             {number: 443, name: tls, protocol: TLS}",
            "{number: 81, name: t, protocol: TCP}",
        ][..],
    );
    let found = select(
        &[
            "resolution: DNS",
            "resolution: NONE",
            "resolution: NONE, addresses: [10.1.0.1, 10.1.0.2/32, 10.1.0.9]",
            "resolution: NONE, addresses: [10.1.0.0/28, 10.1.0.2]",
            "resolution: NONE, addresses: [10.0.0.0/8, '2001:db8::/32']",
            "resolution: DNS_ROUND_ROBIN, endpoints: [{address: in.example}]",
            "resolution: STATIC, endpoints: [{address: 10.9.9.9, labels: {x: '1'}}, \
             {address: 10.9.9.8, weight: 3}]",
            "resolution: STATIC, workloadSelector: {labels: {x: '1'}}",
            "resolution: DNS, workloadSelector: {labels: {x: '1', y: '2'}}",
        ][..],
    );
    let name = select(&["s", "t"][..]);
    let parts = (namespace(), name, year(), hosts, ports, found, export());
    parts.prop_map(|(space, name, year, hosts, ports, found, export)| {
        let head = head("ServiceEntry", space, name, year).replace("spec:\n", "");
        let export = match export.trim() {
            "" => String::new(),
            export => format!(", {export}"),
        };
        format!("{head}spec: {{hosts: [{hosts}], ports: [{ports}], {found}{export}}}\n")
    })
}

pub(super) fn workload_entry() -> impl Strategy<Value = String> {
    let labels = select(&["x: '1'", "x: '1', y: '2'", "y: '2'", ""][..]);
    let address = select(&["10.8.8.8", "10.8.8.9", "vm.example", "'unix:///x'"][..]);
    let parts = (namespace(), select(&["i", "j"][..]), labels, address);
    parts.prop_map(|(space, name, labels, address)| {
        let head = head("WorkloadEntry", space, name, 2020).replace("spec:\n", "");
        format!("{head}spec: {{address: {address}, labels: {{{labels}}}, ports: {{http: 90}}}}\n")
    })
}

pub(super) fn pod() -> impl Strategy<Value = String> {
    let labels = select(&["x: '1'", "x: '1', y: '2'", "x: '2'"][..]);
    let parts = (namespace(), select(&["p", "q", "r"][..]), labels);
    parts.prop_map(|(space, name, labels)| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{namespace: {space}, name: {name}, labels: \
             {{{labels}}}}}\nstatus: {{podIP: 10.7.7.7}}\n"
        )
    })
}
