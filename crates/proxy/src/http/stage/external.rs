//! Providers: asked before a request goes on, without ever keeping the worker from others.
//!
//! A question is an exchange like any other, over the connections that all exchanges use, with a
//! client that keeps the answer.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use myriad_model::{CheckProtocol, Provider, SealedArc};

use super::dry_run::{DryRunEnd, StageVerdict};
use super::forward::asker;
use super::gather::{Body, gather};
use super::{
    Authorizer, Decided, Flow, Providers, REROUTED, RequestState, Scene, Serving, authorization,
    route, run,
};
use crate::admission::share::{HeldShare, Owner};
use crate::admission::spaces::Spots;
use crate::codec::body::BodyLength;
use crate::codec::head::Head;
use crate::codec::kept::KeptHead;
use crate::failure::FailureKind;
use crate::http::account::RequestAccount;
use crate::http::answer::LocalReply;
use crate::http::keeper::Kept;
use crate::http::peer::Peer;
use crate::http::plan::{Forward, Plan};
use crate::http::trouble;
use crate::http::upstream::own::{ANSWER_BYTES_MAX, Own, converse};
use crate::http::worker::Worker;
use crate::net::deadline::Deadline;
use crate::pattern::Budget;
use crate::policy::check::{self, Answered, CheckVerdict, Question};
use crate::policy::cors::{self, Additions};
use crate::policy::token::KeptToken;
use crate::policy::{authorize, hops};
use crate::route::access_policies::AccessPolicies;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::entry::RouteEntry;
use crate::route::tables::{Tables, upstream_hash};
use crate::telemetry::count::Count;
use crate::telemetry::request_id::RequestId;

/// The field of the id of a request.
const REQUEST_ID: &str = "x-request-id";

/// The question about a request to its providers, with everything that has to outlive the answers.
pub struct Check {
    /// In the order of asking; each is told what the ones before it changed.
    providers: Providers,
    /// Whose place the questions take, where the request has none.
    owner: Owner,
    /// The source of the client.
    asker: u64,
    head: KeptHead,
    token: Option<KeptToken>,
    /// The policies that are weighed once all of them let the request pass.
    access_policies: AccessPolicies,
    /// The budget that is left for its regexes.
    budget: Budget,
}

pub(super) fn apply<'a>(
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    if scene.tables.access_policies().is_empty() {
        return Ok(Flow::Continue);
    }
    let Some(providers) = providers(request, scene.tables, scene) else {
        route::note(request, scene, serving);
        return Err(FailureKind::Unauthorized);
    };
    request.providers = providers;
    Ok(Flow::Continue)
}

/// Says which providers would be asked; their answers are not known here.
pub(super) fn explain<'a>(request: &mut RequestState<'a, '_>, scene: &Scene<'a>) -> StageVerdict {
    let access_policies = scene.tables.access_policies();
    let judged = authorization::judged(request, scene);
    let asked = authorize::asked(access_policies, &judged);
    let mut told = Vec::new();
    for name in asked {
        let Some(sealed) = authorizer(scene.tables, name) else {
            let text = format!("a policy asks provider {name}, which is not known");
            return DryRunEnd::refused(FailureKind::Unauthorized, text);
        };
        let Some(provider) = sealed.provider() else {
            continue;
        };
        let upstream = &provider.upstream;
        let found = scene.tables.upstream(upstream_hash(upstream), upstream);
        let is_there = found.is_some_and(|it| it.upstream.is_some());
        let (status, opens) = (provider.error_status, provider.fail_open);
        told.push(match (is_there, opens) {
            (true, _) => format!("asks provider {name} at {upstream}, which may refuse it"),
            (false, true) => format!("provider {name} at {upstream} is missing, and is passed by"),
            (false, false) => {
                let text = format!("{status}: provider {name} at {upstream} is missing");
                return StageVerdict::Ends(DryRunEnd {
                    status: Some(status),
                    failure: Some(FailureKind::ProviderFailed),
                    text,
                });
            }
        });
    }
    match told.is_empty() {
        true => StageVerdict::Silent,
        false => StageVerdict::Passes(told.join("; ")),
    }
}

