//! Providers: asked before a request goes on, without ever keeping the worker from others.
//!
//! A question is an exchange like any other, over the connections that all exchanges use, with a
//! client that keeps the answer.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use myriad_model::{
    Action, Form, Name, Origin, PathMatch, Policy, Provider, Resource, Route, SealedArc, Sealer,
    Value,
};

use super::account::Account;
use super::answer::Answer;
use super::exchange::exchange;
use super::peer::{Changes, Peer};
use super::plan::{Forward, Plan};
use super::worker::Worker;
use crate::net::body::{BodyLength, Encoder};
use crate::net::buffer::Buffer;
use crate::net::count::Count;
use crate::net::deadline::Deadline;
use crate::net::failure::FailureKind;
use crate::net::head::Head;
use crate::net::limits::Limits;
use crate::net::response::{self, ResponseHead};
use crate::net::trailer::Trailers;
use crate::policy::check::{self, Answered, Question, Refusal, Verdict};
use crate::policy::cors::Additions;
use crate::route::credentials::credentials;
use crate::route::host::RouteEntry;
use crate::route::tables::{Tables, upstream_hash};
use crate::route::visit::Visit;
use crate::upstream::dial::Ends;
use crate::upstream::entry::UpstreamEntry;

/// The longest body of an answer in bytes; a longer one is no answer.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The longest wait between two reads or writes of a question; its provider's timeout is shorter
/// but for the one that Istio has where nobody wrote any.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// A question whose head is written.
pub struct Check {
    provider: SealedArc,
    upstream: Option<Arc<UpstreamEntry>>,
    question: Question,
    is_head: bool,
    has_body: bool,
    expects_continue: bool,
}

/// Writes the question to a provider; none where there is no such provider.
pub fn ask(
    worker: &Worker,
    tables: &Tables,
    visit: &Visit,
    head: &Head<'_>,
    name: &Name,
) -> Option<Box<Check>> {
    let sealed = tables.provider(name)?;
    let provider = sealed.provider()?;
    let upstream = tables.upstream(upstream_hash(&provider.upstream), &provider.upstream);
    Some(Box::new(Check {
        upstream: upstream.cloned(),
        question: check::question(provider, visit, head, worker.local.trusted_hops),
        is_head: head.method == "HEAD",
        has_body: head.body != BodyLength::None,
        expects_continue: head.expects_continue,
        provider: sealed.clone(),
    }))
}

/// Asks, and makes of the plan what the answer says.
pub async fn settle<P: Peer>(
    worker: &Rc<Worker>,
    asked: Check,
    plan: &mut Plan,
    peer: &mut P,
    deadline: &Deadline,
) {
    let Some(provider) = asked.provider.provider() else {
        *plan = failed(FailureKind::Internal);
        return;
    };
    let mut body = Body::default();
    if asked.has_body && provider.body.is_some() {
        let gathered = gather(worker, &asked, provider, peer, deadline).await;
        match gathered {
            Ok(gathered) => body = gathered,
            Err(kind) => {
                *plan = failed(kind);
                return;
            }
        }
    }
    let verdict = match call(
        worker,
        &asked.upstream,
        asked.question,
        provider,
        &body,
        asked.is_head,
    )
    .await
    {
        Some(answered) => check::verdict(provider, answered),
        None => Verdict::Unclear,
    };
    let counts = &worker.local.counts;
    match verdict {
        Verdict::Pass(changes) => {
            counts.add(Count::CheckPassed);
            give_back(plan, &body);
            apply(plan, changes);
        }
        Verdict::Refuse(refusal) => {
            counts.add(Count::CheckRefused);
            *plan = Plan::Answer(Box::new(refused(refusal)));
        }
        Verdict::Unclear if provider.fail_open => {
            counts.add(Count::CheckFailedOpen);
            give_back(plan, &body);
        }
        Verdict::Unclear => {
            counts.add(Count::CheckFailedClosed);
            let mut answer = Answer::failed(FailureKind::ProviderFailed);
            answer.status = provider.error_status;
            *plan = Plan::Answer(Box::new(answer));
        }
    }
}

fn failed(kind: FailureKind) -> Plan {
    Plan::Answer(Box::new(Answer::failed(kind)))
}

/// As much of the body of a request as its provider is told.
#[derive(Default)]
struct Body {
    bytes: Option<Buffer>,
    is_complete: bool,
}

impl Body {
    fn filled(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], Buffer::filled)
    }
}

async fn gather<P: Peer>(
    worker: &Worker,
    asked: &Check,
    provider: &Provider,
    peer: &mut P,
    deadline: &Deadline,
) -> Result<Body, FailureKind> {
    let Some(rule) = provider.body else {
        return Ok(Body::default());
    };
    let limits = &worker.local.limits;
    if asked.expects_continue {
        invite(peer, limits)?;
    }
    let bytes_max = rule.bytes_max as usize;
    let mut bytes = Buffer::take();
    let mut is_complete = false;
    while !is_complete && bytes.len() <= bytes_max {
        deadline.set(limits.body_timeout);
        is_complete = poll_fn(|context| {
            if let Poll::Ready(Err(kind)) = peer.poll_flush(context) {
                return Poll::Ready(Err(kind));
            }
            if let Poll::Ready(moved) = peer.poll_body(context, Encoder::Plain, &mut bytes) {
                return Poll::Ready(moved);
            }
            let passed = deadline.poll_passed(context);
            passed.map(|()| Err(FailureKind::BodyTimeout))
        })
        .await?;
        if rule.allows_part && bytes.len() >= bytes_max {
            break;
        }
    }
    deadline.unset();
    if bytes.len() > bytes_max && !rule.allows_part {
        return Err(FailureKind::BodyTooLarge);
    }
    Ok(Body {
        bytes: Some(bytes),
        is_complete,
    })
}

