//! A planned request against endpoints, until one of them has answered or none is left to try.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use myriad_base::clock;

use super::attempt::{Attempt, Broken, ExchangeEnd, note_failure};
use super::h1::Relay;
use super::h2;
use super::mirror;
use super::outgoing::{Keeping, Outgoing};
use super::retry_state::RetryState;
use super::timers::Timers;
use crate::admission::bucket::Running;
use crate::admission::share::HeldShare as Share;
use crate::admission::waiting::ClientWait;
use crate::balance::usage::{HeldUsage, UsageKind};
use crate::balance::{Choice, Endpoint, Flight, Pool};
use crate::codec::buffer::Buffer;
use crate::codec::endpoint_head::EndpointHead;
use crate::failure::{Failure, FailureKind, Retry};
use crate::http::account::RequestAccount;
use crate::http::peer::Peer;
use crate::http::plan::Forward;
use crate::http::worker::Worker;
use crate::net::carrier::Carrier;
use crate::net::deadline::Deadline;
use crate::policy::affinity;
use crate::policy::check;
use crate::policy::retry::Event;
use crate::telemetry::count::Count;
use crate::upstream::attempt;
use crate::upstream::dial::Dial;
use crate::upstream::h1_connection::H1Connection;
use crate::upstream::h2_connection::H2Stream;
use crate::upstream::resolve::DnsAnswer;

/// How an exchange ended.
pub enum ExchangeOutcome {
    /// The response is complete.
    Done {
        /// Whether the request was read to its end.
        is_request_done: bool,
    },
    /// The endpoint changed the protocol.
    Switched(Box<Switched>),
    /// The response has a status that a page takes the place of, and the client has seen nothing
    /// of it.
    Replaced {
        /// The status.
        status: u16,
    },
}

/// A connection that speaks another protocol now.
pub struct Switched {
    /// The endpoint's side of it.
    pub far: Far,
    /// The bytes that the endpoint has sent already.
    pub said: Option<Buffer>,
    /// Counts as a request for as long as it lasts.
    pub flight: Flight,
    /// Counts as a tunnel of its host for as long.
    pub share: Option<Box<Share>>,
    /// Counts among what its route serves at the same time for as long.
    pub running: Vec<Running>,
}

/// The endpoint's side of a connection that speaks another protocol.
pub enum Far {
    /// A connection of its own.
    H1(H1Connection),
    /// A stream on a connection of HTTP/2.
    H2(H2Stream, Carrier),
}

/// How to reach an endpoint.
enum Way {
    /// A connection of HTTP/1.
    H1(H1Connection),
    /// A stream on a connection of HTTP/2.
    H2(H2Stream),
}

impl Way {
    fn is_reused(&self) -> bool {
        match self {
            Way::H1(connection) => connection.is_reused,
            Way::H2(stream) => stream.is_reused,
        }
    }

    /// All has been said on it that was to be said.
    fn end(&mut self) {
        if let Way::H1(connection) = self {
            connection.stream.end();
        }
    }
}

/// The next step after a try.
enum Next {
    /// The end.
    Ended(ExchangeOutcome),
    /// The same try once more, on a fresh connection where the reused one had been closed.
    Afresh,
    /// A repetition that the route asks for.
    Repeated,
}

/// Carries a plan out.
///
/// # Errors
/// How it broke off. Where no response had begun, the caller answers.
pub async fn exchange<P: Peer>(
    worker: &Rc<Worker>,
    plan: &mut Forward,
    peer: &mut P,
    account: &mut RequestAccount,
    deadline: &Deadline,
) -> Result<ExchangeOutcome, Broken> {
    account.put_trace(plan);
    plan.record = account.record().cloned();
    let _request = admit(worker, plan)?;
    account.wait("the addresses of the upstream's name");
    let answer = resolve(worker, plan).await?;
    let keeping = Keeping::of(plan);
    let head = std::mem::replace(&mut plan.head, EndpointHead::none());
    let body = std::mem::replace(&mut plan.body, Buffer::none());
    let mut outgoing = Outgoing::new(head, body, !plan.has_body, keeping);
    let mut timers = Timers::new(plan.policy(), account.standing());
    let mut tries = RetryState::new(plan);
    let mut tried = None;
    if outgoing.is_complete() {
        mirror::start(worker, plan, &outgoing);
    }
    loop {
        let target = choose(worker, plan, pool(plan, answer.as_ref()), tried)?;
        account.set_endpoint(&worker.local, &plan.upstream, &target);
        let flight = Flight::start(target.clone());
        if outgoing.is_complete() {
            timers.run(false);
        }
        timers.begin_try();
        account.wait("a connection to the endpoint");
        let way = connect(worker, plan, &target, &tries, &mut timers, peer, deadline).await;
        let next = match way {
            Ok(way) => {
                account.set_connected(&target, way.is_reused());
                offer_cookie(plan, &target);
                let around = Attempt {
                    worker,
                    plan,
                    pool: pool(plan, answer.as_ref()),
                    target: &target,
                    deadline,
                    outgoing: &mut outgoing,
                    timers: &mut timers,
                    tries: &mut tries,
                };
                run(around, peer, account, way, flight).await?
            }
            Err(failure) => {
                fail_try(plan, failure.kind);
                let pool = pool(plan, answer.as_ref());
                if Event::of(failure.kind, true).is_some() {
                    note_failure(worker, plan, pool, &target, failure.kind);
                }
                after_failed_connect(worker, plan, pool, &mut tries, failure)?
            }
        };
        timers.end_try();
        match next {
            Next::Ended(outcome) => return Ok(outcome),
            Next::Afresh => {}
            Next::Repeated => {
                tried = Some(target.id);
                account.wait("the next try");
                pause(tries.wait(worker, plan), &mut timers).await?;
            }
        }
        outgoing.rewind();
    }
}

