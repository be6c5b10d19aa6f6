//! The state that exchanges over connections of either version share.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use myriad_model::Policy;

use super::outgoing::Outgoing;
use super::retry_state::RetryState;
use super::timers::Timers;
use crate::admission::waiting::ClientWait;
use crate::balance::outlier::EndpointOutcome;
use crate::balance::{Endpoint, Pool};
use crate::codec::buffer::Buffer;
use crate::failure::{Failure, FailureKind};
use crate::http::peer::Peer;
use crate::http::plan::Forward;
use crate::http::worker::Worker;
use crate::net::carrier::Carrier;
use crate::net::deadline::Deadline;
use crate::upstream::attempt;

/// The most interim responses (1xx) that an endpoint may send before its answer.
const INTERIMS_MAX: u8 = 32;

/// So much of a request in hand is more than most heads.
const STUCK_BYTES: usize = 4 << 10;

/// Counts the interim responses of one try.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interims {
    count: u8,
    /// Whether the endpoint has said that it wants the body of the request.
    pub has_continued: bool,
}

impl Interims {
    /// Whether there was none. After one the endpoint is known to have seen the request, so an end
    /// of the connection does not mean that it was closed while it was idle.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Takes one more, and says whether the client gets to see it.
    ///
    /// # Errors
    /// One too many, or one that changes the protocol though nobody has asked.
    pub fn take(&mut self, status: u16, plan: &Forward) -> Result<bool, FailureKind> {
        self.count += 1;
        if self.count > INTERIMS_MAX || status == 101 {
            return Err(FailureKind::BadResponse);
        }
        self.has_continued |= status == 100;
        // A client that did not ask would not know what to do with it.
        Ok(status != 100 || plan.expects_continue)
    }
}

/// How an exchange ended.
pub enum ExchangeEnd {
    /// The response is complete.
    Done {
        /// Whether the connection to the endpoint can serve again.
        is_reusable: bool,
        /// Whether the request was read to its end.
        is_request_done: bool,
    },
    /// The endpoint changed the protocol; what it said beyond its head.
    Switched(Option<Buffer>),
    /// The endpoint lets the stream carry another protocol.
    Carried(Carrier),
    /// The response leads to a repetition or a page, and the client has seen nothing of it.
    Refused {
        /// Whether the connection to the endpoint can serve again.
        is_reusable: bool,
    },
}

/// How an exchange broke off.
#[derive(Debug)]
pub struct Broken {
    /// The failure.
    pub failure: Failure,
    /// Whether the response had begun.
    pub is_started: bool,
}

/// The state that all tries of a request share.
pub struct Attempt<'a> {
    /// The worker that serves the request.
    pub worker: &'a Rc<Worker>,
    /// The plan of the request.
    pub plan: &'a Forward,
    /// The endpoints of its upstream.
    pub pool: &'a Pool,
    /// The one that is tried.
    pub target: &'a Endpoint,
    /// Bounds each wait.
    pub deadline: &'a Deadline,
    /// The bytes for the endpoint.
    pub outgoing: &'a mut Outgoing,
    /// Bounds all waits together.
    pub timers: &'a mut Timers,
    /// The tries that are left.
    pub tries: &'a mut RetryState,
}

/// The event that the exchange waits for, which says how long it may.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ExchangeWait {
    /// Nothing in particular.
    Nothing,
    /// More of the request.
    ClientBody,
    /// That the client reads.
    ClientRead,
    /// More of the response.
    EndpointRead,
    /// That the endpoint reads.
    EndpointWrite,
}

