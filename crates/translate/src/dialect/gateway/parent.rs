//! Routes: their parents, what they claim there, and their status.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::finding::cut;
use myriad_api::gateway::ParentReference;
use myriad_api::gateway::status::{
    ConditionStatus, ObjectCondition, ParentStatus, RouteStatus, State, Status,
};
use myriad_api::{BackendPort, Finding, Severity};
use myriad_model::Host;

use super::attach::{self, Attached, Attachment, ParentAnswer, attach};
use super::backend_tls;
use super::entity::host_of;
use super::host::{may_be_unnamed, no_catch_all_by};
use super::judgement::Judgement;
use super::route::RouteObject;
use super::standing::Mode;
use super::tenants::Mesh;
use super::{callers, entries, guests, ports, rules, streams};
use crate::engine::{Output, Reader, Unit};
use crate::resolve::losers::{unclaimable, unclaimable_by};
use crate::resolve::notes;
use crate::resolve::upstream::PortFound;

/// Translates a route: its claims and its status.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let route = unit.object_key().and_then(|key| reader.route_itself(&key));
    let Some(route) = route else {
        return output;
    };
    let attachments = attach(reader, &route);
    let mut of_answers = attachments.iter().map(|attachment| &attachment.answer);
    let is_at_gateways = of_answers
        .any(|answer| matches!(answer, ParentAnswer::Refused(..) | ParentAnswer::Taken(_)));
    let judged = match is_at_gateways {
        true => judge(reader, &route, None),
        false => Judgement::default(),
    };
    let is_refused = judged.refused.is_some();
    output.stakes = attach::stakes(reader, &route, &attachments, is_refused);
    let leading = backend_tls::stakes(reader, &route, &attachments);
    output.stakes.extend(leading);
    let mut parents = Vec::new();
    for (at, attachment) in attachments.iter().enumerate() {
        let conditions = match &attachment.answer {
            ParentAnswer::Foreign => continue,
            ParentAnswer::Service(service) => {
                let place = (at, &attachment.parent);
                let found = of_service(reader, &route, place, service, &mut output);
                let Some(conditions) = found else {
                    continue;
                };
                conditions
            }
            ParentAnswer::Refused(reason, message) => {
                output.findings.push(refused(&route, at, message));
                conditions(&judged, Some((*reason, message)))
            }
            ParentAnswer::Taken(_) => conditions(&judged, None),
        };
        parents.push(ParentStatus {
            parent: attachment.parent.clone(),
            conditions: conditions.into(),
        });
    }
    if parents.is_empty() {
        return output;
    }
    let key = route.key();
    output.findings.extend(notes(key, route.notes()));
    output.findings.extend(judged.findings);
    output.findings.extend(attach::hosts_of(&route).1);
    output.findings.extend(attach::beyond(reader, &route));
    output
        .findings
        .extend(unclaimable_of(reader, &route, &attachments));
    output.statuses.push(Status {
        object: key.clone(),
        generation: route.generation(),
        state: State::Route(RouteStatus {
            parents: parents.into(),
        }),
    });
    claim_all(reader, &route, (&attachments, is_refused), &mut output);
    output
}

/// Adds the claims of a route at the listeners that take it; one that is refused answers for
/// nothing there.
fn claim_all(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    (attachments, is_refused): (&[Attachment], bool),
    output: &mut Output,
) {
    for attachment in attachments {
        let ParentAnswer::Taken(taken) = &attachment.answer else {
            continue;
        };
        for attached in taken {
            claim(reader, route, attached, output);
            if !is_refused {
                output
                    .stakes
                    .extend(guests::stakes(reader, route, attached));
            }
        }
    }
}

/// The findings about hosts that a route would have at listeners of other namespaces, and that its
/// own may not claim, each once.
fn unclaimable_of(
    reader: &Reader<'_>,
    route: &RouteObject,
    attachments: &[Attachment],
) -> Vec<Finding> {
    let kept: BTreeSet<&Host> = attachments.iter().flat_map(|it| &it.kept).collect();
    let (key, settings) = (route.key(), reader.settings());
    let finding = |host: &Host| unclaimable(key, "spec.hostnames".to_owned(), host, settings);
    kept.into_iter().map(finding).collect()
}

/// The faults of the rules of a route, for gateways or for a Service of the mesh.
pub(crate) fn judge(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    mesh: Option<&Mesh>,
) -> Judgement {
    match route.is_of_requests() {
        true => rules::judge(reader, route, mesh),
        false => streams::judge(reader, route),
    }
}

