//! The routes of one host, compiled when that host changes.

use std::sync::Arc;

use myriad_model::{
    Action, Host, Name, Origin, PathMatch, PathReading, PathRewrite, Route, SealedArc, Test,
};
use smallvec::SmallVec;

use super::claims::VerifiedClaims;
use super::condition::{Given, hold};
use super::index::{Index, elements};
use super::leaf::{Hosted, Keyed, has_listener, place};
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::pattern::{self, BadRegex, Budget, Candidates, Pattern, tell_spent};
use crate::upstream::entry;

/// Up to here routes are tried one by one, which is faster and smaller than an index.
const LINEAR_MAX: usize = 8;

/// The steps that looking at one hint costs: so much, and one more for so many bytes.
const HINT_STEPS: usize = 4;
const HINT_BYTES: usize = 16;

/// A route, ready to be matched. Hosts that share a route share this.
pub struct RouteEntry {
    /// The resource, whose value is a route.
    sealed: SealedArc,
    compiled: Option<Box<Compiled>>,
    /// The hash of the name of its first upstream, which mostly is the only one.
    upstream: u64,
}

/// A route as tables and requests share it. There are as many as routes, and nobody refers to one
/// weakly.
pub type RouteArc = triomphe::Arc<RouteEntry>;

/// The parts that few routes have: regexes, or more than one upstream.
#[derive(Default)]
struct Compiled {
    path: Option<Arc<Pattern>>,
    /// The regexes of the conditions, in their order.
    values: Box<[Arc<Pattern>]>,
    /// The regex that a rewrite looks for.
    substitution: Option<Arc<Pattern>>,
    /// The regexes of origins, in their order.
    origins: Box<[Arc<Pattern>]>,
    /// Hashes of the names of all upstreams, where there are more than one.
    upstreams: Box<[u64]>,
}

/// The routes of a host pattern.
pub struct HostEntry {
    hash: u64,
    host: Host,
    /// The routes by rank, then by name.
    routes: Box<[RouteArc]>,
    /// All listeners that some route is on, sorted.
    listeners: Arc<[Name]>,
    /// The readings of paths that some route compares.
    readings: SmallVec<[PathReading; 3]>,
    /// Whether some route restricts who may ask.
    is_restricted: bool,
    indexed: Option<Box<Indexed>>,
}

/// The request that a route is looked for.
#[derive(Clone, Copy)]
struct Asked<'a, 'h> {
    listener: &'a Name,
    given: &'a Given<'a, 'h>,
    /// The path, in one of its readings.
    path: &'a str,
    /// The routes that are asked for: those that compare this reading; none for all.
    reading: Option<PathReading>,
    /// The steps that finding it may cost.
    budget: &'a Budget,
}

struct Indexed {
    paths: Index,
    /// The routes with a regex, by what their paths begin with, in lower case.
    regexes: Option<Index>,
    /// The first route with a regex.
    first_regex: u32,
}

impl RouteEntry {
    /// Compiles a route on its own.
    ///
    /// # Errors
    /// A regex that is not valid or too large. None, where the resource is not a route.
    pub fn new(sealed: SealedArc) -> Option<Result<Self, BadRegex>> {
        let route = sealed.route()?;
        let mut compiled = match compile_regexes(route) {
            Ok(compiled) => compiled,
            Err(error) => return Some(Err(error)),
        };
        let shares = match &route.action {
            Action::Forward(shares) => &**shares,
            Action::Redirect(_) | Action::Respond(_) => &[],
        };
        let mut hashes = shares.iter().map(|share| entry::hash_of(&share.upstream));
        let upstream = match shares {
            [] | [_] => hashes.next().unwrap_or_default(),
            [first, ..] => {
                compiled.get_or_insert_default().upstreams = hashes.collect();
                entry::hash_of(&first.upstream)
            }
        };
        Some(Ok(RouteEntry {
            sealed,
            compiled,
            upstream,
        }))
    }

    /// The resource.
    pub fn sealed(&self) -> &SealedArc {
        &self.sealed
    }

    /// The value; always there, since [`RouteEntry::new`] makes nothing else.
    pub fn route(&self) -> Option<&Route> {
        self.sealed.route()
    }

    /// The object that the route came from, and its first host; none for a route of no host.
    pub fn owner(&self) -> Option<(&Origin, &Host)> {
        let host = self.route()?.hosts.first()?;
        Some((&self.sealed.resource()?.origin, host))
    }

