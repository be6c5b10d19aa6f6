//! The service that a route has asked whether a request may pass. It is asked once all that refuses
//! a request without asking has let it pass, and the plan is held back meanwhile.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use myriad_base::clock;
use myriad_model::{AnswerMemory, Inquiry, Origin, Policy};

use super::dry_run::{DryRunEnd, StageVerdict};
use super::forward::asker;
use super::{Flow, Hold, RequestState, Scene, Serving, TakenRoute, sources};
use crate::admission::share::Owner;
use crate::admission::spaces::Spots;
use crate::codec::buffer::Buffer;
use crate::codec::head::{Head, split_authority};
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::http::keeper::Kept;
use crate::http::plan::{Plan, is_told_of_success};
use crate::http::trouble;
use crate::http::upstream::own::{ANSWER_BYTES_MAX, Own, converse};
use crate::http::worker::Worker;
use crate::policy::answers::{self, AnswerKey};
use crate::policy::check::{self, Answered, CheckChanges, OwnedHeader};
use crate::policy::client;
use crate::policy::cors::Additions;
use crate::policy::hops;
use crate::policy::inquiry::{self, Facts, InquiryVerdict, filled, filled_url};
use crate::route::entry::RouteEntry;
use crate::route::tables::upstream_hash;
use crate::telemetry::count::Count;

/// The changes to a request that a service lets pass.
pub(super) struct Granted {
    changes: CheckChanges,
    /// Whether cookies reach the client whatever the status of the response is.
    always_sets_cookies: bool,
}

/// A question, and all that its answer is weighed by.
struct Asked {
    worker: Rc<Worker>,
    route: RouteEntry,
    /// None where it cannot be written.
    question: Option<Buffer>,
    /// The host of the question.
    host: Box<str>,
    /// The key of the answer, where that is remembered.
    key: Option<AnswerKey>,
    remembered: Option<Rc<Answered>>,
    /// The namespace that it is asked for.
    space: Spots,
    /// The location of a client that is not known.
    location: Option<String>,
    /// Fields that the response would have got.
    additions: Additions,
}

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
    serving: &mut Serving<'_>,
) -> Result<Flow, FailureKind> {
    let taken = request.taken()?;
    let head = request.head.get();
    let Some(inquiry) = asked(taken.route.policy, head, scene) else {
        return Ok(Flow::Continue);
    };
    let hops_max = serving.worker.local.limits.loop_hops_max;
    let is_hop = hops::admit(head, scene.visit, hops_max)?;
    take_place(taken, asker(head, scene), serving)?;
    let facts = facts(head, scene);
    let (worker, namespace) = (serving.worker, namespace(taken.entry));
    let memory = inquiry.memory.as_deref();
    let key = memory.and_then(|memory| answer_key(memory, inquiry, taken, facts));
    let known = &worker.answers;
    let remembered = key.and_then(|key| known.get(namespace, &key, clock::now()));
    let authority = filled_url(&inquiry.authority, facts);
    let question = authority.as_deref().filter(|_| remembered.is_none());
    let question = question.and_then(|authority| {
        let id = serving.account.passed_id(worker);
        inquiry::question(inquiry, authority, (facts, is_hop), id)
    });
    let may_be_led = remembered.as_ref().is_none_or(|it| it.status == 401);
    let signin = Some(&inquiry.signin).filter(|it| may_be_led && !it.is_empty());
    let asked = Asked {
        worker: worker.clone(),
        route: taken.entry.clone(),
        question,
        host: host_of(&authority.unwrap_or_default()).into(),
        key,
        remembered,
        space: serving.account.space(),
        location: signin.and_then(|signin| filled_url(signin, facts)),
        additions: request.additions.clone(),
    };
    if scene.budget.is_spent() {
        return Err(FailureKind::RegexBudget);
    }
    let before = request.hold.take();
    request.hold = Some(hold(before, asked));
    Ok(Flow::Continue)
}

