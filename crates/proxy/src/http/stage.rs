//! The stages that a request passes between the framing of its client and that of its endpoint, as
//! one ordered list.
//!
//! Each stage is a file with two functions: `apply` does its part for a request, and `explain`
//! says the same of one that is only asked about. The run is synchronous: everything that needs
//! the head is done in one step, after which nothing borrowed has to outlive a wait. What a stage
//! does after a wait stands in its file as well: [`external::settle`] asks providers,
//! [`processors::accompany`] talks to a processor, and [`record`] tells what became of it.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use myriad_model::{Provider, RouteView, SealedArc};
use smallvec::SmallVec;

use super::account::RequestAccount;
use super::answer::LocalReply;
use super::peer::Peer;
use super::plan::{Forward, Plan};
use super::trouble;
use super::worker::Worker;
use crate::admission::planning::COSTLY_STEPS;
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::pattern::Budget;
use crate::policy::client;
use crate::policy::cors::Additions;
use crate::policy::token::{HeadMemory, KeptToken, Verified};
use crate::route::claims::VerifiedClaims;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::entry::RouteEntry;
use crate::route::tables::Tables;

mod authorization;
mod authorizer;
mod body_limit;
mod certificate;
mod challenge;
mod cors;
pub mod dry_run;
pub mod external;
mod fault;
mod forward;
mod gather;
mod hsts;
mod inquiry;
mod live;
mod misdirected;
mod passwords;
pub mod processors;
mod rate_limit;
mod record;
mod redirect;
mod route;
mod sources;
mod tokens;

use dry_run::StageVerdict;
use external::Check;
use inquiry::Granted;
use live::{Told, Unseen, Witness};

/// One stage of the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The answers to challenges of certificate authorities.
    Challenge,
    /// Whether the host belongs on the connection: 421.
    Misdirected,
    /// The tokens that say whom the request comes from: 401.
    Tokens,
    /// The providers that are asked about it before it goes on.
    External,
    /// Whether the policies of its listener admit it: 403.
    Authorization,
    /// The route of its host and path: 404.
    Route,
    /// The redirect of plain text to HTTPS.
    Redirect,
    /// The certificate that the client has shown, where the handshake leaves it to routes: 400.
    Certificate,
    /// The client addresses that the route admits: 403.
    Sources,
    /// How often the route serves requests: 429.
    RateLimit,
    /// Cross-origin requests; preflights are answered.
    Cors,
    /// The demand to browsers to come by HTTPS alone.
    Hsts,
    /// The declared length of the body: 413.
    BodyLimit,
    /// Whether it has the password of a user that the route admits: 401.
    Passwords,
    /// Whether the service that the route has asked lets it pass: 401, 403, or a redirect.
    Inquiry,
    /// The provider that the route has asked before the request goes on.
    Authorizer,
    /// Trouble that is made on purpose.
    Fault,
    /// The processor that accompanies the request.
    Processors,
    /// The action of the route: a redirect, a fixed answer, or an endpoint.
    Forward,
    /// The counts and the line of the log, once the request is over.
    Record,
}

/// All stages in order.
pub const STAGES: [Stage; 20] = [
    Stage::Challenge,
    Stage::Misdirected,
    Stage::Tokens,
    Stage::External,
    Stage::Authorization,
    Stage::Route,
    Stage::Redirect,
    Stage::Certificate,
    Stage::Sources,
    Stage::RateLimit,
    Stage::Cors,
    Stage::Hsts,
    Stage::BodyLimit,
    Stage::Passwords,
    Stage::Inquiry,
    Stage::Authorizer,
    Stage::Fault,
    Stage::Processors,
    Stage::Forward,
    Stage::Record,
];

/// The stages that a request passes again once a provider has changed it: those from the route on.
const REROUTED: &[Stage] = STAGES.split_at(5).1;