    /// The hash of the name of an upstream, by its number in the action.
    pub fn upstream_hash(&self, share: usize) -> Option<u64> {
        let many = self.compiled.as_ref().map(|compiled| &*compiled.upstreams);
        match many {
            Some(many) if !many.is_empty() => many.get(share).copied(),
            _ => (share == 0).then_some(self.upstream),
        }
    }

    /// The regex of the path.
    pub fn path_regex(&self) -> Option<&Pattern> {
        self.compiled.as_ref()?.path.as_deref()
    }

    /// The regex of what a rewrite looks for.
    pub fn substitution_regex(&self) -> Option<&Pattern> {
        self.compiled.as_ref()?.substitution.as_deref()
    }

    /// The regexes of origins that are allowed, in the order of the policy.
    pub fn origin_regexes(&self) -> &[Arc<Pattern>] {
        let compiled = self.compiled.as_ref();
        compiled.map_or(&[], |compiled| &compiled.origins)
    }

    /// Whether all requests for it are denied: it answers so by itself, or leads nowhere.
    pub fn is_closed(&self) -> bool {
        match self.route().map(|route| &route.action) {
            Some(Action::Forward(shares)) => shares.is_empty(),
            Some(Action::Respond(fixed)) => matches!(fixed.status, 401 | 403 | 503),
            Some(Action::Redirect(_)) | None => false,
        }
    }

    /// Whether somebody may not ask, or nobody may.
    fn is_restricted(&self) -> bool {
        let policy = self.route().map(|route| &route.policy);
        self.is_closed() || policy.is_some_and(|policy| policy.restricts())
    }

    fn rank(&self) -> u64 {
        self.route().map_or(u64::MAX, |route| route.rank)
    }

    fn matches_path(&self, path: &str, budget: &Budget) -> bool {
        match self.route().map(|route| &route.path) {
            Some(PathMatch::Exact(wanted)) => **wanted == *path,
            Some(PathMatch::Prefix(prefix)) => has_prefix(path, prefix),
            Some(PathMatch::Start(start)) => path.starts_with(&**start),
            Some(PathMatch::Regex(_)) => self
                .path_regex()
                .is_some_and(|regex| regex.is_match(path.as_bytes(), budget)),
            None => false,
        }
    }

    fn is_on(&self, listener: &Name) -> bool {
        let route = self.route();
        route.is_some_and(|route| has_listener(&route.listeners, listener))
    }

    /// Whether everything but the path matches.
    fn matches_rest(&self, asked: &Asked<'_, '_>) -> bool {
        let Some(route) = self.route() else {
            return false;
        };
        let values = self.compiled.as_ref().map(|compiled| &*compiled.values);
        let reading = route.policy.path_reading;
        asked.reading.is_none_or(|asked| asked == reading)
            && self.is_on(asked.listener)
            && hold(&route.conditions, values.unwrap_or_default(), asked.given)
    }
}

impl HostEntry {
    /// Compiles the routes of a host.
    pub fn new(host: Host, mut routes: Vec<RouteArc>) -> Self {
        routes.sort_by(|a, b| {
            let by_rank = a.rank().cmp(&b.rank());
            by_rank.then_with(|| a.sealed.name().cmp(b.sealed.name()))
        });
        let indexed = (routes.len() > LINEAR_MAX).then(|| Box::new(Indexed::new(&routes)));
        HostEntry {
            hash: place(host.pattern()),
            host,
            listeners: all_listeners(&routes),
            readings: all_readings(&routes),
            is_restricted: routes.iter().any(|route| route.is_restricted()),
            routes: routes.into(),
            indexed,
        }
    }

    /// The routes, in the order of precedence.
    pub fn routes(&self) -> &[RouteArc] {
        &self.routes
    }

    /// Whether any route is on a listener.
    pub fn is_on(&self, listener: &Name) -> bool {
        has_listener(&self.listeners, listener)
    }

    /// The first route that matches, each by the reading of the path that it compares.
    ///
    /// # Errors
    /// That no route matches, that a dialect of the host refuses the path, or that finding out
    /// takes too many steps.
    pub fn find(
        &self,
        listener: &Name,
        head: &Head<'_>,
        token: Option<VerifiedClaims<'_>>,
        budget: &Budget,
    ) -> Result<&RouteArc, FailureKind> {
        let given = Given::new(head, token, budget);
        let mut asked = Asked {
            listener,
            given: &given,
            path: &head.path,
            reading: None,
            budget,
        };
        let found = if head.readings.is_none() {
            self.find_one(&asked)
        } else {
            let mut best = None;
            for reading in &self.readings {
                asked.path = head.read(*reading)?;
                asked.reading = Some(*reading);
                let found = self.find_one(&asked);
                best = best.into_iter().chain(found).min();
            }
            best
        };
        if budget.is_spent() {
            if let Some(tried) = self.routes.get(budget.tried() as usize) {
                tell_spent(&self.host, tried.sealed.name());
            }
            return Err(FailureKind::RegexBudget);
        }
        let found = found.and_then(|number| self.routes.get(number as usize));
        found.ok_or(FailureKind::NoRoute)
    }

