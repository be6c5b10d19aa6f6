//! The routes of one host, compiled when that host changes.

use std::sync::Arc;

use myriad_model::{Action, Host, Name, PathMatch, PathRewrite, Route, SealedArc, Test};
use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input, PatternSet};

use super::claims::Said;
use super::condition::{
    BadRegex, compile, compile_set, compile_shared, compile_whole, hold, matches_start, whole,
};
use super::index::{Index, elements};
use super::leaf::{Hosted, Keyed, has_listener, place};
use crate::net::head::Head;
use crate::upstream::entry;

/// Up to here routes are tried one by one, which is faster and smaller than an index.
const LINEAR_MAX: usize = 8;

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

/// What few routes have: regexes, or more than one upstream.
#[derive(Default)]
struct Compiled {
    path: Option<Regex>,
    /// Those of the conditions, in their order.
    values: Box<[Regex]>,
    /// What a rewrite looks for.
    substitution: Option<Arc<Regex>>,
    /// Those of origins, in their order.
    origins: Box<[Arc<Regex>]>,
    /// Hashes of the names of all upstreams, where there are more than one.
    upstreams: Box<[u64]>,
}

/// The routes of a host pattern.
pub struct HostEntry {
    hash: u64,
    host: Host,
    /// By rank, then by name.
    routes: Box<[RouteArc]>,
    /// All listeners that some route is on, sorted.
    listeners: Arc<[Name]>,
    indexed: Option<Box<Indexed>>,
}

/// What a route is looked for by.
struct Asked<'a, 'h> {
    listener: &'a Name,
    head: &'a Head<'h>,
    token: Option<Said<'a>>,
}

struct Indexed {
    paths: Index,
    /// The routes with a regex, in the order of precedence.
    regexes: Box<[u32]>,
    /// Finds all of them in one scan, where they are many.
    set: Option<Regex>,
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

    /// The hash of the name of an upstream, by its number in the action.
    pub fn upstream_hash(&self, share: usize) -> Option<u64> {
        let many = self.compiled.as_ref().map(|compiled| &*compiled.upstreams);
        match many {
            Some(many) if !many.is_empty() => many.get(share).copied(),
            _ => (share == 0).then_some(self.upstream),
        }
    }

    /// The regex of the path.
    pub fn path_regex(&self) -> Option<&Regex> {
        self.compiled.as_ref()?.path.as_ref()
    }

    /// The regex of what a rewrite looks for.
    pub fn substitution_regex(&self) -> Option<&Regex> {
        self.compiled.as_ref()?.substitution.as_deref()
    }

    /// The regexes of origins that are allowed, in the order of the policy.
    pub fn origin_regexes(&self) -> &[Arc<Regex>] {
        let compiled = self.compiled.as_ref();
        compiled.map_or(&[], |compiled| &compiled.origins)
    }

    fn rank(&self) -> u64 {
        self.route().map_or(u64::MAX, |route| route.rank)
    }

    fn matches_path(&self, path: &str) -> bool {
        match self.route().map(|route| &route.path) {
            Some(PathMatch::Exact(wanted)) => **wanted == *path,
            Some(PathMatch::Prefix(prefix)) => has_prefix(path, prefix),
            Some(PathMatch::Start(start)) => path.starts_with(&**start),
            Some(PathMatch::Regex(_)) => self
                .path_regex()
                .is_some_and(|regex| matches_start(regex, path.as_bytes())),
            None => false,
        }
    }

