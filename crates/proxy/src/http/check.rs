//! Providers: asked before a request goes on, without ever keeping the worker from others.
//!
//! A question is an exchange like any other, over the connections that all exchanges use, with a
//! client that keeps the answer.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use myriad_model::{
    Action, CheckBody, Form, Name, Origin, PathMatch, Policy, Provider, Resource, Route, SealedArc,
    Sealer, Value,
};
use smallvec::SmallVec;

use super::account::Account;
use super::answer::Answer;
use super::exchange::exchange;
use super::gate;
use super::keeper::Keeper;
use super::peer::Peer;
use super::plan::{Asking, Forward, Plan, Planned, proceed};
use super::trouble;
use super::worker::Worker;
use crate::net::body::{BodyLength, Encoder};
use crate::net::buffer::Buffer;
use crate::net::count::Count;
use crate::net::deadline::Deadline;
use crate::net::failure::FailureKind;
use crate::net::head::Head;
use crate::net::kept::KeptHead;
use crate::net::limits::Limits;
use crate::net::pattern::Budget;
use crate::net::proxy_header::Ends;
use crate::net::request_id::RequestId;
use crate::net::response;
use crate::policy::check::{self, Answered, Question, Refusal, Verdict};
use crate::policy::cors::Additions;
use crate::policy::token::KeptToken;
use crate::route::credentials::credentials;
use crate::route::guards::Guards;
use crate::route::host::{RouteArc, RouteEntry};
use crate::route::tables::upstream_hash;
use crate::route::visit::Visit;

/// The field of the id of a request.
const REQUEST_ID: &str = "x-request-id";

/// The longest body of an answer in bytes; a longer one is no answer.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The longest wait between two reads or writes of a question; its provider's timeout is shorter
/// but for the one that Istio has where nobody wrote any.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Who has to be asked about a request, and all of it that has to outlive the answers.
pub struct Check {
    /// In the order of asking; each is told what the ones before it changed.
    providers: SmallVec<[SealedArc; 2]>,
    head: KeptHead,
    token: Option<KeptToken>,
    /// What is weighed once all of them let the request pass.
    guards: Guards,
    /// What its regexes may still cost.
    budget: Budget,
}

impl Check {
    /// A request with a head that whoever came before the providers has left, and the id that it
    /// goes on with; none for what the client sent.
    pub fn new(
        providers: SmallVec<[SealedArc; 2]>,
        head: &Head<'_>,
        id: Option<&RequestId>,
        token: Option<KeptToken>,
        guards: Guards,
        budget: Budget,
    ) -> Self {
        let mut head = KeptHead::new(head);
        if let Some(id) = id {
            put_id(&mut head, id);
        }
        Check {
            providers,
            head,
            token,
            guards,
            budget,
        }
    }
}

/// Puts the id of a request where a client's would stand: providers find it by the same one as the
/// endpoint and the logs.
fn put_id(head: &mut KeptHead, id: &RequestId) {
    head.remove(|name| name == REQUEST_ID);
    head.add(REQUEST_ID, id.text(&mut [0; 36]).as_bytes());
}

/// Asks, weighs what denies and allows, and makes of the plan what all of them say.
pub async fn settle<P: Peer>(
    worker: &Rc<Worker>,
    visit: &Visit,
    mut check: Check,
    planned: &mut Planned,
    peer: &mut P,
    account: &mut Account,
    deadline: &Deadline,
) {
    let mut body = Body::default();
    let mut all = Vec::new();
    let mut is_rerouted = false;
    for sealed in &check.providers {
        let Some(provider) = sealed.provider() else {
            *planned = Planned::failed(FailureKind::Internal);
            return;
        };
        let head = check.head.head();
        let asked = ask(worker, visit, provider, &head, &mut body, peer, deadline);
        match asked.await {
            Ok(changes) => {
                drop(head);
                is_rerouted |= provider.reroutes && changes.are_of_request();
                check::change(&mut check.head, &changes);
                all.push(changes);
            }
            Err(answer) => {
                if let Some(kind) = answer.failure {
                    trouble::tell(kind, answer.status, &head.host, || None);
                }
                *planned = Planned::answered(answer);
                return;
            }
        }
    }
    let head = check.head.head();
    let asking = Asking {
        visit,
        head: &head,
        token: check.token.as_ref().map(KeptToken::said),
        is_counted: true,
        budget: &check.budget,
    };
    if !gate::is_admitted(worker, &check.guards, &asking, account) {
        *planned = Planned::failed(FailureKind::Unauthorized);
        return;
    }
    if is_rerouted {
        let again = proceed(worker, &worker.tables.load(), &asking, account);
        *planned = again.unwrap_or_else(Planned::failed);
        if let Plan::Forward(plan) = &planned.plan
            && let Some(policy) = plan.policy()
        {
            peer.limit_body(policy.request_body_bytes_max);
        }
    }
    for changes in all {
        apply(&mut planned.plan, changes, is_rerouted);
    }
    if let Plan::Forward(plan) = &mut planned.plan {
        body.give_back(plan);
    }
}