    /// The routes that requests would take if all routes compared another reading of the path:
    /// none where no route restricts who may ask, and none for plain paths. Once the budget is
    /// spent, some may be missing.
    pub fn find_otherwise<'t, 'a>(
        &'t self,
        listener: &'a Name,
        head: &'a Head<'_>,
        token: Option<VerifiedClaims<'a>>,
        budget: &'a Budget,
    ) -> impl Iterator<Item = &'t RouteArc> {
        let readings = head.readings.as_ref().filter(|_| self.is_restricted);
        let paths = readings.into_iter().flat_map(|readings| {
            let plainest = [&*head.path, readings.base()];
            plainest.into_iter().chain(readings.others())
        });
        let given = Given::new(head, token, budget);
        paths.filter_map(move |path| {
            let number = self.find_one(&Asked {
                listener,
                given: &given,
                path,
                reading: None,
                budget,
            })?;
            self.routes.get(number as usize)
        })
    }

    fn find_one(&self, asked: &Asked<'_, '_>) -> Option<u32> {
        match &self.indexed {
            None => {
                let mut routes = self.routes.iter().zip(0..);
                let found = routes.find(|(route, number)| {
                    asked.budget.note(*number);
                    route.matches_path(asked.path, asked.budget) && route.matches_rest(asked)
                });
                found.map(|(_, number)| number)
            }
            Some(indexed) => indexed.find(&self.routes, asked),
        }
    }
}

impl Keyed for HostEntry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.host == other.host
    }
}

impl Hosted for HostEntry {
    fn host(&self) -> &Host {
        &self.host
    }
}

impl Indexed {
    fn new(routes: &[RouteArc]) -> Self {
        let paths = routes.iter().filter_map(|route| route.route());
        let is_regex = |route: &&Route| matches!(route.path, PathMatch::Regex(_));
        let patterns = paths.clone().filter(is_regex).count();
        let count = paths
            .map(|route| match &route.path {
                PathMatch::Exact(_) | PathMatch::Start(_) => 1,
                PathMatch::Prefix(prefix) => elements(prefix).count(),
                PathMatch::Regex(_) => 0,
            })
            .sum();
        let mut paths = Index::new(routes.len(), count);
        let mut regexes: Option<Index> = None;
        let mut first_regex = u32::MAX;
        for (number, entry) in routes.iter().enumerate() {
            let number = number as u32;
            match entry.route().map(|route| &route.path) {
                Some(PathMatch::Exact(path)) => paths.add_exact(path, number),
                Some(PathMatch::Prefix(prefix)) => paths.add_prefix(prefix, number),
                Some(PathMatch::Start(start)) => paths.add_start(start, number),
                Some(PathMatch::Regex(_)) => {
                    let prefix = entry.path_regex().map(|regex| regex.hint().prefix());
                    let index = regexes.get_or_insert_with(|| Index::new(routes.len(), patterns));
                    index.add_start(prefix.unwrap_or_default(), number);
                    first_regex = first_regex.min(number);
                }
                None => {}
            }
        }
        paths.shrink();
        if let Some(regexes) = &mut regexes {
            regexes.shrink();
        }
        Indexed {
            paths,
            regexes,
            first_regex,
        }
    }

    fn find(&self, routes: &[RouteArc], asked: &Asked<'_, '_>) -> Option<u32> {
        let path = asked.path;
        let mut best = u32::MAX;
        let is_match = |number: u32| {
            asked.budget.note(number);
            routes
                .get(number as usize)
                .is_some_and(|route| route.matches_rest(asked))
        };
        let mut improve = |candidates: &mut dyn Iterator<Item = u32>| {
            for number in candidates {
                if number >= best {
                    break;
                }
                if is_match(number) {
                    best = number;
                }
            }
        };
        improve(&mut self.paths.exact(path));
        self.paths.prefixes(path, |mut found| improve(&mut found));
        self.paths.starts(path, |mut found| improve(&mut found));
        if let Some(regexes) = self.regexes.as_ref().filter(|_| self.first_regex < best) {
            best = find_regex(regexes, routes, asked, best);
        }
        (best != u32::MAX).then_some(best)
    }
}

