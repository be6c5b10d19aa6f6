//! Routes as tables and requests share them: each a row of a resource, which is compiled once.

use std::sync::Arc;

use myriad_model::{
    Action, Host, Name, Origin, PathRewrite, PathView, Policy, ResourcePlace, Route, RouteView,
    Routes, Row, SealedArc, Test, Value, ValueMatch, in_order,
};

use super::leaf::has_listener;
use crate::pattern::{BadRegex, Budget, Pattern};
use crate::upstream::entry;

/// A resource that holds routes, ready to be matched. Hosts that share it share this.
pub struct BlockEntry {
    /// The resource, whose value is a route or a block of them.
    sealed: SealedArc,
    more: Option<Box<More>>,
    /// The hash of the name of the first upstream, which mostly is the only one.
    upstream: u64,
}

/// A compiled resource as tables and requests share it. Nobody refers to one weakly.
pub type BlockArc = triomphe::Arc<BlockEntry>;

/// A route, by its place in a resource. A host may have a hundred thousand.
#[derive(Clone)]
pub struct RouteEntry {
    block: BlockArc,
    at: u32,
    /// The number of its rule.
    rule: u32,
}

/// The place of a route's parts.
enum Part<'a> {
    /// A resource of its own.
    Whole(&'a Route),
    /// A row of a block.
    Row(&'a Routes, &'a Row),
}

/// The parts that few resources have: regexes, or more than one upstream.
struct More {
    /// The regexes of the routes that have any, by their numbers.
    regexes: Box<[(u32, Compiled)]>,
    /// Hashes of the names of all upstreams by action, where there is more than one.
    upstreams: Box<[Box<[u64]>]>,
}

/// The regexes of a route.
struct Compiled {
    path: Option<Arc<Pattern>>,
    /// The regexes of the conditions, in their order.
    values: Box<[Arc<Pattern>]>,
    /// The regex that a rewrite looks for.
    substitution: Option<Arc<Pattern>>,
    /// The regexes of origins, in their order.
    origins: Box<[Arc<Pattern>]>,
    /// The regex of the subjects of clients' certificates.
    subject: Option<Arc<Pattern>>,
}

impl BlockEntry {
    /// Compiles a resource on its own.
    ///
    /// # Errors
    /// A regex that is not valid or too large. None, where the resource holds no route.
    pub fn new(sealed: SealedArc) -> Option<Result<Self, BadRegex>> {
        let value = &sealed.resource()?.value;
        let mut regexes = Vec::new();
        for (route, number) in value.routes().zip(0..) {
            match compile_regexes(route) {
                Ok(compiled) => regexes.extend(compiled.map(|compiled| (number, compiled))),
                Err(error) => return Some(Err(error)),
            }
        }
        let actions = value.actions();
        if actions.is_empty() {
            return None;
        }
        let hashes = |action: &Action| -> Box<[u64]> {
            let shares = match action {
                Action::Forward(shares) => &**shares,
                Action::Redirect(_) | Action::Respond(_) => &[],
            };
            let names = shares.iter().map(|share| &share.upstream);
            names.map(|name| entry::hash_of(name)).collect()
        };
        let mut upstreams: Box<[Box<[u64]>]> = actions.iter().map(hashes).collect();
        let first = upstreams.iter().flatten().next();
        let upstream = first.copied().unwrap_or_default();
        if let [only] = &*upstreams
            && only.len() <= 1
        {
            upstreams = Box::default();
        }
        let is_plain = regexes.is_empty() && upstreams.is_empty();
        let more = (!is_plain).then(|| More {
            regexes: regexes.into(),
            upstreams,
        });
        Some(Ok(BlockEntry {
            more: more.map(Box::new),
            upstream,
            sealed,
        }))
    }

    /// The resource.
    pub fn sealed(&self) -> &SealedArc {
        &self.sealed
    }

    fn value(&self) -> Option<&Value> {
        self.sealed.resource().map(|resource| &resource.value)
    }

    fn rows(&self) -> Option<&Routes> {
        match self.value() {
            Some(Value::Routes(block)) => Some(block),
            _ => None,
        }
    }
}