/// A stream on a connection of HTTP/2 to an endpoint of a plan's upstream, where somebody has more
/// to say there than one request and its response.
///
/// # Errors
/// No endpoint can be had.
pub async fn open_stream(
    worker: &Rc<Worker>,
    plan: &Forward,
) -> Result<(H2Stream, Flight), Broken> {
    let answer = resolve(worker, plan).await?;
    let target = choose(worker, plan, pool(plan, answer.as_ref()), None)?;
    let dial = dial(plan, &target);
    let stream = worker.h2_pool.take(&worker.h1_pool, &dial).await;
    Ok((stream.map_err(unstarted)?, Flight::start(target.clone())))
}

/// Makes one try over a connection.
async fn run<P: Peer>(
    around: Attempt<'_>,
    peer: &mut P,
    account: &mut RequestAccount,
    mut way: Way,
    flight: Flight,
) -> Result<Next, Broken> {
    let (worker, plan, deadline) = (around.worker, around.plan, around.deadline);
    let dial = dial(plan, flight.target());
    let (ended, around) = match &mut way {
        Way::H1(connection) => {
            let mut relay = Relay::new(around, peer, connection);
            let ended = poll_fn(|context| relay.poll(context)).await;
            account.status = relay.status();
            (ended, relay.into_around())
        }
        Way::H2(stream) => {
            let mut exchange = h2::Exchange::new(around, peer, stream);
            let ended = poll_fn(|context| exchange.poll(context)).await;
            account.status = exchange.status();
            (ended, exchange.into_around())
        }
    };
    deadline.unset();
    around.timers.patience.standing.leave();
    let is_reused = way.is_reused();
    let broken = match (ended, way) {
        (Ok(ExchangeEnd::Switched(said)), Way::H1(connection)) => {
            let far = Far::H1(connection);
            let switched = switched(far, said, flight);
            return Ok(Next::Ended(ExchangeOutcome::Switched(Box::new(switched))));
        }
        (Ok(ExchangeEnd::Carried(carrier)), Way::H2(stream)) => {
            let far = Far::H2(stream, carrier);
            let switched = switched(far, None, flight);
            return Ok(Next::Ended(ExchangeOutcome::Switched(Box::new(switched))));
        }
        // Each version has its own way.
        (Ok(ExchangeEnd::Switched(_)), Way::H2(_)) | (Ok(ExchangeEnd::Carried(_)), Way::H1(_)) => {
            unstarted(FailureKind::Internal.into())
        }
        (
            Ok(ExchangeEnd::Done {
                is_reusable,
                is_request_done,
            }),
            mut way,
        ) => {
            if is_request_done {
                way.end();
            }
            keep(worker, way, is_reusable, &dial);
            return Ok(Next::Ended(ExchangeOutcome::Done { is_request_done }));
        }
        (Ok(ExchangeEnd::Refused { is_reusable }), way) => {
            keep(worker, way, is_reusable, &dial);
            let replaced = around.tries.replaced;
            let ended = replaced.map(|status| Next::Ended(ExchangeOutcome::Replaced { status }));
            return Ok(ended.unwrap_or(Next::Repeated));
        }
        (Err(broken), _) => broken,
    };
    after_broken(around, broken, is_reused)
}

