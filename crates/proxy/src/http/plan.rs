//! What is to be done with a request: made of its head and one set of tables, in one step.
//!
//! Once the plan is made, neither head nor tables are needed any more: what goes to the endpoint
//! is written already, so that nothing borrowed has to outlive a wait.

use std::sync::Arc;

use myriad_model::{Action, Policy, Route, WeightedUpstream};

use super::account::Account;
use super::answer::Answer;
use super::worker::Worker;
use super::write;
use crate::balance::{Target, draw_share};
use crate::net::body::{BodyLength, Encoder};
use crate::net::buffer::Buffer;
use crate::net::failure::FailureKind;
use crate::net::head::{Head, is_idempotent};
use crate::policy::cors::Additions;
use crate::policy::{affinity, client, cors, direction, redirect, rewrite};
use crate::route::host::RouteEntry;
use crate::route::tables::{NotFound, Tables};
use crate::route::visit::Visit;
use crate::upstream::entry::UpstreamEntry;

/// What is to be done.
pub enum Plan {
    /// The proxy answers.
    Answer(Box<Answer>),
    /// An endpoint answers.
    Forward(Box<Forward>),
}

/// A request on its way to an endpoint.
pub struct Forward {
    /// The route, which keeps the policy in reach.
    pub route: Arc<RouteEntry>,
    /// The upstream that was drawn.
    pub upstream: Arc<UpstreamEntry>,
    /// The endpoint that a cookie speaks of.
    pub preferred: Option<Arc<Target>>,
    /// The head as the endpoint gets it.
    pub head: Buffer,
    /// How the body is framed for the endpoint.
    pub encoder: Encoder,
    /// Whether there is a request body.
    pub has_body: bool,
    /// Whether the response has no body whatever its head says.
    pub is_head: bool,
    /// Whether the request may be sent twice.
    pub is_idempotent: bool,
    /// Whether the client wants to change the protocol.
    pub is_upgrade: bool,
    /// Whether the client waits for a 100 before it sends the body.
    pub expects_continue: bool,
    /// The host, for TLS towards upstreams that name no server; empty elsewhere.
    pub host: Box<str>,
    /// Fields for the response.
    pub additions: Additions,
}

impl Forward {
    /// The policy of the route.
    pub fn policy(&self) -> Option<&Policy> {
        self.route.route().map(|route| &*route.policy)
    }
}

/// Makes the plan of a request.
pub fn plan(worker: &Worker, visit: &Visit, head: &Head<'_>, account: &mut Account) -> Plan {
    let tables = worker.tables.load();
    match decide(worker, &tables, visit, head, account) {
        Ok(plan) => plan,
        Err(kind) => Plan::Answer(Box::new(Answer::failed(kind))),
    }
}

fn decide(
    worker: &Worker,
    tables: &Tables,
    visit: &Visit,
    head: &Head<'_>,
    account: &mut Account,
) -> Result<Plan, FailureKind> {
    if !direction::is_directed(tables, visit, &head.host) {
        return Err(FailureKind::Misdirected);
    }
    let entry = tables
        .route(&visit.listener, head)
        .map_err(|NotFound(kind)| kind)?;
    account.set_route(entry);
    let route = entry.route().ok_or(FailureKind::Internal)?;
    let policy = &*route.policy;
    if visit.secured.is_none()
        && let Some(tls) = &policy.tls_redirect
        && let Some(url) = redirect::to_tls(tls, head)
    {
        return Ok(answered(Answer::redirect(tls.status, url)));
    }
    let additions = match admit(worker, policy, visit, head)? {
        Admission::Preflight(additions) => {
            let answer = Answer::text(204, String::new());
            return Ok(answered(answer.with(additions)));
        }
        Admission::Request(additions) => additions,
    };
    match &route.action {
        Action::Redirect(target) => {
            let answer = Answer::redirect(target.status, redirect::location(target));
            Ok(answered(answer.with(additions)))
        }
        Action::Respond(fixed) => {
            let answer = Answer::text(fixed.status, fixed.body.to_string());
            Ok(answered(answer.with(additions)))
        }
        Action::Forward(shares) => {
            match forward(worker, tables, visit, head, entry, route, shares) {
                Ok(mut forward) => {
                    forward.additions = additions;
                    Ok(Plan::Forward(forward))
                }
                Err(kind) => Ok(answered(Answer::failed(kind).with(additions))),
            }
        }
    }
}