impl Stage {
    /// Does its part for a request.
    ///
    /// # Errors
    /// The failure that is answered in place of everything else.
    #[inline]
    fn apply<'a>(
        self,
        request: &mut RequestState<'a, '_>,
        scene: &Scene<'a>,
        serving: &mut Serving<'_>,
    ) -> Result<Flow, FailureKind> {
        match self {
            Stage::Challenge => challenge::apply(request, scene),
            Stage::Misdirected => misdirected::apply(request, scene),
            Stage::Tokens => tokens::apply(request, scene, serving),
            Stage::External => external::apply(request, scene, serving),
            Stage::Authorization => authorization::apply(request, scene, serving),
            Stage::Route => route::apply(request, scene, serving),
            Stage::Redirect => redirect::apply(request, scene),
            Stage::Certificate => certificate::apply(request, scene),
            Stage::Sources => sources::apply(request, scene),
            Stage::RateLimit => rate_limit::apply(request, scene, serving),
            Stage::Cors => cors::apply(request, scene),
            Stage::Hsts => hsts::apply(request, scene),
            Stage::BodyLimit => body_limit::apply(request),
            Stage::Passwords => passwords::apply(request, scene),
            Stage::Inquiry => inquiry::apply(request, scene, serving),
            Stage::Authorizer => authorizer::apply(request, scene),
            Stage::Fault => fault::apply(request, serving),
            // Their parts begin once the request is written, and once it is over.
            Stage::Processors | Stage::Record => Ok(Flow::Continue),
            Stage::Forward => forward::apply(request, scene, serving),
        }
    }

    /// Says what it would do to a request.
    fn explain<'a>(self, request: &mut RequestState<'a, '_>, scene: &Scene<'a>) -> StageVerdict {
        match self {
            Stage::Challenge => challenge::explain(request, scene),
            Stage::Misdirected => misdirected::explain(request, scene),
            Stage::Tokens => tokens::explain(request, scene),
            Stage::External => external::explain(request, scene),
            Stage::Authorization => authorization::explain(request, scene),
            Stage::Route => route::explain(request, scene),
            Stage::Redirect => redirect::explain(request, scene),
            Stage::Certificate => certificate::explain(request, scene),
            Stage::Sources => sources::explain(request, scene),
            Stage::RateLimit => rate_limit::explain(request, scene),
            Stage::Cors => cors::explain(request, scene),
            Stage::Hsts => hsts::explain(request, scene),
            Stage::BodyLimit => body_limit::explain(request),
            Stage::Passwords => passwords::explain(request, scene),
            Stage::Inquiry => inquiry::explain(request, scene),
            Stage::Authorizer => authorizer::explain(request, scene),
            Stage::Fault => fault::explain(request),
            Stage::Processors => processors::explain(request, scene),
            Stage::Forward => forward::explain(request, scene),
            Stage::Record => record::explain(scene),
        }
    }
}

/// The next step after a stage.
enum Flow {
    /// The next stage.
    Continue,
    /// The proxy answers.
    Answer(Box<LocalReply>),
    /// An endpoint answers.
    Forward(Box<Forward>),
}

impl Flow {
    fn answer(answer: LocalReply) -> Flow {
        Flow::Answer(Box::new(answer))
    }
}

/// The surroundings of a request: one set of tables, and the connection that it came by.
pub struct Scene<'a> {
    /// The tables.
    pub tables: &'a Tables,
    /// The connection.
    pub visit: &'a DownstreamConnection,
    /// The budget of the request's regexes.
    pub budget: &'a Budget,
    /// How many proxies in front of this one are believed.
    pub trusted_hops: usize,
}

/// The means to serve a request, which one that is only asked about does not have.
struct Serving<'s> {
    worker: &'s Rc<Worker>,
    account: &'s mut RequestAccount,
}

/// The findings of the stages about a request.
pub struct RequestState<'a, 'h> {
    head: CurrentHead<'a, 'h>,
    token: Token<'a>,
    /// The memory that a head borrows from once tokens change it.
    room: Option<&'h mut HeadMemory>,
    /// The providers that are asked before the request goes on.
    providers: Providers,
    /// The route that it takes.
    taken: Option<TakenRoute<'a>>,
    /// Whether it was counted at the limits of a route already.
    is_counted: bool,
    /// Fields for the response.
    additions: Additions,
    /// How long it waits on purpose.
    delay: Duration,
    /// The wait before its plan.
    hold: Option<Hold>,
}

/// A wait before a plan, until it is known whether an answer takes the plan's place, and what
/// changes in it otherwise.
pub struct Hold {
    until: Released,
    /// The bytes of memory that it takes, about.
    bytes: usize,
}

impl Hold {
    fn new(bytes: usize, until: Released) -> Self {
        Hold { until, bytes }
    }
}

/// The end of such a wait.
type Released = Pin<Box<dyn Future<Output = Result<Option<Box<Granted>>, Box<LocalReply>>>>>;

/// Providers in the order of asking.
type Providers = SmallVec<[Authorizer; 2]>;

/// A provider that is asked, by whom it is named.
enum Authorizer {
    /// Access policies.
    Policy(SealedArc),
    /// The route that the request takes.
    OfRoute(RouteEntry),
}

