//! The action of a route: a redirect, a fixed answer, or an endpoint, for which the head is
//! written.

use std::cell::Cell;
use std::sync::Arc;

use myriad_base::clock;
use myriad_model::{
    Action, Balancer, Mirror, Policy, Redirect, Rewrite, ShareAnswer, ShareFilters,
    WeightedUpstream,
};

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene, Serving, TakenRoute};
use crate::admission::share::Owner;
use crate::admission::silent::source_of;
use crate::balance::{Endpoint, draw_share};
use crate::codec::body::{BodyLength, Encoder};
use crate::codec::buffer::Buffer;
use crate::codec::endpoint_head::EndpointHead;
use crate::codec::head::{Head, Version, is_idempotent, split_authority};
use crate::codec::websocket;
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::http::error_pages;
use crate::http::plan::{Forward, header_edits, share_filters};
use crate::http::worker::Worker;
use crate::http::write;
use crate::pattern::Budget;
use crate::policy::cors::{self, Additions};
use crate::policy::header::Edits;
use crate::policy::rewrite::{Matched, rewrite};
use crate::policy::{affinity, client, fault, hops, redirect, sameness};
use crate::route::credentials::credentials;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::entry::RouteEntry;
use crate::route::tables::{Tables, upstream_hash};
use crate::telemetry::count::Count;
use crate::upstream::entry::UpstreamEntry;

pub(super) fn apply<'a>(
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    let taken = request.taken()?;
    let additions = std::mem::take(&mut request.additions);
    let Action::Forward(shares) = taken.route.action else {
        let answer = answer(request, taken, scene).unwrap_or_else(LocalReply::failed);
        return Ok(Flow::answer(answer.with(additions)));
    };
    let head = request.head.get();
    let hops_max = serving.worker.local.limits.loop_hops_max;
    let written = hops::admit(head, scene.visit, hops_max)
        .map_err(Instead::Failed)
        .and_then(|is_hop| write_to(shares, (head, is_hop), taken, scene, serving));
    match written {
        Ok(mut forward) => {
            // What its share says of origins is in place of what the policy says of them.
            let is_replaced = cors::tells_of_origins(&forward.additions);
            let additions = additions.into_iter();
            let kept = additions.filter(|(name, _)| !(is_replaced && cors::is_told_by(name)));
            forward.additions.extend(kept);
            match is_borne(&forward, scene.visit, serving) {
                true => Ok(Flow::Forward(forward)),
                false => Err(FailureKind::Overloaded),
            }
        }
        Err(Instead::Failed(kind)) => Ok(Flow::answer(LocalReply::failed(kind).with(additions))),
        Err(Instead::Answered(answer)) => Ok(Flow::answer(answer.with(additions))),
    }
}

/// The end of a request that no endpoint gets.
enum Instead {
    /// It fails.
    Failed(FailureKind),
    /// The share that it is of has an answer.
    Answered(Box<LocalReply>),
}

impl From<FailureKind> for Instead {
    fn from(kind: FailureKind) -> Self {
        Instead::Failed(kind)
    }
}

