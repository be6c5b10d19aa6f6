//! The routes of one host, compiled when that host changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_model::{Host, Name, PathReading, PathView, RouteView, ValueMatch};
use smallvec::SmallVec;

use super::claims::VerifiedClaims;
use super::condition::{Given, hold};
use super::entry::{BlockArc, RouteEntry, in_precedence};
use super::index::{Index, elements};
use super::leaf::{Hosted, Keyed, place};
use super::parting::Parting;
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::pattern::{self, Budget, Candidates, tell_spent};

/// Up to here routes are tried one by one, which is faster and smaller than an index.
const LINEAR_MAX: usize = 8;

/// The most listeners of a host whose routes are asked one by one whether they are on one.
const LISTENERS_MAX: usize = 16;

/// The steps that looking at one hint costs, or into one more part of the routes: so much, and one
/// more for so many bytes.
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
    /// The routes by the listeners that they are on; none where they are few, and all are tried.
    parting: Option<Box<Parting<Part>>>,
}

/// The routes of a host that are on the same listeners. Routes on others are of no concern to who
/// looks for one here: they may be a stranger's.
struct Part {
    /// The numbers of the routes among all of the host, in the order of precedence.
    numbers: Box<[u32]>,
    /// The readings of paths that some route compares.
    readings: SmallVec<[PathReading; 3]>,
    /// Whether some route restricts who may ask.
    is_restricted: bool,
    /// The index, where there are many.
    indexed: Option<Indexed>,
}

/// The routes of a part.
#[derive(Clone, Copy)]
struct PartRoutes<'t> {
    /// The routes of the host.
    all: &'t [RouteEntry],
    numbers: &'t [u32],
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

/// An index over the routes of a part, by their places in it.
struct Indexed {
    paths: Index,
    /// The routes with a regex, by what their paths begin with, in lower case.
    regexes: Option<Index>,
    /// The first route with a regex.
    first_regex: u32,
}

impl Asked<'_, '_> {
    /// Whether everything but the path and the listener matches.
    fn matches_rest(&self, entry: &RouteEntry) -> bool {
        let is_read_so = self.reading.is_none_or(|asked| {
            let policy = entry.policy();
            policy.is_some_and(|policy| policy.path_reading == asked)
        });
        if !is_read_so {
            // Whoever has very many of them pays for passing over each.
            self.budget.take(1);
            return false;
        }
        let conditions = entry.conditions();
        let holds = |conditions: &[ValueMatch]| {
            conditions.is_empty() || hold(conditions, entry.value_regexes(), self.given)
        };
        conditions.is_some_and(holds)
    }

    /// Takes the steps of a look at one hint, or into one more part.
    fn pay_look(&self) -> bool {
        self.budget.take(HINT_STEPS + self.path.len() / HINT_BYTES)
    }
}

