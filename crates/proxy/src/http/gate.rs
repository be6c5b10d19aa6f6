//! The gate before all routes: whether a request belongs on its connection, who it comes from, who
//! has to be asked about it, and whether it is admitted.
//!
//! Tokens are verified first. Where somebody has to be asked, the plan is made before, by the route
//! that the request had then; what denies and allows is weighed once the answers are there.

use myriad_base::clock;
use myriad_model::{Action, CheckProtocol, SealedArc};

use super::account::Account;
use super::check::Check;
use super::plan::{Asking, Plan, Planned, proceed};
use super::trouble;
use super::worker::Worker;
use crate::net::count::Count;
use crate::net::failure::FailureKind;
use crate::net::head::Head;
use crate::net::pattern::Budget;
use crate::net::share::Owner;
use crate::policy::authorize;
use crate::policy::token::{self, Verified};
use crate::policy::{client, cors, direction};
use crate::route::guards::Guards;
use crate::route::host::RouteEntry;
use crate::route::tables::Tables;
use crate::route::visit::Visit;

/// The scheme that the client of a request speaks, as far as those who are trusted tell it, and
/// with this proxy otherwise.
pub fn scheme(worker: &Worker, visit: &Visit, head: &Head<'_>) -> &'static str {
    let forwarded = client::forwarded_scheme(head, visit, worker.local.trusted_hops);
    forwarded.unwrap_or_else(|| visit.scheme())
}

/// Makes the plan of a request. `budget` is what its regexes may cost from here on.
pub fn plan(
    worker: &Worker,
    tables: &Tables,
    visit: &Visit,
    head: &Head<'_>,
    account: &mut Account,
    budget: &Budget,
) -> Planned {
    let planned = decide(worker, tables, visit, head, account, budget);
    let mut planned = planned.unwrap_or_else(Planned::failed);
    if let Plan::Forward(forward) = &planned.plan
        && !is_borne(worker, visit, &forward.route, account)
    {
        planned = Planned::failed(FailureKind::Overloaded);
    }
    if let Plan::Answer(answer) = &planned.plan
        && let Some(kind) = answer.failure
    {
        let route = || Some(&**tables.route(&visit.listener, head, None, budget).ok()?);
        trouble::tell(kind, answer.status, &head.host, route);
    }
    planned
}

/// Whether the host of a route may have one more request under way, and the connection, where
/// that is not known to be a host's yet.
fn is_borne(worker: &Worker, visit: &Visit, route: &RouteEntry, account: &mut Account) -> bool {
    let Some((origin, host)) = route.owner() else {
        return true;
    };
    let (fairness, counts) = (&worker.local.fairness, &worker.local.counts);
    let owner = Owner::of(origin, host);
    if visit.held.get().is_none() && !visit.belong_to(owner, &worker.local) {
        counts.add(Count::ShareConnections);
        return false;
    }
    account.held = fairness.requests.take(owner, 0);
    if account.held.is_none() {
        counts.add(Count::ShareRequests);
    }
    account.held.is_some()
}

/// Whether the guards that nobody has to be asked for admit a request.
pub fn is_admitted(
    worker: &Worker,
    guards: &Guards,
    asking: &Asking<'_, '_>,
    account: &mut Account,
) -> bool {
    let counts = &worker.local.counts;
    let judgement = authorize::judge(guards, &judged(worker, asking), counts);
    if judgement.is_audited {
        account.is_audited = true;
        counts.add(Count::Audited);
    }
    judgement.is_admitted
}

fn decide(
    worker: &Worker,
    tables: &Tables,
    visit: &Visit,
    head: &Head<'_>,
    account: &mut Account,
    budget: &Budget,
) -> Result<Planned, FailureKind> {
    if !direction::is_directed(tables, visit, &head.host) {
        return Err(FailureKind::Misdirected);
    }
    let asking = |head, token| Asking {
        visit,
        head,
        token,
        is_counted: false,
        budget,
    };
    let guards = tables.guards();
    if guards.is_empty() {
        return proceed(worker, tables, &asking(head, None), account);
    }
    // A preflight bears no token, and is judged as what it is.
    let verified = match cors::is_preflight(head) {
        true => Ok(None),
        false => {
            let now = clock::unix_seconds();
            token::authenticate(guards, visit, head, &worker.tokens, now)
        }
    };
    let Ok(verified) = verified else {
        name_route(worker, tables, &asking(head, None), account);
        return Err(FailureKind::BadToken);
    };
    let mut room = token::Room::default();
    let changed = token::change(guards, visit, head, verified.as_ref(), &mut room);
    let verified = verified.as_ref();
    match &changed {
        Some(head) => pass(worker, tables, (visit, budget), head, verified, account),
        None => pass(worker, tables, (visit, budget), head, verified, account),
    }
}

/// Goes on where the guards admit the request, or once somebody was asked.
fn pass(
    worker: &Worker,
    tables: &Tables,
    (visit, budget): (&Visit, &Budget),
    head: &Head<'_>,
    verified: Option<&Verified<'_>>,
    account: &mut Account,
) -> Result<Planned, FailureKind> {
    let guards = tables.guards();
    let asking = Asking {
        visit,
        head,
        token: verified.map(Verified::said),
        is_counted: false,
        budget,
    };
    let asked = authorize::asked(guards, &judged(worker, &asking));
    if asked.is_empty() {
        if !is_admitted(worker, guards, &asking, account) {
            name_route(worker, tables, &asking, account);
            return Err(FailureKind::Unauthorized);
        }
        return proceed(worker, tables, &asking, account);
    }
    let providers = asked.iter().map(|name| authorizer(tables, name));
    let Some(providers) = providers.collect() else {
        name_route(worker, tables, &asking, account);
        return Err(FailureKind::Unauthorized);
    };
    let planned = proceed(worker, tables, &asking, account);
    let mut planned = planned.unwrap_or_else(Planned::failed);
    // Whoever comes too often is not asked about either.
    if !planned.is_limited() {
        let token = verified.map(Verified::kept);
        let id = account.passed_id(worker);
        let check = Check::new(providers, head, id, token, guards.clone(), budget.clone());
        planned.check = Some(Box::new(check));
    }
    Ok(planned)
}

/// The provider of a name, where it is one that can be asked.
fn authorizer(tables: &Tables, name: &str) -> Option<SealedArc> {
    let sealed = tables.provider(name)?;
    let is_asked = !matches!(sealed.provider()?.protocol, CheckProtocol::Process(_));
    is_asked.then(|| sealed.clone())
}

fn judged<'a, 'h>(worker: &Worker, asking: &Asking<'a, 'h>) -> authorize::Request<'a, 'h> {
    authorize::Request {
        visit: asking.visit,
        head: asking.head,
        token: asking.token,
        trusted_hops: worker.local.trusted_hops,
    }
}

/// Tells of a refused request which route it would have taken, and where that leads first.
fn name_route(worker: &Worker, tables: &Tables, asking: &Asking<'_, '_>, account: &mut Account) {
    let (visit, head) = (asking.visit, asking.head);
    let Ok(entry) = tables.route(&visit.listener, head, asking.token, asking.budget) else {
        return;
    };
    account.set_route(entry);
    if let Some(Action::Forward(shares)) = entry.route().map(|route| &route.action)
        && let (Some(share), Some(hash)) = (shares.first(), entry.upstream_hash(0))
        && let Some(upstream) = tables.upstream(hash, &share.upstream)
    {
        account.set_upstream(&worker.local, upstream);
    }
}