    /// Whether everything but the path matches.
    fn matches_rest(&self, asked: &Asked<'_, '_>) -> bool {
        let Some(route) = self.route() else {
            return false;
        };
        let values = self.compiled.as_ref().map(|compiled| &*compiled.values);
        has_listener(&route.listeners, asked.listener)
            && hold(
                &route.conditions,
                values.unwrap_or_default(),
                asked.head,
                asked.token,
            )
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

    /// The first route that matches.
    pub fn find(
        &self,
        listener: &Name,
        head: &Head<'_>,
        token: Option<Said<'_>>,
    ) -> Option<&RouteArc> {
        let asked = &Asked {
            listener,
            head,
            token,
        };
        match &self.indexed {
            None => self
                .routes
                .iter()
                .find(|route| route.matches_path(&head.path) && route.matches_rest(asked)),
            Some(indexed) => {
                let best = indexed.find(&self.routes, asked)?;
                self.routes.get(best as usize)
            }
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
        let count = paths
            .map(|route| match &route.path {
                PathMatch::Exact(_) | PathMatch::Start(_) => 1,
                PathMatch::Prefix(prefix) => elements(prefix).count(),
                PathMatch::Regex(_) => 0,
            })
            .sum();
        let mut paths = Index::new(routes.len(), count);
        let mut regexes = Vec::new();
        let mut patterns = Vec::new();
        for (number, entry) in routes.iter().enumerate() {
            let number = number as u32;
            match entry.route().map(|route| &route.path) {
                Some(PathMatch::Exact(path)) => paths.add_exact(path, number),
                Some(PathMatch::Prefix(prefix)) => paths.add_prefix(prefix, number),
                Some(PathMatch::Start(start)) => paths.add_start(start, number),
                Some(PathMatch::Regex(pattern)) => {
                    regexes.push(number);
                    patterns.push(&**pattern);
                }
                None => {}
            }
        }
        // Too large a set is no error: each of its regexes is there on its own as well.
        let set = (regexes.len() > LINEAR_MAX)
            .then(|| compile_set(&patterns).ok())
            .flatten();
        paths.shrink();
        Indexed {
            paths,
            regexes: regexes.into(),
            set,
        }
    }

    fn find(&self, routes: &[RouteArc], asked: &Asked<'_, '_>) -> Option<u32> {
        let head = asked.head;
        let mut best = u32::MAX;
        let is_match = |number: u32| {
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
        improve(&mut self.paths.exact(&head.path));
        self.paths
            .prefixes(&head.path, |mut found| improve(&mut found));
        self.paths
            .starts(&head.path, |mut found| improve(&mut found));
        let first = self.regexes.first().copied().unwrap_or(u32::MAX);
        if first < best {
            best = self.find_regex(routes, &head.path, best, is_match);
        }
        (best != u32::MAX).then_some(best)
    }

    fn find_regex(
        &self,
        routes: &[RouteArc],
        path: &str,
        best: u32,
        is_match: impl Fn(u32) -> bool,
    ) -> u32 {
        let Some(set) = &self.set else {
            let better = self.regexes.iter().take_while(|number| **number < best);
            let matches_path = |number: u32| {
                routes
                    .get(number as usize)
                    .is_some_and(|route| route.matches_path(path))
            };
            return better
                .copied()
                .find(|number| matches_path(*number) && is_match(*number))
                .unwrap_or(best);
        };
        let mut found = PatternSet::new(set.pattern_len());
        let input = Input::new(path).anchored(Anchored::Yes);
        set.which_overlapping_matches(&input, &mut found);
        found
            .iter()
            .filter_map(|pattern| self.regexes.get(pattern.as_usize()).copied())
            .take_while(|number| *number < best)
            .find(|number| is_match(*number))
            .unwrap_or(best)
    }
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
        PathMatch::Regex(pattern) => Some(compile(pattern)?),
        PathMatch::Exact(_) | PathMatch::Prefix(_) | PathMatch::Start(_) => None,
    };
    let values = route
        .conditions
        .iter()
        .filter_map(|condition| match &condition.test {
            Test::Regex(pattern) => Some(compile_whole(pattern)),
            Test::Exact(_) | Test::Present | Test::Start(_) => None,
        })
        .collect::<Result<Box<[Regex]>, BadRegex>>()?;
    let policy = &*route.policy;
    let rewrite = policy
        .rewrite
        .as_ref()
        .and_then(|rewrite| rewrite.path.as_ref());
    let substitution = match rewrite {
        Some(PathRewrite::Substitution { regex, .. }) => Some(compile_shared(regex)?),
        Some(PathRewrite::Template(_) | PathRewrite::Matched(_)) | None => None,
    };
    let origins = match &policy.cors {
        Some(cors) => cors
            .origin_patterns
            .iter()
            .map(|pattern| compile_shared(&whole(pattern)).map_err(|_| BadRegex(pattern.clone())))
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