/// Asks one provider.
///
/// # Errors
/// The answer that the client gets instead.
async fn ask<P: Peer>(
    worker: &Rc<Worker>,
    visit: &Visit,
    provider: &Provider,
    head: &Head<'_>,
    body: &mut Body,
    peer: &mut P,
    deadline: &Deadline,
) -> Result<check::Changes, Answer> {
    if let Some(rule) = provider.body
        && head.body != BodyLength::None
    {
        let expects = head.expects_continue;
        let gathered = gather(worker, rule, expects, body, peer, deadline).await;
        gathered.map_err(Answer::failed)?;
    }
    let question = check::question(provider, visit, head, worker.local.trusted_hops);
    let is_head = head.method == "HEAD";
    let verdict = match call(worker, question, provider, body, is_head).await {
        Some(answered) => check::verdict(provider, answered),
        None => Verdict::Unclear,
    };
    let counts = &worker.local.counts;
    match verdict {
        Verdict::Pass(changes) => {
            counts.add(Count::CheckPassed);
            Ok(changes)
        }
        Verdict::Refuse(refusal) => {
            counts.add(Count::CheckRefused);
            Err(refused(refusal))
        }
        Verdict::Unclear if provider.fail_open => {
            counts.add(Count::CheckFailedOpen);
            Ok(check::Changes::default())
        }
        Verdict::Unclear => {
            counts.add(Count::CheckFailedClosed);
            let mut answer = Answer::failed(FailureKind::ProviderFailed);
            answer.status = provider.error_status;
            Err(answer)
        }
    }
}

/// As much of the body of a request as providers are told.
#[derive(Default)]
pub struct Body {
    bytes: Option<Buffer>,
    is_complete: bool,
}

impl Body {
    /// What was read already.
    pub fn of(bytes: Buffer, is_complete: bool) -> Self {
        Body {
            bytes: Some(bytes),
            is_complete,
        }
    }

    /// What was read.
    pub fn filled(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], Buffer::filled)
    }

    /// Puts what was read behind the head that goes to the endpoint.
    pub fn give_back(&self, plan: &mut Forward) {
        let Some(bytes) = &self.bytes else {
            return;
        };
        plan.encoder.write(bytes.filled(), &mut plan.head);
        plan.expects_continue = false;
        if self.is_complete {
            plan.encoder.end(&mut plan.head);
            plan.has_body = false;
        }
    }
}

/// Reads as much of the body as a rule wants, unless it was read already.
///
/// # Errors
/// A body that is too long, late or broken.
pub async fn gather<P: Peer>(
    worker: &Worker,
    rule: CheckBody,
    expects_continue: bool,
    body: &mut Body,
    peer: &mut P,
    deadline: &Deadline,
) -> Result<(), FailureKind> {
    let limits = &worker.local.limits;
    if expects_continue && body.bytes.is_none() {
        invite(peer, limits)?;
    }
    let bytes_max = rule.bytes_max as usize;
    let bytes = body.bytes.get_or_insert_with(Buffer::take);
    while !body.is_complete && bytes.len() <= bytes_max {
        if rule.allows_part && bytes.len() >= bytes_max {
            break;
        }
        deadline.set(limits.body_timeout);
        body.is_complete = poll_fn(|context| {
            if let Poll::Ready(Err(kind)) = peer.poll_flush(context) {
                return Poll::Ready(Err(kind));
            }
            if let Poll::Ready(moved) = peer.poll_body(context, Encoder::Plain, bytes) {
                return Poll::Ready(moved);
            }
            let passed = deadline.poll_passed(context);
            passed.map(|()| Err(FailureKind::BodyTimeout))
        })
        .await?;
    }
    deadline.unset();
    match bytes.len() > bytes_max && !rule.allows_part {
        true => Err(FailureKind::BodyTooLarge),
        false => Ok(()),
    }
}

/// Asks for the body of a client that waits to be asked.
fn invite<P: Peer>(peer: &mut P, limits: &Limits) -> Result<(), FailureKind> {
    let head = response::parse(b"HTTP/1.1 100 Continue\r\n\r\n", limits);
    let head = head.map_err(|_| FailureKind::Internal)?;
    peer.interim(&head)
}

