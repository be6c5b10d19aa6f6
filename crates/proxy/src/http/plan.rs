//! What is to be done with an admitted request: made of its head and one set of tables, in one
//! step.
//!
//! Once the plan is made, neither head nor tables are needed any more: what goes to the endpoint
//! is written already, so that nothing borrowed has to outlive a wait.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use myriad_model::{
    Action, Balancer, HeaderEdits, Policy, Retry, Rewrite, Route, WeightedUpstream,
};

use super::account::Account;
use super::admission::{self, Admission};
use super::answer::Answer;
use super::check::Check;
use super::peer::Changes;
use super::trouble;
use super::worker::Worker;
use super::write;
use crate::balance::{Target, draw_share};
use crate::net::body::{BodyLength, Encoder};
use crate::net::buffer::Buffer;
use crate::net::count::Count;
use crate::net::failure::FailureKind;
use crate::net::head::{Head, Version, is_idempotent, split_authority};
use crate::net::pattern::Budget;
use crate::net::proxy_header::Ends;
use crate::net::websocket;
use crate::policy::check::Told;
use crate::policy::cors::Additions;
use crate::policy::header::Edits;
use crate::policy::rewrite::{Matched, rewrite};
use crate::policy::{affinity, client, fault, redirect, sameness};
use crate::route::claims::Said;
use crate::route::credentials::credentials;
use crate::route::host::{RouteArc, RouteEntry};
use crate::route::tables::{NotFound, Tables, upstream_hash};
use crate::route::visit::Visit;
use crate::upstream::dial::Credentials;
use crate::upstream::entry::UpstreamEntry;

/// What is to be done.
pub enum Plan {
    /// The proxy answers.
    Answer(Box<Answer>),
    /// An endpoint answers.
    Forward(Box<Forward>),
}

impl Plan {
    /// Whether the request is refused because there is too much to do already.
    pub fn is_overloaded(&self) -> bool {
        let overloaded = Some(FailureKind::Overloaded);
        matches!(self, Plan::Answer(answer) if answer.failure == overloaded)
    }
}

/// A request that wants to be served.
#[derive(Clone, Copy)]
pub struct Asking<'a, 'h> {
    /// The connection that it came by.
    pub visit: &'a Visit,
    /// The head.
    pub head: &'a Head<'h>,
    /// What its token says, where one was verified.
    pub token: Option<Said<'a>>,
    /// Whether it was counted at the limits of a route already.
    pub is_counted: bool,
    /// What its regexes may cost.
    pub budget: &'a Budget,
}

/// A plan, and how long it has to wait on purpose.
pub struct Planned {
    /// What is to be done.
    pub plan: Plan,
    /// The wait before it; zero for none.
    pub delay: Duration,
    /// Who has to be asked before anything of it is done.
    pub check: Option<Box<Check>>,
}

impl Planned {
    fn new(plan: Plan, delay: Duration) -> Self {
        Planned {
            plan,
            delay,
            check: None,
        }
    }

    /// Whether it is one request too many.
    pub fn is_limited(&self) -> bool {
        let limited = Some(FailureKind::RateLimited);
        matches!(&self.plan, Plan::Answer(answer) if answer.failure == limited)
    }

    /// An answer, at once.
    pub fn answered(answer: Answer) -> Self {
        Planned::new(answered(answer), Duration::ZERO)
    }

    /// The answer to a failure, at once.
    pub fn failed(kind: FailureKind) -> Self {
        Planned::answered(Answer::failed(kind))
    }
}

/// A request on its way to an endpoint.
pub struct Forward {
    /// The route, which keeps the policy in reach.
    pub route: RouteArc,
    /// Which of the route's upstreams was drawn.
    pub share: usize,
    /// That upstream.
    pub upstream: Arc<UpstreamEntry>,
    /// The endpoint that a cookie speaks of.
    pub preferred: Option<Arc<Target>>,
    /// The hash of what makes the request equal to others, where the upstream looks at it.
    pub hash: Option<u64>,
    /// The head as the endpoint gets it.
    pub head: Buffer,
    /// How the body is framed for the endpoint.
    pub encoder: Encoder,
    /// The scheme that the client speaks.
    pub scheme: &'static str,
    /// Whether there is a request body.
    pub has_body: bool,
    /// Whether the response has no body whatever its head says.
    pub is_head: bool,
    /// Whether the request may be sent twice.
    pub is_idempotent: bool,
    /// Whether the client wants to change the protocol.
    pub is_upgrade: bool,
    /// Whether a success would tell the client that the protocol was changed, as over HTTP/2.
    pub has_to_upgrade: bool,
    /// Whether the client waits for a 100 before it sends the body.
    pub expects_continue: bool,
    /// The host, for TLS towards upstreams that name no server, and for those that resolve it;
    /// empty elsewhere.
    pub host: Box<str>,
    /// What TLS with the endpoint needs beside the upstream.
    pub credentials: Credentials,
    /// The connection that the request came by.
    pub ends: Ends,
    /// What that was meant for, where it was captured.
    pub original: Option<SocketAddr>,
    /// Fields for the response.
    pub additions: Additions,
    /// Fields that a provider told for the response.
    pub told: Vec<Told>,
    /// Where copies of the request go.
    pub mirrors: Vec<Arc<UpstreamEntry>>,
    /// Whether the copies were started.
    pub is_copied: Cell<bool>,
    /// Whether this is such a copy.
    pub is_copy: bool,
}