/// How many endpoints there are is known here, and how many connections they take is not.
pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let Action::Forward(shares) = taken.route.action else {
        return match answer(request, taken, scene) {
            Ok(LocalReply {
                status,
                location: Some(location),
                ..
            }) => DryRunEnd::answered(status, format_args!("is redirected to {location}")),
            // As a rule that cannot be honoured is closed by.
            Ok(LocalReply { status, .. }) if taken.entry.is_closed() => {
                StageVerdict::Ends(DryRunEnd {
                    status: Some(status),
                    failure: Some(FailureKind::Forbidden),
                    text: format!("{status}: the route is closed, and answers with a fixed text"),
                })
            }
            Ok(answer) => DryRunEnd::answered(answer.status, "is answered with a fixed text"),
            Err(kind) => DryRunEnd::refused(kind, kind.verdict().text.trim_end()),
        };
    };
    let rule = taken.route.policy.rewrite.as_deref();
    if let Err(kind) = rewritten(rule, request.head.get(), taken, scene.budget) {
        return DryRunEnd::refused(kind, "the path cannot be rewritten as the route says");
    }
    let (ready, by_hash, answered) = count(shares, taken, scene.tables);
    match (ready, shares.is_empty()) {
        (0, false) if answered > 0 => nowhere(shares),
        (0, true) => DryRunEnd::refused(
            FailureKind::NoUpstream,
            "the route names no Service that is there",
        ),
        (0, false) => DryRunEnd::refused(
            FailureKind::NoEndpoint,
            "there are no endpoints that are ready",
        ),
        _ => {
            let mut text = format!("is sent to one of {ready} endpoints");
            if by_hash {
                text.push_str(", and equal requests to the same");
            }
            if answered > 0 {
                text = format!("{text}, but for shares that weigh {answered} and are answered");
            }
            for Mirror { upstream, .. } in &taken.route.policy.mirrors {
                text = format!("{text}; copies go to {upstream}");
            }
            if let Some(pages) = &taken.route.policy.error_pages {
                let (upstream, statuses) = (&pages.upstream, &pages.statuses);
                text = format!("{text}; pages of {upstream} take the place of {statuses:?}");
            }
            DryRunEnd::forwarded(text)
        }
    }
}

/// The end of a route whose shares are answered, all that weigh anything.
fn nowhere(shares: &[WeightedUpstream]) -> StageVerdict {
    let mut weighted = shares.iter().filter(|share| share.weight > 0);
    let status = match weighted.find_map(answer_of) {
        Some(ShareAnswer::Refuse(status)) => *status,
        Some(ShareAnswer::Redirect(target)) => target.status,
        None => FailureKind::NoUpstream.verdict().status,
    };
    StageVerdict::Ends(DryRunEnd {
        status: Some(status),
        failure: Some(FailureKind::NoUpstream),
        text: format!("{status}: no share of the route is sent anywhere"),
    })
}

/// How many endpoints are ready, whether equal requests go to the same, and how much the shares
/// weigh that have an answer of their own.
fn count(
    shares: &[WeightedUpstream],
    taken: TakenRoute<'_>,
    tables: &Tables,
) -> (usize, bool, u32) {
    let (mut ready, mut by_hash, mut answered) = (0, false, 0_u32);
    for (number, share) in shares.iter().enumerate().filter(|(_, it)| it.weight > 0) {
        if answer_of(share).is_some() {
            answered = share.weight.saturating_add(answered);
            continue;
        }
        let hash = taken.entry.upstream_hash(number);
        let upstream = hash.and_then(|hash| tables.upstream(hash, &share.upstream));
        if let Some(upstream) = upstream.filter(|it| it.upstream.is_some()) {
            ready += upstream.pool.len();
            ready += usize::from(upstream.resolution.is_some());
            let options = upstream.options();
            by_hash |= options.is_some_and(|it| matches!(it.balancer, Balancer::Hash(_)));
        }
    }
    (ready, by_hash, answered)
}

/// The answer of a route that sends nothing to an endpoint.
fn answer(
    request: &RequestState<'_, '_>,
    TakenRoute { entry, route }: TakenRoute<'_>,
    scene: &Scene<'_>,
) -> Result<LocalReply, FailureKind> {
    match route.action {
        Action::Redirect(target) => redirected(
            target,
            request.head.get(),
            TakenRoute { entry, route },
            scene,
        ),
        Action::Respond(fixed) => Ok(LocalReply::empty(fixed.status).of(entry)),
        Action::Forward(_) => Err(FailureKind::Internal),
    }
}

/// The answer that leads elsewhere.
fn redirected(
    target: &Redirect,
    head: &Head<'_>,
    TakenRoute { entry, route }: TakenRoute<'_>,
    scene: &Scene<'_>,
) -> Result<LocalReply, FailureKind> {
    let matched = Matched::of(entry, route, scene.budget);
    let location = redirect::location(target, matched, head)?;
    Ok(LocalReply::redirect(target.status, location).of(entry))
}