/// The routes of resources that belong to one host, in the order of precedence.
pub fn in_precedence(blocks: &[BlockArc]) -> Vec<RouteEntry> {
    let named = blocks.iter();
    let named: Vec<(&Name, Option<&Routes>)> = named
        .map(|block| (block.sealed.name(), block.rows()))
        .collect();
    let mut routes = Vec::new();
    for ResourcePlace { at, mut rule } in in_order(&named) {
        let Some(block) = blocks.get(at) else {
            continue;
        };
        let Some(rows) = block.rows() else {
            routes.push(RouteEntry::first(block.clone()));
            continue;
        };
        for (row, number) in rows.rows().iter().zip(0..) {
            rule = rule.saturating_add(row.step.into());
            routes.push(RouteEntry {
                block: block.clone(),
                at: number,
                rule,
            });
        }
    }
    routes.sort_by_cached_key(RouteEntry::rank);
    routes
}

impl RouteEntry {
    /// The first route of a resource, which is the only one of most.
    pub fn first(block: BlockArc) -> Self {
        RouteEntry {
            block,
            at: 0,
            rule: 0,
        }
    }

    /// The resource that it is part of, compiled.
    pub fn block(&self) -> &BlockArc {
        &self.block
    }

    /// Whether it is the first of its resource.
    pub fn is_first(&self) -> bool {
        self.at == 0
    }

    /// Whether both are the same route of the same resource.
    pub fn is_same(&self, other: &RouteEntry) -> bool {
        self.at == other.at && BlockArc::ptr_eq(&self.block, &other.block)
    }

    /// The resource.
    pub fn sealed(&self) -> &SealedArc {
        &self.block.sealed
    }