impl Authorizer {
    /// The provider; always there, since nothing else is asked.
    fn provider(&self) -> Option<&Provider> {
        match self {
            Authorizer::Policy(sealed) => sealed.provider(),
            Authorizer::OfRoute(entry) => entry.policy()?.authorizer.as_deref(),
        }
    }
}

/// A head as the stages that are through have left it.
struct CurrentHead<'a, 'h> {
    sent: &'a Head<'h>,
    /// Boxed, because a head is large and hardly any is changed.
    changed: Option<Box<Head<'h>>>,
}

impl<'h> CurrentHead<'_, 'h> {
    fn get(&self) -> &Head<'h> {
        self.changed.as_deref().unwrap_or(self.sent)
    }
}

/// The token of a request.
enum Token<'a> {
    None,
    /// It was just verified.
    Verified(Verified<'a>),
    /// It was verified before, or is said to be.
    Kept(&'a KeptToken),
}

impl Token<'_> {
    fn said(&self) -> Option<VerifiedClaims<'_>> {
        match self {
            Token::None => None,
            Token::Verified(verified) => Some(verified.said()),
            Token::Kept(kept) => Some(kept.said()),
        }
    }

    /// A copy that borrows nothing, of one that was just verified.
    fn kept(&self) -> Option<KeptToken> {
        match self {
            Token::Verified(verified) => Some(verified.kept()),
            Token::None | Token::Kept(_) => None,
        }
    }
}

/// A route, with its value.
#[derive(Clone, Copy)]
pub struct TakenRoute<'a> {
    /// The entry.
    pub entry: &'a RouteEntry,
    /// Its value.
    pub route: RouteView<'a>,
}

impl<'a, 'h> RequestState<'a, 'h> {
    /// A request that has passed no stage.
    fn new(head: &'a Head<'h>, room: &'h mut HeadMemory) -> Self {
        RequestState {
            room: Some(room),
            ..RequestState::with(head, Token::None)
        }
    }

    /// A request that has come as far as the providers, with a token that was verified.
    fn resumed(head: &'a Head<'h>, token: Option<&'a KeptToken>) -> Self {
        RequestState {
            is_counted: true,
            ..RequestState::with(head, token.map_or(Token::None, Token::Kept))
        }
    }

    fn with(head: &'a Head<'h>, token: Token<'a>) -> Self {
        RequestState {
            head: CurrentHead {
                sent: head,
                changed: None,
            },
            token,
            room: None,
            providers: Providers::new(),
            taken: None,
            is_counted: false,
            additions: Additions::new(),
            delay: Duration::ZERO,
            hold: None,
        }
    }

    /// The route that it takes, for the stages behind the one that finds it.
    fn taken(&self) -> Result<TakenRoute<'a>, FailureKind> {
        self.taken.ok_or(FailureKind::Internal)
    }
}

/// A plan, and what has to be waited for before it is carried out.
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// The waits, which are rare.
    pub waits: Option<Box<PlanWaits>>,
    /// Whether the turn of its connection ends with it, so that others come before the next
    /// request: the proxy answers itself, or it took long to find out what shall become of it.
    pub ends_turn: bool,
}

/// The waits before a plan.
pub struct PlanWaits {
    /// The wait before any provider is asked.
    pub hold: Option<Hold>,
    /// The question to providers before anything of the plan is done.
    pub check: Option<Check>,
    /// The wait on purpose behind that; zero for none.
    pub delay: Duration,
}

impl Planned {
    /// How many bytes of memory it takes beside what every plan does, about.
    pub fn memory(&self) -> usize {
        let waits = self.waits.as_ref().map_or(0, |waits| waits.memory());
        self.plan.memory() + waits
    }

    /// The answer to a failure, at once.
    pub fn failed(kind: FailureKind) -> Self {
        Planned {
            plan: Decided::failed(kind).plan,
            waits: None,
            ends_turn: true,
        }
    }
}

impl PlanWaits {
    fn memory(&self) -> usize {
        let hold = self.hold.as_ref().map_or(0, |hold| hold.bytes);
        let check = self.check.as_ref().map_or(0, Check::memory);
        size_of::<Self>() + hold + check
    }
}

/// The decision of a run of stages.
pub struct Decided {
    /// The plan.
    pub plan: Plan,
    /// The wait on purpose before it; zero for none.
    pub delay: Duration,
    /// The wait before both.
    pub hold: Option<Hold>,
}