/// Asks for the body of a client that waits to be asked.
fn invite<P: Peer>(peer: &mut P, limits: &Limits) -> Result<(), FailureKind> {
    let head = response::parse(b"HTTP/1.1 100 Continue\r\n\r\n", limits)?;
    peer.interim(&head)
}

/// Puts what was read of the body behind the head that goes to the endpoint.
fn give_back(plan: &mut Plan, body: &Body) {
    let (Plan::Forward(plan), Some(bytes)) = (plan, &body.bytes) else {
        return;
    };
    plan.encoder.write(bytes.filled(), &mut plan.head);
    plan.expects_continue = false;
    if body.is_complete {
        plan.encoder.end(&mut plan.head);
        plan.has_body = false;
    }
}

fn apply(plan: &mut Plan, changes: check::Changes) {
    let is_same = changes.set.is_empty() && changes.add.is_empty() && changes.remove.is_empty();
    if let Plan::Forward(plan) = plan
        && !is_same
    {
        plan.head = check::edit(&plan.head, &changes);
    }
    let told = changes.downstream.into_iter();
    let told: Vec<_> = told.filter(|(name, _)| check::may_pass_on(name)).collect();
    match plan {
        Plan::Forward(plan) => plan.told = told,
        Plan::Answer(answer) => answer.told = told,
    }
}

fn refused(refusal: Refusal) -> Answer {
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
    upstream: &Option<Arc<UpstreamEntry>>,
    question: Question,
    provider: &Provider,
    body: &Body,
    is_head: bool,
) -> Option<Answered> {
    let is_http = matches!(question, Question::Http(_));
    let bytes_max = provider.body.map_or(0, |body| body.bytes_max as usize);
    let told = body.filled();
    let told = told.get(..bytes_max).unwrap_or(told);
    let upstream = upstream.as_ref().filter(|it| it.upstream.is_some())?;
    let mut plan = Forward {
        route: TERMS.as_ref()?.clone(),
        share: 0,
        upstream: upstream.clone(),
        preferred: None,
        head: check::write(question, provider, told),
        encoder: Encoder::Plain,
        // It stands in the head already.
        has_body: false,
        is_head: is_head && is_http,
        is_idempotent: true,
        is_upgrade: false,
        expects_continue: false,
        host: provider
            .authority
            .split(':')
            .next()
            .unwrap_or_default()
            .into(),
        credentials: credentials(&worker.tables.load(), upstream).ok()?,
        // A question is the proxy's own, so no client is told of.
        ends: Ends::of(([0; 4], 0).into(), 0),
        additions: Additions::new(),
        told: Vec::new(),
        hash: None,
        mirrors: Vec::new(),
        is_copied: true.into(),
        is_copy: true,
    };
    let deadline = Deadline::new();
    let mut account = Account::untold();
    let mut keeper = Keeper::default();
    let asking = exchange(worker, &mut plan, &mut keeper, &mut account, &deadline);
    let ended = tokio::time::timeout(provider.timeout, asking).await;
    let is_whole = matches!(ended, Ok(Ok(_))) && !keeper.is_too_long;
    is_whole.then_some(keeper.answered)
}

/// What holds for questions beside what their provider says.
static TERMS: LazyLock<Option<Arc<RouteEntry>>> = LazyLock::new(|| {
    let policy = Policy {
        read_timeout: PATIENCE,
        send_timeout: PATIENCE,
        ..Policy::default()
    };
    let route = Route {
        listeners: Arc::default(),
        hosts: Box::default(),
        path: PathMatch::Prefix("/".into()),
        conditions: Box::default(),
        rank: 0,
        action: Action::Forward(Box::default()),
        policy: Arc::new(policy),
    };
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Route(Box::new(route)),
    };
    let sealed = Sealer::new([0; 32], Form::Value).seal(Name::from("question"), resource);
    Some(Arc::new(RouteEntry::new(SealedArc::new(sealed))?.ok()?))
});

/// A client that keeps the answer.
#[derive(Default)]
struct Keeper {
    answered: Answered,
    is_too_long: bool,
}

impl Peer for Keeper {
    fn poll_body(
        &mut self,
        _: &mut Context<'_>,
        _: Encoder,
        _: &mut Buffer,
    ) -> Poll<Result<bool, FailureKind>> {
        Poll::Ready(Ok(true))
    }

    fn interim(&mut self, _: &ResponseHead<'_>) -> Result<(), FailureKind> {
        Ok(())
    }

    fn start(
        &mut self,
        head: &ResponseHead<'_>,
        _: BodyLength,
        _: &Changes<'_>,
    ) -> Result<(), FailureKind> {
        self.answered.status = head.status;
        let fields = head.fields.iter();
        self.answered.fields = fields
            .map(|field| (field.name.to_ascii_lowercase().into(), field.value.into()))
            .collect();
        Ok(())
    }

    fn has_room(&self) -> bool {
        true
    }

    fn data(&mut self, data: &[u8]) {
        match self.answered.body.len() + data.len() <= ANSWER_BYTES_MAX {
            true => self.answered.body.extend_from_slice(data),
            false => self.is_too_long = true,
        }
    }

    fn end(&mut self, _: Option<Trailers>) {}

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        Poll::Ready(Ok(()))
    }
}
