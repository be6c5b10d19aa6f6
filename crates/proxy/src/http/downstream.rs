//! Clients: the framing of either version, and the one way of a planned request through it.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::account::RequestAccount;
use super::answer::LocalReply;
use super::error_pages::{self, Replaced};
use super::peer::Peer;
use super::plan::{Forward, Plan, tell_trouble};
use super::stage::external::settle;
use super::stage::processors::{Ended, accompany};
use super::stage::{Decided, PlanWaits, Planned};
use super::upstream::attempt::Broken;
use super::upstream::retry::{ExchangeOutcome, Switched, exchange};
use super::worker::Worker;
use crate::admission::waiting::{ClientWait, Standing};
use crate::codec::trailer::{self, Trailers};
use crate::failure::FailureKind;
use crate::net::deadline::Deadline;
use crate::policy::token;
use crate::route::downstream_connection::DownstreamConnection;

pub mod h1;
pub mod h2;
mod turn;

/// The client's end of one request, as its version frames answers.
pub trait Downstream: Peer {
    /// Whether the client would understand an answer of the proxy. One that asks for another
    /// protocol over HTTP/2 would take any success for a yes.
    fn understands(&self, _answer: &LocalReply) -> bool {
        true
    }

    /// Begins an answer of the proxy.
    fn begin_answer(&mut self, answer: &LocalReply);

    /// Sends an answer that was begun; ready when all of it was taken.
    ///
    /// # Errors
    /// A client that went away.
    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
        answer: &LocalReply,
    ) -> Poll<Result<(), FailureKind>>;

    /// The rest of an answer of the proxy is all that is left to be done, and waits for the
    /// client: its connection has to go where another needs the place.
    fn rest(&mut self, visit: &DownstreamConnection);

    /// Says no more to the client.
    fn give_up(&mut self, why: GiveUp);

    /// Adds what was passed on to the account of the request.
    fn tell(&self, account: &mut RequestAccount);
}

/// The trailers of a request as they go on: without tokens, which nobody has verified, and without
/// what the proxy fills from tokens, on whatever listener.
fn trailers_of_request(worker: &Worker, trailers: Trailers) -> Option<Trailers> {
    let tables = worker.tables.load();
    trailer::of_request(trailers, |name| {
        token::is_of_tokens(tables.access_policies(), name)
    })
}

/// Why a client is told no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// It went away, or does not read, before there was an answer.
    Absent(FailureKind),
    /// It does not read the answer.
    Stalled,
    /// It went away while it was sent the answer.
    Lost,
    /// A response broke off. What was begun cannot be taken back; the missing end tells the
    /// client.
    Broken(FailureKind),
}

/// How a request was served.
pub enum Served {
    /// An endpoint has answered.
    Done,
    /// The proxy has answered.
    Answered {
        /// Whether what is left of the request can be told from what follows it.
        is_framed: bool,
    },
    /// The response broke off.
    Broken,
    /// The connection, or stream, speaks another protocol from now on, and ends once neither side
    /// has said anything for so long.
    Switched(Box<Switched>, Duration),
}

/// One request of a client, and what it is served with.
pub struct RequestTurn<'a, D> {
    /// The worker.
    pub worker: &'a Rc<Worker>,
    /// The connection that it came by.
    pub visit: &'a DownstreamConnection,
    /// The client's end.
    pub client: &'a mut D,
    /// The account of it, which is told once it is over.
    pub account: &'a mut RequestAccount,
    /// Bounds each wait.
    pub deadline: &'a Deadline,
}

