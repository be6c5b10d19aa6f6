//! The plan for a request, as the stages leave it.
//!
//! Once the plan is made, neither head nor tables are needed any more: what goes to the endpoint
//! is written already, so that nothing borrowed has to outlive a wait.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

use myriad_model::{
    Action, HeaderEdits, Mirror, Origin, OriginKind, Policy, Retry, RouteView, ShareFilters,
};

use super::answer::{self, LocalReply};
use super::peer::ResponseChanges;
use super::trouble;
use crate::admission::answers::AnswerWait;
use crate::balance::Endpoint;
use crate::codec::body::Encoder;
use crate::codec::buffer::Buffer;
use crate::codec::endpoint_head::EndpointHead;
use crate::codec::proxy_header::Ends;
use crate::codec::trailer::{self, Trailers};
use crate::failure::FailureKind;
use crate::policy::check::OwnedHeader;
use crate::policy::cors::Additions;
use crate::policy::header::Edits;
use crate::policy::hops;
use crate::route::entry::RouteEntry;
use crate::telemetry::live_trace::TracedRequest;
use crate::upstream::dial::Credentials;
use crate::upstream::entry::UpstreamEntry;

/// The way a request is to be served.
pub enum Plan {
    /// The proxy answers.
    Answer(Box<LocalReply>),
    /// An endpoint answers.
    Forward(Box<Forward>),
}

impl Plan {
    /// How many bytes of memory it takes beside what every plan does, about.
    pub fn memory(&self) -> usize {
        match self {
            Plan::Answer(answer) => answer.memory(),
            Plan::Forward(plan) => plan.memory(),
        }
    }

    /// Whether it is one request too many.
    pub fn is_limited(&self) -> bool {
        let limited = Some(FailureKind::RateLimited);
        matches!(self, Plan::Answer(answer) if answer.failure == limited)
    }

    /// Whether the request is refused because there is too much to do already.
    pub fn is_overloaded(&self) -> bool {
        let overloaded = Some(FailureKind::Overloaded);
        matches!(self, Plan::Answer(answer) if answer.failure == overloaded)
    }
}

/// A request on its way to an endpoint.
pub struct Forward {
    /// The route, which keeps the policy in reach.
    pub route: RouteEntry,
    /// Which of the route's upstreams was drawn.
    pub share: usize,
    /// That upstream.
    pub upstream: Arc<UpstreamEntry>,
    /// The endpoint that a cookie speaks of.
    pub preferred: Option<Arc<Endpoint>>,
    /// Whether the client's browser takes `SameSite=None` of a cookie that leads back.
    pub takes_none: bool,
    /// The hash of what makes the request equal to others, where the upstream looks at it.
    pub hash: Option<u64>,
    /// The head as the endpoint gets it.
    pub head: EndpointHead,
    /// The part of the body that was read already, framed for the endpoint.
    pub body: Buffer,
    /// How the body is framed for the endpoint.
    pub encoder: Encoder,
    /// The scheme that the client speaks.
    pub scheme: &'static str,
    /// Whether there is a request body.
    pub has_body: bool,
    /// Whether the client has said how long it is.
    pub has_length: bool,
    /// Whether the response has no body whatever its head says.
    pub is_head: bool,
    /// Whether the request may be sent twice.
    pub is_idempotent: bool,
    /// Whether the client wants to change the protocol.
    pub is_upgrade: bool,
    /// Whether a success would tell the client that the protocol was changed, as over HTTP/2.
    pub has_to_upgrade: bool,
    /// Whether the client waits for a 100 before it sends the body.
    pub expects_continue: bool,
    /// The host, for TLS towards upstreams that name no server, and for those that resolve it;
    /// empty elsewhere.
    pub host: Box<str>,
    /// The credentials that TLS with the endpoint needs beside the upstream.
    pub credentials: Credentials,
    /// The connection that the request came by.
    pub ends: Ends,
    /// The client by its address, as far as it can be told: clients have questions to DNS in turns.
    pub asker: u64,
    /// The address that the connection was meant for, where it was captured.
    pub original: Option<SocketAddr>,
    /// Fields for the response.
    pub additions: Additions,
    /// Fields that a provider told for the response.
    pub told: Vec<OwnedHeader>,
    /// Names of fields of the request that providers have said something of.
    pub reserved: Vec<Box<str>>,
    /// How many of them, from the first on, are for responses that succeed or lead elsewhere alone.
    pub told_on_success: usize,
    /// Where copies of the request go, and by which mirror; see [`Forward::mirror`].
    pub mirrors: Vec<(Arc<UpstreamEntry>, usize)>,
    /// The question for the page that takes the place of an error, but for its end.
    pub page_question: Option<Box<Buffer>>,
    /// Whether the copies were started.
    pub is_copied: Cell<bool>,
    /// Whether this is such a copy.
    pub is_copy: bool,
    /// The record of the request that somebody asked for; nearly always none.
    pub record: Option<TracedRequest>,
    /// Its place among answers that are there at once. It is here since this has a box, and a
    /// client's connection has little room.
    pub turn: Cell<AnswerWait>,
}