/// The answer of a share, where it has one.
fn answer_of(share: &WeightedUpstream) -> Option<&ShareAnswer> {
    share.filters.as_deref()?.answer.as_ref()
}

/// The answer to a request of a share, with what that says of origins.
fn answered(
    answer: &ShareAnswer,
    head: &Head<'_>,
    taken: TakenRoute<'_>,
    scene: &Scene<'_>,
) -> Instead {
    match answer {
        ShareAnswer::Refuse(status) => {
            let mut reply = LocalReply::failed(FailureKind::NoUpstream);
            reply.status = *status;
            Instead::Answered(Box::new(reply))
        }
        ShareAnswer::Redirect(target) => match redirected(target, head, taken, scene) {
            Ok(reply) => Instead::Answered(Box::new(reply)),
            Err(kind) => Instead::Failed(kind),
        },
    }
}

/// The fields for the response that a share's rules about origins add.
///
/// # Errors
/// The answer to a preflight.
fn leave(
    filters: Option<&ShareFilters>,
    head: &Head<'_>,
    scene: &Scene<'_>,
) -> Result<Additions, Instead> {
    let Some(rules) = filters.and_then(|filters| filters.cors.as_deref()) else {
        return Ok(Additions::new());
    };
    let is_preflight = cors::is_preflight(head);
    let additions = cors::additions(rules, &[], head, is_preflight, scene.budget);
    if scene.budget.is_spent() {
        return Err(Instead::Failed(FailureKind::RegexBudget));
    }
    match is_preflight && (!rules.forwards_unmatched || cors::is_leave(&additions)) {
        true => Err(Instead::Answered(Box::new(
            LocalReply::empty(204).with(additions),
        ))),
        false => Ok(additions),
    }
}

/// Whether the host of a route may have one more request under way, one more tunnel where that
/// wants to change the protocol, and the connection, where that is not known to be a host's yet.
fn is_borne(plan: &Forward, visit: &DownstreamConnection, serving: &mut Serving<'_>) -> bool {
    let Some((origin, host)) = plan.route.owner() else {
        return true;
    };
    let Serving { worker, account } = serving;
    let (fairness, counts) = (&worker.local.fairness, &worker.local.counts);
    let owner = Owner::of(origin, host);
    if visit.held.get().is_none() && !visit.belong_to(owner, &worker.local) {
        counts.add(Count::ShareConnections);
        return false;
    }
    if plan.is_upgrade && account.tunnel.is_none() {
        account.tunnel = fairness.tunnels.take(owner, 0).map(Box::new);
        if account.tunnel.is_none() {
            counts.add(Count::ShareTunnels);
            return false;
        }
    }
    if account.held.is_some() {
        return true;
    }
    account.held = fairness.take_request(owner, plan.asker, counts);
    if account.held.is_none() {
        counts.add(Count::ShareRequests);
    }
    account.held.is_some()
}

/// The path that the endpoint sees by a rule, where it is another one.
fn rewritten(
    rule: Option<&Rewrite>,
    head: &Head<'_>,
    TakenRoute { entry, route }: TakenRoute<'_>,
    budget: &Budget,
) -> Result<Option<String>, FailureKind> {
    let Some(rule) = rule.and_then(|rule| rule.path.as_ref()) else {
        return Ok(None);
    };
    let matched = Matched::of(entry, route, budget);
    rewrite(rule, matched, entry.substitution_regex(), head).map(Some)
}

