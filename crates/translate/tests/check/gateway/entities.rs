//! Objects with listeners, and the small ones that decide what those and routes may name.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{head, namespace, year};

/// The class `myriad` is there without an object; `own` is for proxies of each Gateway.
pub(super) fn class() -> impl Strategy<Value = String> {
    let spec = select(
        &[
            ("myriad", "controllerName: myriad.dev/gateway-controller"),
            ("myriad", "controllerName: example.com/else"),
            (
                "own",
                "controllerName: myriad.dev/gateway-controller, parametersRef: {group: '', kind: \
                 ConfigMap, namespace: one, name: m}",
            ),
        ][..],
    );
    spec.prop_map(|(name, spec)| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: \
             {name}}}\nspec: {{{spec}}}\n"
        )
    })
}

/// Parameters of a class, and authorities, which are no certificates here.
pub(super) fn config_map() -> impl Strategy<Value = String> {
    let data = select(
        &[
            "myriad-gateway-mode: dedicated",
            "myriad-gateway-mode: shared",
            "myriad-gateway-mode: other",
            "ca.crt: <certificate a.example>",
            "ca.crt: none",
        ][..],
    );
    (namespace(), data).prop_map(|(namespace, data)| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{namespace: {namespace}, name: m}}\ndata: \
             {{{data}}}\n"
        )
    })
}

pub(super) fn namespace_labels() -> impl Strategy<Value = String> {
    let labels = select(&["tenant: 'yes'", "tenant: 'no'", ""][..]);
    (namespace(), labels).prop_map(|(name, labels)| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n"
        )
    })
}

pub(super) fn grant() -> impl Strategy<Value = String> {
    let from = select(&["Gateway", "ListenerSet", "HTTPRoute", "TLSRoute"][..]);
    let to = select(
        &[
            "{group: '', kind: Service}",
            "{group: '', kind: Service, name: v}",
            "{group: '', kind: Secret}",
            "{group: '', kind: ConfigMap}, {group: '', kind: Secret, name: s}",
        ][..],
    );
    let parts = (namespace(), select(&["g", "h"][..]), from, namespace(), to);
    parts.prop_map(|(namespace, name, from, of, to)| {
        let head = head("ReferenceGrant", namespace, name, 2020);
        let group = "gateway.networking.k8s.io";
        format!("{head}  from: [{{group: {group}, kind: {from}, namespace: {of}}}]\n  to: [{to}]\n")
    })
}

pub(super) fn policy() -> impl Strategy<Value = String> {
    let target = select(&["name: v", "name: w", "name: v, sectionName: http"][..]);
    let validation = select(
        &[
            "wellKnownCACertificates: System, hostname: v.internal",
            "caCertificateRefs: [{group: '', kind: ConfigMap, name: m}], hostname: v.internal",
            "caCertificateRefs: [{group: '', kind: Secret, name: s}], hostname: v.internal, \
             subjectAltNames: [{type: Hostname, hostname: x.internal}]",
            "caCertificateRefs: [{group: example.com, kind: Bundle, name: m}], hostname: a",
            "hostname: a",
        ][..],
    );
    let parts = (
        namespace(),
        select(&["p", "q"][..]),
        year(),
        target,
        validation,
    );
    parts.prop_map(|(namespace, name, year, target, validation)| {
        let head = head("BackendTLSPolicy", namespace, name, year);
        format!(
            "{head}  targetRefs: [{{group: '', kind: Service, {target}}}]\n  validation: \
             {{{validation}}}\n"
        )
    })
}

/// Listeners, by numbers as names.
fn listeners() -> impl Strategy<Value = String> {
    let host = select(
        &[
            "",
            ", hostname: a.example",
            ", hostname: a.example",
            ", hostname: b.example",
            ", hostname: '*.example'",
            ", hostname: a..b",
        ][..],
    );
    let speech = select(
        &[
            "port: 80, protocol: HTTP",
            "port: 80, protocol: HTTP",
            "port: 9000, protocol: HTTP",
            "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: s}]}",
            "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: s}]}",
            "port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: s, namespace: two}, {name: \
             t}]}",
            "port: 443, protocol: TLS, tls: {mode: Passthrough}",
            "port: 443, protocol: TLS, tls: {certificateRefs: [{name: t}]}",
            "port: 9000, protocol: TCP",
            "port: 9000, protocol: UDP",
            "port: 443, protocol: HTTPS",
            "port: 80, protocol: other",
        ][..],
    );
    let allowed = select(
        &[
            "",
            ", allowedRoutes: {namespaces: {from: All}}",
            ", allowedRoutes: {namespaces: {from: All}}",
            ", allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {tenant: \
             'yes'}}}}",
            ", allowedRoutes: {kinds: [{kind: GRPCRoute}, {kind: TLSRoute}]}",
        ][..],
    );
    vec((host, speech, allowed), 1..4).prop_map(|listeners| {
        let lines = listeners.into_iter().enumerate();
        let lines = lines.map(|(number, (host, speech, allowed))| {
            // What connections and datagrams are for has no name.
            let host = match speech.contains("TCP") || speech.contains("UDP") {
                true => "",
                false => host,
            };
            format!("  - {{name: l{number}, {speech}{host}{allowed}}}\n")
        });
        lines.collect()
    })
}

pub(super) fn gateway() -> impl Strategy<Value = String> {
    let class = select(&["myriad", "myriad", "myriad", "own", "none"][..]);
    let extra = select(
        &[
            "",
            "  allowedListeners: {namespaces: {from: All}}\n",
            "  allowedListeners: {namespaces: {from: All}}\n",
            "  allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {tenant: \
             'yes'}}}}\n",
            "  defaultScope: All\n",
            "  tls: {frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: \
             ConfigMap, name: m}]}}}}\n",
            "  tls: {backend: {clientCertificateRef: {name: s}}}\n",
        ][..],
    );
    let name = select(&["edge", "side"][..]);
    let parts = (namespace(), name, year(), class, extra, listeners());
    parts.prop_map(|(namespace, name, year, class, extra, listeners)| {
        let head = head("Gateway", namespace, name, year);
        format!("{head}  gatewayClassName: {class}\n{extra}  listeners:\n{listeners}")
    })
}

pub(super) fn listener_set() -> impl Strategy<Value = String> {
    let parent = select(
        &[
            "name: edge",
            "name: edge, namespace: one",
            "name: side, namespace: one",
            "kind: Service, group: '', name: v",
        ][..],
    );
    let name = select(&["set", "more"][..]);
    (namespace(), name, year(), parent, listeners()).prop_map(
        |(namespace, name, year, parent, listeners)| {
            let head = head("ListenerSet", namespace, name, year);
            format!("{head}  parentRef: {{{parent}}}\n  listeners:\n{listeners}")
        },
    )
}