/// The first route before another one whose regex matches, or else that one. Which regexes have
/// to be tried is known from what the path begins with, and from letters that it must have.
fn find_regex(regexes: &Index, routes: &[RouteArc], asked: &Asked<'_, '_>, best: u32) -> u32 {
    let (path, budget) = (asked.path, asked.budget);
    let found = pattern::with_candidates(path, |candidates| {
        gather(regexes, routes, asked, best, candidates);
        candidates.numbers.sort_unstable();
        let matches = |number: &&u32| {
            budget.note(**number);
            let route = routes.get(**number as usize);
            route.is_some_and(|it| it.matches_path(path, budget) && it.matches_rest(asked))
        };
        candidates.numbers.iter().find(matches).copied()
    });
    match found {
        Some(found) => found.unwrap_or(best),
        None => {
            budget.spend();
            best
        }
    }
}

/// Gathers the routes before another one whose regexes have to be tried.
fn gather(
    regexes: &Index,
    routes: &[RouteArc],
    asked: &Asked<'_, '_>,
    best: u32,
    candidates: &mut Candidates,
) {
    let Candidates { folded, .. } = candidates;
    let folded = std::mem::take(folded);
    regexes.starts(&folded, |found| {
        for number in found.take_while(|number| *number < best) {
            let Some(entry) = routes.get(number as usize) else {
                continue;
            };
            let is_candidate = entry.is_on(asked.listener)
                && entry
                    .path_regex()
                    .is_some_and(|regex| regex.hint().admits(&folded));
            asked.budget.note(number);
            let is_paid = asked.budget.take(HINT_STEPS + folded.len() / HINT_BYTES);
            if !is_paid || (is_candidate && !candidates.push(number)) {
                asked.budget.spend();
                return;
            }
        }
    });
    candidates.folded = folded;
}

/// Equal, or going on with a slash. `/` is a prefix of everything.
fn has_prefix(path: &str, prefix: &str) -> bool {
    if prefix == "/" {
        return true;
    }
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn compile_regexes(route: &Route) -> Result<Option<Box<Compiled>>, BadRegex> {
    let path = match &route.path {
        PathMatch::Regex(pattern) => Some(Pattern::new(pattern)?),
        PathMatch::Exact(_) | PathMatch::Prefix(_) | PathMatch::Start(_) => None,
    };
    let values = route
        .conditions
        .iter()
        .filter_map(|condition| match &condition.test {
            Test::Regex(pattern) => Some(Pattern::whole(pattern)),
            Test::Exact(_) | Test::Present | Test::Start(_) => None,
        })
        .collect::<Result<Box<[_]>, BadRegex>>()?;
    let policy = &*route.policy;
    let rewrite = policy
        .rewrite
        .as_ref()
        .and_then(|rewrite| rewrite.path.as_ref());
    let substitution = match rewrite {
        Some(PathRewrite::Substitution { regex, .. }) => Some(Pattern::new(regex)?),
        Some(PathRewrite::Template(_) | PathRewrite::Matched(_)) | None => None,
    };
    let origins = match &policy.cors {
        Some(cors) => cors
            .origin_patterns
            .iter()
            .map(|pattern| Pattern::whole(pattern))
            .collect::<Result<_, _>>()?,
        None => Box::default(),
    };
    let is_empty = path.is_none() && values.is_empty();
    if is_empty && substitution.is_none() && origins.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::new(Compiled {
        path,
        values,
        substitution,
        origins,
        upstreams: Box::default(),
    })))
}

/// The readings that routes compare, each once.
fn all_readings(routes: &[RouteArc]) -> SmallVec<[PathReading; 3]> {
    let mut readings = SmallVec::new();
    for route in routes.iter().filter_map(|route| route.route()) {
        let reading = route.policy.path_reading;
        if !readings.contains(&reading) {
            readings.push(reading);
        }
    }
    readings
}

/// The union of all lists. Hardly ever are there two different ones, and then one is shared.
fn all_listeners(routes: &[RouteArc]) -> Arc<[Name]> {
    let mut lists = routes.iter().filter_map(|route| route.route());
    let Some(first) = lists.next().map(|route| &route.listeners) else {
        return Arc::default();
    };
    let mut more: Vec<Name> = Vec::new();
    for list in lists.map(|route| &route.listeners) {
        if Arc::ptr_eq(list, first) {
            continue;
        }
        for name in list.iter() {
            if !first.contains(name) && !more.contains(name) {
                more.push(name.clone());
            }
        }
    }
    if more.is_empty() {
        return first.clone();
    }
    more.extend(first.iter().cloned());
    more.sort();
    more.into()
}

#[cfg(test)]
mod tests;
