//! Istio's dialect at the gateway: Gateway and VirtualService.
//!
//! A Gateway claims the hosts of its servers, and a VirtualService its own hosts where a Gateway
//! that it is bound to covers them. A host reads the servers and VirtualServices that name it or a
//! broader pattern, each as a fact of its own, so that a Gateway of a thousand servers costs one
//! host when one server changes.

mod answer;
mod below;
mod beyond;
mod client_tls;
mod delegate;
mod destination;
mod destination_rule;
mod domain;
mod entrance;
mod guard;
mod host;
mod limits;
mod locality;
mod matching;
pub mod mesh;
mod misspelt;
mod names;
mod opened;
mod options;
mod policy;
mod port;
mod processor;
pub mod provider;
mod proxy_config;
mod redirect;
mod routes;
mod rule_facts;
mod sendable;
mod service_entry;
mod stream;
mod subset;
pub mod telemetry;
mod tls;
mod touch;

use std::sync::Arc;

use myriad_api::istio::{Note, NoteKind};
use myriad_api::{Finding, Object, ObjectKey, Severity};
use myriad_model::UpstreamOptions;
use myriad_model::host::Pattern;

pub use below::inherit;
pub use client_tls::{Plan, plan};
pub use destination::Resolved;
pub use destination_rule::{Choice, Merged, find as find_rules};
pub use domain::{CLOSED, is_there as has_domain, keep_claimed};
pub use entrance::places;
pub use guard::{name as guard_name, translate as translate_guard};
pub use host::{
    HostScene, add_host, claims_to, gather_sites, named_by_owner, own_sites, passed_on, tls_ends,
    tls_listeners,
};
pub use names::{broader, rule_host, service_host};
pub use opened::OpenedGateway;
pub use options::table_of;
pub use port::{PortClaim, PortKey, Speech, claims, translate as translate_port};
pub use rule_facts::{RuleChange, cluster_suffix, fact_patterns, rule_change};
pub use service_entry::{Entry, has_labels, is_shape_same};
pub use touch::{bound, servers_changed, wildcards};

use crate::bounds::Bounds;
use crate::engine::Reader;
use crate::output::{Output, Unit};
use names::ServerHost;
use port::Stand;

/// Translates one Gateway: the hosts of its servers, and what is wrong with it alone.
pub fn translate_gateway(reader: &mut Reader<'_>, id: &Arc<str>) -> Output {
    let mut output = Output::default();
    let Some(gateway) = reader.gateway(id) else {
        return output;
    };
    let key = &gateway.meta.key;
    if !reader.view().has_labels(&gateway.spec.selector) {
        output.doubts.push(unselected(key));
        return output;
    }
    output.is_concerned = true;
    output.findings = notes(key, &gateway.notes);
    for (at, server) in gateway.spec.servers.iter().enumerate() {
        let (findings, stand) = entrance::judge(reader, key, at, server);
        output.findings.extend(findings);
        if let Some(Stand::Port(port)) = stand {
            output.needs.push(Unit::Listener(port));
        }
        for (host_at, text) in server.hosts.iter().enumerate() {
            match names::host(ServerHost::read(text).host) {
                Ok(host) => output.needs.push(Unit::Host(host)),
                Err(error) => {
                    let field = format!("spec.servers[{at}].hosts[{host_at}]");
                    let finding = bad_host(key, field, &error.to_string());
                    output.findings.push(finding);
                }
            }
        }
    }
    output
}

/// Translates one VirtualService: those of its hosts that some Gateway covers, and what is wrong
/// with it alone.
pub fn translate_service(reader: &mut Reader<'_>, id: &Arc<str>) -> Output {
    let mut output = Output::default();
    let Some(service) = reader.virtual_service_itself(id) else {
        return output;
    };
    let key = &service.meta.key;
    let own = key.namespace();
    output.findings = notes(key, &service.notes);
    output.findings.extend(stream::judge(&service));
    output.findings.extend(limits::judge(&service));
    output
        .findings
        .extend(processor::judge(&service, reader.settings()));
    if reader.settings().sidecars {
        output.findings.extend(mesh::judge_hosts(reader, &service));
    }
    if !reader.view().sees(&service.spec.export_to, own) {
        return output;
    }
    let mut gateways = Vec::new();
    for (at, text) in service.spec.gateways.iter().enumerate() {
        let Some(gateway) = names::gateway(text, own) else {
            continue;
        };
        match reader.has_gateway(&gateway) {
            true => gateways.push(gateway),
            false => output.doubts.push(unknown_gateway(key, at, &gateway)),
        }
    }
    output.is_concerned = !gateways.is_empty();
    for (at, text) in service.spec.hosts.iter().enumerate() {
        let field = format!("spec.hosts[{at}]");
        let host = match names::host(text) {
            Ok(host) => host,
            Err(error) => {
                output
                    .findings
                    .push(bad_host(key, field, &error.to_string()));
                continue;
            }
        };
        let is_covered = |gateway: &Arc<str>| host::is_covered(reader, gateway, &host, own);
        if gateways.iter().any(is_covered) {
            output.needs.push(Unit::Host(host));
        } else if !gateways.is_empty() && matches!(host.pattern(), Pattern::Exact(_)) {
            // A wildcard still takes the hosts below it that a server names.
            output.doubts.push(not_covered(key, field));
        }
    }
    // A name of a rule for TLS is claimed like any host, where its handshakes are handed on.
    for host in stream::claimed(&service) {
        let mut gateways = gateways.iter();
        if gateways.any(|gateway| !host::passing(reader, gateway, &host, own).is_empty()) {
            output.needs.push(Unit::Host(host));
        }
    }
    output
}

