//! BackendTLSPolicies: which one a port of a Service has, at which Gateways, and its status.
//!
//! Policies claim the Services that they are for, and the oldest of those for a port has it: one
//! that names the port goes before those that name none. Routes claim that their Gateways lead
//! there, so that a policy knows its Gateways and nobody walks routes. What a policy says is read
//! by the upstream alone.

mod leading;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::gateway::status::{ParentStatus, PolicyStatus, State, Status};
use myriad_api::gateway::{BackendTlsPolicy, GROUP, ParentReference, PolicyTarget};
use myriad_api::{BackendPort, Finding, Object, ObjectKey, ObjectKind, Severity};
use myriad_model::Protocol;

use super::backend_problem::{BackendProblem, BackendUse};
use super::certificate;
use super::facts::GatewayFact;
use crate::engine::{Output, Reader, Stake, StakeClaim, Unit, namespace_of};
use crate::resolve::backend_tls::SecuredBy;
use crate::resolve::notes;
use crate::resolve::upstream::{self, PortFound};

pub(crate) use leading::stakes;
use verdict::{TargetStanding, Verdict};

/// The most Gateways that the status of a policy tells of, as its definition has it.
pub(super) const ANCESTORS_MAX: usize = 16;

/// The upstream of a port of a Service as a Gateway uses it; none where no policy is for it.
///
/// # Errors
/// The Gateway would show a certificate that it may not use.
pub(crate) fn speech(
    reader: &mut Reader<'_>,
    (service, port): (&Arc<str>, u16),
    used: BackendUse,
    gateway: &ObjectKey,
) -> Result<Option<Arc<str>>, BackendProblem> {
    let protocol = match used {
        BackendUse::Http | BackendUse::Stream => Protocol::Http1,
        BackendUse::Grpc => Protocol::H2,
        // Clients speak TLS with the backend themselves, and datagrams have none.
        BackendUse::Passthrough | BackendUse::Datagram => return Ok(None),
    };
    let Some(policy) = policy_of(reader, service, port) else {
        return Ok(None);
    };
    let certificate = shown(reader, gateway)?;
    let secured = SecuredBy {
        policy: policy.split_once('/').map_or(&*policy, |(_, name)| name),
        certificate: certificate.as_deref(),
    };
    Ok(Some(upstream::secured_name(
        service, port, protocol, &secured,
    )))
}

/// The policy that a port of a Service has, by `namespace/name`.
fn policy_of(reader: &mut Reader<'_>, service: &Arc<str>, port: u16) -> Option<Arc<str>> {
    if !has_policy(reader, service) {
        return None;
    }
    let opened = reader.service_alone(service)?;
    let name = &opened.port(port)?.name;
    let own = match &**name {
        "" => None,
        name => holder(reader, service, name),
    };
    own.or_else(|| holder(reader, service, ""))
}

/// Whether any policy is for a Service.
fn has_policy(reader: &mut Reader<'_>, service: &str) -> bool {
    let seat = reader.hash(GatewayFact::Policies(service));
    reader.seat(seat).is_some()
}

/// The policy that has a port of a Service, by the port's name, or all other ports by none.
fn holder(reader: &mut Reader<'_>, service: &str, section: &str) -> Option<Arc<str>> {
    let seat = reader.hash(GatewayFact::PolicySeat(service, section));
    Some(reader.seat(seat)?.id)
}

/// The certificate that a Gateway shows to backends, by the `namespace/name` of its Secret.
fn shown(reader: &mut Reader<'_>, gateway: &ObjectKey) -> Result<Option<Arc<str>>, BackendProblem> {
    reader.read(GatewayFact::Tls(gateway.id()));
    let found = reader.gateway_itself(gateway.id());
    let tls = found.as_ref().and_then(|found| found.spec.tls.as_ref());
    let backend = tls.and_then(|tls| tls.backend.as_ref());
    let reference = backend.and_then(|backend| backend.client_certificate_ref.as_ref());
    match reference.map(|reference| certificate::secret_of(reader, gateway, reference)) {
        None => Ok(None),
        Some(Ok(secret)) => Ok(Some(secret)),
        Some(Err(_)) => Err(BackendProblem::PolicyInvalid),
    }
}

/// The claims of a policy to the Services that it is for.
pub(crate) fn claims(reader: &mut Reader<'_>, key: &ObjectKey) -> Vec<Stake> {
    let Some(policy) = policy_itself(reader, key) else {
        return Vec::new();
    };
    let mut stakes = Vec::new();
    for (service, target) in services(&policy) {
        let section = target.section_name.as_deref().unwrap_or_default();
        for fact in [
            GatewayFact::Policies(&service),
            GatewayFact::PolicySeat(&service, section),
        ] {
            stakes.push(Stake {
                seat: reader.hash(fact),
                claim: StakeClaim {
                    order: 0,
                    created: policy.meta.created,
                    id: key.id().clone(),
                    value: 0,
                },
            });
        }
    }
    stakes
}

