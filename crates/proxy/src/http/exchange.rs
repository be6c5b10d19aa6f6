//! A planned request against endpoints, until one of them has answered or none is left to try.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::account::Account;
use super::mirror;
use super::outgoing::{KEPT_BYTES_MAX, Outgoing};
use super::peer::Peer;
use super::plan::Forward;
use super::relay::{Around, Broken, End, Relay};
use super::timers::Timers;
use super::tries::Tries;
use super::worker::Worker;
use crate::balance::{Flight, Pool, Target};
use crate::net::buffer::Buffer;
use crate::net::count::Count;
use crate::net::deadline::Deadline;
use crate::net::failure::{Failure, FailureKind, Retry};
use crate::policy::affinity;
use crate::policy::retry::Event;
use crate::upstream::link::Link;
use crate::upstream::resolve::Answer;

/// How an exchange ended.
pub enum Outcome {
    /// The response is complete.
    Done {
        /// Whether the request was read to its end.
        is_request_done: bool,
    },
    /// The endpoint changed the protocol.
    Switched(Box<Switched>),
}

/// A connection that speaks another protocol now.
pub struct Switched {
    /// The connection to the endpoint.
    pub link: Link,
    /// What the endpoint said already.
    pub said: Option<Buffer>,
    /// Counts as a request for as long as it lasts.
    pub flight: Flight,
}

/// What follows a try.
enum Next {
    /// The end.
    Ended(Outcome),
    /// The same once more, on a fresh connection where the reused one had been closed.
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
    account: &mut Account,
    deadline: &Deadline,
) -> Result<Outcome, Broken> {
    let answer = resolve(worker, plan).await?;
    let kept_bytes_max = if plan.is_kept() { KEPT_BYTES_MAX } else { 0 };
    let head = std::mem::replace(&mut plan.head, Buffer::take());
    let mut outgoing = Outgoing::new(head, !plan.has_body, kept_bytes_max);
    let mut timers = Timers::new(plan.policy());
    let mut tries = Tries::new(plan);
    let mut tried = None;
    if outgoing.is_complete() {
        mirror::start(worker, plan, &outgoing);
    }
    loop {
        let target = choose(worker, plan, pool(plan, answer.as_ref()), tried)?;
        account.set_endpoint(&plan.upstream.name, target.address);
        let flight = Flight::start(target.clone());
        if outgoing.is_complete() {
            timers.run(false);
        }
        let link = connect(worker, plan, &target, tries.may_reuse, &mut timers).await;
        let next = match link {
            Ok(link) => {
                offer_cookie(plan, &target);
                let around = Around {
                    worker,
                    plan,
                    pool: pool(plan, answer.as_ref()),
                    deadline,
                    outgoing: &mut outgoing,
                    timers: &mut timers,
                    tries: &mut tries,
                };
                run(around, peer, account, link, flight).await?
            }
            Err(failure) => {
                let pool = pool(plan, answer.as_ref());
                after_failed_connect(worker, plan, pool, &mut tries, failure)?
            }
        };
        timers.end_try();
        match next {
            Next::Ended(outcome) => return Ok(outcome),
            Next::Afresh => {}
            Next::Repeated => {
                tried = Some(target.id);
                plan.preferred = None;
                pause(tries.wait(worker, plan), &mut timers).await?;
            }
        }
        outgoing.rewind();
    }
}