/// The providers that are asked about a request; none where one of them is not known.
fn providers(
    request: &RequestState<'_, '_>,
    tables: &Tables,
    scene: &Scene<'_>,
) -> Option<Providers> {
    let judged = authorization::judged(request, scene);
    let asked = authorize::asked(tables.access_policies(), &judged);
    let mut all = Providers::new();
    for name in asked {
        all.push(Authorizer::Policy(authorizer(tables, name)?));
    }
    Some(all)
}

/// The provider of a name, where it is one that can be asked.
fn authorizer(tables: &Tables, name: &str) -> Option<SealedArc> {
    let sealed = tables.provider(name)?;
    let is_asked = !matches!(sealed.provider()?.protocol, CheckProtocol::Process(_));
    is_asked.then(|| sealed.clone())
}

impl Check {
    /// How many bytes of memory it takes, about, with the question that is made of it.
    pub(super) fn memory(&self) -> usize {
        let copies = 2 + usize::from(self.token.is_some());
        copies * self.head.memory()
    }

    /// Whether a provider was asked.
    fn has_asked(&self, provider: &Authorizer) -> bool {
        let Authorizer::OfRoute(route) = provider else {
            return true;
        };
        let mut all = self.providers.iter();
        all.any(|it| matches!(it, Authorizer::OfRoute(own) if own.is_same(route)))
    }

    /// A request as the stages before the providers have left it.
    pub(super) fn new(
        request: RequestState<'_, '_>,
        scene: &Scene<'_>,
        serving: &Serving<'_>,
    ) -> Self {
        let mut head = KeptHead::new(request.head.get());
        if let Some(id) = serving.account.passed_id(serving.worker) {
            put_id(&mut head, id);
        }
        Check {
            owner: owner(&request),
            asker: asker(request.head.get(), scene),
            head,
            token: request.token.kept(),
            providers: request.providers,
            access_policies: scene.tables.access_policies().clone(),
            budget: scene.budget.clone(),
        }
    }
}

/// The owner of the questions about a request: that of its route, or else of the first provider.
fn owner(request: &RequestState<'_, '_>) -> Owner {
    let taken = request.taken.as_ref();
    if let Some((origin, host)) = taken.and_then(|taken| taken.entry.owner()) {
        return Owner::of(origin, host);
    }
    match request.providers.first() {
        Some(Authorizer::Policy(sealed)) => {
            let resource = sealed.resource();
            let owner = resource.map(|it| Owner::of_provider(&it.origin, sealed.name()));
            owner.unwrap_or_default()
        }
        Some(Authorizer::OfRoute(_)) | None => Owner::default(),
    }
}

/// The place for questions about a request that has none, as one that the proxy answers itself:
/// each question has a connection to its provider.
///
/// # Errors
/// That there is no room.
fn take_place(
    worker: &Worker,
    check: &Check,
    account: &RequestAccount,
) -> Result<Option<HeldShare>, FailureKind> {
    if account.held.is_some() {
        return Ok(None);
    }
    let (fairness, counts) = (&worker.local.fairness, &worker.local.counts);
    let held = fairness.take_request(check.owner, check.asker, counts);
    if held.is_none() {
        counts.add(Count::ShareRequests);
    }
    held.map(Some).ok_or(FailureKind::Overloaded)
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
    visit: &DownstreamConnection,
    mut check: Check,
    decided: &mut Decided,
    peer: &mut P,
    account: &mut RequestAccount,
    deadline: &Deadline,
) {
    let beside = check.memory() + decided.plan.memory();
    let asked = ask_all(worker, visit, &mut check, beside, peer, account, deadline);
    let Passed {
        all,
        is_rerouted,
        body,
    } = match asked.await {
        Ok(passed) => passed,
        Err(answer) => {
            if let Some(kind) = answer.failure {
                trouble::tell(kind, answer.status, &check.head.head().host, || None);
            }
            *decided = Decided::answered(answer.with(told_of_origins(&mut decided.plan)));
            return;
        }
    };
    let head = check.head.head();
    let tables = worker.tables.load();
    let scene = Scene {
        tables: &tables,
        visit,
        budget: &check.budget,
        trusted_hops: worker.local.trusted_hops,
    };
    let mut request = RequestState::resumed(&head, check.token.as_ref());
    let serving = &mut Serving { worker, account };
    if !authorization::admits(&request, &check.access_policies, &scene, serving) {
        *decided = Decided::failed(FailureKind::Unauthorized);
        return;
    }
    if is_rerouted {
        *decided = run(REROUTED, &mut request, &scene, serving);
        if decided.plan.is_overloaded() {
            return;
        }
        // Another route may have somebody asked who was not, and whom it is too late to ask.
        if request.providers.iter().any(|it| !check.has_asked(it)) {
            *decided = Decided::failed(FailureKind::Unauthorized);
            return;
        }
        if let Plan::Forward(plan) = &decided.plan
            && let Some(policy) = plan.policy()
        {
            peer.limit_body(policy.request_body_bytes_max);
        }
    }
    for (asked, changes) in check.providers.iter().zip(all) {
        put(&mut decided.plan, (asked, changes), is_rerouted, &tables);
    }
    if let Plan::Forward(plan) = &mut decided.plan {
        body.give_back(plan);
    }
}

