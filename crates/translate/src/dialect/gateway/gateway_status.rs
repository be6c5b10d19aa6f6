//! The statuses of Gateways and of ListenerSets.

use std::sync::Arc;

use myriad_api::finding::cut;
use myriad_api::gateway::status::{
    ConditionStatus, DeployedPort, Deployment, GatewayStatus, ListenerSetStatus, ObjectCondition,
    State, Status, WantedAddress,
};
use myriad_api::gateway::{Gateway, ListenerSet};
use myriad_api::istio::Labels;
use myriad_api::{Finding, Severity};

use super::certificate::{self, RefFaultKind};
use super::clients::is_insecure;
use super::entity::Entity;
use super::facts::{GatewayFact, own_parameters};
use super::listener_status::{JudgedListener, condition, judge};
use super::ports;
use super::standing::{self, GatewayStanding, Mode, Unserved};
use crate::engine::{Output, Reader, Stake, StakeClaim, Unit};
use crate::resolve::notes;

/// The types of addresses that a Gateway may ask for.
const ADDRESS_KINDS: [&str; 2] = ["IPAddress", "Hostname"];

/// Translates the status of a Gateway.
pub(crate) fn translate_gateway(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(key) = unit.object_key() else {
        return output;
    };
    let Some(gateway) = reader.gateway_itself(key.id()) else {
        return output;
    };
    let status = match standing::of_gateway(reader, key.id()) {
        Ok((gateway, mode)) => {
            output.findings = notes(&key, &gateway.notes);
            let entity = Entity::Gateway(gateway.clone());
            let standing = GatewayStanding::new(entity, gateway, mode);
            of_gateway(reader, &standing, &mut output)
        }
        Err(Unserved::Parameters(message)) => {
            refused(&gateway, ("InvalidParameters", message), &mut output)
        }
        Err(Unserved::Foreign | Unserved::NotAllowed) => return output,
    };
    output.statuses.push(Status {
        object: key,
        generation: gateway.generation,
        state: State::Gateway(status),
    });
    output
}

