//! The status of a listener, and what is wrong with it.

use myriad_api::finding::cut;
use myriad_api::gateway::Listener;
use myriad_api::gateway::status::{ConditionStatus, ListenerStatus, ObjectCondition};
use myriad_api::{Finding, Severity};
use myriad_model::Host;

use super::allowed;
use super::certificate::{self, RefFault, RefFaultKind};
use super::clients;
use super::entity::{Entity, host_of, terminates};
use super::facts::GatewayFact;
use super::hostname::covers;
use super::ports::{self, Fault};
use super::standing::GatewayStanding;
use crate::engine::{PortSpeech, Reader};
use crate::resolve::losers::unclaimable;
use crate::resolve::names::{broader, written};

/// A listener, judged.
pub(crate) struct JudgedListener {
    /// Its status.
    pub status: ListenerStatus,
    /// Whether it is valid.
    pub is_accepted: bool,
    /// Whether proxies are told of it.
    pub is_programmed: bool,
    /// Whether all that it names is there and may be used.
    pub is_resolved: bool,
    /// The findings about it.
    pub findings: Vec<Finding>,
}

/// A condition that does not hold: the reason, and the message.
type Refusal = Option<(&'static str, String)>;

/// Judges a listener of an object.
pub(crate) fn judge(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    at: usize,
) -> JudgedListener {
    let entity = &standing.entity;
    let blank = Listener::default();
    let listener = entity.listeners().get(at).unwrap_or(&blank);
    let (kinds, has_other_kinds) = allowed::kinds(listener);
    let placed = ports::find_owned(reader, standing, at);
    let conflict = placed.as_ref().err().and_then(conflict_of);
    let mut refusal = placed.as_ref().err().map(|it| explain(it, listener));
    let (unresolved, is_shown) = unresolved(reader, standing, listener);
    let (unverified, has_authority) = unverified(reader, standing, listener);
    if refusal.is_none() && !has_authority {
        let message = "no authority that clients could be verified by can be used".to_owned();
        refusal = Some(("NoValidCACertificate", message));
    }
    let of_kinds = has_other_kinds.then(|| {
        let message = format!("allows kinds of routes that {} has not", listener.protocol);
        ("InvalidRouteKinds", message)
    });
    let unresolved = unresolved.or(unverified).or(of_kinds);
    let unprogrammed = match &refusal {
        Some((reason, message)) => {
            let is_same = conflict.is_some() || *reason == "PortUnavailable";
            let reason = if is_same { *reason } else { "Invalid" };
            Some((reason, message.clone()))
        }
        None if !is_shown => Some(("Invalid", "has no certificate that can be shown".to_owned())),
        None => None,
    };
    let (is_accepted, is_programmed) = (refusal.is_none(), unprogrammed.is_none());
    let is_resolved = unresolved.is_none();
    let findings = [
        match &placed {
            Err(Fault::Unclaimable(host)) => Some(kept_off(reader, entity, at, host)),
            Err(Fault::Foreign(_)) => None, // The host tells it.
            _ => told(entity, (at, listener), &refusal),
        },
        told(entity, (at, listener), &unresolved),
        unknown_options(entity, (at, listener)),
    ];
    let mut conditions = vec![
        condition(ObjectCondition::ACCEPTED, "Accepted", refusal),
        condition(ObjectCondition::PROGRAMMED, "Programmed", unprogrammed),
        condition(ObjectCondition::RESOLVED_REFS, "ResolvedRefs", unresolved),
        conflicted(conflict),
    ];
    if let Ok(place) = &placed
        && place.speech == PortSpeech::Tls
    {
        conditions.extend(overlap(reader, standing, (at, listener), &place.host));
    }
    let key = entity.key();
    let attached = reader.hash(GatewayFact::Attached(key.kind, key.id(), &listener.name));
    let attached = reader.seat_count(attached);
    JudgedListener {
        status: ListenerStatus {
            name: listener.name.clone(),
            supported_kinds: kinds.iter().map(|kind| kind.as_str()).collect(),
            attached_routes: u32::try_from(attached).unwrap_or(u32::MAX),
            conditions: conditions.into(),
        },
        is_accepted,
        is_programmed,
        is_resolved,
        findings: findings.into_iter().flatten().collect(),
    }
}

/// The finding about what is wrong with a listener, if anything is.
fn told(entity: &Entity, (at, listener): (usize, &Listener), refusal: &Refusal) -> Option<Finding> {
    let (_, message) = refusal.as_ref()?;
    Some(Finding::new(
        Severity::Error,
        entity.key(),
        format!("spec.listeners[{at}]"),
        format!("({}) {message}", listener.name),
        "mend it; the conditions of the listener's status say the same",
    ))
}

/// The finding about a listener whose host its namespace may not claim.
fn kept_off(reader: &Reader<'_>, entity: &Entity, at: usize, host: &Host) -> Finding {
    let field = format!("spec.listeners[{at}].hostname");
    unclaimable(entity.key(), field, host, reader.settings())
}

/// The finding about settings of TLS at a listener, none of which is known.
fn unknown_options(entity: &Entity, (at, listener): (usize, &Listener)) -> Option<Finding> {
    let tls = listener.tls.as_ref()?;
    (!tls.options.is_empty()).then(|| {
        Finding::new(
            Severity::Warning,
            entity.key(),
            format!("spec.listeners[{at}].tls.options"),
            "are none that are known, so they have no effect",
            "remove them",
        )
    })
}

/// The condition that holds for a reason unless it is refused.
pub(crate) fn condition(
    kind: &'static str,
    reason: &'static str,
    refusal: Refusal,
) -> ObjectCondition {
    match refusal {
        Some((reason, message)) => ObjectCondition::fails(kind, reason, message),
        None => ObjectCondition::holds(kind, reason),
    }
}

fn conflicted(conflict: Option<&'static str>) -> ObjectCondition {
    let (status, reason) = match conflict {
        Some(reason) => (ConditionStatus::True, reason),
        None => (ConditionStatus::False, "NoConflicts"),
    };
    ObjectCondition {
        kind: ObjectCondition::CONFLICTED,
        status,
        reason,
        message: Box::default(),
    }
}

/// The reason of a conflict with other listeners.
fn conflict_of(fault: &Fault) -> Option<&'static str> {
    match fault {
        Fault::ProtocolConflict => Some("ProtocolConflict"),
        Fault::HostnameConflict | Fault::Foreign(_) => Some("HostnameConflict"),
        Fault::Protocol
        | Fault::Hostname(_)
        | Fault::Tls
        | Fault::Port(_)
        | Fault::Unclaimable(_) => None,
    }
}