impl<D: Downstream> RequestTurn<'_, D> {
    /// Carries out a plan, once whoever has to be asked has answered and any wait on purpose is
    /// over.
    pub fn carry_out(&mut self, planned: Planned) -> impl Future<Output = Served> {
        let Planned {
            mut plan, waits, ..
        } = planned;
        // What a block takes from around it is there once, the arguments of a function twice.
        async move {
            self.client.belong(self.account.space());
            if let Some(waits) = waits {
                plan = Box::pin(self.wait(*waits, plan)).await;
                // Only what has a route is of somebody, and that may come of the answers.
                self.client.belong(self.account.space());
            }
            let (mut answer, is_framed) = match plan {
                Plan::Answer(answer) if self.client.understands(&answer) => (answer, true),
                Plan::Answer(_) => (Box::new(LocalReply::failed(FailureKind::NoUpgrade)), true),
                Plan::Forward(mut plan) => {
                    let ended = match plan.is_processed() {
                        false => Ended::Exchanged(self.forward(&mut plan).await),
                        // Boxed, because this is large and rare.
                        true => Box::pin(self.accompany(&mut plan)).await,
                    };
                    match replaced(ended, &plan) {
                        Err(error) => {
                            let page = error_pages::answer(self.worker, &mut plan, error);
                            let answer = Box::pin(page).await;
                            (in_place_of(&mut plan, answer), true)
                        }
                        Ok(ended) => match self.conclude(ended, &mut plan) {
                            Ok(served) => return served,
                            Err(instead) => instead,
                        },
                    }
                }
            };
            self.respond(&mut answer).await;
            Served::Answered { is_framed }
        }
    }

    /// The plan, once what it waits for is over.
    async fn wait(&mut self, waits: PlanWaits, plan: Plan) -> Plan {
        let PlanWaits { hold, check, delay } = waits;
        let mut decided = Decided { plan, delay, hold };
        self.account
            .wait("a password, or a service that the route has asked");
        if decided.is_released(self.client).await
            && let Some(check) = check
        {
            let (worker, client, deadline) = (self.worker, &mut *self.client, self.deadline);
            let account = &mut *self.account;
            account.wait("the providers that are asked");
            let changed = &mut decided;
            settle(
                worker, self.visit, check, changed, client, account, deadline,
            )
            .await;
            // A changed request may have come to a route that holds it back again.
            decided.is_released(self.client).await;
        }
        if !decided.delay.is_zero() {
            self.account.wait("a delay on purpose");
            tokio::time::sleep(decided.delay).await;
        }
        decided.plan
    }

    fn forward(
        &mut self,
        plan: &mut Forward,
    ) -> impl Future<Output = Result<ExchangeOutcome, Broken>> {
        exchange(self.worker, plan, self.client, self.account, self.deadline)
    }

    fn accompany(&mut self, plan: &mut Forward) -> impl Future<Output = Ended> {
        accompany(self.worker, plan, self.client, self.account, self.deadline)
    }

    /// Ends an exchange on the client's side.
    ///
    /// # Errors
    /// The answer in its place, and whether the rest of the request can be told from what follows
    /// it.
    fn conclude(
        &mut self,
        ended: Ended,
        plan: &mut Forward,
    ) -> Result<Served, (Box<LocalReply>, bool)> {
        let ended = match ended {
            Ended::Exchanged(ended) => ended,
            Ended::Answered(answer) => return Err((in_place_of(plan, answer), true)),
        };
        match ended {
            Ok(ExchangeOutcome::Done { .. }) => Ok(Served::Done),
            Ok(ExchangeOutcome::Switched(mut switched)) => {
                switched.share = self.account.tunnel.take();
                switched.running = std::mem::take(&mut self.account.running);
                let idle_timeout = plan.policy().map(|policy| policy.read_timeout);
                Ok(Served::Switched(switched, idle_timeout.unwrap_or_default()))
            }
            Ok(ExchangeOutcome::Replaced { status }) => {
                Err((in_place_of(plan, LocalReply::empty(status)), true))
            }
            Err(Broken {
                failure,
                is_started,
            }) => {
                let kind = failure.kind;
                self.account.failure = Some(kind);
                if is_started {
                    self.client.give_up(GiveUp::Broken(kind));
                    return Ok(Served::Broken);
                }
                let is_framed = kind.verdict().status != 408 && kind != FailureKind::BadBody;
                Err((in_place_of(plan, LocalReply::failed(kind)), is_framed))
            }
        }
    }

    /// Sends an answer of the proxy.
    pub async fn respond(&mut self, answer: &mut LocalReply) {
        self.account.failure = answer.failure;
        self.account.status = answer.status;
        // It is on its way to no endpoint any more.
        let [space, _] = self.account.space();
        self.account.held = None;
        if let Some(kind @ (FailureKind::ClientGone | FailureKind::ClientStalled)) = answer.failure
        {
            return self.client.give_up(GiveUp::Absent(kind));
        }
        self.account.put_page(answer);
        self.account.status = answer.status;
        self.client.hold(answer.memory(), 0);
        self.client.begin_answer(answer);
        self.account.wait("the client to take the proxy's answer");
        let mut standing = Standing::of_answer(space);
        let limits = &self.worker.local.limits;
        self.deadline.set(limits.write_timeout);
        let sent = poll_fn(|context| {
            if let Poll::Ready(sent) = self.client.poll_answer(context, answer) {
                return Poll::Ready(sent.map_err(|_| GiveUp::Lost));
            }
            let taken = self.client.taken();
            standing.wait(ClientWait::Read, taken, self.deadline.number());
            self.client.rest(self.visit);
            let passed = self.deadline.poll_passed(context);
            passed.map(|()| {
                Err(match self.visit.is_evicted() {
                    true => GiveUp::Lost,
                    false => GiveUp::Stalled,
                })
            })
        })
        .await;
        if let Err(why) = sent {
            self.client.give_up(why);
        }
    }
}

/// The end as it is, unless a page takes its place.
///
/// # Errors
/// The error of an endpoint that has answered so, or of none that could be reached, and whose place
/// a page takes.
fn replaced(ended: Ended, plan: &Forward) -> Result<Ended, Box<Replaced>> {
    let (status, otherwise) = match &ended {
        Ended::Exchanged(Ok(ExchangeOutcome::Replaced { status })) => {
            (*status, LocalReply::empty(*status))
        }
        Ended::Exchanged(Err(broken)) if !broken.is_started => {
            let kind = broken.failure.kind;
            let status = kind.verdict().status;
            if !matches!(status, 502..=504) || !plan.is_replaced(status) {
                return Ok(ended);
            }
            (status, LocalReply::failed(kind))
        }
        Ended::Exchanged(_) | Ended::Answered(_) => return Ok(ended),
    };
    Err(Box::new(Replaced { status, otherwise }))
}

/// An answer in place of the endpoint's, with the fields that this would have got.
fn in_place_of(plan: &mut Forward, answer: LocalReply) -> Box<LocalReply> {
    let answer = answer.with(std::mem::take(&mut plan.additions));
    tell_trouble(plan, &answer);
    Box::new(answer)
}