impl HostEntry {
    /// Compiles the routes of a host.
    pub fn new(host: Host, blocks: &[BlockArc]) -> Self {
        let routes = in_precedence(blocks);
        let listeners = all_listeners(&routes);
        let are_few = routes.len() <= LINEAR_MAX && listeners.len() <= LISTENERS_MAX;
        let parting = (!are_few).then(|| {
            let lists = routes.iter();
            let lists = lists.map(|route| route.listeners().unwrap_or_default());
            Box::new(Parting::new(lists, |numbers| Part::new(&routes, numbers)))
        });
        HostEntry {
            hash: place(host.pattern()),
            host,
            listeners,
            routes: routes.into(),
            parting,
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
        self.listeners.binary_search(listener).is_ok()
    }

    /// The first route that is on a listener.
    pub fn first_on(&self, listener: &Name) -> Option<&RouteEntry> {
        match &self.parting {
            None => self.routes.iter().find(|route| route.is_on(listener)),
            Some(parting) => {
                let first = parting.on(listener).next()?.numbers.first()?;
                self.routes.get(*first as usize)
            }
        }
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
            for reading in self.readings(listener) {
                asked.path = head.read(reading)?;
                asked.reading = Some(reading);
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
        let readings = head.readings.as_ref();
        let readings = readings.filter(|_| self.is_restricted(listener));
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
        let Some(parting) = &self.parting else {
            let mut routes = self.routes.iter().zip(0..);
            let found = routes.find(|(route, number)| {
                if !route.is_on(asked.listener) {
                    return false;
                }
                asked.budget.note(*number);
                route.matches_path(asked.path, asked.budget) && asked.matches_rest(route)
            });
            return found.map(|(_, number)| number);
        };
        let mut best = u32::MAX;
        for (at, part) in parting.on(asked.listener).enumerate() {
            let is_before = part.numbers.first().is_some_and(|first| *first < best);
            if !is_before || at > 0 && !asked.pay_look() {
                break;
            }
            best = part.find(&self.routes, asked, best);
        }
        (best != u32::MAX).then_some(best)
    }

    /// The readings of paths that routes on a listener compare, each once.
    fn readings(&self, listener: &Name) -> SmallVec<[PathReading; 3]> {
        let mut readings = SmallVec::new();
        match &self.parting {
            None => {
                let routes = self.routes.iter();
                add_readings(routes.filter(|it| it.is_on(listener)), &mut readings);
            }
            Some(parting) => {
                let parts = parting.on(listener);
                for reading in parts.flat_map(|part| &part.readings) {
                    if !readings.contains(reading) {
                        readings.push(*reading);
                    }
                }
            }
        }
        readings
    }

    /// Whether some route on a listener restricts who may ask.
    fn is_restricted(&self, listener: &Name) -> bool {
        match &self.parting {
            None => {
                let mut routes = self.routes.iter();
                routes.any(|route| route.is_on(listener) && route.is_restricted())
            }
            Some(parting) => parting.on(listener).any(|part| part.is_restricted),
        }
    }
}

impl Part {
    fn new(all: &[RouteEntry], numbers: Box<[u32]>) -> Self {
        let routes = PartRoutes {
            all,
            numbers: &numbers,
        };
        let mut readings = SmallVec::new();
        add_readings(routes.iter(), &mut readings);
        let is_restricted = routes.iter().any(RouteEntry::is_restricted);
        let indexed = (numbers.len() > LINEAR_MAX).then(|| Indexed::new(routes));
        Part {
            readings,
            is_restricted,
            indexed,
            numbers,
        }
    }

    /// The first route before another one that matches, or else that one.
    fn find(&self, all: &[RouteEntry], asked: &Asked<'_, '_>, best: u32) -> u32 {
        let routes = PartRoutes {
            all,
            numbers: &self.numbers,
        };
        let end = self.numbers.partition_point(|number| *number < best) as u32;
        let found = match &self.indexed {
            Some(indexed) => indexed.find(routes, asked, end),
            None => (0..end).find(|at| {
                let route = routes.note(*at, asked.budget);
                route.is_some_and(|route| {
                    route.matches_path(asked.path, asked.budget) && asked.matches_rest(route)
                })
            }),
        };
        let number = found.and_then(|at| self.numbers.get(at as usize));
        number.copied().unwrap_or(best)
    }
}

impl<'t> PartRoutes<'t> {
    fn iter(self) -> impl Iterator<Item = &'t RouteEntry> + Clone {
        let numbers = self.numbers.iter();
        numbers.filter_map(move |number| self.all.get(*number as usize))
    }

    /// The route at a place, whose number is noted as that of what is tried.
    fn note(self, at: u32, budget: &Budget) -> Option<&'t RouteEntry> {
        let number = *self.numbers.get(at as usize)?;
        budget.note(number);
        self.all.get(number as usize)
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
    fn new(routes: PartRoutes<'_>) -> Self {
        let count = routes.numbers.len();
        let paths = routes.iter().filter_map(|route| route.route());
        let is_regex = |route: &RouteView<'_>| matches!(route.path, PathView::Regex(_));
        let patterns = paths.clone().filter(is_regex).count();
        let elements = paths
            .map(|route| match route.path {
                PathView::Exact(_) | PathView::Start(_) => 1,
                PathView::Prefix(prefix) => elements(prefix).count(),
                PathView::Regex(_) => 0,
            })
            .sum();
        let mut paths = Index::new(count, elements);
        let mut regexes: Option<Index> = None;
        let mut first_regex = u32::MAX;
        for (entry, at) in routes.iter().zip(0..) {
            match entry.route().map(|route| route.path) {
                Some(PathView::Exact(path)) => paths.add_exact(path, at),
                Some(PathView::Prefix(prefix)) => paths.add_prefix(prefix, at),
                Some(PathView::Start(start)) => paths.add_start(start, at),
                Some(PathView::Regex(_)) => {
                    let prefix = entry.path_regex().map(|regex| regex.hint().prefix());
                    let index = regexes.get_or_insert_with(|| Index::new(count, patterns));
                    index.add_start(prefix.unwrap_or_default(), at);
                    first_regex = first_regex.min(at);
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

    /// The first route before a place that matches.
    fn find(&self, routes: PartRoutes<'_>, asked: &Asked<'_, '_>, end: u32) -> Option<u32> {
        let path = asked.path;
        let mut best = end;
        let is_match = |at: u32| {
            let route = routes.note(at, asked.budget);
            route.is_some_and(|route| asked.matches_rest(route))
        };
        let mut improve = |candidates: &mut dyn Iterator<Item = u32>| {
            for at in candidates {
                if at >= best {
                    break;
                }
                if is_match(at) {
                    best = at;
                }
            }
        };
        improve(&mut self.paths.exact(path));
        self.paths.prefixes(path, |mut found| improve(&mut found));
        self.paths.starts(path, |mut found| improve(&mut found));
        if let Some(regexes) = self.regexes.as_ref().filter(|_| self.first_regex < best) {
            best = find_regex(regexes, routes, asked, best);
        }
        (best < end).then_some(best)
    }
}

/// The first route before another one whose regex matches, or else that one. Which regexes have
/// to be tried is known from what the path begins with, and from letters that it must have.
fn find_regex(regexes: &Index, routes: PartRoutes<'_>, asked: &Asked<'_, '_>, best: u32) -> u32 {
    let (path, budget) = (asked.path, asked.budget);
    let found = pattern::with_candidates(path, |candidates| {
        gather(regexes, routes, asked, best, candidates);
        candidates.numbers.sort_unstable();
        let matches = |at: &&u32| {
            let route = routes.note(**at, budget);
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
    routes: PartRoutes<'_>,
    asked: &Asked<'_, '_>,
    best: u32,
    candidates: &mut Candidates,
) {
    let Candidates { folded, .. } = candidates;
    let folded = std::mem::take(folded);
    regexes.starts(&folded, |found| {
        for at in found.take_while(|at| *at < best) {
            let Some(entry) = routes.note(at, asked.budget) else {
                continue;
            };
            let regex = entry.path_regex();
            let is_candidate = regex.is_some_and(|regex| regex.hint().admits(&folded));
            if !asked.pay_look() || (is_candidate && !candidates.push(at)) {
                asked.budget.spend();
                return;
            }
        }
    });
    candidates.folded = folded;
}

/// Adds the readings that routes compare, each once.
fn add_readings<'t>(
    routes: impl Iterator<Item = &'t RouteEntry>,
    readings: &mut SmallVec<[PathReading; 3]>,
) {
    for reading in routes.filter_map(|route| Some(route.policy()?.path_reading)) {
        if !readings.contains(&reading) {
            readings.push(reading);
        }
    }
}

/// The union of all lists. Hardly ever are there two different ones, and then one is shared.
fn all_listeners(routes: &[RouteEntry]) -> Arc<[Name]> {
    let lists = routes.iter().filter_map(|route| route.route());
    let mut lists = lists.map(|route| route.listeners);
    let Some(first) = lists.clone().next() else {
        return Arc::default();
    };
    let is_first = |list: &Arc<[Name]>| Arc::ptr_eq(list, first) || list == first;
    if first.is_sorted() && lists.all(is_first) {
        return first.clone();
    }
    let mut all: BTreeSet<&Name> = BTreeSet::new();
    let mut last: Option<&Arc<[Name]>> = None;
    for route in routes.iter().filter_map(|route| route.route()) {
        let list = route.listeners;
        if last.is_none_or(|last| !Arc::ptr_eq(last, list)) {
            all.extend(list.iter());
            last = Some(list);
        }
    }
    all.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests;