/// The fields about origins that the response would have had, without which the page that asked
/// would not see why it was refused.
fn told_of_origins(plan: &mut Plan) -> Additions {
    let Plan::Forward(plan) = plan else {
        return Additions::new();
    };
    let all = std::mem::take(&mut plan.additions).into_iter();
    all.filter(|(name, _)| cors::is_told_by(name)).collect()
}

/// The answers of the providers that let a request pass.
struct Passed {
    /// The changes of each.
    all: Vec<check::CheckChanges>,
    /// Whether they may lead it to another route.
    is_rerouted: bool,
    /// The part of the body that was read for them.
    body: Body,
}

/// Asks all providers in their order. Meanwhile the request has a place.
///
/// # Errors
/// The answer that the client gets instead.
async fn ask_all<P: Peer>(
    worker: &Rc<Worker>,
    visit: &DownstreamConnection,
    check: &mut Check,
    beside: usize,
    peer: &mut P,
    account: &RequestAccount,
    deadline: &Deadline,
) -> Result<Passed, LocalReply> {
    let place = take_place(worker, check, account).map_err(LocalReply::failed)?;
    let own = place.as_ref().map(HeldShare::standing);
    let standing = own.unwrap_or_else(|| account.standing());
    let mut passed = Passed {
        all: Vec::new(),
        is_rerouted: false,
        body: Body::default().standing(standing).beside(beside),
    };
    for asked in &check.providers {
        let Some(provider) = asked.provider() else {
            return Err(LocalReply::failed(FailureKind::Internal));
        };
        let head = check.head.head();
        let body = &mut passed.body;
        let mut changes = ask(worker, visit, provider, &head, body, peer, deadline).await?;
        drop(head);
        // Also where it was not asked, since it fails open.
        changes.remove_claims(provider, &passed.all);
        passed.is_rerouted |= provider.reroutes && changes.are_of_request();
        match asked {
            Authorizer::Policy(_) => check::change(&mut check.head, &changes),
            // Whom a request comes from is not for its route to tell policies and other routes.
            Authorizer::OfRoute(_) => {
                let mut others = changes.clone();
                others.take_of_client();
                check::change(&mut check.head, &others);
            }
        }
        passed.all.push(changes);
    }
    Ok(passed)
}

