//! The endpoints of one upstream, ready to be chosen from.

mod picking;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use myriad_model::{Balancer, LocalityShares, Outlier, UpstreamOptions, Warmup};

use self::picking::Picking;
use super::outlier::EndpointOutcome;
use super::part::{self, Draw, Member, PoolPart};
use super::row::{PartRow, WeightedPart};
use super::tables::{BalanceTable, HashTables, Making};
use super::{Endpoint, now_ms};
use crate::random::rng::Rng;

/// How many percent of a priority's endpoints may be out before some of its requests go to the
/// next: with 140 percent of what is needed, two of seven.
const SPARE_PERCENT: u64 = 140;

/// How many endpoints are looked at to tell how many requests are in flight at all of them.
const ACTIVE_LOOKS: usize = 1_024;

/// How many endpoints are looked at for each millisecond to tell who is back: of very many some
/// come back all the time, and no attempt may have to look at every one of them.
const BACK_LOOKS: usize = 1_024;

/// The endpoints of one upstream.
#[derive(Default)]
pub struct Pool {
    /// The endpoints, by priority; empty where they lie in parts.
    members: Box<[Member]>,
    /// None where there is nothing to choose: most upstreams have one endpoint, and there are as
    /// many upstreams as domains.
    levels: Box<[Level]>,
    /// The rules; `None` for most.
    rules: Option<Box<Rules>>,
}

/// Rules by which an endpoint is worth less than its weight for a while.
#[derive(Default)]
struct Rules {
    outlier: Option<Outlier>,
    warmup: Option<Warmup>,
    /// When the last endpoint has warmed up, in milliseconds of [`now_ms`].
    warm_ms: u64,
    /// When the next one comes back that is left out, in milliseconds of [`now_ms`].
    back_ms: AtomicU64,
    /// Until when nobody looks who is back, in milliseconds of [`now_ms`]. Whoever is may be taken
    /// all the same.
    quiet_ms: AtomicU64,
}

/// Endpoints of one priority.
struct Level {
    len: usize,
    source: Source,
    spread: Spread,
    /// How many of them are left out.
    out: AtomicU32,
}

/// The endpoints that one is drawn from by weight.
enum Source {
    /// Members of the pool, from an index on.
    Own(usize, Draw),
    /// Endpoints of parts, which pools share.
    Parts(Box<PartRow>),
}

/// The way in which a draw ends.
enum Spread {
    /// The less busy of two is taken.
    LeastRequest,
    /// It is taken as it is.
    Drawn,
    /// A request's hash comes first, if it has one.
    Hash(Arc<BalanceTable>),
}

/// Whose tables of hashes the levels of a pool have, and how they are made.
#[derive(Clone, Copy)]
struct TableTerms<'a> {
    /// A number for the namespace.
    owner: u64,
    /// Whether they may be made beside.
    may_wait: bool,
    /// The pool before, whose tables are used until then.
    before: Option<&'a Pool>,
}

/// The inputs of a choice.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// Chance.
    pub dice: &'a Rng,
    /// The endpoint that was tried before, and is not taken while there is another.
    pub tried: Option<u64>,
    /// The hash of what makes requests equal, where the upstream looks at it.
    pub hash: Option<u64>,
    /// Milliseconds of [`now_ms`]; read only where something is out or warms up.
    pub now_ms: Option<u64>,
}

impl Pool {
    /// A pool without options. A weight of 0 is taken out.
    pub fn new(members: impl Iterator<Item = Member>) -> Self {
        Pool::with(members, &UpstreamOptions::default())
    }

    /// A pool with options, whose tables count for no namespace. A weight of 0 is taken out.
    pub fn with(members: impl Iterator<Item = Member>, options: &UpstreamOptions) -> Self {
        Pool::owned(members, options, 0)
    }

    /// A pool with options of a namespace, which is given by a number, as are its tables of hashes,
    /// which are made at once. A weight of 0 is taken out.
    pub fn owned(
        members: impl Iterator<Item = Member>,
        options: &UpstreamOptions,
        owner: u64,
    ) -> Self {
        Pool::whole(members, options, TableTerms::at_once(owner))
    }

    /// The same in place of another one, for who must not wait for large tables of hashes.
    pub fn after(
        before: Option<&Pool>,
        members: impl Iterator<Item = Member>,
        options: &UpstreamOptions,
        owner: u64,
    ) -> Self {
        Pool::whole(members, options, TableTerms::beside(owner, before))
    }