/// The next step after a try that broke off.
fn after_broken(around: Attempt<'_>, broken: Broken, is_reused: bool) -> Result<Next, Broken> {
    let Attempt {
        worker,
        plan,
        outgoing,
        tries,
        pool,
        target,
        ..
    } = around;
    let kind = broken.failure.kind;
    fail_try(plan, kind);
    let is_its_own = Event::of(kind, false).is_some() || kind == FailureKind::RequestTimeout;
    if !broken.is_started && is_its_own {
        note_failure(worker, plan, pool, target, kind);
    }
    if broken.is_started || !outgoing.is_whole() {
        return Err(broken);
    }
    let is_unsent = outgoing.is_unsent();
    let is_refused = broken.failure.retry == Retry::Yes;
    let is_stale = match broken.failure.retry {
        Retry::No => false,
        Retry::Yes | Retry::IfIdempotent => true,
        Retry::IfReused => is_reused,
    };
    // Where one connection was closed while it was idle, most likely so were the others.
    let may_reuse = tries.may_reuse;
    tries.may_reuse &= !is_stale;
    if is_stale && may_reuse && (plan.is_idempotent || is_unsent || is_refused) {
        worker.local.counts.add(Count::UpstreamRetried);
        return Ok(Next::Afresh);
    }
    let event = match is_refused {
        true => Some(Event::Refused),
        false => Event::of(broken.failure.kind, is_unsent),
    };
    if event.is_some_and(|event| tries.take(worker, plan, pool, event)) {
        return Ok(Next::Repeated);
    }
    Err(broken)
}

/// Tells the record that somebody asked for how a try has failed.
fn fail_try(plan: &Forward, kind: FailureKind) {
    if let Some(record) = &plan.record {
        record.fail_try(kind);
    }
}

/// Gives back a connection of HTTP/1 that can serve again; a stream gives itself back.
fn keep(worker: &Worker, way: Way, is_reusable: bool, dial: &Dial<'_>) {
    if let Way::H1(connection) = way
        && is_reusable
    {
        worker.h1_pool.keep(connection, dial);
    }
}

fn after_failed_connect(
    worker: &Worker,
    plan: &Forward,
    pool: &Pool,
    tries: &mut RetryState,
    failure: Failure,
) -> Result<Next, Broken> {
    if tries.may_change && attempt::may_change(&failure, pool) {
        tries.may_change = false;
        worker.local.counts.add(Count::UpstreamRetried);
        return Ok(Next::Repeated);
    }
    // For the same endpoint it would wait once more in the line in which it has waited.
    let may_repeat = failure.kind != FailureKind::NoPort || attempt::may_change(&failure, pool);
    let event = Event::of(failure.kind, true).filter(|_| may_repeat);
    if event.is_some_and(|event| tries.take(worker, plan, pool, event)) {
        return Ok(Next::Repeated);
    }
    Err(unstarted(failure))
}

/// Counts a request at its upstream, where that bears only so many.
fn admit(worker: &Worker, plan: &Forward) -> Result<Option<HeldUsage>, Broken> {
    let upstream = &plan.upstream;
    let max = upstream.limits().map_or(0, |limits| limits.requests_max);
    if max == 0 {
        return Ok(None);
    }
    let held = HeldUsage::take(&upstream.usage, UsageKind::Requests, max);
    held.map(Some).ok_or_else(|| {
        worker.local.counts.add(Count::OverflowRequests);
        unstarted(FailureKind::Overflow.into())
    })
}

async fn resolve(worker: &Worker, plan: &Forward) -> Result<Option<Arc<DnsAnswer>>, Broken> {
    let asked = (&*plan.host, plan.asker);
    let answer = plan
        .upstream
        .answer(&worker.local.names, asked, plan.original);
    answer.await.map_err(unstarted)
}

fn pool<'a>(plan: &'a Forward, answer: Option<&'a Arc<DnsAnswer>>) -> &'a Pool {
    answer.map_or(&plan.upstream.pool, |answer| &answer.pool)
}

fn choose(
    worker: &Worker,
    plan: &Forward,
    pool: &Pool,
    tried: Option<u64>,
) -> Result<Arc<Endpoint>, Broken> {
    let preferred = plan.preferred.as_ref().filter(|_| tried.is_none());
    if let Some(target) = preferred {
        return Ok(target.clone());
    }
    let choice = Choice {
        dice: &worker.local.dice,
        tried,
        hash: plan.hash,
        now_ms: None,
    };
    let target = attempt::choose(pool, &choice);
    target.cloned().map_err(|kind| unstarted(kind.into()))
}