impl Attempt<'_> {
    /// The event that the request's body waits for: more from the client, or whether the endpoint
    /// wants it, where the client waits for that.
    pub fn waits_for_body(&self, interims: Interims) -> ExchangeWait {
        match self.plan.expects_continue && !interims.has_continued && !self.outgoing.has_body() {
            true => ExchangeWait::EndpointRead,
            false => ExchangeWait::ClientBody,
        }
    }

    /// Ready once an answer may be read: at once, unless its upstream's namespace has had its turn.
    pub fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        let turns = &self.worker.local.fairness.answers;
        let mut wait = self.plan.turn.take();
        let polled = turns.poll_turn(self.plan.upstream.owner, &mut wait, context);
        self.plan.turn.set(wait);
        polled
    }

    /// Takes note of the head of an answer.
    pub fn spend_head(&self, bytes: usize) {
        let turns = &self.worker.local.fairness.answers;
        turns.spend_head(self.plan.upstream.owner, bytes);
    }

    /// Takes note of the framing of an answer in very small chunks.
    pub fn spend_framing(&self, bytes: usize) {
        let turns = &self.worker.local.fairness.answers;
        turns.spend_framing(self.plan.upstream.owner, bytes);
    }

    /// Takes note of the head of an answer that came packed.
    pub fn spend_unpacked(&self, bytes: usize, fields: usize) {
        let turns = &self.worker.local.fairness.answers;
        turns.spend_unpacked(self.plan.upstream.owner, bytes, fields);
    }

    /// Tells the client's end how much is held for the request, with what has come of the response,
    /// and how much there may be below that. What is too much already is not kept in case it has
    /// to be sent again.
    pub fn hold<P: Peer>(&mut self, peer: &mut P, incoming: usize, below: usize) {
        let beside = self.plan.memory() + incoming;
        let may_grow = peer.hold(beside + self.outgoing.memory(), below);
        self.outgoing.tighten(!may_grow);
        if may_grow {
            return;
        }
        self.outgoing.keep_less();
        peer.hold(beside + self.outgoing.memory(), below);
    }

    /// The end of an exchange that was just polled: its own, or that of a wait that has taken too
    /// long. `status` is that of the response; 0 before it.
    pub fn poll_end(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<Result<ExchangeEnd, Failure>>,
        waits: ExchangeWait,
        status: u16,
    ) -> Poll<Result<ExchangeEnd, Broken>> {
        let is_started = status != 0;
        let ended = match polled {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => {
                let passed = self.poll_passed(context, waits, is_started);
                passed.map(|kind| Err(Failure::from(kind)))
            }
        };
        ended.map_err(|failure| Broken {
            failure,
            is_started,
        })
    }

    /// Ready once a wait has taken too long, with what that means.
    fn poll_passed(
        &mut self,
        context: &mut Context<'_>,
        waits: ExchangeWait,
        is_answered: bool,
    ) -> Poll<FailureKind> {
        let has_passed = self.deadline.poll_passed(context).is_ready();
        if self.timers.patience.standing.is_evicted() {
            return Poll::Ready(waits.eviction());
        }
        if has_passed {
            return Poll::Ready(waits.timeout());
        }
        if self.outgoing.is_complete() {
            self.timers.run(is_answered);
        }
        self.timers.poll_passed(context)
    }

    /// Takes note of the status of the response, as far as it tells of the endpoint.
    pub fn note_response(&self, status: u16) {
        if let Some(record) = &self.plan.record {
            record.answered(status);
            record.wait("the rest of the answer");
        }
        let outcome = match self.pool.is_watched() && self.plan.is_foreign() {
            true => EndpointOutcome::ForeignResponse(status),
            false => EndpointOutcome::Response(status),
        };
        let counts = &self.worker.local.counts;
        attempt::note(counts, self.pool, self.target, outcome);
    }

    /// Begins a wait, before or after the response has begun, of which the client has taken so
    /// many bytes.
    pub fn wait_for(&mut self, waits: ExchangeWait, is_answered: bool, taken: u64) {
        let local = &self.worker.local;
        let limits = &local.limits;
        let policy = self.plan.policy();
        let patience = &mut self.timers.patience;
        patience.end();
        let has_body = self.outgoing.memory() > STUCK_BYTES;
        match waits.stands(is_answered, has_body) {
            Some(waits) => {
                let progress = self.outgoing.received().wrapping_add(taken);
                let standing = &mut patience.standing;
                standing.wait(waits, progress, self.deadline.number());
            }
            None => patience.standing.leave(),
        }
        let of_policy = |time: fn(&Policy) -> Duration| policy.map_or(limits.write_timeout, time);
        self.deadline.set(match waits {
            // Both ends may have something to say for as long as they like.
            ExchangeWait::ClientBody if is_answered => limits.body_timeout,
            ExchangeWait::ClientBody => {
                patience.begin(local, self.outgoing.received(), self.plan.has_length)
            }
            ExchangeWait::ClientRead => limits.write_timeout,
            ExchangeWait::EndpointWrite => of_policy(|policy| policy.send_timeout),
            ExchangeWait::EndpointRead | ExchangeWait::Nothing => {
                of_policy(|policy| policy.read_timeout)
            }
        });
    }
}

/// Takes note of a failure, as far as it tells of the endpoint: where the route is of another
/// namespace, only of those that the route cannot make by how long it waits and what it asks for.
pub fn note_failure(
    worker: &Worker,
    plan: &Forward,
    pool: &Pool,
    target: &Endpoint,
    kind: FailureKind,
) {
    if matches!(kind, FailureKind::Overloaded | FailureKind::NoPort) {
        return;
    }
    let is_endpoints = matches!(
        kind,
        FailureKind::ConnectFailed
            | FailureKind::ConnectTimeout
            | FailureKind::UpstreamTls
            | FailureKind::UpstreamClosed
    );
    if is_endpoints || !plan.is_foreign() {
        let counts = &worker.local.counts;
        attempt::note(counts, pool, target, EndpointOutcome::Failure);
    }
}

impl ExchangeWait {
    /// The endpoint is waited for, where nothing else is.
    pub fn read_endpoint(&mut self) {
        if *self == ExchangeWait::Nothing {
            *self = ExchangeWait::EndpointRead;
        }
    }

    /// The event for which a request stands in line. With a response under way, either end may be
    /// the one that has nothing to say; then it goes for memory only for what is kept of its body.
    fn stands(self, is_answered: bool, has_body: bool) -> Option<ClientWait> {
        let may_stand = !is_answered || has_body;
        match self {
            ExchangeWait::ClientBody => (!is_answered).then_some(ClientWait::Body),
            ExchangeWait::ClientRead => Some(ClientWait::Read),
            ExchangeWait::EndpointRead | ExchangeWait::EndpointWrite => Some(match may_stand {
                true => ClientWait::Endpoint,
                false => ClientWait::More,
            }),
            ExchangeWait::Nothing => None,
        }
    }

    /// The end of a request that makes room. That is nobody's fault at the endpoint.
    fn eviction(self) -> FailureKind {
        match self {
            ExchangeWait::EndpointWrite | ExchangeWait::EndpointRead => FailureKind::Overloaded,
            other => other.timeout(),
        }
    }

    fn timeout(self) -> FailureKind {
        match self {
            ExchangeWait::ClientBody => FailureKind::BodyTimeout,
            ExchangeWait::ClientRead => FailureKind::ClientStalled,
            ExchangeWait::EndpointWrite => FailureKind::SendTimeout,
            ExchangeWait::EndpointRead | ExchangeWait::Nothing => FailureKind::ReadTimeout,
        }
    }
}