/// Asks one provider.
///
/// # Errors
/// The answer that the client gets instead.
async fn ask<P: Peer>(
    worker: &Rc<Worker>,
    visit: &DownstreamConnection,
    provider: &Provider,
    head: &Head<'_>,
    body: &mut Body,
    peer: &mut P,
    deadline: &Deadline,
) -> Result<check::CheckChanges, LocalReply> {
    if let Some(rule) = provider.body
        && head.body != BodyLength::None
    {
        let expects = head.expects_continue;
        let gathered = gather(worker, rule, expects, body, peer, deadline).await;
        gathered.map_err(LocalReply::failed)?;
    }
    // The question tells it once more.
    peer.hold(body.beside + 2 * body.memory(), 0);
    let hops_max = worker.local.limits.loop_hops_max;
    let is_hop = hops::admit(head, visit, hops_max).map_err(LocalReply::failed)?;
    let told = (head, is_hop);
    let question = check::question(provider, visit, told, worker.local.trusted_hops);
    let is_head = head.method == "HEAD";
    let asking = call((worker, peer.space()), question, provider, body, is_head);
    let answered = unless_gone(peer, asking).await;
    let verdict = match answered.map_err(LocalReply::failed)? {
        Some(answered) => check::verdict(provider, answered),
        None => CheckVerdict::Unclear,
    };
    let counts = &worker.local.counts;
    match verdict {
        CheckVerdict::Pass(changes) => {
            counts.add(Count::CheckPassed);
            Ok(changes)
        }
        CheckVerdict::Refuse(refusal) => {
            counts.add(Count::CheckRefused);
            Err(LocalReply::refused(refusal))
        }
        CheckVerdict::Looped => {
            counts.add(Count::CheckRefused);
            Err(LocalReply::failed(FailureKind::LoopDetected))
        }
        CheckVerdict::Unclear if provider.fail_open => {
            counts.add(Count::CheckFailedOpen);
            Ok(check::CheckChanges::default())
        }
        CheckVerdict::Unclear => {
            counts.add(Count::CheckFailedClosed);
            let mut answer = LocalReply::failed(FailureKind::ProviderFailed);
            answer.status = provider.error_status;
            Err(answer)
        }
    }
}

/// The answer to a question, unless the client goes away meanwhile: then nobody needs it.
pub(super) async fn unless_gone<P: Peer, T>(
    peer: &mut P,
    asking: impl Future<Output = T>,
) -> Result<T, FailureKind> {
    let mut asking = pin!(asking);
    poll_fn(|context| {
        if let Poll::Ready(Err(kind)) = peer.poll_flush(context) {
            return Poll::Ready(Err(kind));
        }
        asking.as_mut().poll(context).map(Ok)
    })
    .await
}

/// Puts changes into a plan; a head that was written after them has them already, but for what the
/// provider of a route says of clients.
fn put(
    plan: &mut Plan,
    (asked, mut changes): (&Authorizer, check::CheckChanges),
    is_written: bool,
    tables: &Tables,
) {
    if let Plan::Forward(plan) = plan {
        if let Authorizer::OfRoute(route) = asked {
            let of_client = changes.take_of_client();
            if believes(plan, (route, &of_client), tables) {
                change(plan, &of_client, false);
            }
        }
        change(plan, &changes, is_written);
    }
    let told = changes.downstream.into_iter();
    let told = told.filter(|(name, _)| check::may_pass_on(name));
    match plan {
        Plan::Forward(plan) => plan.told.extend(told),
        Plan::Answer(answer) => answer.told.extend(told),
    }
}

/// Changes the head of a request, unless it was written with the changes in it.
fn change(plan: &mut Forward, changes: &check::CheckChanges, is_written: bool) {
    if changes.are_of_request() {
        plan.reserved.extend(changes.names().map(Box::from));
        if !is_written {
            check::edit_head(&mut plan.head, changes);
        }
    }
}

/// Whether changes by which the provider of a route says something of the client are believed: not
/// where the request was led to another route since, nor by endpoints that are lent to it.
fn believes(
    plan: &Forward,
    (route, of_client): (&RouteEntry, &check::CheckChanges),
    tables: &Tables,
) -> bool {
    of_client.are_of_request() && plan.route.is_same(route) && !is_lent_any(plan, tables)
}

/// Whether endpoints of another namespace get the request, or copies of it: all of its mirrors
/// count, so that it does not hang on a die what the others are told.
fn is_lent_any(plan: &Forward, tables: &Tables) -> bool {
    let mut copies = plan.all_mirrors().filter_map(|mirror| {
        let hash = upstream_hash(&mirror.upstream);
        tables.upstream(hash, &mirror.upstream)
    });
    plan.is_foreign() || copies.any(|upstream| plan.is_foreign_to(upstream))
}

/// Asks; none where there is no answer.
async fn call(
    (worker, space): (&Rc<Worker>, Spots),
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
        space,
    };
    converse(worker, request, Kept::Whole(ANSWER_BYTES_MAX)).await
}
