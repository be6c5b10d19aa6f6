//! Routes: what requests to a host are matched against, and what is done with them.

use std::sync::Arc;

use crate::{Cors, HeaderEdits, Host, Mirror, Name, Policy, Rewrite};

/// One rule of one host. Among the routes of the most specific host pattern that has any, the
/// first by (`rank`, name) whose path and conditions all match is taken; none means 404.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The listeners, sorted; the same list is shared by all routes that have it.
    pub listeners: Arc<[Name]>,
    /// The hosts; never empty. Shared by the routes of one host.
    pub hosts: Arc<[Host]>,
    /// The condition on the path.
    pub path: PathMatch,
    /// The conditions on other values, all of which have to hold.
    pub conditions: Box<[ValueMatch]>,
    /// Lower goes first. Translation computes it from the dialect's rules of precedence.
    pub rank: u64,
    /// The action on requests that match.
    pub action: Action,
    /// The rules beside match and action; shared with all routes that have the same.
    pub policy: Arc<Policy>,
}

impl Route {
    /// Takes over those parts of another route that are equal, so that they are held once. The
    /// hundred routes of a host differ in their paths and in little else.
    pub fn share_with(&mut self, other: &Route) {
        share(&mut self.listeners, &other.listeners);
        share(&mut self.hosts, &other.hosts);
        share(&mut self.policy, &other.policy);
        if let (Action::Forward(own), Action::Forward(other)) = (&mut self.action, &other.action) {
            share(own, other);
        }
    }
}

pub(super) fn share<T: ?Sized + PartialEq>(own: &mut Arc<T>, other: &Arc<T>) {
    if !Arc::ptr_eq(own, other) && own == other {
        *own = other.clone();
    }
}

/// A condition on a path. Paths are compared as received, percent-encoding included, with the query
/// cut off.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathMatch {
    /// Equal.
    Exact(Box<str>),
    /// Equal, or starting with it where the next element begins. `/` matches every path.
    /// Has no slash at its end, except that `/` is one.
    Prefix(Box<str>),
    /// Matched by a regex, anchored at its start and not at its end. Translation has compiled it
    /// once, so that it is known to be valid and within the size limit.
    Regex(Box<str>),
    /// Starts with it, wherever the element ends. Starts with a slash.
    Start(Box<str>),
}

/// A test of one value of the request. Method, authority and scheme are values like any header.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueMatch {
    /// The place of the value in the request.
    pub source: Source,
    /// The name of the header (lower case), parameter or cookie; empty for what there is one of.
    pub name: Box<str>,
    /// The test of the value.
    pub test: Test,
    /// Whether the test has to fail instead.
    pub invert: bool,
}

/// The place of a value in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Source {
    /// A header.
    Header = 1,
    /// A query parameter.
    Query = 2,
    /// A cookie.
    Cookie = 3,
    /// The method.
    Method = 4,
    /// The authority: the host as it came, with its port where it has one.
    Authority = 5,
    /// `http` or `https`, as the client came.
    Scheme = 6,
    /// A claim of the verified token; its name is its path, as `[a][b]`. A claim that is a list,
    /// or text of words, passes a test where one of them does.
    Claim = 7,
}

impl Source {
    /// Whether there are many of it, told apart by name.
    pub fn is_named(self) -> bool {
        matches!(
            self,
            Source::Header | Source::Query | Source::Cookie | Source::Claim
        )
    }
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Test {
    /// Equal.
    Exact(Box<str>),
    /// Matched as a whole by a regex.
    Regex(Box<str>),
    /// There, whatever it is.
    Present,
    /// Starts with it.
    Start(Box<str>),
}

/// The action of a route on a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sent to one of the upstreams, by weight. None, or only weights of 0, answers 503.
    Forward(Arc<[WeightedUpstream]>),
    /// Answered with a redirect. Shared by all routes that have it.
    Redirect(Arc<Redirect>),
    /// Answered as is.
    Respond(Box<Respond>),
}

/// An upstream and its share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedUpstream {
    /// The upstream resource. One that is not there answers 503.
    pub upstream: Name,
    /// Its share of the sum of weights.
    pub weight: u32,
    /// The changes to headers on the way there and back, after those of the policy.
    pub headers: Option<Box<HeaderEdits>>,
    /// The further rules for the requests of this share alone; none for streams.
    pub filters: Option<Box<ShareFilters>>,
}

/// The rules for the requests of one share, beside its changes to headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShareFilters {
    /// The answer in place of the upstream's, which then need not be there.
    pub answer: Option<ShareAnswer>,
    /// The change to the target, in place of that of the policy. It substitutes nothing.
    pub rewrite: Option<Box<Rewrite>>,
    /// The upstreams that get copies beside those of the policy; at most
    /// [`ShareFilters::MIRRORS_MAX`].
    pub mirrors: Box<[Mirror]>,
    /// Cross-origin resource sharing, in place of that of the policy, without patterns of origins.
    pub cors: Option<Box<Cors>>,
}

impl ShareFilters {
    /// The most upstreams that get copies of the requests of one share.
    pub const MIRRORS_MAX: usize = 64;
}

/// The answer to the requests of a share that no upstream gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ShareAnswer {
    /// Refused with this status, 400 to 599.
    Refuse(u16),
    /// Answered with a redirect. Shared by all that have it.
    Redirect(Arc<Redirect>),
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// The target of the redirect.
    pub target: RedirectTarget,
}

/// The target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RedirectTarget {
    /// A whole URL.
    Url(Box<str>),
    /// A path on the same scheme and authority.
    Path(Box<str>),
    /// The URL of the request with parts of it changed.
    Parts(Box<RedirectParts>),
}

/// The changes to a URL. The query is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RedirectParts {
    /// `http` or `https`; empty keeps it.
    pub scheme: Box<str>,
    /// The host; empty keeps it.
    pub host: Box<str>,
    /// The port; none keeps that of the request, unless scheme or host change: then it is left out.
    pub port: Option<u16>,
    /// Whether the port of the request is kept for another host of the same scheme too.
    pub keeps_port: bool,
    /// The path.
    pub path: Option<RedirectPath>,
}

/// The change to the path of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RedirectPath {
    /// All of it.
    Whole(Box<str>),
    /// The replacement of the part that the path match covers.
    Matched(Box<str>),
}

/// A fixed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond {
    /// The status, 200 to 599.
    pub status: u16,
    /// The body, sent as `text/plain; charset=utf-8` unless the policy sets another type. Shared
    /// by all routes that have it.
    pub body: Arc<[u8]>,
}
