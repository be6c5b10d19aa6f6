//! A planned request against endpoints, until one of them has answered or none is left to try.

use std::future::poll_fn;
use std::sync::Arc;

use super::account::Account;
use super::peer::Peer;
use super::plan::Forward;
use super::relay::{Broken, End, Outgoing, Relay};
use super::worker::Worker;
use crate::balance::{Flight, Pool, Target};
use crate::net::buffer::Buffer;
use crate::net::count::Count;
use crate::net::deadline::Deadline;
use crate::net::failure::{Failure, FailureKind, Retry};
use crate::policy::affinity;
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

/// What may still be tried.
struct Tries {
    /// Another endpoint, where nothing was sent to the first.
    other: bool,
    /// A fresh connection, where the endpoint had closed the reused one.
    fresh: bool,
}

/// Carries a plan out.
///
/// # Errors
/// How it broke off. Where no response had begun, the caller answers.
pub async fn exchange<P: Peer>(
    worker: &Worker,
    plan: &mut Forward,
    peer: &mut P,
    account: &mut Account,
    deadline: &Deadline,
) -> Result<Outcome, Broken> {
    let answer = resolve(worker, plan).await?;
    let mut outgoing = Outgoing::new(std::mem::replace(&mut plan.head, Buffer::take()));
    let mut tries = Tries {
        other: true,
        fresh: true,
    };
    let mut tried = None;
    loop {
        let pool = answer
            .as_ref()
            .map_or(&plan.upstream.pool, |answer| &answer.pool);
        let target = choose(worker, plan, pool, tried)?;
        account.set_endpoint(&plan.upstream.name, target.address);
        let flight = Flight::start(target.clone());
        let mut link = match connect(worker, plan, &target, tries.fresh).await {
            Ok(link) => link,
            Err(failure) => {
                let has_other = pool.members().len() > 1;
                if failure.retry == Retry::Yes && tries.other && has_other {
                    tries.other = false;
                    tried = Some(target.id);
                    plan.preferred = None;
                    worker.local.counts.add(Count::UpstreamRetried);
                    continue;
                }
                return Err(unstarted(failure));
            }
        };
        offer_cookie(plan, &target);
        let mut relay = Relay::new(worker, plan, peer, &mut link, &mut outgoing, deadline);
        let ended = poll_fn(|context| relay.poll(context)).await;
        account.status = relay.status();
        deadline.unset();
        match ended {
            Ok(End::Done {
                is_reusable,
                is_request_done,
            }) => {
                if is_reusable {
                    worker.links.keep(link, &target);
                }
                return Ok(Outcome::Done { is_request_done });
            }
            Ok(End::Switched(said)) => {
                return Ok(Outcome::Switched(Box::new(Switched { link, said, flight })));
            }
            Err(broken) => {
                let may_repeat = plan.is_idempotent || outgoing.is_unsent();
                let is_stale = broken.failure.retry == Retry::IfReused && link.is_reused;
                if !(is_stale && may_repeat && outgoing.is_whole() && tries.fresh) {
                    return Err(broken);
                }
                tries.fresh = false;
                outgoing.rewind();
                worker.local.counts.add(Count::UpstreamRetried);
            }
        }
    }
}

async fn resolve(worker: &Worker, plan: &Forward) -> Result<Option<Arc<Answer>>, Broken> {
    let Some(resolution) = &plan.upstream.resolution else {
        return Ok(None);
    };
    let answer = resolution.answer(worker.local.limits.dns_ttl).await;
    answer.map(Some).map_err(unstarted)
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
) -> Result<Link, Failure> {
    if may_reuse && let Some(link) = worker.links.take(target, &plan.host) {
        return Ok(link);
    }
    let timeout = plan.policy().map(|policy| policy.connect_timeout);
    let timeout = timeout.ok_or(FailureKind::Internal)?;
    worker.links.open(target, &plan.host, timeout).await
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
