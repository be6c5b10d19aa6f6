//! Whether a request is admitted by what its route says of clients, rates, origins and bodies.

use myriad_model::Policy;

use super::plan::Asking;
use super::worker::Worker;
use crate::net::body::BodyLength;
use crate::net::failure::FailureKind;
use crate::net::head::Head;
use crate::policy::cors::Additions;
use crate::policy::{client, cors, limit};
use crate::route::host::{RouteArc, RouteEntry};
use crate::route::tables::Tables;
use crate::route::visit::Visit;

/// How a request is admitted.
pub enum Admission {
    /// A question whether requests would be allowed.
    Preflight(Additions),
    /// One request too many, with what its response gets.
    Limited(Additions),
    /// A request, with what its response gets.
    Request(Additions),
}

/// The route that holds for a request: the one that it takes, or a closed one that it would take if
/// its path were read as its endpoint may read it.
///
/// # Errors
/// That the client may not ask for what such a reading leads to, or that finding out takes too
/// many steps.
pub fn strictest<'a>(
    worker: &Worker,
    tables: &'a Tables,
    asking: &Asking<'a, '_>,
    found: &'a RouteArc,
) -> Result<&'a RouteArc, FailureKind> {
    let Asking {
        visit,
        head,
        token,
        budget,
        ..
    } = *asking;
    for other in tables.routes_otherwise(&visit.listener, found, head, token, budget) {
        if other.is_closed() {
            return Ok(other);
        }
        let policy = &other.route().ok_or(FailureKind::Internal)?.policy;
        admit_source(worker, policy, visit, head)?;
    }
    // A route that was not tried to its end may restrict the request.
    match budget.is_spent() {
        true => Err(FailureKind::RegexBudget),
        false => Ok(found),
    }
}

fn admit_source(
    worker: &Worker,
    policy: &Policy,
    visit: &Visit,
    head: &Head<'_>,
) -> Result<(), FailureKind> {
    if policy.sources_allowed.is_empty() {
        return Ok(());
    }
    let address = client::address(head, visit.client.ip(), worker.local.trusted_hops);
    match client::is_allowed(&policy.sources_allowed, address) {
        true => Ok(()),
        false => Err(FailureKind::Forbidden),
    }
}

/// Whether a request is admitted by the policy of its route.
///
/// # Errors
/// That it is not, or that finding out takes too many steps.
pub fn admit(
    worker: &Worker,
    entry: &RouteEntry,
    asking: &Asking<'_, '_>,
) -> Result<Admission, FailureKind> {
    let Asking { visit, head, .. } = *asking;
    let policy = &*entry.route().ok_or(FailureKind::Internal)?.policy;
    admit_source(worker, policy, visit, head)?;
    let mut additions = Additions::new();
    if !policy.rate_limits.is_empty() && !asking.is_counted {
        let client = client::address(head, visit.client.ip(), worker.local.trusted_hops);
        let local = &worker.local;
        let wait = limit::wait(&policy.rate_limits, &local.buckets, &local.counts, client);
        if let Some(wait) = wait {
            additions.push(("retry-after", limit::retry_after(wait)));
            return Ok(Admission::Limited(additions));
        }
    }
    if let Some(rules) = &policy.cors {
        let is_preflight = cors::is_preflight(head);
        additions = cors::additions(
            rules,
            entry.origin_regexes(),
            head,
            is_preflight,
            asking.budget,
        );
        if asking.budget.is_spent() {
            return Err(FailureKind::RegexBudget);
        }
        match is_preflight && rules.forwards_unmatched && !cors::is_leave(&additions) {
            // Its endpoint says what it thinks of the origin.
            true => additions.clear(),
            false if is_preflight => return Ok(Admission::Preflight(additions)),
            false => {}
        }
    }
    match head.body {
        BodyLength::Exact(length) if length > policy.request_body_bytes_max => {
            Err(FailureKind::BodyTooLarge)
        }
        _ => Ok(Admission::Request(additions)),
    }
}
