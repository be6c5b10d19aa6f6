//! Hosts that VirtualServices name in the mesh, where nobody has them.

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Severity};
use myriad_model::host::Pattern;

use crate::engine::Reader;
use crate::resolve::names;

/// Judges the hosts of a VirtualService for the mesh alone: a sidecar knows the hosts of
/// Services and ServiceEntries, and no others. A wildcard may yet cover one.
pub(super) fn judge(reader: &mut Reader<'_>, service: &VirtualService) -> Vec<Finding> {
    let mut gateways = service.spec.gateways.iter();
    if !gateways.all(|it| **it == *names::MESH) {
        return Vec::new();
    }
    let key = &service.meta.key;
    let mut findings = Vec::new();
    for (at, text) in service.spec.hosts.iter().enumerate() {
        let host = names::host(text);
        let is_exact = host.is_ok_and(|host| matches!(host.pattern(), Pattern::Exact(_)));
        if !is_exact || is_there(reader, &text.to_ascii_lowercase(), key.namespace()) {
            continue;
        }
        findings.push(Finding::new(
            Severity::Warning,
            key,
            format!("spec.hosts[{at}]"),
            "is the host of no Service and no ServiceEntry, so it has no effect in the mesh",
            "name a Service by its full name, or write a ServiceEntry for the host",
        ));
    }
    findings
}

fn is_there(reader: &mut Reader<'_>, host: &str, namespace: &str) -> bool {
    let domain = &reader.settings().cluster_domain;
    let service = names::service(host, namespace, domain);
    service.is_some_and(|id| reader.has_service(&id)) || !reader.entry_shapes(host).is_empty()
}