/// The status of a Gateway that has no effect.
fn refused(
    gateway: &Gateway,
    (reason, message): (&'static str, String),
    output: &mut Output,
) -> GatewayStatus {
    output.findings.push(Finding::new(
        Severity::Error,
        &gateway.meta.key,
        match own_parameters(gateway) {
            Some(_) => "spec.infrastructure.parametersRef",
            None => "spec.gatewayClassName",
        },
        format!("has no effect: {message}"),
        "mend the parameters of the class, or leave those of the Gateway out",
    ));
    let accepted = (ObjectCondition::ACCEPTED, reason);
    let programmed = (ObjectCondition::PROGRAMMED, "Invalid");
    let conditions = [accepted, programmed];
    let conditions =
        conditions.map(|(kind, reason)| ObjectCondition::fails(kind, reason, message.as_str()));
    GatewayStatus {
        conditions: conditions.into(),
        listeners: Box::default(),
        attached_listener_sets: 0,
        addresses: Box::default(),
        deployment: None,
    }
}

fn of_gateway(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    output: &mut Output,
) -> GatewayStatus {
    let gateway = &standing.gateway;
    let key = &gateway.meta.key;
    let count = gateway.spec.listeners.len();
    let mut judged: Vec<JudgedListener> =
        (0..count).map(|at| judge(reader, standing, at)).collect();
    for listener in &mut judged {
        output.findings.append(&mut listener.findings);
    }
    let sets = reader.hash(GatewayFact::Sets(key.id()));
    let sets = reader.seat_count(sets);
    let unsupported = unsupported_address(gateway);
    let is_accepted = unsupported.is_none()
        && (sets > 0 || judged.is_empty() || judged.iter().any(|it| it.is_accepted));
    let is_programmed = sets > 0 || judged.iter().any(|it| it.is_programmed);
    let unprogrammed = unsupported.clone().or_else(|| {
        let is_nowhere = !is_accepted || !is_programmed;
        is_nowhere.then(|| "no listener can be told to proxies".to_owned())
    });
    let programmed = unprogrammed.map(|message| ("Invalid", message));
    let accepted = match unsupported {
        Some(message) => {
            output.findings.push(Finding::new(
                Severity::Error,
                key,
                "spec.addresses",
                message.as_str(),
                "ask for addresses of type IPAddress or Hostname",
            ));
            let kind = ObjectCondition::ACCEPTED;
            ObjectCondition::fails(kind, "UnsupportedAddress", message)
        }
        None => accepted(is_accepted, &judged),
    };
    let mut conditions = vec![
        accepted,
        condition(ObjectCondition::PROGRAMMED, "Programmed", programmed),
        resolved(reader, gateway, &judged, output),
    ];
    conditions.extend(insecure(gateway));
    GatewayStatus {
        conditions: conditions.into(),
        listeners: judged.into_iter().map(|it| it.status).collect(),
        attached_listener_sets: u32::try_from(sets).unwrap_or(u32::MAX),
        addresses: match is_accepted {
            true => wanted_addresses(gateway),
            false => Box::default(),
        },
        deployment: match standing.mode {
            Mode::Shared => None,
            Mode::Dedicated => Some(Box::new(deployment(reader, gateway))),
        },
    }
}

/// The condition of an object that is valid where some of its listeners are.
fn accepted(is_accepted: bool, judged: &[JudgedListener]) -> ObjectCondition {
    let is_refused = |it: &&JudgedListener| !it.is_accepted;
    let names = judged.iter().filter(is_refused).map(|it| &*it.status.name);
    let names: Vec<&str> = names.collect();
    let kind = ObjectCondition::ACCEPTED;
    match (is_accepted, names.is_empty()) {
        (true, true) => ObjectCondition::holds(kind, "Accepted"),
        (true, false) => ObjectCondition {
            message: cut(format!("not valid: listeners {}", names.join(", "))).into(),
            ..ObjectCondition::holds(kind, "ListenersNotValid")
        },
        (false, _) => ObjectCondition::fails(kind, "ListenersNotValid", "no listener is valid"),
    }
}

/// Why an address that a Gateway asks for cannot be had, whatever it is.
fn unsupported_address(gateway: &Gateway) -> Option<String> {
    let kinds = gateway.spec.addresses.iter();
    let mut kinds = kinds.filter_map(|address| address.kind.as_deref());
    let other = kinds.find(|kind| !ADDRESS_KINDS.contains(kind))?;
    Some(format!(
        "asks for an address of type {other}, which nobody can give"
    ))
}

fn wanted_addresses(gateway: &Gateway) -> Box<[WantedAddress]> {
    let addresses = gateway.spec.addresses.iter();
    let wanted = addresses.map(|address| WantedAddress {
        kind: address.kind.clone().unwrap_or_else(|| "IPAddress".into()),
        value: address.value.clone(),
    });
    wanted.collect()
}

/// The condition that all is there that a Gateway and its listeners name.
fn resolved(
    reader: &mut Reader<'_>,
    gateway: &Gateway,
    judged: &[JudgedListener],
    output: &mut Output,
) -> ObjectCondition {
    let key = &gateway.meta.key;
    let kind = ObjectCondition::RESOLVED_REFS;
    let backend = gateway
        .spec
        .tls
        .as_ref()
        .and_then(|tls| tls.backend.as_ref());
    let reference = backend.and_then(|backend| backend.client_certificate_ref.as_ref());
    let fault = reference.and_then(|reference| certificate::fault(reader, key, reference));
    if let Some((fault, message)) = fault {
        output.findings.push(Finding::new(
            Severity::Error,
            key,
            "spec.tls.backend.clientCertificateRef",
            format!("{message}, so no backend is shown it"),
            "name a Secret of type kubernetes.io/tls that this Gateway may name",
        ));
        let reason = match fault {
            RefFaultKind::NotPermitted => "RefNotPermitted",
            RefFaultKind::Kind | RefFaultKind::Name | RefFaultKind::Unusable => {
                "InvalidClientCertificateRef"
            }
        };
        return ObjectCondition::fails(kind, reason, message);
    }
    match judged.iter().all(|it| it.is_resolved) {
        true => ObjectCondition::holds(kind, "ResolvedRefs"),
        false => {
            let message = "some listeners name what is not there or what they may not name";
            ObjectCondition::fails(kind, "ListenersNotResolved", message)
        }
    }
}

/// The condition of a Gateway that lets clients without a valid certificate in.
fn insecure(gateway: &Gateway) -> Option<ObjectCondition> {
    let frontend = gateway.spec.tls.as_ref()?.frontend.as_ref()?;
    let per_port = frontend.per_port.iter();
    let per_port = per_port.filter_map(|it| it.validation.as_ref());
    let mut all = frontend.default.iter().chain(per_port);
    all.any(is_insecure).then(|| ObjectCondition {
        kind: "InsecureFrontendValidationMode",
        status: ConditionStatus::True,
        reason: "ConfigurationChanged",
        message: "clients without a valid certificate are let in".into(),
    })
}

/// The proxies that are for a Gateway alone.
fn deployment(reader: &mut Reader<'_>, gateway: &Gateway) -> Deployment {
    let used = ports::used(reader, gateway.meta.key.id()).into_iter();
    let ports = used.map(|(number, is_udp)| DeployedPort { number, is_udp });
    let mut ports: Vec<DeployedPort> = ports.collect();
    ports.sort_unstable();
    let scaling = standing::scaling_of(reader, &gateway.spec.class);
    let infrastructure = gateway.spec.infrastructure.as_ref();
    let pairs = |labels: Option<&Labels>| -> Box<[(Box<str>, Box<str>)]> {
        labels.map_or_else(Box::default, |labels| labels.to_vec().into())
    };
    Deployment {
        ports: ports.into(),
        labels: pairs(infrastructure.map(|it| &it.labels)),
        annotations: pairs(infrastructure.map(|it| &it.annotations)),
        scaling,
    }
}

/// Translates the status of a ListenerSet, and that it is attached to its Gateway.
pub(crate) fn translate_set(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(key) = unit.object_key() else {
        return output;
    };
    let Some(set) = reader.listener_set_itself(key.id()) else {
        return output;
    };
    let gateway = Entity::Set(set.clone()).gateway_id();
    let (conditions, listeners) = match standing::of(reader, &key) {
        Ok(standing) => of_set(reader, &standing, &mut output),
        Err(Unserved::Foreign) => return output,
        Err(Unserved::Parameters(message)) => {
            let reasons = ["ParentNotAccepted", "ParentNotProgrammed"];
            (unattached(&set, reasons, &message, &mut output), Vec::new())
        }
        Err(Unserved::NotAllowed) => {
            let message = format!("Gateway {gateway} does not take it");
            let reasons = ["NotAllowed"; 2];
            (unattached(&set, reasons, &message, &mut output), Vec::new())
        }
    };
    output.findings.extend(notes(&key, &set.notes));
    output.statuses.push(Status {
        object: key,
        generation: set.generation,
        state: State::ListenerSet(ListenerSetStatus {
            conditions: conditions.into(),
            listeners: listeners.into_iter().map(|it| it.status).collect(),
            gateway,
        }),
    });
    output
}

/// The conditions of a ListenerSet that its Gateway does not have, and a finding about it.
fn unattached(
    set: &Arc<ListenerSet>,
    reasons: [&'static str; 2],
    message: &str,
    output: &mut Output,
) -> Vec<ObjectCondition> {
    output.findings.push(Finding::new(
        Severity::Error,
        &set.meta.key,
        "spec.parentRef",
        format!("has no effect: {message}"),
        "let the Gateway take ListenerSets of this namespace, by its allowedListeners",
    ));
    let kinds = [ObjectCondition::ACCEPTED, ObjectCondition::PROGRAMMED];
    let pairs = kinds.into_iter().zip(reasons);
    pairs
        .map(|(kind, reason)| ObjectCondition::fails(kind, reason, message))
        .collect()
}

/// The conditions of a ListenerSet that its Gateway takes, and its listeners.
fn of_set(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    output: &mut Output,
) -> (Vec<ObjectCondition>, Vec<JudgedListener>) {
    let count = standing.entity.listeners().len();
    let mut judged: Vec<JudgedListener> =
        (0..count).map(|at| judge(reader, standing, at)).collect();
    for listener in &mut judged {
        output.findings.append(&mut listener.findings);
    }
    let is_programmed = judged.iter().any(|it| it.is_programmed);
    if is_programmed {
        output.stakes.push(Stake {
            seat: reader.hash(GatewayFact::Sets(&standing.entity.gateway_id())),
            claim: StakeClaim {
                order: 0,
                created: 0,
                id: standing.entity.key().id().clone(),
                value: 0,
            },
        });
    }
    let programmed = (!is_programmed).then(|| {
        let message = "no listener can be told to proxies".to_owned();
        ("ListenersNotValid", message)
    });
    let conditions = vec![
        accepted(is_programmed, &judged),
        condition(ObjectCondition::PROGRAMMED, "Programmed", programmed),
    ];
    (conditions, judged)
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::status::ListenerStatus;

    use super::{JudgedListener, accepted};

    #[test]
    fn a_condition_names_no_more_listeners_than_a_text_may_have() {
        let refused = |at: usize| JudgedListener {
            status: ListenerStatus {
                name: format!("{at:0250}").into(),
                supported_kinds: Box::default(),
                attached_routes: 0,
                conditions: Box::default(),
            },
            is_accepted: false,
            is_programmed: false,
            is_resolved: true,
            findings: Vec::new(),
        };
        let judged: Vec<JudgedListener> = (0..64).map(refused).collect();
        let message = accepted(true, &judged).message;
        assert!(message.len() <= 1 << 10, "{message}");
        assert!(message.starts_with("not valid: listeners 000") && message.ends_with("063"));
    }
}
