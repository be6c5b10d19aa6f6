//! The endpoints of one upstream, ready to be chosen from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use myriad_model::{Balancer, Outlier, UpstreamOptions, Warmup};

use super::draw::Urn;
use super::outlier::EndpointOutcome;
use super::tables::{BalanceTable, HashTables, TableKind};
use super::turns::WeightedRoundRobin;
use super::{Endpoint, now_ms, warmup};
use crate::random::rng::Rng;

/// How many times it is drawn anew before the next one in the row is taken.
const DRAWS_MAX: usize = 4;

/// How many percent of a priority's endpoints may be out before some of its requests go to the
/// next: with 140 percent of what is needed, two of seven.
const SPARE_PERCENT: u64 = 140;

/// The endpoints of one upstream.
#[derive(Default)]
pub struct Pool {
    /// The endpoints, by priority.
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
}

/// One endpoint of an upstream.
pub struct Member {
    /// The address.
    pub target: Arc<Endpoint>,
    /// Its share; at least 1.
    pub weight: u32,
    /// 0 goes first.
    pub priority: u8,
}

/// Endpoints of one priority.
struct Level {
    /// The index of the first among the members.
    start: usize,
    len: usize,
    spread: Spread,
    /// How many of them are left out.
    out: AtomicU32,
}

enum Spread {
    LeastRequest(Urn),
    Random(Urn),
    Turns(WeightedRoundRobin),
    Hash(Arc<BalanceTable>, Urn),
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

    /// A pool with options. A weight of 0 is taken out.
    pub fn with(members: impl Iterator<Item = Member>, options: &UpstreamOptions) -> Self {
        let mut members: Vec<Member> = members.filter(|member| member.weight > 0).collect();
        members.sort_by_key(|member| member.priority);
        let rules = Rules::new(&members, options);
        let is_only = members.len() <= 1 && rules.outlier.is_none();
        let mut levels = Vec::new();
        let mut start = 0;
        let chunks = members.chunk_by(|left, right| left.priority == right.priority);
        for level in chunks.filter(|_| !is_only) {
            levels.push(Level::new(start, level, &options.balancer));
            start += level.len();
        }
        Pool {
            members: members.into(),
            levels: levels.into(),
            rules: (rules.outlier.is_some() || rules.warmup.is_some()).then(|| Box::new(rules)),
        }
    }

    /// The members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether there is no endpoint.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Requests in flight at all endpoints.
    pub fn active(&self) -> u32 {
        let active = self.members.iter().map(|member| member.target.active());
        active.fold(0, u32::saturating_add)
    }

    /// How many endpoints are left out.
    pub fn out(&self) -> u32 {
        self.levels
            .iter()
            .map(|level| level.out.load(Relaxed))
            .sum()
    }

    /// The endpoint that a cookie speaks of, unless it is left out.
    pub fn marked(&self, mark: u64) -> Option<&Arc<Endpoint>> {
        let mut targets = self.members.iter().map(|member| &member.target);
        let target = targets.find(|target| target.mark() == mark)?;
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
        if self.members.len() <= 1 && self.outlier().is_none() {
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
            members: self.members.get(level.start..level.start + level.len)?,
            choice,
            warmup: rules.and_then(|rules| rules.warmup.as_ref().filter(|_| now < rules.warm_ms)),
            looks_for_out: level.out.load(Relaxed) > 0 && !self.is_panicking(level),
            now,
        };
        let index = picking.pick(choice.tried).or_else(|| match choice.tried {
            Some(_) => picking.pick(None),
            None => None,
        })?;
        self.members
            .get(level.start + index)
            .map(|member| &member.target)
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
        let bound = u64::from(rule.ejection_percent_max) * self.members.len() as u64 / 100;
        if out >= bound.max(1) || !target.record.eject(rule, now) {
            return false;
        }
        let place = self.members.iter().position(|m| m.target.id == target.id);
        if let Some(place) = place {
            let level = self.levels.iter().rfind(|level| level.start <= place);
            level.inspect(|level| {
                level.out.fetch_add(1, Relaxed);
            });
        }
        let back = target.record.back_ms(now).unwrap_or(now);
        if let Some(rules) = &self.rules {
            rules.back_ms.fetch_min(back, Relaxed);
        }
        true
    }

