//! The action of a route: a redirect, a fixed answer, or an endpoint, for which the head is
//! written.

use std::cell::Cell;
use std::sync::Arc;

use myriad_model::{Action, Balancer, Mirror, Policy, Rewrite, WeightedUpstream};

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene, Serving, TakenRoute};
use crate::admission::share::Owner;
use crate::admission::silent::source_of;
use crate::balance::{Endpoint, draw_share};
use crate::codec::body::{BodyLength, Encoder};
use crate::codec::buffer::Buffer;
use crate::codec::head::{Head, Version, is_idempotent, split_authority};
use crate::codec::websocket;
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::http::error_pages;
use crate::http::plan::{Forward, header_edits};
use crate::http::worker::Worker;
use crate::http::write;
use crate::pattern::Budget;
use crate::policy::cors::Additions;
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
        .and_then(|is_hop| write_to(shares, (head, is_hop), taken, scene, serving));
    match written {
        Ok(mut forward) => {
            forward.additions.extend(additions);
            match is_borne(&forward, scene.visit, serving) {
                true => Ok(Flow::Forward(forward)),
                false => Err(FailureKind::Overloaded),
            }
        }
        Err(kind) => Ok(Flow::answer(LocalReply::failed(kind).with(additions))),
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
    if let Err(kind) = rewritten(request.head.get(), taken, scene.budget) {
        return DryRunEnd::refused(kind, "the path cannot be rewritten as the route says");
    }
    let (mut ready, mut by_hash) = (0, false);
    for (number, share) in shares.iter().enumerate().filter(|(_, it)| it.weight > 0) {
        let hash = taken.entry.upstream_hash(number);
        let upstream = hash.and_then(|hash| scene.tables.upstream(hash, &share.upstream));
        if let Some(upstream) = upstream.filter(|it| it.upstream.is_some()) {
            ready += upstream.pool.len();
            ready += usize::from(upstream.resolution.is_some());
            let options = upstream.options();
            by_hash |= options.is_some_and(|it| matches!(it.balancer, Balancer::Hash(_)));
        }
    }
    match (ready, shares.is_empty()) {
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

/// The answer of a route that sends nothing to an endpoint.
fn answer(
    request: &RequestState<'_, '_>,
    TakenRoute { entry, route }: TakenRoute<'_>,
    scene: &Scene<'_>,
) -> Result<LocalReply, FailureKind> {
    match route.action {
        Action::Redirect(target) => {
            let matched = Matched::of(entry, route, scene.budget);
            let location = redirect::location(target, matched, request.head.get())?;
            Ok(LocalReply::redirect(target.status, location).of(entry))
        }
        Action::Respond(fixed) => Ok(LocalReply::empty(fixed.status).of(entry)),
        Action::Forward(_) => Err(FailureKind::Internal),
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

/// The path that the endpoint sees, where it is another one.
fn rewritten(
    head: &Head<'_>,
    TakenRoute { entry, route }: TakenRoute<'_>,
    budget: &Budget,
) -> Result<Option<String>, FailureKind> {
    let rule = route.policy.rewrite.as_deref();
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
) -> Result<Box<Forward>, FailureKind> {
    let Scene { tables, visit, .. } = *scene;
    let (Serving { worker, account }, TakenRoute { entry, route }) = (serving, taken);
    let policy = &**route.policy;
    let Picked {
        share,
        upstream,
        preferred,
    } = pick(worker, tables, head, entry, policy, shares)?;
    let rewritten = rewritten(head, taken, scene.budget)?;
    let [of_policy, of_share] =
        header_edits(route, share).map(|edits| Edits::new(edits.map(|edits| &edits.request), None));
    let authority = authority(policy.rewrite.as_deref(), of_policy, of_share);
    let mirrors = mirrors(worker, tables, policy, head);
    let made_key = websocket_key(worker, head, &upstream);
    let request = write::RequestHead {
        head,
        path: rewritten.as_deref(),
        authority,
        edits: of_policy.then(of_share),
        visit,
        demand: policy.client_certificate.as_deref(),
        is_http2: upstream.is_http2(),
        trusted_hops: scene.trusted_hops,
        websocket_key: made_key.as_deref(),
        is_hop,
        request_id: account.passed_id(worker),
    };
    let (hash, additions) = sameness(worker, &upstream, visit, head);
    let marks = policy.affinity.as_deref();
    Ok(Box::new(Forward {
        hash,
        route: entry.clone(),
        share,
        preferred,
        takes_none: marks.is_none_or(|affinity| affinity::takes_none(affinity, head)),
        head: write::request(&request, upstream.is_tls())?,
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
        turn: Cell::default(),
    }))
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
    policy: &Policy,
    head: &Head<'_>,
) -> Vec<(Arc<UpstreamEntry>, usize)> {
    if policy.mirrors.is_empty() || head.upgrade.is_some() || hops::is_copy(head) {
        return Vec::new();
    }
    let all = policy.mirrors.iter().enumerate();
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
