//! Objects of kinds that are not read: a line for each kind, so that a count of no errors is never
//! mistaken for a word about them.

use std::collections::BTreeMap;

use myriad_api::one_line;
use myriad_source::directory::Passed;
use serde::Serialize;

/// The objects of one kind that is not read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PassedKind {
    api_version: Box<str>,
    kind: Box<str>,
    objects: usize,
    /// Whether such an object says who is served how, in another API or another form.
    decides_routing: bool,
    remedy: &'static str,
}

/// API groups and what to do instead of writing their objects; the kind is empty for all of a
/// group. The first that fits counts.
const KINDS: [(&str, &str, &str); 17] = [
    (
        "gateway.networking.k8s.io",
        "",
        "see docs/gateway-api.md for the kinds that are read",
    ),
    (
        "gateway.networking.x-k8s.io",
        "",
        "see docs/gateway-api.md for the kinds that are read",
    ),
    (
        "",
        "Endpoints",
        "write EndpointSlices of discovery.k8s.io/v1 instead",
    ),
    (
        "networking.istio.io",
        "WorkloadGroup",
        "write a WorkloadEntry for each workload instead",
    ),
    (
        "networking.istio.io",
        "",
        "see docs/istio-reference.md for the kinds that are read",
    ),
    (
        "security.istio.io",
        "",
        "see docs/istio-reference.md for the kinds that are read",
    ),
    (
        "telemetry.istio.io",
        "",
        "see docs/istio-reference.md for the kinds that are read",
    ),
    (
        "extensions.istio.io",
        "",
        "see docs/istio-reference.md for the kinds that are read",
    ),
    (
        "kustomize.config.k8s.io",
        "",
        "check what `kubectl kustomize` makes of it instead",
    ),
    ("traefik.io", "", "write an Ingress instead"),
    ("traefik.containo.us", "", "write an Ingress instead"),
    ("projectcontour.io", "", "write an Ingress instead"),
    ("configuration.konghq.com", "", "write an Ingress instead"),
    ("getambassador.io", "", "write an Ingress instead"),
    (
        "gateway.envoyproxy.io",
        "",
        "write an Ingress, or objects of Istio's API",
    ),
    ("route.openshift.io", "", "write an Ingress instead"),
    (
        "networking.x-k8s.io",
        "",
        "write an Ingress, or objects of Istio's API",
    ),
];

/// The remedy for a kind that is not among [`KINDS`].
const NO_ROUTING: &str = "nothing to do where it says nothing about who is served";

/// The kinds that were passed over, those that decide routing first.
pub(super) fn kinds(passed: &BTreeMap<Passed, usize>) -> Vec<PassedKind> {
    let mut kinds: Vec<PassedKind> = passed
        .iter()
        .map(|(kind, count)| judge(kind, *count))
        .collect();
    kinds.sort_by_key(|kind| !kind.decides_routing);
    kinds
}

/// How many objects say who is served how and were passed over.
pub(super) fn count_routing(kinds: &[PassedKind]) -> usize {
    let routing = kinds.iter().filter(|kind| kind.decides_routing);
    routing.map(|kind| kind.objects).sum()
}

fn judge(passed: &Passed, objects: usize) -> PassedKind {
    let group = passed.api_version.split_once('/');
    let group = group.map_or("", |(group, _)| group);
    let found = KINDS
        .iter()
        .find(|(known, kind, _)| *known == group && (kind.is_empty() || **kind == *passed.kind));
    PassedKind {
        api_version: passed.api_version.clone(),
        kind: passed.kind.clone(),
        objects,
        decides_routing: found.is_some(),
        remedy: found.map_or(NO_ROUTING, |(_, _, remedy)| remedy),
    }
}

impl PassedKind {
    /// The kind as a line of text.
    pub(super) fn text(&self) -> String {
        let PassedKind {
            api_version,
            kind,
            objects,
            remedy,
            ..
        } = self;
        one_line(&format!(
            "not read: {objects} {kind} of {api_version}; {remedy}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_decide_routing_come_first_and_name_what_to_write_instead() {
        let passed = [
            ("apps/v1", "Deployment", 3),
            ("v1", "Endpoints", 1),
            ("v1", "ConfigMap", 2),
            ("gateway.networking.x-k8s.io/v1alpha1", "XBackend", 5),
        ];
        let passed = passed.map(|(api_version, kind, count)| {
            let (api_version, kind) = (api_version.into(), kind.into());
            (Passed { api_version, kind }, count)
        });
        let kinds = kinds(&BTreeMap::from(passed));
        let lines: Vec<String> = kinds.iter().map(PassedKind::text).collect();
        assert_eq!(count_routing(&kinds), 6, "{lines:?}");
        assert!(lines[0].contains("5 XBackend of gateway") && lines[0].contains("gateway-api.md"));
        assert!(lines[1].contains("1 Endpoints of v1; write EndpointSlices"));
        assert!(lines[2].contains("nothing to do") && lines[3].contains("nothing to do"));
    }
}