impl Decided {
    /// Waits until the plan is released, or its client goes away. Whether it is still a plan for
    /// the request.
    pub async fn is_released<P: Peer>(&mut self, peer: &mut P) -> bool {
        let Some(hold) = self.hold.take() else {
            return true;
        };
        peer.hold(self.plan.memory() + hold.bytes, 0);
        match external::unless_gone(peer, hold.until).await {
            Ok(Ok(granted)) => {
                if let Some(granted) = granted {
                    granted.put(&mut self.plan);
                }
                true
            }
            Ok(Err(answer)) => {
                *self = Decided::answered(*answer);
                false
            }
            Err(kind) => {
                *self = Decided::failed(kind);
                false
            }
        }
    }

    /// An answer, at once.
    fn answered(answer: LocalReply) -> Self {
        Decided {
            plan: Plan::Answer(Box::new(answer)),
            delay: Duration::ZERO,
            hold: None,
        }
    }

    /// The answer to a failure, at once.
    fn failed(kind: FailureKind) -> Self {
        Decided::answered(LocalReply::failed(kind))
    }
}

/// The scheme that the client of a request speaks, as far as those who are trusted tell it, and
/// with this proxy otherwise.
pub fn scheme(visit: &DownstreamConnection, head: &Head<'_>, trusted_hops: usize) -> &'static str {
    let forwarded = client::forwarded_scheme(head, visit, trusted_hops);
    forwarded.unwrap_or_else(|| visit.scheme())
}

/// Makes the plan of a request. `budget` is what its regexes may cost from here on, and `room` what
/// its head may borrow from once it is changed.
pub fn plan<'h>(
    worker: &Rc<Worker>,
    tables: &Tables,
    visit: &DownstreamConnection,
    (head, room): (&Head<'h>, &'h mut HeadMemory),
    account: &mut RequestAccount,
    budget: &Budget,
) -> Planned {
    let scene = Scene {
        tables,
        visit,
        budget,
        trusted_hops: worker.local.trusted_hops,
    };
    let mut request = RequestState::new(head, room);
    let mut serving = Serving { worker, account };
    let decided = run(&STAGES, &mut request, &scene, &mut serving);
    let Decided { plan, delay, hold } = decided;
    // Whoever comes too often is not asked about either, nor is one there is no room for.
    let is_refused = plan.is_limited() || plan.is_overloaded();
    let hold = hold.filter(|_| !is_refused);
    let is_asked = !request.providers.is_empty() && !is_refused;
    let check = is_asked.then(|| Check::new(request, &scene, &serving));
    let waits = check.is_some() || hold.is_some() || !delay.is_zero();
    if let Plan::Answer(answer) = &plan
        && let Some(kind) = answer.failure
    {
        let route = || tables.route(&visit.listener, head, None, budget).ok();
        trouble::tell(kind, answer.status, &head.host, route);
    }
    let is_answer = matches!(plan, Plan::Answer(_));
    let is_costly = head.readings.is_some() || budget.taken() >= COSTLY_STEPS;
    Planned {
        plan,
        waits: waits.then(|| Box::new(PlanWaits { hold, check, delay })),
        ends_turn: is_answer || is_costly,
    }
}

/// Runs stages in order, until one of them ends it.
#[inline]
fn run<'a>(
    stages: &[Stage],
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    serving: &mut Serving<'_>,
) -> Decided {
    match serving.account.record().map(|it| Told::new(it, scene)) {
        None => run_seen(stages, request, scene, serving, &mut Unseen),
        Some(mut told) => run_seen(stages, request, scene, serving, &mut told),
    }
}

#[inline]
fn run_seen<'a>(
    stages: &[Stage],
    request: &mut RequestState<'a, '_>,
    scene: &Scene<'a>,
    serving: &mut Serving<'_>,
    witness: &mut impl Witness,
) -> Decided {
    for stage in stages {
        let plan = match witness.apply(*stage, request, scene, serving) {
            Ok(Flow::Continue) => continue,
            Ok(Flow::Answer(answer)) => Plan::Answer(answer),
            Ok(Flow::Forward(forward)) => Plan::Forward(forward),
            // Whoever may not know what is there is not told that it fails either.
            Err(kind) => {
                let hold = request.hold.take();
                return Decided {
                    hold,
                    ..Decided::failed(kind)
                };
            }
        };
        let (delay, hold) = (request.delay, request.hold.take());
        return Decided { plan, delay, hold };
    }
    // The action of a route ends every run.
    Decided::failed(FailureKind::Internal)
}
