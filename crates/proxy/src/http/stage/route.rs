//! The route of a request: that of its host and path, or a closed one that it would take if its
//! path were read as its endpoint may read it.

use myriad_model::Action;

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{
    Flow, RequestState, Scene, Serving, TakenRoute, authorizer, certificate, inquiry, passwords,
    sources,
};
use crate::failure::FailureKind;
use crate::route::entry::RouteEntry;
use crate::route::tables::NotFound;

pub(super) fn apply<'a>(
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    let found = find(request, scene)?;
    let entry =
        strictest(request, scene, found).inspect_err(|_| serving.account.set_route(found))?;
    serving.account.set_route(entry);
    let route = entry.route().ok_or(FailureKind::Internal)?;
    request.taken = Some(TakenRoute { entry, route });
    Ok(Flow::Continue)
}

pub(super) fn explain<'a>(request: &mut RequestState<'a, '_>, scene: &Scene<'a>) -> StageVerdict {
    let head = request.head.get();
    let found = find(request, scene).and_then(|found| strictest(request, scene, found));
    let kind = match found {
        Ok(entry) => match entry.route() {
            Some(route) => {
                request.taken = Some(TakenRoute { entry, route });
                return StageVerdict::Silent;
            }
            None => FailureKind::Internal,
        },
        Err(kind) => kind,
    };
    let (host, method, path) = (&head.host, head.method, &head.path);
    let reason = match kind {
        FailureKind::NoHost => format!("no object has rules for {host}"),
        FailureKind::NoRoute => {
            let pattern = scene.tables.routes_for(&scene.visit.listener, host);
            let pattern = pattern.map_or(&**host, |(pattern, _)| pattern.as_str());
            format!("no route of {pattern} takes {method} {path}")
        }
        FailureKind::RegexBudget => {
            "the regexes and conditions of the host take more steps than a request may".to_owned()
        }
        FailureKind::Forbidden => {
            let client = scene.visit.client.ip();
            format!("a reading of the path leads to a route that {client} may not ask for")
        }
        kind => kind.verdict().text.trim_end().to_owned(),
    };
    DryRunEnd::refused(kind, reason)
}

/// Tells of a refused request which route it would have taken, and where that leads first.
pub(super) fn note(request: &RequestState<'_, '_>, scene: &Scene<'_>, serving: &mut Serving<'_>) {
    let Scene { tables, visit, .. } = *scene;
    let (head, token) = (request.head.get(), request.token.said());
    let Ok(entry) = tables.route(&visit.listener, head, token, scene.budget) else {
        return;
    };
    serving.account.set_route(entry);
    if let Some(Action::Forward(shares)) = entry.route().map(|route| route.action)
        && let (Some(share), Some(hash)) = (shares.first(), entry.upstream_hash(0))
        && let Some(upstream) = tables.upstream(hash, &share.upstream)
    {
        serving
            .account
            .set_upstream(&serving.worker.local, upstream);
    }
}

fn find<'a>(
    request: &RequestState<'a, '_>,
    scene: &Scene<'a>,
) -> Result<&'a RouteEntry, FailureKind> {
    let Scene { tables, visit, .. } = *scene;
    let (head, token) = (request.head.get(), request.token.said());
    let found = tables.route(&visit.listener, head, token, scene.budget);
    found.map_err(|NotFound(kind)| match kind {
        // The workload asked for it, and somebody may have it whom nobody declared.
        FailureKind::NoHost if visit.is_captured => FailureKind::NoDestination,
        kind => kind,
    })
}

/// The route that holds for a request: the one that was found, or a closed one that another reading
/// of its path leads to.
///
/// # Errors
/// That the client may not ask for what such a reading leads to, or only with the password of
/// somebody else or where another service or processor lets it, or that finding out takes too
/// many steps.
fn strictest<'a>(
    request: &RequestState<'a, '_>,
    scene: &Scene<'a>,
    found: &'a RouteEntry,
) -> Result<&'a RouteEntry, FailureKind> {
    let (tables, listener) = (scene.tables, &scene.visit.listener);
    let (head, token, budget) = (request.head.get(), request.token.said(), scene.budget);
    for other in tables.routes_otherwise(listener, found, head, token, budget) {
        if other.is_closed() {
            return Ok(other);
        }
        let policy = other.policy().ok_or(FailureKind::Internal)?;
        let own = found.policy();
        // The same is judged with the route itself.
        let own_demand = own.and_then(|own| own.client_certificate.as_ref());
        let demand = policy.client_certificate.as_ref();
        if let Some(demand) = demand.filter(|it| own_demand != Some(*it)) {
            certificate::judge(other, demand, scene)?;
        }
        sources::admit(policy, head, scene)?;
        let users = passwords::asked(policy, head, scene);
        let own_users = own.and_then(|own| passwords::asked(own, head, scene));
        let inquiry = inquiry::asked(policy, head, scene);
        let own_inquiry = own.and_then(|own| inquiry::asked(own, head, scene));
        let authorizer = authorizer::asked(policy, head, scene);
        let own_authorizer = own.and_then(|own| authorizer::asked(own, head, scene));
        let own_processor = own.and_then(|own| own.processor.as_ref());
        let is_judged_so = (users.is_none() || users == own_users)
            && (inquiry.is_none() || inquiry == own_inquiry)
            && (authorizer.is_none() || authorizer == own_authorizer)
            && (policy.processor.is_none() || policy.processor.as_ref() == own_processor);
        if !is_judged_so {
            return Err(FailureKind::Forbidden);
        }
    }
    // A route that was not tried to its end may restrict the request.
    match budget.is_spent() {
        true => Err(FailureKind::RegexBudget),
        false => Ok(found),
    }
}