/// A connection to an endpoint. While it is waited for the request stands in line with others that
/// wait for their endpoints, and it ends with its client.
async fn connect<P: Peer>(
    worker: &Worker,
    plan: &Forward,
    target: &Arc<Endpoint>,
    tries: &RetryState,
    timers: &mut Timers,
    peer: &mut P,
    deadline: &Deadline,
) -> Result<Way, Failure> {
    let dial = dial(plan, target);
    let may_reuse = tries.may_reuse;
    let is_http2 = plan.upstream.is_http2();
    let at_once = match is_http2 {
        true => worker.h2_pool.take_open(&dial).map(Way::H2),
        false if may_reuse => worker.h1_pool.take(&dial).map(Way::H1),
        false => None,
    };
    if let Some(way) = at_once {
        return Ok(way);
    }
    // Boxed, because opening a connection takes much memory and is rare, and a client's
    // connection has room for the largest of its waits for as long as it lasts.
    let mut opening = Box::pin(async {
        if is_http2 {
            let stream = worker.h2_pool.take(&worker.h1_pool, &dial).await;
            return stream.map(Way::H2);
        }
        worker.h1_pool.reach(&dial, may_reuse).await.map(Way::H1)
    });
    // It passes for whoever has to go, and bounds nothing here.
    deadline.unset();
    let standing = &mut timers.patience.standing;
    standing.wait(ClientWait::Endpoint, 0, deadline.number());
    let opened = poll_fn(|context| {
        if let Poll::Ready(kind) = poll_ended(timers, peer, deadline, context) {
            return Poll::Ready(Err(kind.into()));
        }
        opening.as_mut().poll(context)
    })
    .await;
    deadline.unset();
    timers.patience.standing.leave();
    opened
}

/// Ready once a connection is not waited for any longer, with what that means.
fn poll_ended<P: Peer>(
    timers: &mut Timers,
    peer: &mut P,
    deadline: &Deadline,
    context: &mut Context<'_>,
) -> Poll<FailureKind> {
    if peer.poll_gone(context).is_ready() {
        return Poll::Ready(FailureKind::ClientGone);
    }
    if deadline.poll_passed(context).is_ready() && timers.patience.standing.is_evicted() {
        return Poll::Ready(FailureKind::Overloaded);
    }
    timers.poll_passed(context)
}

/// The purpose of a connection for this plan.
fn dial<'a>(plan: &'a Forward, target: &'a Arc<Endpoint>) -> Dial<'a> {
    let policy = plan.policy();
    Dial {
        target,
        upstream: &plan.upstream,
        host: &plan.host,
        credentials: &plan.credentials,
        is_stream: false,
        is_upgrade: plan.is_upgrade,
        ends: plan.ends,
        timeout: policy.map_or(Duration::ZERO, |policy| policy.connect_timeout),
        patience: policy.map_or(Duration::ZERO, |policy| policy.read_timeout),
    }
}

/// Waits before a repetition, but no longer than the request may take.
async fn pause(wait: Duration, timers: &mut Timers) -> Result<(), Broken> {
    if wait.is_zero() {
        return Ok(());
    }
    let mut sleep = Box::pin(tokio::time::sleep(wait));
    poll_fn(|context| {
        if sleep.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let passed = timers.poll_passed(context);
        passed.map(|kind| Err(unstarted(kind.into())))
    })
    .await
}

/// Puts a cookie, or a field, on the response where the client has none that leads to this
/// endpoint, unless it is to come back to the one that failed.
fn offer_cookie(plan: &mut Forward, target: &Endpoint) {
    let Some(affinity) = plan.policy().and_then(|policy| policy.affinity.as_ref()) else {
        return;
    };
    let stays = match &plan.preferred {
        Some(known) => known.id == target.id || affinity.stays_on_failure,
        None => false,
    };
    let token = (!stays).then(|| affinity::token(affinity, target, clock::since_epoch()));
    if affinity.in_header {
        let name = affinity.cookie.clone();
        return offer_field(plan, name, token);
    }
    let takes_none = plan.takes_none;
    let cookie = token.map(|token| affinity::set_cookie(affinity, &token, takes_none));
    plan.additions.retain(|(name, _)| *name != "set-cookie");
    let cookie = cookie.map(|cookie| ("set-cookie", cookie.into_bytes().into()));
    plan.additions.extend(cookie);
}

/// Puts a field with a token on the response, in place of that of an earlier try.
fn offer_field(plan: &mut Forward, name: Box<str>, token: Option<String>) {
    // Those for successes alone come first, and are none of ours.
    let from = plan.told_on_success;
    let mut told = plan.told.iter().skip(from);
    if let Some(at) = told.position(|(known, _)| *known == name) {
        plan.told.remove(from + at);
    }
    if let Some(token) = token.filter(|_| check::may_pass_on(&name)) {
        plan.told.push((name, token.into_bytes().into()));
    }
}

fn switched(far: Far, said: Option<Buffer>, flight: Flight) -> Switched {
    Switched {
        far,
        said,
        flight,
        share: None,
        running: Vec::new(),
    }
}

fn unstarted(failure: Failure) -> Broken {
    Broken {
        failure,
        is_started: false,
    }
}