/// The options of an upstream. What is wrong with them is told by the unit of the rule alone.
pub fn options(policy: &Merged<'_>, bounds: &Bounds) -> Option<UpstreamOptions> {
    options::build(policy, bounds, &mut Vec::new())
}

/// Whether streams go through a tunnel: one that was asked for and is not there closes.
pub fn has_tunnel(options: Option<&UpstreamOptions>) -> bool {
    options.is_some_and(|options| options.tunnel.is_some())
}

/// Says what is wrong with an object that no host claims: of some kinds, that they are not
/// honoured.
pub fn refuse(reader: &mut Reader<'_>, key: &ObjectKey) -> Output {
    let mut output = Output::default();
    let Some(object) = reader.itself(key) else {
        return output;
    };
    let is_mesh = reader.settings().sidecars;
    match &object {
        Object::DestinationRule(rule) => return destination_rule::judge(reader, rule),
        Object::ServiceEntry(entry) => return service_entry::judge(entry, reader.settings()),
        Object::WorkloadEntry(entry) => {
            return service_entry::judge_workload(entry, reader.settings());
        }
        Object::Telemetry(telemetry) => return telemetry::judge(reader, telemetry),
        Object::Sidecar(sidecar) if is_mesh => return mesh::judge_sidecar(sidecar),
        Object::PeerAuthentication(peers) if is_mesh => return mesh::judge_peers(peers),
        Object::ProxyConfig(config) => return proxy_config::judge(reader, config),
        _ => {}
    }
    let (message, remedy) = match &object {
        Object::Sidecar(_) | Object::PeerAuthentication(_) => (
            "is for sidecars, of which there are none without a mesh, so it has no effect",
            "start the controller with --mesh, or remove it",
        ),
        _ => (
            "is of a kind that is not honoured, so it has no effect",
            "remove it, or see docs/istio.md for what stands in its place",
        ),
    };
    output
        .findings
        .push(Finding::new(Severity::Error, key, "", message, remedy));
    output
}

/// What people should know of fields that are not read.
fn notes(key: &ObjectKey, notes: &[Note]) -> Vec<Finding> {
    let finding = |note: &Note| {
        let (severity, message, remedy) = match note.kind {
            NoteKind::Refused => (
                Severity::Error,
                "is not honoured".to_owned(),
                "remove it, or see docs/istio.md for what stands in its place",
            ),
            NoteKind::Unknown => (
                Severity::Warning,
                "is not a field of Istio's API, so it has no effect".to_owned(),
                "check its spelling and its place",
            ),
            NoteKind::More(count) => (
                Severity::Warning,
                format!("has {count} more fields that are not read"),
                "mend those that are named first",
            ),
        };
        Finding::new(severity, key, &*note.field, message, remedy)
    };
    notes.iter().map(finding).collect()
}

fn bad_host(key: &ObjectKey, field: String, problem: &str) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        field,
        format!("{problem}, so it has no effect"),
        "write a DNS name such as a.example.com or *.example.com",
    )
}

fn unselected(key: &ObjectKey) -> Finding {
    Finding::new(
        Severity::Info,
        key,
        "spec.selector",
        "selects other workloads, which are not served here",
        "compare it with --gateway-labels and --gateways if it is for a gateway here",
    )
}

fn unknown_gateway(key: &ObjectKey, at: usize, gateway: &str) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        format!("spec.gateways[{at}]"),
        format!("names Gateway {gateway}, which is not there or not for this workload"),
        "name a Gateway as namespace/name whose selector fits --gateway-labels",
    )
}

fn not_covered(key: &ObjectKey, field: String) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        field,
        "is covered by no server of its Gateways that admits this namespace, so it is not served",
        "add the host to a server of the Gateway, as host or namespace/host",
    )
}