/// A policy, for the units of its name.
fn policy_itself(reader: &mut Reader<'_>, key: &ObjectKey) -> Option<Arc<BackendTlsPolicy>> {
    match reader.visit(key.kind, key.id())? {
        Object::BackendTlsPolicy(policy) => Some(policy),
        _ => None,
    }
}

/// The Services that a policy is for, by `namespace/name`, as it names them.
fn services(policy: &BackendTlsPolicy) -> Vec<(Arc<str>, &PolicyTarget)> {
    let namespace = policy.meta.key.namespace();
    let targets = policy.spec.targets.iter();
    let services = targets.filter(|it| it.group.is_empty() && *it.kind == *"Service");
    services
        .map(|target| (format!("{namespace}/{}", target.name).into(), target))
        .collect()
}

/// Translates the status of a policy: at the Gateways whose routes lead to a Service of it.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(key) = unit.object_key() else {
        return output;
    };
    let Some(policy) = policy_itself(reader, &key) else {
        return output;
    };
    let mut standings = Vec::new();
    let mut ancestors: BTreeMap<Arc<str>, BTreeSet<usize>> = BTreeMap::new();
    for (at, (service, target)) in services(&policy).into_iter().enumerate() {
        let seat = reader.hash(GatewayFact::Ancestors(&service));
        for claim in reader.first_claims(seat, ANCESTORS_MAX + 1) {
            ancestors.entry(claim.id).or_default().insert(at);
        }
        standings.push(standing(reader, &key, &service, target));
    }
    // Whose Gateways all are of others is none of ours.
    if ancestors.is_empty() {
        return output;
    }
    let verdict = Verdict::of(reader, &policy);
    output.findings = notes(&key, &policy.notes);
    output.findings.extend(verdict.findings(&key));
    output
        .findings
        .extend(of_targets(&key, &policy, &standings));
    if ancestors.len() > ANCESTORS_MAX {
        output.findings.push(Finding::new(
            Severity::Warning,
            &key,
            "spec.targetRefs",
            format!(
                "are led to by more than {ANCESTORS_MAX} Gateways, of which the status has room \
                 for so many"
            ),
            "lead to the Services by fewer Gateways, if the status matters",
        ));
    }
    let told = ancestors.into_iter().take(ANCESTORS_MAX);
    let ancestors = told.map(|(gateway, targets)| {
        let standings = targets.iter().filter_map(|at| standings.get(*at));
        ParentStatus {
            parent: ancestor(&gateway),
            conditions: verdict.conditions(standings).into(),
        }
    });
    output.statuses.push(Status {
        object: key,
        generation: policy.generation,
        state: State::Policy(PolicyStatus {
            ancestors: ancestors.collect(),
        }),
    });
    output
}

/// The reference to a Gateway, by its `namespace/name`.
fn ancestor(gateway: &Arc<str>) -> ParentReference {
    let key = ObjectKey::from_id(ObjectKind::Gateway, gateway.clone());
    ParentReference {
        group: Some(GROUP.into()),
        kind: Some("Gateway".into()),
        namespace: Some(namespace_of(gateway).into()),
        name: key.name().into(),
        ..ParentReference::default()
    }
}

/// The standing of a policy at a Service.
fn standing(
    reader: &mut Reader<'_>,
    key: &ObjectKey,
    service: &Arc<str>,
    target: &PolicyTarget,
) -> TargetStanding {
    let section = target.section_name.as_deref();
    let is_there = match section {
        None => reader.has_service(service),
        Some(name) => {
            let found = reader.service_port(service, &BackendPort::Name(name.into()));
            matches!(found, PortFound::Listed(_))
        }
    };
    // Asked either way, so that what is read depends on nothing that is not.
    let holder = holder(reader, service, section.unwrap_or_default());
    match holder {
        _ if !is_there => TargetStanding::Missing,
        Some(holder) if holder != *key.id() => TargetStanding::Lost(holder),
        _ => TargetStanding::Held,
    }
}

/// The findings about the objects that a policy is for.
fn of_targets(
    key: &ObjectKey,
    policy: &BackendTlsPolicy,
    standings: &[TargetStanding],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut standings = standings.iter();
    for (at, target) in policy.spec.targets.iter().enumerate() {
        let field = format!("spec.targetRefs[{at}]");
        if !target.group.is_empty() || *target.kind != *"Service" {
            findings.push(Finding::new(
                Severity::Warning,
                key,
                field,
                "is no Service, so the policy has no effect there",
                "name a Service of the namespace",
            ));
            continue;
        }
        let Some(standing) = standings.next() else {
            break;
        };
        if let Some((message, remedy)) = standing.problem() {
            let finding = Finding::new(Severity::Error, key, field, message, remedy);
            findings.push(finding);
        }
    }
    findings
}