    /// The value; always there, since [`BlockEntry::new`] takes nothing else.
    pub fn route(&self) -> Option<RouteView<'_>> {
        self.block.value()?.route(self.at as usize)
    }

    /// The policy. What requests ask for again and again can be had on its own, since the parts of
    /// a row lie in many places.
    pub fn policy(&self) -> Option<&Policy> {
        Some(match self.part()? {
            Part::Whole(route) => &route.policy,
            Part::Row(rows, row) => rows.policies().get(usize::from(row.policy))?,
        })
    }

    fn action(&self) -> Option<&Action> {
        Some(match self.part()? {
            Part::Whole(route) => &route.action,
            Part::Row(rows, row) => rows.actions().get(usize::from(row.action))?,
        })
    }

    pub(super) fn listeners(&self) -> Option<&[Name]> {
        Some(match self.part()? {
            Part::Whole(route) => &route.listeners,
            Part::Row(rows, row) => &rows.settings().get(usize::from(row.setting))?.listeners,
        })
    }

    /// The conditions beside the path.
    pub(super) fn conditions(&self) -> Option<&[ValueMatch]> {
        Some(match self.part()? {
            Part::Whole(route) => &route.conditions,
            Part::Row(rows, row) => match usize::from(row.conditions).checked_sub(1) {
                Some(number) => rows.conditions().get(number)?,
                None => &[],
            },
        })
    }

    fn part(&self) -> Option<Part<'_>> {
        match self.block.value()? {
            Value::Route(route) => (self.at == 0).then_some(Part::Whole(route)),
            Value::Routes(rows) => {
                let row = rows.rows().get(self.at as usize)?;
                Some(Part::Row(rows, row))
            }
            _ => None,
        }
    }

    /// The name: the claimant, the host, and what tells it apart from others there.
    pub fn name(&self) -> String {
        let name = self.block.sealed.name();
        match self.block.rows() {
            None => name.to_string(),
            Some(rows) => {
                let label = rows.label(self.at as usize, self.rule);
                format!("{}{label}", Routes::prefix(name))
            }
        }
    }

    /// The object that the route came from.
    pub fn origin(&self) -> Option<&Origin> {
        let resource = self.block.sealed.resource()?;
        Some(resource.origin_of(self.at as usize))
    }

    /// The object that the route came from, and its first host; none for a route of no host.
    pub fn owner(&self) -> Option<(&Origin, &Host)> {
        let hosts = match self.part()? {
            Part::Whole(route) => &route.hosts,
            Part::Row(rows, _) => &rows.hosts,
        };
        Some((self.origin()?, hosts.first()?))
    }

    /// The hash of the name of an upstream, by its number in the action.
    pub fn upstream_hash(&self, share: usize) -> Option<u64> {
        let many = self.block.more.as_ref().map(|more| &*more.upstreams);
        match many {
            Some(many) if !many.is_empty() => {
                let row = self
                    .block
                    .rows()
                    .map(|rows| rows.rows().get(self.at as usize));
                let action = row.flatten().map_or(0, |row| usize::from(row.action));
                many.get(action)?.get(share).copied()
            }
            _ => {
                let is_there = share == 0 && self.has_upstream();
                is_there.then_some(self.block.upstream)
            }
        }
    }

    /// The regex of the path.
    pub fn path_regex(&self) -> Option<&Pattern> {
        self.compiled()?.path.as_deref()
    }

    /// The regex of what a rewrite looks for.
    pub fn substitution_regex(&self) -> Option<&Pattern> {
        self.compiled()?.substitution.as_deref()
    }

    /// The regexes of origins that are allowed, in the order of the policy.
    pub fn origin_regexes(&self) -> &[Arc<Pattern>] {
        self.compiled().map_or(&[], |compiled| &compiled.origins)
    }

    /// The regex of the subjects of clients' certificates.
    pub fn subject_regex(&self) -> Option<&Pattern> {
        self.compiled()?.subject.as_deref()
    }

    /// The regexes of the conditions that have one, in their order.
    pub(super) fn value_regexes(&self) -> &[Arc<Pattern>] {
        self.compiled().map_or(&[], |compiled| &compiled.values)
    }

    /// Whether all requests for it are denied: it answers so by itself, or leads nowhere.
    pub fn is_closed(&self) -> bool {
        match self.action() {
            Some(Action::Forward(shares)) => shares.is_empty(),
            Some(Action::Respond(fixed)) => matches!(fixed.status, 401 | 403 | 503),
            Some(Action::Redirect(_)) | None => false,
        }
    }

    /// Whether somebody may not ask, or not so often, or is judged by a processor, or nobody may.
    pub(super) fn is_restricted(&self) -> bool {
        let restricts =
            |it: &Policy| it.restricts() || !it.rate_limits.is_empty() || it.processor.is_some();
        self.is_closed() || self.policy().is_some_and(restricts)
    }

    pub(super) fn matches_path(&self, path: &str, budget: &Budget) -> bool {
        match self.route().map(|route| route.path) {
            Some(PathView::Exact(wanted)) => wanted == path,
            Some(PathView::Prefix(prefix)) => has_prefix(path, prefix),
            Some(PathView::Start(start)) => path.starts_with(start),
            Some(PathView::Regex(_)) => self
                .path_regex()
                .is_some_and(|regex| regex.is_match(path.as_bytes(), budget)),
            None => false,
        }
    }

    pub(super) fn is_on(&self, listener: &Name) -> bool {
        let listeners = self.listeners();
        listeners.is_some_and(|listeners| has_listener(listeners, listener))
    }

    fn rank(&self) -> u64 {
        self.route().map_or(u64::MAX, |route| route.rank)
    }

    fn has_upstream(&self) -> bool {
        matches!(self.action(), Some(Action::Forward(shares)) if !shares.is_empty())
    }

    fn compiled(&self) -> Option<&Compiled> {
        let regexes = &self.block.more.as_ref()?.regexes;
        let found = regexes.binary_search_by_key(&self.at, |(number, _)| *number);
        Some(&regexes.get(found.ok()?)?.1)
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

fn compile_regexes(route: RouteView<'_>) -> Result<Option<Compiled>, BadRegex> {
    let path = match route.path {
        PathView::Regex(pattern) => Some(Pattern::new(pattern)?),
        PathView::Exact(_) | PathView::Prefix(_) | PathView::Start(_) => None,
    };
    let values = route
        .conditions
        .iter()
        .filter_map(|condition| match &condition.test {
            Test::Regex(pattern) => Some(Pattern::whole(pattern)),
            Test::Exact(_) | Test::Present | Test::Start(_) => None,
        })
        .collect::<Result<Box<[_]>, BadRegex>>()?;
    let policy = &**route.policy;
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
    let subject = match policy.client_certificate.as_deref() {
        Some(demand) if !demand.subject.is_empty() => Some(Pattern::new(&demand.subject)?),
        Some(_) | None => None,
    };
    let is_empty = path.is_none() && values.is_empty() && subject.is_none();
    if is_empty && substitution.is_none() && origins.is_empty() {
        return Ok(None);
    }
    Ok(Some(Compiled {
        path,
        values,
        substitution,
        origins,
        subject,
    }))
}
