//! Istio's dialect at the gateway: Gateway and VirtualService.
//!
//! A Gateway claims the hosts of its servers, and a VirtualService its own hosts where a Gateway
//! that it is bound to covers them. A host reads the servers and VirtualServices that name it or a
//! broader pattern, each as a fact of its own, so that a Gateway of a thousand servers costs one
//! host when one server changes.

mod access_policy;
mod admission;
mod answer;
mod below;
mod beyond;
mod binding;
mod cors;
mod credential;
mod deeds;
mod delegate;
mod destination;
mod domain;
pub(crate) mod entrance;
pub(crate) mod facts;
mod fault;
mod headers;
pub(crate) mod host;
mod limits;
mod matching;
mod mesh_hosts;
mod misspelt;
pub(crate) mod narrower;
mod opened;
pub(crate) mod policy;
mod port;
mod processor;
pub(crate) mod provider;
mod proxy_config;
mod reader;
mod redirect;
pub(crate) mod routes;
mod rule_problem;
pub(crate) mod scene;
mod sending;
mod service_claim;
mod service_names;
mod sni;
pub(crate) mod stream;
pub mod telemetry;
mod tenants;
mod texts;
mod tls;
mod touch;
pub(crate) mod units;
pub(crate) mod weight;

use std::sync::Arc;

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Object, ObjectKey, Severity};
use myriad_model::host::Pattern;

pub(crate) use below::inherit;
pub(crate) use deeds::{
    End, Passers, Ways, of_broader as deeds_of_broader, of_gateway as deeds_of_gateway,
    of_service as deeds_of_service, passers, services_of,
};
pub(crate) use domain::{CLOSED, is_there as has_domain};
pub(crate) use host::{
    add_host, gather_sites, lost, named_by_owner, oldest_claim, own_sites, redirect_to_tls,
    tls_listeners,
};
pub(crate) use scene::{HostScene, Site};
pub(crate) use service_claim::claim_of_service;

use crate::engine::{Dialect, Output, Reader, Unit, namespace_of};
use crate::resolve::losers::unclaimable;
use crate::resolve::names::{self, ServerHost};
use crate::resolve::{ISSUER, destination_rule, entry_owner, no_issuer, notes, service_entry};
use admission::may_claim;
use port::Stand;

/// The rules that the engine has for Istio's objects at gateways.
pub(crate) const DIALECT: Dialect = Dialect {
    touch: facts::touch,
    found_under: facts::found_under,
    claimant: units::claimant,
    newly_claimed: units::newly,
    roots: |settings, roots| roots.extend(units::roots(settings)),
};