/// Says whom it would ask: the answer is not known here.
pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let policy = taken.route.policy;
    let Some(inquiry) = policy.inquiry.as_deref() else {
        return StageVerdict::Silent;
    };
    let head = request.head.get();
    if sources::suffices(policy, head, scene) {
        return StageVerdict::Passes("the address suffices, so that no service is asked".into());
    }
    let (upstream, method) = (&inquiry.upstream, &inquiry.method);
    let found = scene.tables.upstream(upstream_hash(upstream), upstream);
    if found.is_none_or(|it| it.upstream.is_none()) {
        return StageVerdict::Ends(DryRunEnd {
            status: Some(FAILED),
            failure: Some(FailureKind::ProviderFailed),
            text: format!("{FAILED}: {upstream} is asked whether it may pass, and is missing"),
        });
    }
    let facts = facts(head, scene);
    let target = filled_url(&inquiry.target, facts).unwrap_or_default();
    let mut text = format!("asks {upstream} by {method} {target}, which may refuse it");
    if !inquiry.signin.is_empty() {
        let location = filled_url(&inquiry.signin, facts).unwrap_or_default();
        text = format!("{text}; in place of 401 it is redirected to {location}");
    }
    if let Some(memory) = &inquiry.memory {
        text = format!("{text}; answers are remembered by {}", memory.key);
    }
    StageVerdict::Passes(text)
}

/// The status where a service does not answer, or says neither yes nor no.
const FAILED: u16 = 500;

/// The service that a route has asked about a request; none where the client's address suffices.
pub(super) fn asked<'p>(
    policy: &'p Policy,
    head: &Head<'_>,
    scene: &Scene<'_>,
) -> Option<&'p Inquiry> {
    let inquiry = policy.inquiry.as_deref()?;
    (!sources::suffices(policy, head, scene)).then_some(inquiry)
}

fn facts<'a, 'h>(head: &'a Head<'h>, scene: &Scene<'a>) -> Facts<'a, 'h> {
    Facts {
        head,
        client: client::address(head, scene.visit.client.ip(), scene.trusted_hops),
        may_tell: client::may_tell(scene.visit, scene.trusted_hops),
        budget: scene.budget,
    }
}

fn namespace(route: &RouteEntry) -> &str {
    route.origin().map_or("", Origin::namespace)
}

/// The host of an authority, for TLS.
fn host_of(authority: &str) -> &str {
    split_authority(authority).map_or(authority, |(host, _)| host)
}

/// The key of an answer, which is the same for the same question of the same route, and the text
/// that it says; none where that says nothing of who asks.
fn answer_key(
    memory: &AnswerMemory,
    inquiry: &Inquiry,
    taken: TakenRoute<'_>,
    facts: Facts<'_, '_>,
) -> Option<AnswerKey> {
    let route = taken.entry.name();
    let mut written = DefaultHasher::new();
    inquiry.hash(&mut written);
    if !inquiry::knows_sender(&memory.key, facts) {
        return None;
    }
    let own = filled(&memory.key, facts)?;
    let [target, authority] = [&inquiry.target, &inquiry.authority].map(|it| filled(it, facts));
    answers::key(&[
        namespace(taken.entry).as_bytes(),
        route.as_bytes(),
        &written.finish().to_le_bytes(),
        &target?,
        &authority?,
        &own,
    ])
}

/// The place of a request among those that are under way: it has one while the service is asked,
/// also where the proxy answers it itself.
///
/// # Errors
/// That there is no room.
fn take_place(
    taken: TakenRoute<'_>,
    asker: u64,
    serving: &mut Serving<'_>,
) -> Result<(), FailureKind> {
    let Some((origin, host)) = taken.entry.owner() else {
        return Ok(());
    };
    if serving.account.held.is_some() {
        return Ok(());
    }
    let worker = serving.worker;
    let local = &worker.local;
    let owner = Owner::of(origin, host);
    let held = local.fairness.take_request(owner, asker, &local.counts);
    serving.account.held = held;
    if serving.account.held.is_none() {
        local.counts.add(Count::ShareRequests);
        return Err(FailureKind::Overloaded);
    }
    Ok(())
}

/// Holds a plan back until whatever held it back before is over, and the service has answered.
fn hold(before: Option<Hold>, asked: Asked) -> Hold {
    let of_before = before.as_ref().map_or(0, |before| before.bytes);
    let bytes = of_before + asked.memory();
    let until = async move {
        if let Some(before) = before {
            before.until.await?;
        }
        asked.settle().await.map(Some)
    };
    Hold::new(bytes, Box::pin(until))
}

impl Asked {
    /// How many bytes of memory it takes, about. The question is written once more on its way.
    fn memory(&self) -> usize {
        let question = self.question.as_ref().map_or(0, Buffer::capacity);
        let location = self.location.as_ref().map_or(0, String::capacity);
        2 * question + location
    }