/// Makes one try over a connection.
async fn run<P: Peer>(
    around: Around<'_>,
    peer: &mut P,
    account: &mut Account,
    mut link: Link,
    flight: Flight,
) -> Result<Next, Broken> {
    let (worker, plan, deadline) = (around.worker, around.plan, around.deadline);
    let mut relay = Relay::new(around, peer, &mut link);
    let ended = poll_fn(|context| relay.poll(context)).await;
    account.status = relay.status();
    let around = relay.into_around();
    deadline.unset();
    let broken = match ended {
        Ok(End::Done {
            is_reusable,
            is_request_done,
        }) => {
            if is_reusable {
                worker.links.keep(link, flight.target());
            }
            return Ok(Next::Ended(Outcome::Done { is_request_done }));
        }
        Ok(End::Switched(said)) => {
            let switched = Switched { link, said, flight };
            return Ok(Next::Ended(Outcome::Switched(Box::new(switched))));
        }
        Ok(End::Refused { is_reusable }) => {
            if is_reusable {
                worker.links.keep(link, flight.target());
            }
            return Ok(Next::Repeated);
        }
        Err(broken) => broken,
    };
    let Around {
        outgoing,
        tries,
        pool,
        ..
    } = around;
    if broken.is_started || !outgoing.is_whole() {
        return Err(broken);
    }
    let is_unsent = outgoing.is_unsent();
    let is_stale = broken.failure.retry == Retry::IfReused && link.is_reused;
    // Where one connection was closed while it was idle, most likely so were the others.
    let may_reuse = tries.may_reuse;
    tries.may_reuse &= !is_stale;
    if is_stale && may_reuse && (plan.is_idempotent || is_unsent) {
        worker.local.counts.add(Count::UpstreamRetried);
        return Ok(Next::Afresh);
    }
    let event = Event::of(broken.failure.kind, is_unsent);
    if event.is_some_and(|event| tries.take(worker, plan, pool, event)) {
        return Ok(Next::Repeated);
    }
    Err(broken)
}

fn after_failed_connect(
    worker: &Worker,
    plan: &Forward,
    pool: &Pool,
    tries: &mut Tries,
    failure: Failure,
) -> Result<Next, Broken> {
    let has_other = pool.members().len() > 1;
    if failure.retry == Retry::Yes && tries.may_change && has_other {
        tries.may_change = false;
        worker.local.counts.add(Count::UpstreamRetried);
        return Ok(Next::Repeated);
    }
    let event = Event::of(failure.kind, true);
    if event.is_some_and(|event| tries.take(worker, plan, pool, event)) {
        return Ok(Next::Repeated);
    }
    Err(unstarted(failure))
}

async fn resolve(worker: &Worker, plan: &Forward) -> Result<Option<Arc<Answer>>, Broken> {
    let Some(resolution) = &plan.upstream.resolution else {
        return Ok(None);
    };
    let answer = resolution.answer(worker.local.limits.dns_ttl).await;
    answer.map(Some).map_err(unstarted)
}

fn pool<'a>(plan: &'a Forward, answer: Option<&'a Arc<Answer>>) -> &'a Pool {
    answer.map_or(&plan.upstream.pool, |answer| &answer.pool)
}

fn choose(
    worker: &Worker,
    plan: &Forward,
    pool: &Pool,
    tried: Option<u64>,
) -> Result<Arc<Target>, Broken> {
    if let Some(target) = &plan.preferred {
        return Ok(target.clone());
    }
    pool.pick(&worker.local.dice, tried)
        .cloned()
        .ok_or_else(|| unstarted(FailureKind::NoEndpoint.into()))
}

async fn connect(
    worker: &Worker,
    plan: &Forward,
    target: &Target,
    may_reuse: bool,
    timers: &mut Timers,
) -> Result<Link, Failure> {
    if may_reuse && let Some(link) = worker.links.take(target, &plan.host) {
        return Ok(link);
    }
    let timeout = plan.policy().map(|policy| policy.connect_timeout);
    let timeout = timeout.ok_or(FailureKind::Internal)?;
    let mut opening = std::pin::pin!(worker.links.open(target, &plan.host, timeout));
    poll_fn(|context| {
        if let Poll::Ready(opened) = opening.as_mut().poll(context) {
            return Poll::Ready(opened);
        }
        timers.poll_passed(context).map(|kind| Err(kind.into()))
    })
    .await
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

/// Puts a cookie on the response where the client has none that leads to this endpoint.
fn offer_cookie(plan: &mut Forward, target: &Target) {
    let Some(affinity) = plan.policy().and_then(|policy| policy.affinity.as_ref()) else {
        return;
    };
    if plan
        .preferred
        .as_ref()
        .is_some_and(|known| known.id == target.id)
    {
        return;
    }
    let cookie = affinity::set_cookie(affinity, target);
    plan.additions.retain(|(name, _)| *name != "set-cookie");
    plan.additions
        .push(("set-cookie", cookie.into_bytes().into()));
}

fn unstarted(failure: Failure) -> Broken {
    Broken {
        failure,
        is_started: false,
    }
}