/// The reason and the message of what keeps a listener from its place.
fn explain(fault: &Fault, listener: &Listener) -> (&'static str, String) {
    let (port, protocol) = (listener.port, &listener.protocol);
    match fault {
        Fault::Protocol => {
            let message = format!("has protocol {protocol}, which nobody speaks here");
            ("UnsupportedProtocol", message)
        }
        Fault::Hostname(problem) => ("UnsupportedValue", format!("has a hostname that {problem}")),
        Fault::Tls => {
            let message = format!("has protocol {protocol}, which does not go with its tls");
            ("UnsupportedValue", message)
        }
        Fault::ProtocolConflict => {
            let message = format!("has port {port}, where another listener has another protocol");
            ("ProtocolConflict", message)
        }
        Fault::HostnameConflict => {
            let message = format!("has port {port}, where another listener has the same hostname");
            ("HostnameConflict", message)
        }
        Fault::Foreign(host) => {
            let what = written(host);
            let message = format!("has hostname {what}, which another namespace has");
            ("HostnameConflict", message)
        }
        Fault::Unclaimable(host) => {
            let message = format!("has hostname {}, which is for others", written(host));
            ("UnsupportedValue", message)
        }
        Fault::Port(why) => (
            "PortUnavailable",
            format!("has port {port}, which cannot be had: {why}"),
        ),
    }
}