    fn whole(
        members: impl Iterator<Item = Member>,
        options: &UpstreamOptions,
        terms: TableTerms<'_>,
    ) -> Self {
        let mut members: Vec<Member> = members.filter(|member| member.weight > 0).collect();
        members.sort_by_key(|member| member.priority);
        let born = members.iter().map(|member| member.target.born_ms);
        let rules = Rules::of(born.max(), options);
        let is_only = members.len() <= 1 && options.outlier.is_none();
        let mut levels = Vec::new();
        let mut start = 0;
        let chunks = members.chunk_by(|left, right| left.priority == right.priority);
        for level in chunks.filter(|_| !is_only) {
            let making = terms.making(levels.len());
            let whose = (terms.owner, making);
            levels.push(Level::of_members(start, level, &options.balancer, whose));
            start += level.len();
        }
        Pool {
            members: members.into(),
            levels: levels.into(),
            rules,
        }
    }

    /// A pool of parts, of which it takes what is ready to be drawn from, with options and in place
    /// of another one, as with [`Pool::after`]. Shares are those of the groups of localities that
    /// the parts know their own of, and beside them is the owner.
    pub fn of_parts<'a>(
        before: Option<&Pool>,
        parts: impl Iterator<Item = &'a Arc<PoolPart>> + Clone,
        options: &UpstreamOptions,
        (shares, owner): (Option<&LocalityShares>, u64),
    ) -> Self {
        let terms = TableTerms::beside(owner, before);
        let parts = WeightedPart::all(parts, shares);
        let born = parts.iter().map(|it| it.part.born_ms());
        let levels = parts.chunk_by(|left, right| left.part.priority() == right.part.priority());
        let level = |(at, parts): (usize, &[WeightedPart<'_>])| {
            Level::of_parts(parts, &options.balancer, (owner, terms.making(at)))
        };
        Pool {
            members: Box::default(),
            rules: Rules::of(born.max(), options),
            levels: levels.enumerate().map(level).collect(),
        }
    }

    /// The members, by priority.
    pub fn members(&self) -> impl Iterator<Item = &Member> + Clone {
        let rows = self.levels.iter().filter_map(Level::row);
        self.members.iter().chain(rows.flat_map(PartRow::members))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        match self.members.len() {
            0 => self.levels.iter().map(|level| level.len).sum(),
            len => len,
        }
    }

    /// Whether there is no endpoint.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.levels.is_empty()
    }

    /// How many endpoints it took to put it together, beside those of its parts, which were put
    /// together before it: tables of hashes are made of all that there are.
    pub fn weighed(&self) -> usize {
        let hashed = self.levels.iter().filter(|level| {
            matches!(level.spread, Spread::Hash(_)) && matches!(level.source, Source::Parts(_))
        });
        self.members.len() + hashed.map(|level| level.len).sum::<usize>()
    }

    /// Requests in flight at all endpoints. Of very many some are looked at, and stand for the
    /// rest: it is asked before each request that is repeated.
    pub fn active(&self) -> u32 {
        let step = self.step();
        let looked = self.looked_at(step);
        let active: u64 = looked.map(|it| u64::from(it.target.active())).sum();
        u32::try_from(active.saturating_mul(step as u64)).unwrap_or(u32::MAX)
    }

    /// One of how many endpoints is looked at.
    fn step(&self) -> usize {
        self.len().div_ceil(ACTIVE_LOOKS).max(1)
    }

    /// One of so many members, and one of each row at least.
    fn looked_at(&self, step: usize) -> impl Iterator<Item = &Member> {
        let rows = self.levels.iter().filter_map(Level::row);
        let of_rows = rows.flat_map(move |row| {
            let numbers = (0..row.count()).step_by(step);
            numbers.filter_map(move |number| row.member(number).map(|(member, _)| member))
        });
        self.members.iter().step_by(step).chain(of_rows)
    }

    /// How many endpoints are left out.
    pub fn out(&self) -> u32 {
        self.levels
            .iter()
            .map(|level| level.out.load(Relaxed))
            .sum()
    }

    /// How many places [`Pool::marked`] looks into: each part, and its own members together.
    pub fn places(&self) -> usize {
        let rows = self.levels.iter().filter_map(Level::row);
        1 + rows.map(PartRow::part_count).sum::<usize>()
    }

    /// The endpoint that a cookie speaks of, unless it is left out.
    pub fn marked(&self, mark: u64) -> Option<&Arc<Endpoint>> {
        let mut rows = self.levels.iter().filter_map(Level::row);
        let mut own = self.members.iter();
        let own = own.find(|member| member.target.mark() == mark);
        let found = own.or_else(|| rows.find_map(|row| row.marked(mark)))?;
        let target = &found.target;
        let is_out = self.outlier().is_some() && target.record.is_out(now_ms());
        (!is_out).then_some(target)
    }

    /// Picks an endpoint, another than `tried` where there is one.
    pub fn pick(&self, dice: &Rng, tried: Option<u64>) -> Option<&Arc<Endpoint>> {
        self.choose(&Choice {
            dice,
            tried,
            hash: None,
            now_ms: None,
        })
    }

    /// Picks an endpoint; none where all are left out, or there is none.
    pub fn choose(&self, choice: &Choice<'_>) -> Option<&Arc<Endpoint>> {
        if self.levels.is_empty() {
            return self.members.first().map(|member| &member.target);
        }
        let rules = self.rules.as_deref();
        let now = match rules {
            Some(_) => choice.now_ms.unwrap_or_else(now_ms),
            None => 0,
        };
        self.look_who_is_back(now);
        let level = self.level(choice.dice)?;
        let picking = Picking {
            level,
            members: self.own(level),
            choice,
            warmup: rules.and_then(|rules| rules.warmup.as_ref().filter(|_| now < rules.warm_ms)),
            looks_for_out: level.out.load(Relaxed) > 0 && !self.is_panicking(level),
            now,
        };
        let index = picking.pick(choice.tried).or_else(|| match choice.tried {
            Some(_) => picking.pick(None),
            None => None,
        })?;
        let (member, _) = picking.member(index)?;
        if let (Source::Parts(row), Some(_)) = (&level.source, self.outlier()) {
            row.remember(index, &member.target);
        }
        Some(&member.target)
    }

    /// Takes note of what became of a try; whether the endpoint is left out from now on.
    pub fn note(
        &self,
        target: &Endpoint,
        outcome: EndpointOutcome,
        now_ms: impl FnOnce() -> u64,
    ) -> bool {
        let Some(rule) = self.outlier() else {
            return false;
        };
        if !target.record.note(rule, outcome) {
            return false;
        }
        let now = now_ms();
        self.look_who_is_back(now);
        let out = u64::from(self.out());
        let bound = u64::from(rule.ejection_percent_max) * self.len() as u64 / 100;
        if out >= bound.max(1) || !target.record.eject(rule, now) {
            return false;
        }
        let back = target.record.back_ms(now).unwrap_or(now);
        let mut levels = self.levels.iter();
        let level = levels.find(|level| match &level.source {
            Source::Own(..) => self.own(level).iter().any(|it| it.target.id == target.id),
            Source::Parts(row) => row.note_out(target, now),
        });
        if let Some(level) = level {
            level.out.fetch_add(1, Relaxed);
        }
        if let Some(rules) = &self.rules {
            rules.back_ms.fetch_min(back, Relaxed);
        }
        true
    }

    /// Whether anything is made of what becomes of tries.
    pub fn is_watched(&self) -> bool {
        self.outlier().is_some()
    }

    /// The members of a level that are the pool's own; empty where they are those of parts.
    fn own(&self, level: &Level) -> &[Member] {
        let own = match &level.source {
            Source::Own(start, _) => self.members.get(*start..*start + level.len),
            Source::Parts(_) => None,
        };
        own.unwrap_or_default()
    }

    fn outlier(&self) -> Option<&Outlier> {
        self.rules.as_deref()?.outlier.as_ref()
    }

    /// Counts who is out, whenever somebody may have come back since the last time.
    fn look_who_is_back(&self, now: u64) {
        let rules = self.rules.as_deref();
        let Some(rules) = rules.filter(|rules| rules.outlier.is_some()) else {
            return;
        };
        if now < rules.back_ms.load(Relaxed) || now < rules.quiet_ms.load(Relaxed) {
            return;
        }
        let pause = (self.len() / BACK_LOOKS) as u64;
        if pause > 0 {
            rules.quiet_ms.store(now.saturating_add(pause), Relaxed);
        }
        let mut next = u64::MAX;
        for level in &self.levels {
            let (out, back) = match &level.source {
                Source::Own(..) => part::count_out(self.own(level), now),
                Source::Parts(row) => row.look_who_is_back(now),
            };
            level.out.store(out, Relaxed);
            next = next.min(back);
        }
        rules.back_ms.store(next, Relaxed);
    }

    fn is_panicking(&self, level: &Level) -> bool {
        let min = self.outlier().map_or(0, |rule| rule.health_percent_min);
        level.health_percent() < u64::from(min)
    }

    /// The priority that takes the request: the first, as far as enough of it is in service.
    fn level(&self, dice: &Rng) -> Option<&Level> {
        let first = self.levels.first()?;
        if self.levels.len() == 1 || first.out.load(Relaxed) == 0 {
            return Some(first);
        }
        let loads = self
            .levels
            .iter()
            .map(|level| (level.health_percent() * SPARE_PERCENT / 100).min(100));
        // Where there is too little of everything, each takes its share of what there is.
        let sum: u64 = loads.clone().sum();
        let mut left = dice.roll_below(sum.clamp(1, 100));
        for (level, load) in self.levels.iter().zip(loads) {
            match left.checked_sub(load) {
                Some(rest) => left = rest,
                None => return Some(level),
            }
        }
        Some(first)
    }
}