impl Forward {
    /// How many bytes of memory it takes beside what every plan does, about.
    pub fn memory(&self) -> usize {
        let question = self.page_question.as_ref();
        let question = question.map_or(0, |question| question.capacity());
        let fields = answer::bytes_of(&self.additions, &self.told);
        self.head.memory() + self.body.capacity() + question + self.host.len() + fields
    }

    /// The policy of the route.
    pub fn policy(&self) -> Option<&Policy> {
        self.route.policy()
    }

    /// The rules of the upstream's share beside its edits.
    fn filters(&self) -> Option<&ShareFilters> {
        share_filters(self.route.route()?, self.share)
    }

    /// A mirror by its number: those of the policy come first, and then those of the share.
    pub fn mirror(&self, number: usize) -> Option<&Mirror> {
        let of_policy = self.policy().map_or(&[][..], |policy| &*policy.mirrors);
        match number.checked_sub(of_policy.len()) {
            None => of_policy.get(number),
            Some(further) => self.filters()?.mirrors.get(further),
        }
    }

    /// The mirrors of its route and share, whichever of them get a copy of this request.
    pub fn all_mirrors(&self) -> impl Iterator<Item = &Mirror> {
        let of_policy = self.policy().map_or(&[][..], |policy| &*policy.mirrors);
        let of_share = self.filters().map_or(&[][..], |filters| &*filters.mirrors);
        of_policy.iter().chain(of_share)
    }

    /// When the request is sent again; a copy is not.
    pub fn retry(&self) -> Option<&Retry> {
        let policy = self.policy().filter(|_| !self.is_copy)?;
        policy.retry.as_deref()
    }

    /// Whether the request is kept after it was sent, as far as a limit allows.
    pub fn is_kept(&self) -> bool {
        self.has_body && (!self.mirrors.is_empty() || self.retry().is_some())
    }

    /// Whether a page takes the place of an answer of this status. It never does for a request that
    /// was led in a circle: a page that is led in it too would make each pass lead to two.
    pub fn is_replaced(&self, status: u16) -> bool {
        if status == hops::LOOP_STATUS {
            return false;
        }
        let policy = self.policy().filter(|_| self.page_question.is_some());
        let pages = policy.and_then(|policy| policy.error_pages.as_deref());
        pages.is_some_and(|pages| pages.statuses.binary_search(&status).is_ok())
    }

