//! Objects that are for sidecars.

use proptest::prelude::*;
use proptest::sample::select;

use super::{head, namespace};

/// A Sidecar of few forms.
pub(super) fn sidecar() -> impl Strategy<Value = String> {
    let spec = select(
        &[
            "egress: [{hosts: ['./*']}]",
            "egress: [{hosts: ['*/*']}]",
            "egress: [{hosts: ['~/*']}], workloadSelector: {labels: {y: '2'}}",
            "egress: [{hosts: ['two/*', '*/v.one.svc.cluster.local']}]",
            "egress: [{port: {number: 80, protocol: HTTP, name: h}, hosts: ['./*']}, {hosts: \
             ['*/*']}]",
            "outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
            "outboundTrafficPolicy: {}, egress: [{hosts: ['*/*.example']}]",
            "ingress: [{port: {number: 9000, protocol: HTTP, name: h}, defaultEndpoint: \
             '127.0.0.1:8080'}]",
            "workloadSelector: {labels: {x: '1'}}, inboundConnectionPool: {http: \
             {http2MaxRequests: 7}}",
        ][..],
    );
    let name = select(&["default", "other"][..]);
    (namespace(), name, 2001..2003_u32, spec).prop_map(|(namespace, name, year, spec)| {
        format!("{}  {{{spec}}}\n", head("Sidecar", namespace, name, year))
    })
}

/// A PeerAuthentication of few forms.
pub(super) fn peers() -> impl Strategy<Value = String> {
    let spec = select(
        &[
            "mtls: {mode: STRICT}",
            "mtls: {mode: UNSET}",
            "selector: {matchLabels: {x: '1'}}, mtls: {mode: DISABLE}, portLevelMtls: {80: {mode: \
             STRICT}}",
            "selector: {matchLabels: {x: '1'}}, portLevelMtls: {81: {mode: UNSET}}",
            "mtls: broken",
            "mtsl: {mode: DISABLE}",
        ][..],
    );
    let name = select(&["default", "other"][..]);
    (namespace(), name, spec).prop_map(|(namespace, name, spec)| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{namespace: \
             {namespace}, name: {name}}}\nspec: {{{spec}}}\n"
        )
    })
}