impl Rules {
    /// The rules for endpoints of which the last came then; `None` where there are none.
    fn of(born_ms: Option<u64>, options: &UpstreamOptions) -> Option<Box<Self>> {
        if options.outlier.is_none() && options.warmup.is_none() {
            return None;
        }
        let warming = options.warmup.map_or(0, |warmup| millis(warmup.duration));
        Some(Box::new(Rules {
            outlier: options.outlier.as_deref().cloned(),
            warmup: options.warmup,
            warm_ms: born_ms.unwrap_or(0).saturating_add(warming),
            // The first choice looks at who is out.
            back_ms: AtomicU64::new(0),
            quiet_ms: AtomicU64::new(0),
        }))
    }
}

impl<'a> TableTerms<'a> {
    fn at_once(owner: u64) -> Self {
        TableTerms {
            owner,
            may_wait: false,
            before: None,
        }
    }

    fn beside(owner: u64, before: Option<&'a Pool>) -> Self {
        TableTerms {
            owner,
            may_wait: true,
            before,
        }
    }

    /// How the table of the level at an index is made.
    fn making(&self, level: usize) -> Making<'a> {
        if !self.may_wait {
            return Making::AtOnce;
        }
        let before = self.before.and_then(|before| before.levels.get(level));
        Making::Beside(before.and_then(|before| match &before.spread {
            Spread::Hash(table) => Some(table),
            Spread::LeastRequest | Spread::Drawn => None,
        }))
    }
}