/// Picks the endpoint's upstream, and writes the head that it gets.
fn write_to(
    shares: &[WeightedUpstream],
    (head, is_hop): (&Head<'_>, bool),
    taken: TakenRoute<'_>,
    scene: &Scene<'_>,
    serving: &Serving<'_>,
) -> Result<Box<Forward>, Instead> {
    let Scene { tables, visit, .. } = *scene;
    let (Serving { worker, account }, TakenRoute { entry, route }) = (serving, taken);
    let policy = &**route.policy;
    let Picked {
        share,
        upstream,
        preferred,
    } = match pick(worker, scene, head, entry, policy, shares)? {
        Pick::Sent(picked) => picked,
        Pick::Answered(answer) => return Err(answered(answer, head, taken, scene)),
    };
    let filters = share_filters(route, share);
    let leave = leave(filters, head, scene)?;
    let rule = filters.and_then(|filters| filters.rewrite.as_deref());
    let rule = rule.or(policy.rewrite.as_deref());
    let [of_policy, of_share] =
        header_edits(route, share).map(|edits| Edits::new(edits.map(|edits| &edits.request), None));
    let authority = authority(rule, of_policy, of_share);
    let changes = (rule, authority, of_policy.then(of_share));
    let written = write_head(&upstream, changes, (head, is_hop), taken, scene, serving)?;
    let mirrors = mirrors(worker, tables, (policy, filters), head);
    let (hash, mut additions) = sameness(worker, &upstream, visit, head);
    additions.extend(leave);
    let marks = policy.affinity.as_deref();
    Ok(Box::new(Forward {
        hash,
        route: entry.clone(),
        share,
        preferred,
        takes_none: marks.is_none_or(|affinity| affinity::takes_none(affinity, head)),
        head: written,
        body: Buffer::none(),
        encoder: encoder(&upstream, head),
        scheme: head.scheme,
        has_body: head.body != BodyLength::None,
        has_length: matches!(head.body, BodyLength::Exact(_)),
        is_head: head.method == "HEAD",
        is_idempotent: is_idempotent(head.method),
        is_upgrade: is_upgrade(head, &upstream),
        has_to_upgrade: head.upgrade.is_some() && head.version == Version::Http2,
        expects_continue: head.expects_continue,
        host: named_host(&upstream, &mirrors, authority.unwrap_or(&head.host)),
        mirrors,
        page_question: error_pages::question(policy, (head, is_hop), account.passed_id(worker)),
        credentials: credentials(tables, &upstream)?,
        ends: visit.ends(),
        asker: asker(head, scene),
        original: visit.original(),
        upstream,
        additions,
        told: Vec::new(),
        reserved: Vec::new(),
        told_on_success: 0,
        is_copied: Cell::new(false),
        is_copy: false,
        record: None,
        turn: Cell::default(),
    }))
}

/// The head that the endpoint gets, with the target that a rule makes, this authority and these
/// edits.
fn write_head(
    upstream: &UpstreamEntry,
    (rule, authority, edits): (Option<&Rewrite>, Option<&str>, Edits<'_>),
    (head, is_hop): (&Head<'_>, bool),
    taken: TakenRoute<'_>,
    scene: &Scene<'_>,
    Serving { worker, account }: &Serving<'_>,
) -> Result<EndpointHead, FailureKind> {
    let rewritten = rewritten(rule, head, taken, scene.budget)?;
    let made_key = websocket_key(worker, head, upstream);
    let request = write::RequestHead {
        head,
        path: rewritten.as_deref(),
        authority,
        edits,
        visit: scene.visit,
        demand: taken.route.policy.client_certificate.as_deref(),
        is_http2: upstream.is_http2(),
        trusted_hops: scene.trusted_hops,
        websocket_key: made_key.as_deref(),
        is_hop,
        request_id: account.passed_id(worker),
    };
    write::request(&request, upstream.is_tls())
}

/// The client by its address; those whose addresses nobody tells are one.
pub(super) fn asker(head: &Head<'_>, scene: &Scene<'_>) -> u64 {
    let client = client::address(head, scene.visit.client.ip(), scene.trusted_hops);
    client.known().map_or(u64::MAX, source_of)
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
    visit: &DownstreamConnection,
    head: &Head<'_>,
) -> (Option<u64>, Additions) {
    let Some(Balancer::Hash(rule)) = upstream.options().map(|options| &options.balancer) else {
        return (None, Additions::new());
    };
    let local = &worker.local;
    let sameness = sameness::of(rule, head, visit, local.trusted_hops, &local.dice);
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
    mirrors: &[(Arc<UpstreamEntry>, usize)],
    authority: &str,
) -> Box<str> {
    let needs = |upstream: &UpstreamEntry| upstream.is_tls() || upstream.is_dynamic();
    let is_needed = needs(upstream) || mirrors.iter().any(|(mirror, _)| needs(mirror));
    let host = is_needed.then(|| split_authority(authority).map_or(authority, |(host, _)| host));
    host.unwrap_or_default().into()
}

/// Where copies go. What changes the protocol of its connection cannot be copied, and a copy is
/// not: one that comes back here would lead to the next.
fn mirrors(
    worker: &Worker,
    tables: &Tables,
    (policy, filters): (&Policy, Option<&ShareFilters>),
    head: &Head<'_>,
) -> Vec<(Arc<UpstreamEntry>, usize)> {
    let of_share = filters.map_or(&[][..], |filters| &*filters.mirrors);
    let has_none = policy.mirrors.is_empty() && of_share.is_empty();
    if has_none || head.upgrade.is_some() || hops::is_copy(head) {
        return Vec::new();
    }
    let all = policy.mirrors.iter().chain(of_share).enumerate();
    let drawn = all.filter(|(_, mirror)| fault::is_in(mirror.share, &worker.local.dice));
    let found = drawn.filter_map(|(at, Mirror { upstream, .. })| {
        let entry = tables.upstream(upstream_hash(upstream), upstream)?;
        Some((entry.clone(), at))
    });
    found.collect()
}

/// The upstream that takes a request.
struct Picked {
    /// Its place among the route's.
    share: usize,
    upstream: Arc<UpstreamEntry>,
    /// The endpoint that a cookie speaks of.
    preferred: Option<Arc<Endpoint>>,
}

/// The outcome of drawing one of the shares.
enum Pick<'a> {
    /// The request goes to its upstream.
    Sent(Picked),
    /// It has an answer of its own.
    Answered(&'a ShareAnswer),
}

/// The upstream that a mark leads to, or else the share that is drawn by weight.
fn pick<'a>(
    worker: &Worker,
    scene: &Scene<'_>,
    head: &Head<'_>,
    entry: &RouteEntry,
    policy: &Policy,
    shares: &'a [WeightedUpstream],
) -> Result<Pick<'a>, FailureKind> {
    let find = |index: usize| {
        let (share, hash) = (shares.get(index)?, entry.upstream_hash(index)?);
        let upstream = scene.tables.upstream(hash, &share.upstream)?;
        let upstream = upstream.for_client(head.version == Version::Http2);
        upstream.upstream.is_some().then_some(upstream)
    };
    let marked = policy
        .affinity
        .as_ref()
        .and_then(|affinity| affinity::mark(affinity, head, clock::since_epoch()));
    if let Some(mark) = marked {
        let is_sent = |share: &WeightedUpstream| share.weight > 0 && answer_of(share).is_none();
        let weighted = shares.iter().enumerate().filter(|(_, it)| is_sent(it));
        for (index, upstream) in weighted.filter_map(|(index, _)| Some((index, find(index)?))) {
            if let Some(target) = affinity::target(&upstream.pool, mark, scene.budget) {
                return Ok(Pick::Sent(Picked {
                    share: index,
                    upstream: upstream.clone(),
                    preferred: Some(target.clone()),
                }));
            }
            if scene.budget.is_spent() {
                return Err(FailureKind::RegexBudget);
            }
        }
    }
    let index = match shares {
        [only] if only.weight > 0 => 0,
        _ => draw_share(shares.iter().map(|share| share.weight), &worker.local.dice)
            .ok_or(FailureKind::NoUpstream)?,
    };
    if let Some(answer) = shares.get(index).and_then(answer_of) {
        return Ok(Pick::Answered(answer));
    }
    let upstream = find(index).ok_or(FailureKind::NoUpstream)?;
    if upstream.pool.is_empty() && upstream.resolution.is_none() {
        return Err(FailureKind::NoEndpoint);
    }
    Ok(Pick::Sent(Picked {
        share: index,
        upstream: upstream.clone(),
        preferred: None,
    }))
}