/// Translates one Gateway: the hosts of its servers, and what is wrong with it alone.
pub(crate) fn translate_gateway(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(id) = unit.name() else {
        return output;
    };
    let Some(gateway) = reader.gateway(id) else {
        return output;
    };
    let key = &gateway.meta.key;
    if !reader.view().has_servers(&gateway.spec.selector) {
        output.doubts.push(unselected(key));
        return output;
    }
    output.is_concerned = true;
    output.findings = notes(key, &gateway.notes);
    if let Some(issuer) = gateway.meta.annotation(ISSUER) {
        let field = format!("metadata.annotations[{ISSUER}]");
        output
            .findings
            .extend(no_issuer(reader, key, field, issuer));
    }
    for (at, server) in gateway.spec.servers.iter().enumerate() {
        let (findings, stand) = entrance::judge(reader, key, at, server);
        output.findings.extend(findings);
        if let Some(Stand::Port(port)) = stand {
            output.needs.push(Unit::listener(port));
        }
        for (host_at, text) in server.hosts.iter().enumerate() {
            match names::host(ServerHost::read(text).host) {
                Ok(host) if may_claim(reader, key, &host) => {
                    output.needs.push(Unit::host_of(host));
                }
                Ok(host) => {
                    let field = format!("spec.servers[{at}].hosts[{host_at}]");
                    let finding = unclaimable(key, field, &host, reader.settings());
                    output.findings.push(finding);
                }
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
pub(crate) fn translate_service(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(id) = unit.name() else {
        return output;
    };
    let Some(service) = reader.virtual_service_itself(id) else {
        return output;
    };
    let key = &service.meta.key;
    let own = key.namespace();
    output.findings = notes(key, &service.notes);
    let known = reader.names_of(&service);
    output.findings.extend(stream::judge(&service, &known));
    output.findings.extend(binding::judge(&service));
    let exports = names::judge_exports(key, &service.spec.export_to);
    output.findings.extend(exports);
    output.findings.extend(binding::judge_matches(&service));
    output.findings.extend(limits::judge(&service));
    output
        .findings
        .extend(service_claim::judge(reader, &service));
    output
        .findings
        .extend(processor::judge(&service, reader.settings()));
    if reader.settings().sidecars {
        output.findings.extend(mesh_hosts::judge(reader, &service));
    }
    if !reader.view().sees(&service.spec.export_to, own) {
        return output;
    }
    let mut gateways = Vec::new();
    for (at, text) in binding::gateways(&service).iter().enumerate() {
        let Some(gateway) = names::gateway(text, own) else {
            let is_beyond = names::is_too_long(text);
            output.findings.extend(is_beyond.then(|| too_long(key, at)));
            continue;
        };
        match reader.has_gateway(&gateway) {
            true => gateways.push(gateway),
            false => output.doubts.push(unknown_gateway(key, at, &gateway)),
        }
    }
    output.is_concerned = !gateways.is_empty();
    claim_hosts(reader, &service, &gateways, &mut output);
    output
}

/// Whether a VirtualService has a host by Gateways of tenants alone, of those that let it in, where
/// it is noted since when: who writes Gateways beside their workload is the operator, and may edit
/// them at will.
fn is_let_in(
    reader: &mut Reader<'_>,
    gateways: &[Arc<str>],
    lets_in: impl Fn(&mut Reader<'_>, &Arc<str>) -> bool,
) -> bool {
    if !reader.settings().late_claims {
        return false;
    }
    let is_operators = |id: &Arc<str>| reader.view().is_of(namespace_of(id)) && lets_in(reader, id);
    !gateways.iter().any(is_operators)
}

/// Adds the hosts that a VirtualService claims by Gateways, and what is wrong with the others.
fn claim_hosts(
    reader: &mut Reader<'_>,
    service: &Arc<VirtualService>,
    gateways: &[Arc<str>],
    output: &mut Output,
) {
    let key = &service.meta.key;
    let own = key.namespace();
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
        if !gateways.is_empty() && !may_claim(reader, key, &host) {
            let finding = unclaimable(key, field, &host, reader.settings());
            output.findings.push(finding);
            continue;
        }
        if host.pattern() == Pattern::Any {
            let finding = below::judge_service(reader, service, (gateways, field.clone()));
            output.findings.extend(finding);
        }
        let is_covered = |gateway: &Arc<str>| host::is_covered(reader, gateway, &host, own);
        if gateways.iter().any(is_covered) {
            let is_let_in = is_let_in(reader, gateways, |reader, gateway| {
                host::is_covered(reader, gateway, &host, own)
            });
            output.let_in.extend(is_let_in.then(|| host.clone()));
            output.needs.push(Unit::host_of(host));
        } else if !gateways.is_empty() && matches!(host.pattern(), Pattern::Exact(_)) {
            // A wildcard still takes the hosts below it that a server names.
            output.doubts.push(not_covered(key, field));
        }
    }
    // A name of a rule for TLS is claimed like any host, where its handshakes are handed on.
    let known = reader.names_of(service);
    for host in known.claimed() {
        let is_passed = |gateway: &Arc<str>| !host::passing(reader, gateway, host, own).is_empty();
        if !gateways.iter().any(is_passed) {
            continue;
        }
        if may_claim(reader, key, host) {
            let is_let_in = is_let_in(reader, gateways, |reader, gateway| {
                !host::passing(reader, gateway, host, own).is_empty()
            });
            output.let_in.extend(is_let_in.then(|| host.clone()));
            output.needs.push(Unit::host_of(host.clone()));
        } else {
            let field = known.field_of(host).unwrap_or_default();
            let finding = unclaimable(key, field, host, reader.settings());
            output.findings.push(finding);
        }
    }
}

/// The hosts that a Gateway names, or a VirtualService for Gateways.
pub(crate) fn hosts(object: &Object) -> u64 {
    let hosts = match object {
        Object::IstioGateway(gateway) => touch::gateway_claims(gateway).len(),
        Object::VirtualService(service) => touch::service_claims(service).len(),
        _ => 0,
    };
    hosts as u64
}

/// Says what is wrong with an object that no host claims: of some kinds, that they are not
/// honoured.
pub(crate) fn refuse(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let key = unit.object_key();
    match key.as_ref().and_then(|key| reader.itself(key)) {
        None => Output::default(),
        Some(Object::DestinationRule(rule)) => destination_rule::judge(reader, &rule),
        Some(Object::ServiceEntry(entry)) => {
            let mut output = service_entry::judge(&entry, reader.settings());
            entry_owner::tell(reader, &entry, &mut output);
            output
        }
        Some(Object::WorkloadEntry(entry)) => {
            service_entry::judge_workload(&entry, reader.settings())
        }
        Some(Object::Telemetry(telemetry)) => telemetry::judge(reader, &telemetry),
        Some(Object::ProxyConfig(config)) => proxy_config::judge(reader, &config),
        Some(object) => Output {
            findings: vec![not_honoured(object.key())],
            ..Output::default()
        },
    }
}

/// The finding about an object of a kind that is not honoured.
fn not_honoured(key: &ObjectKey) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        "",
        "is of a kind that is not honoured, so it has no effect",
        "remove it, or see docs/istio-reference.md for what stands in its place",
    )
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

fn too_long(key: &ObjectKey, at: usize) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        format!("spec.gateways[{at}]"),
        "is longer than the name of any Gateway, so it has no effect",
        "name a Gateway as namespace/name",
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