impl Level {
    /// Members of the pool, of which the first has an index.
    fn of_members(
        start: usize,
        members: &[Member],
        balancer: &Balancer,
        whose: (u64, Making<'_>),
    ) -> Self {
        let marked = || -> Box<[(u64, u32)]> {
            let members = members.iter();
            let marked = members.map(|member| (member.target.mark(), member.weight));
            marked.collect()
        };
        Level {
            len: members.len(),
            source: Source::Own(start, Draw::new(members, balancer)),
            spread: Spread::new(members.len(), balancer, whose, marked),
            out: AtomicU32::new(0),
        }
    }

    fn of_parts(parts: &[WeightedPart<'_>], balancer: &Balancer, whose: (u64, Making<'_>)) -> Self {
        let row = PartRow::new(parts, balancer);
        let marked = || -> Box<[(u64, u32)]> {
            let marked = parts.iter().flat_map(|it| it.marked());
            marked.collect()
        };
        Level {
            len: row.count(),
            spread: Spread::new(row.count(), balancer, whose, marked),
            source: Source::Parts(Box::new(row)),
            out: AtomicU32::new(0),
        }
    }

    fn row(&self) -> Option<&PartRow> {
        match &self.source {
            Source::Own(..) => None,
            Source::Parts(row) => Some(row),
        }
    }

    fn health_percent(&self) -> u64 {
        let out = u64::from(self.out.load(Relaxed));
        let all = self.len as u64;
        all.saturating_sub(out) * 100 / all.max(1)
    }
}

impl Spread {
    /// The spread over so many endpoints, whose marks and weights are asked for where a table is
    /// made of them.
    fn new(
        count: usize,
        balancer: &Balancer,
        (owner, making): (u64, Making<'_>),
        marked: impl FnOnce() -> Box<[(u64, u32)]>,
    ) -> Self {
        match balancer {
            Balancer::LeastRequest => Spread::LeastRequest,
            // Whatever the hash, one alone is the only one.
            Balancer::Hash(hash) if count > 1 => {
                Spread::Hash(HashTables::of_process().get(owner, marked(), hash.table, making))
            }
            Balancer::Random | Balancer::RoundRobin | Balancer::Hash(_) => Spread::Drawn,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