impl Forward {
    /// The policy of the route.
    pub fn policy(&self) -> Option<&Policy> {
        self.route.route().map(|route| &*route.policy)
    }

    /// When the request is sent again; a copy is not.
    pub fn retry(&self) -> Option<&Retry> {
        let policy = self.policy().filter(|_| !self.is_copy)?;
        policy.retry.as_deref()
    }

    /// Whether the request is kept after it was sent, as far as a limit allows.
    pub fn is_kept(&self) -> bool {
        self.has_body && (!self.mirrors.is_empty() || self.retry().is_some())
    }

    /// What is changed about the fields of the response.
    pub fn changes(&self) -> Changes<'_> {
        changes_of(&self.route, self.share, &self.additions, &self.told)
    }

    /// Whether a processor accompanies the request.
    pub fn is_processed(&self) -> bool {
        let policy = self.policy().filter(|_| !self.is_copy);
        policy.is_some_and(|policy| policy.processor.is_some())
    }
}

/// Tells of a request that failed on its way, by the first of its route's hosts.
pub fn tell_trouble(plan: &Forward, answer: &Answer) {
    let Some(kind) = answer.failure else {
        return;
    };
    let hosts = plan.route.route().map_or(&[][..], |route| &*route.hosts);
    let host = hosts.first().map(|host| host.to_string());
    let host = host.unwrap_or_default();
    trouble::tell(kind, answer.status, &host, || Some(&plan.route));
}

/// What a route and one of its upstreams change about the fields of a response.
pub fn changes_of<'a>(
    route: &'a RouteEntry,
    share: usize,
    additions: &'a Additions,
    told: &'a [Told],
) -> Changes<'a> {
    let edits = route.route().map(|route| header_edits(route, share));
    let [policy, share] = edits.unwrap_or_default();
    Changes {
        edits: Edits::new(
            share.map(|edits| &edits.response),
            policy.map(|edits| &edits.response),
        ),
        additions,
        told,
    }
}

/// Does what the route of an admitted request says.
///
/// # Errors
/// What is answered instead.
pub fn proceed(
    worker: &Worker,
    tables: &Tables,
    asking: &Asking<'_, '_>,
    account: &mut Account,
) -> Result<Planned, FailureKind> {
    let Asking { visit, head, .. } = *asking;
    let entry = tables
        .route(&visit.listener, head, asking.token, asking.budget)
        .map_err(|NotFound(kind)| match kind {
            // The workload asked for it, and somebody may have it whom nobody declared.
            FailureKind::NoHost if visit.is_captured => FailureKind::NoDestination,
            kind => kind,
        })?;
    let entry = admission::strictest(worker, tables, asking, entry)
        .inspect_err(|_| account.set_route(entry))?;
    account.set_route(entry);
    let route = entry.route().ok_or(FailureKind::Internal)?;
    let policy = &*route.policy;
    let mut delay = Duration::ZERO;
    if let Some(tls) = &policy.tls_redirect
        && !client::is_secure(head, visit, worker.local.trusted_hops)
        && let Some(url) = redirect::to_tls(tls, head)
    {
        let plan = answered(Answer::redirect(tls.status, url));
        return Ok(Planned::new(plan, delay));
    }
    let additions = match admission::admit(worker, entry, asking)? {
        Admission::Preflight(additions) => {
            let plan = answered(Answer::empty(204).with(additions));
            return Ok(Planned::new(plan, delay));
        }
        Admission::Limited(additions) => {
            let answer = Answer::failed(FailureKind::RateLimited).with(additions);
            return Ok(Planned::new(answered(answer), delay));
        }
        Admission::Request(additions) => additions,
    };
    if let Some(rule) = &policy.fault {
        let trouble = fault::draw(rule, &worker.local.dice);
        delay = trouble.delay;
        if !delay.is_zero() {
            account.is_delayed = true;
            worker.local.counts.add(Count::FaultDelayed);
        }
        if let Some(answer) = trouble.abort {
            let plan = answered(Answer::aborted(answer).with(additions));
            return Ok(Planned::new(plan, delay));
        }
    }
    let plan = act(worker, tables, asking, account, entry, route, additions);
    Ok(Planned::new(plan, delay))
}