    /// The changes to the fields of a response of this status.
    pub fn changes(&self, status: u16) -> ResponseChanges<'_> {
        let from = match is_told_of_success(status) {
            true => 0,
            false => self.told_on_success,
        };
        let told = self.told.get(from..).unwrap_or_default();
        changes_of(&self.route, self.share, &self.additions, told)
    }

    /// The trailers of the request as they go on: without those whose names the route or a provider
    /// has set in its head, or taken out of it. None where nothing is left.
    pub fn trailers(&self, trailers: Trailers) -> Option<Trailers> {
        let edits = self
            .route
            .route()
            .map(|route| header_edits(route, self.share));
        let [policy, share] = edits.unwrap_or_default();
        let edits = Edits::new(
            policy.map(|edits| &edits.request),
            share.map(|edits| &edits.request),
        );
        trailer::without(trailers, |name| {
            !edits.keeps(name) || self.reserved.iter().any(|it| it.eq_ignore_ascii_case(name))
        })
    }

    /// Whether the route is of another namespace than the upstream, or one has a say in it, so that
    /// who wrote it does not answer for the endpoints; the operator answers for all. A sidecar has
    /// its workload for its only client, and what the proxy asks itself is of no namespace.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign_to(&self.upstream)
    }

    /// The same of an upstream that copies of the request may go to.
    pub fn is_foreign_to(&self, upstream: &UpstreamEntry) -> bool {
        let of_route = self.route.origin();
        let of_upstream = upstream.upstream.as_ref();
        let of_upstream = of_upstream.and_then(|sealed| Some(&sealed.resource()?.origin));
        let is_own = of_route.is_some_and(|origin| origin.kind == OriginKind::Settings);
        let is_mixed = self.policy().is_some_and(|policy| policy.is_foreign);
        let differs = of_route.map(Origin::namespace) != of_upstream.map(Origin::namespace);
        let is_operators = self.policy().is_some_and(|policy| policy.is_operators);
        self.original.is_none() && !is_own && (is_mixed || (differs && !is_operators))
    }

    /// Whether a processor accompanies the request.
    pub fn is_processed(&self) -> bool {
        let policy = self.policy().filter(|_| !self.is_copy);
        policy.is_some_and(|policy| policy.processor.is_some())
    }
}

/// Whether responses of a status get the fields that are not for every response: those to which
/// nginx adds fields.
pub fn is_told_of_success(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301..=304 | 307 | 308)
}

/// Tells of a request that failed on its way, by the first of its route's hosts.
pub fn tell_trouble(plan: &Forward, answer: &LocalReply) {
    let Some(kind) = answer.failure else {
        return;
    };
    let hosts = plan.route.route().map_or(&[][..], |route| &**route.hosts);
    let host = hosts.first().map(|host| host.to_string());
    let host = host.unwrap_or_default();
    trouble::tell(kind, answer.status, &host, || Some(&plan.route));
}

/// The changes that a route and one of its upstreams make to the fields of a response.
pub fn changes_of<'a>(
    route: &'a RouteEntry,
    share: usize,
    additions: &'a Additions,
    told: &'a [OwnedHeader],
) -> ResponseChanges<'a> {
    let edits = route.route().map(|route| header_edits(route, share));
    let [policy, share] = edits.unwrap_or_default();
    ResponseChanges {
        edits: Edits::new(
            share.map(|edits| &edits.response),
            policy.map(|edits| &edits.response),
        ),
        additions,
        told,
    }
}

/// The rules of one of a route's upstreams beside its edits.
pub fn share_filters(route: RouteView<'_>, share: usize) -> Option<&ShareFilters> {
    match route.action {
        Action::Forward(shares) => shares.get(share)?.filters.as_deref(),
        Action::Redirect(_) | Action::Respond(_) => None,
    }
}

/// The edits of a route's policy and of one of its upstreams.
pub fn header_edits(route: RouteView<'_>, share: usize) -> [Option<&HeaderEdits>; 2] {
    let of_share = match route.action {
        Action::Forward(shares) => shares.get(share).and_then(|share| share.headers.as_deref()),
        Action::Redirect(_) | Action::Respond(_) => None,
    };
    [route.policy.headers.as_deref(), of_share]
}