/// Adds the hosts that a route claims at a listener which names broader ones, where its Gateway
/// shares its proxies. Nobody claims a host by a listener whose namespace may not.
fn claim(reader: &mut Reader<'_>, route: &RouteObject, attached: &Attached, output: &mut Output) {
    let standing = &attached.standing;
    let Some(Ok(own)) = attached.listener().map(host_of) else {
        return;
    };
    if standing.mode != Mode::Shared {
        return;
    }
    let is_served = standing.is_served(reader);
    output.is_concerned |= is_served;
    let namespace = route.key().namespace();
    if is_served
        && standing.is_of_another(route.key().namespace())
        && attached.hosts.contains(&Host::any())
        && !may_be_unnamed(reader, namespace)
    {
        output.findings.push(no_catch_all_by(route.key()));
    }
    let mut is_placed = None;
    for host in attached.hosts.iter().filter(|host| **host != own) {
        if *host == Host::any() {
            continue;
        }
        let may_claim = standing.may_claim(reader, host);
        // A listener without a place lets nothing in, so that what waits there is no claim yet.
        let mut find = || ports::find(reader, standing, attached.at).is_ok();
        if may_claim && *is_placed.get_or_insert_with(&mut find) {
            // Seats are those of all views.
            let stakes = entries::stakes(reader, route, attached, (&own, host));
            output.stakes.extend(stakes);
        }
        if !is_served {
            continue;
        }
        if may_claim {
            output.needs.push(Unit::host_of(host.clone()));
        } else {
            let field = "spec.hostnames".to_owned();
            // Whoever has the listener would have the host, not who writes the route.
            let whose = (standing.entity.key().namespace(), host);
            let finding = unclaimable_by(route.key(), field, whose, reader.settings());
            output.findings.push(finding);
        }
    }
}

/// The conditions of a route at a parent, which may refuse it for a reason and a message.
fn conditions(judged: &Judgement, refusal: Option<(&'static str, &str)>) -> Vec<ObjectCondition> {
    let of_rules = judged.refused.as_ref();
    let refusal = refusal.or_else(|| of_rules.map(|(reason, message)| (*reason, &**message)));
    let accepted = match refusal {
        Some((reason, message)) => {
            ObjectCondition::fails(ObjectCondition::ACCEPTED, reason, message)
        }
        None => ObjectCondition::holds(ObjectCondition::ACCEPTED, "Accepted"),
    };
    let kind = ObjectCondition::RESOLVED_REFS;
    let resolved = match &judged.unresolved {
        Some((problem, message)) => {
            ObjectCondition::fails(kind, problem.reason(), message.as_str())
        }
        None => ObjectCondition::holds(kind, "ResolvedRefs"),
    };
    let mut conditions = vec![accepted, resolved];
    if refusal.is_none() && !judged.dropped.is_empty() {
        conditions.push(ObjectCondition {
            kind: ObjectCondition::PARTIALLY_INVALID,
            status: ConditionStatus::True,
            reason: "UnsupportedValue",
            message: cut(judged.dropped.join("; ")).into(),
        });
    }
    conditions
}

/// The conditions of a route at a Service; none where there are no sidecars, or where the route is
/// of a kind that they do not have.
fn of_service(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    (at, parent): (usize, &ParentReference),
    service: &Arc<str>,
    output: &mut Output,
) -> Option<Vec<ObjectCondition>> {
    if !reader.settings().sidecars || !route.is_of_requests() {
        return None;
    }
    output
        .stakes
        .extend(callers::stakes(reader, route, service));
    let refusal = match callers::beyond(reader, route, service) {
        _ if !has_port(reader, service, parent) => {
            let message = format!("there is no Service {service} with this port");
            Some(("NoMatchingParent", message))
        }
        Some(message) => Some(("UnsupportedValue", message)),
        None => None,
    };
    if let Some((reason, message)) = refusal {
        output.findings.push(refused(route, at, &message));
        return Some(conditions(&Judgement::default(), Some((reason, &*message))));
    }
    let mesh = Mesh {
        service: service.clone(),
    };
    let judged = judge(reader, route, Some(&mesh));
    let conditions = conditions(&judged, None);
    output.findings.extend(judged.findings);
    Some(conditions)
}

/// Whether a Service is there, with the port that a parent names.
fn has_port(reader: &mut Reader<'_>, service: &str, parent: &ParentReference) -> bool {
    let number = parent.port.map(BackendPort::Number);
    let name = parent.section_name.clone().map(BackendPort::Name);
    if number.is_none() && name.is_none() {
        return reader.has_service(service);
    }
    let mut has_all = true;
    for port in [number, name].into_iter().flatten() {
        let found = reader.service_port(service, &port);
        has_all &= matches!(found, PortFound::Listed(_));
    }
    has_all
}

fn refused(route: &RouteObject, at: usize, message: &str) -> Finding {
    Finding::new(
        Severity::Error,
        route.key(),
        format!("spec.parentRefs[{at}]"),
        format!("has no effect: {message}"),
        "name a parent that takes the route, or let the parent take it",
    )
}