/// Does what the route says.
fn act(
    worker: &Worker,
    tables: &Tables,
    asking: &Asking<'_, '_>,
    account: &Account,
    entry: &RouteArc,
    route: &Route,
    additions: Additions,
) -> Plan {
    let head = asking.head;
    let made = match &route.action {
        Action::Redirect(target) => {
            redirect::location(target, Matched::of(entry, route, asking.budget), head)
                .map(|location| Answer::redirect(target.status, location).of(entry))
        }
        Action::Respond(fixed) => Ok(Answer::empty(fixed.status).of(entry)),
        Action::Forward(shares) => {
            match forward(worker, tables, asking, account, entry, route, shares) {
                Ok(mut forward) => {
                    forward.additions.extend(additions);
                    return Plan::Forward(forward);
                }
                Err(kind) => Err(kind),
            }
        }
    };
    answered(made.unwrap_or_else(Answer::failed).with(additions))
}

/// The edits of a route's policy and of one of its upstreams.
fn header_edits(route: &Route, share: usize) -> [Option<&HeaderEdits>; 2] {
    let of_share = match &route.action {
        Action::Forward(shares) => shares.get(share).and_then(|share| share.headers.as_deref()),
        Action::Redirect(_) | Action::Respond(_) => None,
    };
    [route.policy.headers.as_deref(), of_share]
}

fn answered(answer: Answer) -> Plan {
    Plan::Answer(Box::new(answer))
}

/// The path that the endpoint sees, where it is another one.
fn rewritten(
    asking: &Asking<'_, '_>,
    entry: &RouteEntry,
    route: &Route,
) -> Result<Option<String>, FailureKind> {
    let rule = route.policy.rewrite.as_deref();
    let Some(rule) = rule.and_then(|rule| rule.path.as_ref()) else {
        return Ok(None);
    };
    let matched = Matched::of(entry, route, asking.budget);
    rewrite(rule, matched, entry.substitution_regex(), asking.head).map(Some)
}

fn forward(
    worker: &Worker,
    tables: &Tables,
    asking: &Asking<'_, '_>,
    account: &Account,
    entry: &RouteArc,
    route: &Route,
    shares: &[WeightedUpstream],
) -> Result<Box<Forward>, FailureKind> {
    let Asking { visit, head, .. } = *asking;
    let policy = &*route.policy;
    let Picked {
        share,
        upstream,
        preferred,
    } = pick(worker, tables, head, entry, policy, shares)?;
    let rule = policy.rewrite.as_deref();
    let rewritten = rewritten(asking, entry, route)?;
    let [of_policy, of_share] = header_edits(route, share);
    let of_policy = Edits::new(of_policy.map(|edits| &edits.request), None);
    let of_share = Edits::new(of_share.map(|edits| &edits.request), None);
    let authority = authority(rule, of_policy, of_share);
    let mirrors = mirrors(worker, tables, policy, head);
    let made_key = websocket_key(worker, head, &upstream);
    let mut bytes = Buffer::for_head();
    let request = write::RequestHead {
        head,
        path: rewritten.as_deref(),
        authority,
        edits: of_policy.then(of_share),
        visit,
        is_http2: upstream.is_http2(),
        trusted_hops: worker.local.trusted_hops,
        websocket_key: made_key.as_deref(),
        request_id: account.passed_id(worker),
    };
    write::request(&request, &mut bytes);
    let (hash, additions) = sameness(worker, &upstream, visit, head);
    Ok(Box::new(Forward {
        hash,
        route: entry.clone(),
        share,
        preferred,
        head: bytes,
        encoder: encoder(&upstream, head),
        scheme: head.scheme,
        has_body: head.body != BodyLength::None,
        is_head: head.method == "HEAD",
        is_idempotent: is_idempotent(head.method),
        is_upgrade: is_upgrade(head, &upstream),
        has_to_upgrade: head.upgrade.is_some() && head.version == Version::Http2,
        expects_continue: head.expects_continue,
        host: named_host(&upstream, &mirrors, authority.unwrap_or(&head.host)),
        mirrors,
        credentials: credentials(tables, &upstream)?,
        ends: visit.ends(),
        original: visit.original(),
        upstream,
        additions,
        told: Vec::new(),
        is_copied: Cell::new(false),
        is_copy: false,
    }))
}

/// Whether the endpoint is asked to change the protocol, of which HTTP/2 knows one.
fn is_upgrade(head: &Head<'_>, upstream: &UpstreamEntry) -> bool {
    let is_websocket = |protocol: &[u8]| {
        head.method == "GET" && protocol.eq_ignore_ascii_case(websocket::PROTOCOL.as_bytes())
    };
    let is_known = |protocol| !upstream.is_http2() || is_websocket(protocol);
    head.upgrade.is_some_and(is_known)
}