fn answered(answer: Answer) -> Plan {
    Plan::Answer(Box::new(answer))
}

enum Admission {
    /// A question whether requests would be allowed.
    Preflight(Additions),
    /// A request, with what its response gets.
    Request(Additions),
}

fn admit(
    worker: &Worker,
    policy: &Policy,
    visit: &Visit,
    head: &Head<'_>,
) -> Result<Admission, FailureKind> {
    if !policy.sources_allowed.is_empty() {
        let peer = visit.client.ip();
        let address = client::address(head, peer, worker.local.trusted_hops);
        if !client::is_allowed(&policy.sources_allowed, address) {
            return Err(FailureKind::Forbidden);
        }
    }
    let mut additions = Additions::new();
    if let Some(rules) = &policy.cors {
        let is_preflight = cors::is_preflight(head);
        additions = cors::additions(rules, head, is_preflight);
        if is_preflight {
            return Ok(Admission::Preflight(additions));
        }
    }
    match head.body {
        BodyLength::Exact(length) if length > policy.request_body_bytes_max => {
            Err(FailureKind::BodyTooLarge)
        }
        _ => Ok(Admission::Request(additions)),
    }
}

fn forward(
    worker: &Worker,
    tables: &Tables,
    visit: &Visit,
    head: &Head<'_>,
    entry: &Arc<RouteEntry>,
    route: &Route,
    shares: &[WeightedUpstream],
) -> Result<Box<Forward>, FailureKind> {
    let policy = &*route.policy;
    let (upstream, preferred) = pick(worker, tables, head, entry, policy, shares)?;
    let rewritten = match &policy.rewrite {
        Some(template) => Some(
            rewrite::rewrite(template, entry.path_regex(), head.path)
                .ok_or(FailureKind::TargetTooLong)?,
        ),
        None => None,
    };
    let mut bytes = Buffer::take();
    let request = write::RequestHead {
        head,
        path: rewritten.as_deref(),
        visit,
        trusted_hops: worker.local.trusted_hops,
    };
    write::request(&request, &mut bytes);
    Ok(Box::new(Forward {
        route: entry.clone(),
        preferred,
        head: bytes,
        encoder: Encoder::new(head.body),
        has_body: head.body != BodyLength::None,
        is_head: head.method == "HEAD",
        is_idempotent: is_idempotent(head.method),
        is_upgrade: head.upgrade.is_some(),
        expects_continue: head.expects_continue,
        host: if upstream.is_tls() {
            head.host.as_ref().into()
        } else {
            Box::default()
        },
        upstream,
        additions: Additions::new(),
    }))
}

/// The upstream that a cookie leads to, or else one drawn by weight.
fn pick(
    worker: &Worker,
    tables: &Tables,
    head: &Head<'_>,
    entry: &RouteEntry,
    policy: &Policy,
    shares: &[WeightedUpstream],
) -> Result<(Arc<UpstreamEntry>, Option<Arc<Target>>), FailureKind> {
    let find = |index: usize| {
        let (share, hash) = (shares.get(index)?, entry.upstream_hashes().get(index)?);
        let upstream = tables.upstream(*hash, &share.upstream)?;
        upstream.upstream.is_some().then_some(upstream)
    };
    let marked = policy
        .affinity
        .as_ref()
        .and_then(|affinity| affinity::mark(affinity, head));
    if let Some(mark) = marked {
        let weighted = shares.iter().enumerate().filter(|(_, s)| s.weight > 0);
        for upstream in weighted.filter_map(|(index, _)| find(index)) {
            if let Some(target) = upstream.pool.marked(mark) {
                return Ok((upstream.clone(), Some(target.clone())));
            }
        }
    }
    let index = match shares {
        [only] if only.weight > 0 => 0,
        _ => draw_share(shares.iter().map(|share| share.weight), &worker.local.dice)
            .ok_or(FailureKind::NoUpstream)?,
    };
    let upstream = find(index).ok_or(FailureKind::NoUpstream)?;
    if upstream.pool.is_empty() && upstream.resolution.is_none() {
        return Err(FailureKind::NoEndpoint);
    }
    Ok((upstream.clone(), None))
}