/// Puts changes into a plan; a head that was written after them has them already.
fn apply(plan: &mut Plan, changes: check::Changes, is_written: bool) {
    if let Plan::Forward(plan) = plan
        && changes.are_of_request()
        && !is_written
    {
        plan.head = check::edit(&plan.head, &changes);
    }
    let told = changes.downstream.into_iter();
    let told = told.filter(|(name, _)| check::may_pass_on(name));
    match plan {
        Plan::Forward(plan) => plan.told.extend(told),
        Plan::Answer(answer) => answer.told.extend(told),
    }
}

/// The answer that a provider gives in place of everything else.
pub fn refused(refusal: Refusal) -> Answer {
    let fields = refusal.fields.into_iter();
    let fields = fields.filter(|(name, _)| check::may_pass_on(name));
    let mut answer = Answer::failed(FailureKind::ProviderRefused);
    answer.status = refusal.status;
    answer.told = fields.collect();
    answer.body = Some(refusal.body);
    answer
}

/// Asks; none where there is no answer.
async fn call(
    worker: &Rc<Worker>,
    question: Question,
    provider: &Provider,
    body: &Body,
    is_head: bool,
) -> Option<Answered> {
    let is_http = matches!(question, Question::Http(_));
    let bytes_max = provider.body.map_or(0, |body| body.bytes_max as usize);
    let told = body.filled();
    let told = told.get(..bytes_max).unwrap_or(told);
    let host = provider.authority.split(':').next().unwrap_or_default();
    let request = Own {
        upstream: &provider.upstream,
        host,
        head: check::write(question, provider, told),
        is_head: is_head && is_http,
        timeout: provider.timeout,
    };
    converse(worker, request).await
}

/// A request of the proxy's own.
pub struct Own<'a> {
    /// Where it goes.
    pub upstream: &'a Name,
    /// Whom TLS names.
    pub host: &'a str,
    /// The head, with the body behind it.
    pub head: Buffer,
    /// Whether the answer has no body whatever its head says.
    pub is_head: bool,
    /// The longest wait for the answer.
    pub timeout: Duration,
}

/// Sends a request of the proxy's own; none where there is no answer.
pub async fn converse(worker: &Rc<Worker>, own: Own<'_>) -> Option<Answered> {
    let timeout = own.timeout;
    let mut plan = own_plan(worker, own)?;
    let deadline = Deadline::new();
    let mut account = Account::untold();
    let mut keeper = Keeper::new(ANSWER_BYTES_MAX);
    let asking = exchange(worker, &mut plan, &mut keeper, &mut account, &deadline);
    let ended = tokio::time::timeout(timeout, asking).await;
    let answered = keeper.into_answered();
    answered.filter(|_| matches!(ended, Ok(Ok(_))))
}

/// The plan of a request of the proxy's own; none where it leads nowhere.
pub fn own_plan(worker: &Worker, own: Own<'_>) -> Option<Forward> {
    let tables = worker.tables.load_full();
    let upstream = tables.upstream(upstream_hash(own.upstream), own.upstream);
    let upstream = upstream.filter(|it| it.upstream.is_some())?.clone();
    Some(Forward {
        route: TERMS.as_ref()?.clone(),
        share: 0,
        preferred: None,
        head: own.head,
        encoder: Encoder::Plain,
        scheme: "http",
        // It stands in the head already.
        has_body: false,
        is_head: own.is_head,
        is_idempotent: true,
        is_upgrade: false,
        has_to_upgrade: false,
        expects_continue: false,
        host: own.host.into(),
        credentials: credentials(&tables, &upstream).ok()?,
        upstream,
        // A question is the proxy's own, so no client is told of.
        ends: Ends::of(([0; 4], 0).into(), 0),
        original: None,
        additions: Additions::new(),
        told: Vec::new(),
        hash: None,
        mirrors: Vec::new(),
        is_copied: true.into(),
        is_copy: true,
    })
}

/// What holds for questions beside what their provider says.
static TERMS: LazyLock<Option<RouteArc>> = LazyLock::new(|| {
    let policy = Policy {
        read_timeout: PATIENCE,
        send_timeout: PATIENCE,
        ..Policy::default()
    };
    let route = Route {
        listeners: Arc::default(),
        hosts: Arc::default(),
        path: PathMatch::Prefix("/".into()),
        conditions: Box::default(),
        rank: 0,
        action: Action::Forward(Arc::default()),
        policy: Arc::new(policy),
    };
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Route(Box::new(route)),
    };
    let sealed = Sealer::new([0; 32], Form::Value).seal(Name::from("question"), resource);
    Some(RouteArc::new(
        RouteEntry::new(SealedArc::new(sealed))?.ok()?,
    ))
});