/// The key of an upgrade to WebSocket that the client, over HTTP/2, had no need of.
fn websocket_key(worker: &Worker, head: &Head<'_>, upstream: &UpstreamEntry) -> Option<String> {
    let needs_key = head.upgrade.is_some() && head.version == Version::Http2;
    let dice = &worker.local.dice;
    (needs_key && !upstream.is_http2()).then(|| websocket::key([dice.roll(), dice.roll()]))
}

/// The authority that is asked for instead of the client's: what is nearest to the endpoint has
/// the last word, but edits of the route's policy yield to its rewrite.
fn authority<'a>(
    rule: Option<&'a Rewrite>,
    of_policy: Edits<'a>,
    of_share: Edits<'a>,
) -> Option<&'a str> {
    let of_rule = rule.map(|rule| &*rule.authority);
    of_share
        .authority()
        .or(of_rule.filter(|text| split_authority(text).is_ok()))
        .or_else(|| of_policy.authority())
}

/// The hash of what makes the request equal to others, where its upstream asks, and the cookie
/// that may be made for it.
fn sameness(
    worker: &Worker,
    upstream: &UpstreamEntry,
    visit: &Visit,
    head: &Head<'_>,
) -> (Option<u64>, Additions) {
    let Some(Balancer::Hash(rule)) = upstream.options().map(|options| &options.balancer) else {
        return (None, Additions::new());
    };
    let local = &worker.local;
    let sameness = sameness::of(&rule.source, head, visit, local.trusted_hops, &local.dice);
    let made = sameness.set_cookie.map(|cookie| ("set-cookie", cookie));
    (sameness.hash, made.into_iter().collect())
}

/// HTTP/2 frames bodies itself.
fn encoder(upstream: &UpstreamEntry, head: &Head<'_>) -> Encoder {
    match upstream.is_http2() {
        true => Encoder::Plain,
        false => Encoder::new(head.body),
    }
}

/// The host that TLS names where an upstream names none, or that is resolved; empty where nobody
/// does either.
fn named_host(
    upstream: &UpstreamEntry,
    mirrors: &[Arc<UpstreamEntry>],
    authority: &str,
) -> Box<str> {
    let needs = |upstream: &UpstreamEntry| upstream.is_tls() || upstream.is_dynamic();
    let is_needed = needs(upstream) || mirrors.iter().any(|mirror| needs(mirror));
    let host = is_needed.then(|| split_authority(authority).map_or(authority, |(host, _)| host));
    host.unwrap_or_default().into()
}

/// Where copies go. What changes the protocol of its connection cannot be copied.
fn mirrors(
    worker: &Worker,
    tables: &Tables,
    policy: &Policy,
    head: &Head<'_>,
) -> Vec<Arc<UpstreamEntry>> {
    if policy.mirrors.is_empty() || head.upgrade.is_some() {
        return Vec::new();
    }
    let drawn = policy
        .mirrors
        .iter()
        .filter(|mirror| fault::is_in(mirror.share, &worker.local.dice));
    drawn
        .filter_map(|mirror| tables.upstream(upstream_hash(&mirror.upstream), &mirror.upstream))
        .cloned()
        .collect()
}

/// The upstream that takes a request.
struct Picked {
    /// Its place among the route's.
    share: usize,
    upstream: Arc<UpstreamEntry>,
    /// The endpoint that a cookie speaks of.
    preferred: Option<Arc<Target>>,
}

/// The upstream that a cookie leads to, or else one drawn by weight.
fn pick(
    worker: &Worker,
    tables: &Tables,
    head: &Head<'_>,
    entry: &RouteEntry,
    policy: &Policy,
    shares: &[WeightedUpstream],
) -> Result<Picked, FailureKind> {
    let find = |index: usize| {
        let (share, hash) = (shares.get(index)?, entry.upstream_hash(index)?);
        let upstream = tables.upstream(hash, &share.upstream)?;
        let upstream = upstream.for_client(head.version == Version::Http2);
        upstream.upstream.is_some().then_some(upstream)
    };
    let marked = policy
        .affinity
        .as_ref()
        .and_then(|affinity| affinity::mark(affinity, head));
    if let Some(mark) = marked {
        let weighted = shares.iter().enumerate().filter(|(_, s)| s.weight > 0);
        for (index, upstream) in weighted.filter_map(|(index, _)| Some((index, find(index)?))) {
            if let Some(target) = upstream.pool.marked(mark) {
                return Ok(Picked {
                    share: index,
                    upstream: upstream.clone(),
                    preferred: Some(target.clone()),
                });
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
    Ok(Picked {
        share: index,
        upstream: upstream.clone(),
        preferred: None,
    })
}