    /// Whether anything is made of what becomes of tries.
    pub fn is_watched(&self) -> bool {
        self.outlier().is_some()
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
        if now < rules.back_ms.load(Relaxed) {
            return;
        }
        let mut next = u64::MAX;
        for level in &self.levels {
            let members = self.members.get(level.start..level.start + level.len);
            let backs = members.unwrap_or_default().iter();
            let mut out = 0;
            for back in backs.filter_map(|member| member.target.record.back_ms(now)) {
                out += 1;
                next = next.min(back);
            }
            level.out.store(out, Relaxed);
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
    fn new(members: &[Member], options: &UpstreamOptions) -> Self {
        let warm_ms = options.warmup.map_or(0, |warmup| {
            let born = members.iter().map(|member| member.target.born_ms).max();
            born.unwrap_or(0).saturating_add(millis(warmup.duration))
        });
        Rules {
            outlier: options.outlier.as_deref().cloned(),
            warmup: options.warmup,
            warm_ms,
            // The first choice looks at who is out.
            back_ms: AtomicU64::new(0),
        }
    }
}

impl Level {
    fn new(start: usize, members: &[Member], balancer: &Balancer) -> Self {
        let weights: Vec<u32> = members.iter().map(|member| member.weight).collect();
        let spread = match balancer {
            Balancer::LeastRequest => Spread::LeastRequest(Urn::new(&weights)),
            Balancer::Random => Spread::Random(Urn::new(&weights)),
            // Whatever the hash, it is the only one.
            Balancer::Hash(_) if members.len() == 1 => Spread::Random(Urn::new(&weights)),
            Balancer::RoundRobin => {
                // Not everybody begins with the same endpoint.
                let begin = members.first().map_or(0, |member| member.target.id);
                Spread::Turns(WeightedRoundRobin::new(&weights, begin as usize))
            }
            Balancer::Hash(hash) => {
                let marked = members
                    .iter()
                    .map(|member| (member.target.mark(), member.weight));
                let table = HashTables::of_process().get(marked.collect(), hash.table);
                Spread::Hash(table, Urn::new(&weights))
            }
        };
        Level {
            start,
            len: members.len(),
            spread,
            out: AtomicU32::new(0),
        }
    }

    fn health_percent(&self) -> u64 {
        let out = u64::from(self.out.load(Relaxed));
        let all = self.len as u64;
        all.saturating_sub(out) * 100 / all.max(1)
    }
}

/// One choice among the endpoints of one priority.
struct Picking<'a> {
    level: &'a Level,
    members: &'a [Member],
    choice: &'a Choice<'a>,
    /// Set while somebody warms up.
    warmup: Option<&'a Warmup>,
    looks_for_out: bool,
    now: u64,
}

impl Picking<'_> {
    fn pick(&self, tried: Option<u64>) -> Option<usize> {
        let dice = self.choice.dice;
        match (&self.level.spread, self.choice.hash) {
            (Spread::LeastRequest(urn), _) => self.less_busy(urn, tried),
            (Spread::Turns(turns), _) => self.settle(tried, || turns.next()),
            (Spread::Hash(table, urn), Some(hash)) => match &table.kind {
                TableKind::Ring(ring) => {
                    let mut walk = ring.walk(hash);
                    walk.find(|index| self.may(*index, tried))
                }
                TableKind::Maglev(maglev) => {
                    let found = maglev.walk(hash).find(|index| self.may(*index, tried));
                    found.or_else(|| self.settle(tried, || urn.draw(dice)))
                }
                TableKind::Remainder(count) => {
                    let index = hash % (*count).max(1) as u64;
                    self.next_from(index as usize, tried)
                }
            },
            (Spread::Random(urn) | Spread::Hash(_, urn), _) => {
                self.settle(tried, || urn.draw(dice))
            }
        }
    }

    /// The one of two drawn endpoints with fewer requests for its weight.
    fn less_busy(&self, urn: &Urn, tried: Option<u64>) -> Option<usize> {
        let draw = || urn.draw(self.choice.dice);
        let first = self.settle(tried, draw)?;
        let mut second = draw();
        if second == first {
            second = (second + 1) % self.members.len();
        }
        let second = self.next_from(second, tried)?;
        let is_less = self.load(second) < self.load(first);
        Some(if is_less { second } else { first })
    }

    /// The endpoint that is drawn, unless it may not be taken or is still cold; after a few, the
    /// next in the row that may be taken.
    fn settle(&self, tried: Option<u64>, draw: impl Fn() -> usize) -> Option<usize> {
        let mut index = draw();
        for _ in 0..DRAWS_MAX {
            if self.may(index, tried) && self.is_warm_enough(index) {
                return Some(index);
            }
            index = draw();
        }
        self.next_from(index, tried)
    }

    fn next_from(&self, index: usize, tried: Option<u64>) -> Option<usize> {
        let count = self.members.len();
        let mut row = (0..count).map(|step| (index + step) % count);
        row.find(|index| self.may(*index, tried))
    }

    fn may(&self, index: usize, tried: Option<u64>) -> bool {
        let Some(member) = self.members.get(index) else {
            return false;
        };
        let is_out = self.looks_for_out && member.target.record.is_out(self.now);
        !is_out && Some(member.target.id) != tried
    }

    /// Whether a cold endpoint takes the request: by chance, in proportion to how warm it is.
    fn is_warm_enough(&self, index: usize) -> bool {
        let part = self.part(index);
        part >= 1.0 || self.choice.dice.roll_below(1_000_000) < (part * 1e6) as u64
    }

    fn part(&self, index: usize) -> f32 {
        match (self.warmup, self.members.get(index)) {
            (Some(warmup), Some(member)) => {
                let age = self.now.saturating_sub(member.target.born_ms);
                warmup::part(warmup, Duration::from_millis(age))
            }
            _ => 1.0,
        }
    }

    /// Requests in flight for each share, with the one that is about to come. A cold endpoint's
    /// share is smaller, but an idle one is as good as any: else it would never be drawn.
    fn load(&self, index: usize) -> f32 {
        let Some(member) = self.members.get(index) else {
            return f32::MAX;
        };
        let (active, weight) = (member.target.active() as f32, member.weight as f32);
        match self.warmup {
            Some(_) => active / (weight * self.part(index).max(1e-6)),
            None => (active + 1.0) / weight,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