    /// Asks, unless the answer is remembered.
    ///
    /// # Errors
    /// The answer that the client gets instead.
    async fn settle(mut self) -> Result<Box<Granted>, Box<LocalReply>> {
        let route = self.route.clone();
        let policy = route.policy();
        let Some(inquiry) = policy.and_then(|policy| policy.inquiry.as_deref()) else {
            return Err(Box::new(LocalReply::failed(FailureKind::Internal)));
        };
        let answered = match self.remembered.take() {
            Some(answered) => answered,
            None => match self.ask(inquiry).await {
                Some(answered) => self.remember(inquiry, answered),
                None => Rc::new(Answered::default()),
            },
        };
        let counts = &self.worker.local.counts;
        match inquiry::verdict(inquiry, &answered) {
            InquiryVerdict::Pass(changes) => {
                counts.add(Count::CheckPassed);
                Ok(Box::new(Granted {
                    changes,
                    always_sets_cookies: inquiry.always_sets_cookies,
                }))
            }
            InquiryVerdict::Refuse(status) => {
                counts.add(Count::CheckRefused);
                Err(self.refusal(status, inquiry, &answered))
            }
            InquiryVerdict::Unclear => {
                counts.add(Count::CheckFailedClosed);
                let kind = FailureKind::ProviderFailed;
                trouble::tell(kind, FAILED, &self.host, || Some(&self.route));
                let mut answer = LocalReply::failed(kind).with(self.additions);
                answer.status = FAILED;
                if inquiry.always_sets_cookies {
                    answer.told.extend(inquiry::cookies(&answered));
                }
                Err(Box::new(answer))
            }
        }
    }

    /// Asks; none where there is no answer.
    async fn ask(&mut self, inquiry: &Inquiry) -> Option<Answered> {
        let own = Own {
            upstream: &inquiry.upstream,
            host: &self.host,
            head: self.question.take()?,
            is_head: *inquiry.method == *"HEAD",
            timeout: inquiry.timeout,
            space: self.space,
        };
        // No body of an answer is of use.
        converse(&self.worker, own, Kept::Head(ANSWER_BYTES_MAX)).await
    }

    /// The part of an answer that counts, remembered where that is wanted and possible.
    fn remember(&self, inquiry: &Inquiry, answered: Answered) -> Rc<Answered> {
        let memory = inquiry.memory.as_deref();
        let age = memory.and_then(|memory| answers::age(memory, &answered));
        let is_clear = matches!(answered.status, 200..300 | 401 | 403);
        let answered = Rc::new(inquiry::of_use(inquiry, answered));
        if let (Some(key), Some(age)) = (self.key, age.filter(|_| is_clear)) {
            let until = clock::now() + age;
            let namespace = namespace(&self.route);
            let known = &self.worker.answers;
            known.remember(namespace, key, answered.clone(), until);
        }
        answered
    }

    /// The answer to a client that is not let pass: a redirect to where it can become known, or the
    /// status that the service has said.
    fn refusal(self, status: u16, inquiry: &Inquiry, answered: &Answered) -> Box<LocalReply> {
        let mut answer = LocalReply::failed(FailureKind::ProviderRefused).with(self.additions);
        let location = self.location.filter(|_| status == 401);
        if location.is_some() || inquiry.always_sets_cookies {
            answer.told.extend(inquiry::cookies(answered));
        }
        match location {
            Some(location) => {
                answer.status = 302;
                answer.location = Some(location.into());
            }
            None => {
                answer.status = status;
                if status == 401 {
                    answer.told.extend(inquiry::challenges(answered));
                }
            }
        }
        Box::new(answer)
    }
}

impl Granted {
    /// Puts into a plan what the service said for its request and its response.
    pub(super) fn put(self, plan: &mut Plan) {
        let Granted {
            mut changes,
            always_sets_cookies,
        } = self;
        let cookies: Vec<OwnedHeader> = std::mem::take(&mut changes.downstream);
        match plan {
            Plan::Forward(plan) => {
                if changes.are_of_request() {
                    plan.reserved.extend(changes.names().map(Box::from));
                    check::edit_head(&mut plan.head, &changes);
                }
                if !always_sets_cookies {
                    plan.told_on_success += cookies.len();
                }
                // Those for successes alone come first.
                let at = if always_sets_cookies {
                    plan.told.len()
                } else {
                    0
                };
                drop(plan.told.splice(at..at, cookies));
            }
            Plan::Answer(answer) => {
                if always_sets_cookies || is_told_of_success(answer.status) {
                    answer.told.extend(cookies);
                }
            }
        }
    }
}
