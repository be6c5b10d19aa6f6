//! The routes of one host, compiled when that host changes.

use std::sync::Arc;

use myriad_model::{Host, Name, PathReading, PathView, RouteView, ValueMatch};
use smallvec::SmallVec;

use super::claims::VerifiedClaims;
use super::condition::{Given, hold};
use super::entry::{BlockArc, RouteEntry, in_precedence};
use super::index::{Index, elements};
use super::leaf::{Hosted, Keyed, has_listener, place};
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::pattern::{self, Budget, Candidates, tell_spent};

/// Up to here routes are tried one by one, which is faster and smaller than an index.
const LINEAR_MAX: usize = 8;

/// The steps that looking at one hint costs: so much, and one more for so many bytes.
const HINT_STEPS: usize = 4;
const HINT_BYTES: usize = 16;

/// The routes of a host pattern.
pub struct HostEntry {
    hash: u64,
    host: Host,
    /// The routes, in the order of precedence.
    routes: Box<[RouteEntry]>,
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

impl Asked<'_, '_> {
    /// Whether everything but the path matches.
    fn matches_rest(&self, entry: &RouteEntry) -> bool {
        let is_read_so = self.reading.is_none_or(|asked| {
            let policy = entry.policy();
            policy.is_some_and(|policy| policy.path_reading == asked)
        });
        let conditions = entry.conditions();
        let holds = |conditions: &[ValueMatch]| {
            conditions.is_empty() || hold(conditions, entry.value_regexes(), self.given)
        };
        is_read_so && entry.is_on(self.listener) && conditions.is_some_and(holds)
    }
}

impl HostEntry {
    /// Compiles the routes of a host.
    pub fn new(host: Host, blocks: &[BlockArc]) -> Self {
        let routes = in_precedence(blocks);
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
    pub fn routes(&self) -> &[RouteEntry] {
        &self.routes
    }

    /// The resources that the routes are part of.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockArc> {
        let firsts = self.routes.iter().filter(|route| route.is_first());
        firsts.map(RouteEntry::block)
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
    ) -> Result<&RouteEntry, FailureKind> {
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
                tell_spent(&self.host, &tried.name());
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
    ) -> impl Iterator<Item = &'t RouteEntry> {
        let readings = head.readings.as_ref().filter(|_| self.is_restricted);
        let paths = readings.into_iter().flat_map(|readings| {
            let plainest = [&*head.path, readings.base()];
            plainest.into_iter().chain(readings.others(&head.path))
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
                    route.matches_path(asked.path, asked.budget) && asked.matches_rest(route)
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
    fn new(routes: &[RouteEntry]) -> Self {
        let paths = routes.iter().filter_map(|route| route.route());
        let is_regex = |route: &RouteView<'_>| matches!(route.path, PathView::Regex(_));
        let patterns = paths.clone().filter(is_regex).count();
        let count = paths
            .map(|route| match route.path {
                PathView::Exact(_) | PathView::Start(_) => 1,
                PathView::Prefix(prefix) => elements(prefix).count(),
                PathView::Regex(_) => 0,
            })
            .sum();
        let mut paths = Index::new(routes.len(), count);
        let mut regexes: Option<Index> = None;
        let mut first_regex = u32::MAX;
        for (number, entry) in routes.iter().enumerate() {
            let number = number as u32;
            match entry.route().map(|route| route.path) {
                Some(PathView::Exact(path)) => paths.add_exact(path, number),
                Some(PathView::Prefix(prefix)) => paths.add_prefix(prefix, number),
                Some(PathView::Start(start)) => paths.add_start(start, number),
                Some(PathView::Regex(_)) => {
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

    fn find(&self, routes: &[RouteEntry], asked: &Asked<'_, '_>) -> Option<u32> {
        let path = asked.path;
        let mut best = u32::MAX;
        let is_match = |number: u32| {
            asked.budget.note(number);
            routes
                .get(number as usize)
                .is_some_and(|route| asked.matches_rest(route))
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
fn find_regex(regexes: &Index, routes: &[RouteEntry], asked: &Asked<'_, '_>, best: u32) -> u32 {
    let (path, budget) = (asked.path, asked.budget);
    let found = pattern::with_candidates(path, |candidates| {
        gather(regexes, routes, asked, best, candidates);
        candidates.numbers.sort_unstable();
        let matches = |number: &&u32| {
            budget.note(**number);
            let route = routes.get(**number as usize);
            route.is_some_and(|it| it.matches_path(path, budget) && asked.matches_rest(it))
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
    routes: &[RouteEntry],
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

/// The readings that routes compare, each once.
fn all_readings(routes: &[RouteEntry]) -> SmallVec<[PathReading; 3]> {
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
fn all_listeners(routes: &[RouteEntry]) -> Arc<[Name]> {
    let mut lists = routes.iter().filter_map(|route| route.route());
    let Some(first) = lists.next().map(|route| route.listeners) else {
        return Arc::default();
    };
    let mut more: Vec<Name> = Vec::new();
    for list in lists.map(|route| route.listeners) {
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