/// The first fault of the certificates of a listener, and whether it has one to show, or need not.
fn unresolved(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    listener: &Listener,
) -> (Refusal, bool) {
    if !ends_tls(listener) {
        return (None, true);
    }
    if certificate::references(listener).is_empty() {
        let message = "names no certificate".to_owned();
        return (Some(("InvalidCertificateRef", message)), false);
    }
    let (faults, is_any) = certificate::faults(reader, standing.entity.key(), listener);
    let refusal = faults.into_iter().next().map(|fault| {
        let reason = match fault.kind {
            RefFaultKind::NotPermitted => "RefNotPermitted",
            RefFaultKind::Kind | RefFaultKind::Name | RefFaultKind::Unusable => {
                "InvalidCertificateRef"
            }
        };
        (reason, of_reference("tls.certificateRefs", fault))
    });
    (refusal, is_any)
}

/// The first fault of the authorities that clients are verified by at a listener, and whether there
/// is one to verify them by, or nobody is verified.
fn unverified(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    listener: &Listener,
) -> (Refusal, bool) {
    let gateway = &standing.gateway;
    reader.read(GatewayFact::Tls(gateway.meta.key.id()));
    let Some(validation) = clients::validation(gateway, listener) else {
        return (None, true);
    };
    let (faults, is_any) = clients::faults(reader, &gateway.meta.key, validation);
    let refusal = faults.into_iter().next().map(|fault| {
        let reason = match fault.kind {
            RefFaultKind::NotPermitted => "RefNotPermitted",
            RefFaultKind::Kind => "InvalidCACertificateKind",
            RefFaultKind::Name | RefFaultKind::Unusable => "InvalidCACertificateRef",
        };
        (reason, of_reference("caCertificateRefs", fault))
    });
    (refusal, is_any)
}

fn of_reference(field: &str, fault: RefFault) -> String {
    format!("{field}[{}]: {}", fault.at, fault.message)
}

fn ends_tls(listener: &Listener) -> bool {
    matches!(&*listener.protocol, "HTTPS" | "TLS") && terminates(listener)
}

/// The condition of a listener whose hosts overlap those of another one with TLS at its port.
fn overlap(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    (at, listener): (usize, &Listener),
    host: &Host,
) -> Option<ObjectCondition> {
    let gateway = standing.entity.gateway_id();
    let mut others: Vec<String> = Vec::new();
    for pattern in broader(host) {
        let place = (listener.port, PortSpeech::Tls as u8);
        let seat = GatewayFact::HostSeat(&gateway, place, pattern.as_str());
        let seat = reader.hash(seat);
        if reader.seat(seat).is_some() {
            others.push(written(&pattern).to_owned());
        }
    }
    for (number, other) in standing.entity.listeners().iter().enumerate() {
        let is_beside = number != at
            && other.port == listener.port
            && matches!(&*other.protocol, "HTTPS" | "TLS");
        if let Some(Ok(below)) = is_beside.then(|| host_of(other))
            && below != *host
            && covers(host, &below)
        {
            others.push(written(&below).to_owned());
        }
    }
    let seat = GatewayFact::BelowSeat(&gateway, listener.port, host.as_str());
    let seat = reader.hash(seat);
    let is_above = reader.seat(seat).is_some();
    if others.is_empty() && is_above {
        others.push("hosts below its own".to_owned());
    }
    if others.is_empty() {
        return None;
    }
    Some(ObjectCondition {
        kind: "OverlappingTLSConfig",
        status: ConditionStatus::True,
        reason: "OverlappingHostnames",
        message: cut(format!("overlaps {} at its port", others.join(", "))).into(),
    })
}
