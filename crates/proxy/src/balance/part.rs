//! The endpoints of one part of an upstream, ready to be chosen from. Pools share the parts that
//! have not changed: one endpoint that changes costs its own part.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use myriad_model::Balancer;

use super::Endpoint;
use super::draw::Urn;
use super::turns::WeightedRoundRobin;
use crate::random::rng::Rng;

#[cfg(test)]
thread_local! {
    /// Members that were looked at to tell who is out, and parts that were asked for one.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
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

/// A way to take one of several members by weight.
pub enum Draw {
    /// By chance.
    Chance(Urn),
    /// One after the other.
    Turns(WeightedRoundRobin),
}

/// The endpoints of one part of an upstream that have one priority, and lie in one group of
/// localities where groups have shares.
pub struct PoolPart {
    members: Box<[Member]>,
    priority: u8,
    group: usize,
    weight: u64,
    born_ms: u64,
    draw: Draw,
    /// The members by their marks, once somebody has looked for one: few upstreams have cookies
    /// that speak of endpoints.
    by_mark: OnceLock<Box<[(u64, u32)]>>,
    /// How many of them are left out, as far as anybody has looked.
    out: AtomicU32,
    /// When the next one comes back that is left out, in milliseconds of [`super::now_ms`].
    back_ms: AtomicU64,
}

impl Draw {
    /// The way of a balancer. Hashes have tables of their own, and without one it is chance.
    pub fn new(members: &[Member], balancer: &Balancer) -> Self {
        let weights: Vec<u32> = members.iter().map(|member| member.weight).collect();
        match balancer {
            Balancer::RoundRobin => {
                // Not everybody begins with the same endpoint.
                let begin = members.first().map_or(0, |member| member.target.id);
                Draw::Turns(WeightedRoundRobin::new(&weights, begin as usize))
            }
            Balancer::LeastRequest | Balancer::Random | Balancer::Hash(_) => {
                Draw::Chance(Urn::new(&weights))
            }
        }
    }

    /// The index of a member; 0 where there is none.
    pub fn take(&self, dice: &Rng) -> usize {
        match self {
            Draw::Chance(urn) => urn.draw(dice),
            Draw::Turns(turns) => turns.next(),
        }
    }
}

impl PoolPart {
    /// The parts of members with the numbers of their groups: mostly one. Members stay in their
    /// order, and none may weigh nothing.
    pub fn divide(
        members: impl Iterator<Item = (usize, Member)>,
        balancer: &Balancer,
    ) -> Box<[Arc<PoolPart>]> {
        let mut parts: BTreeMap<(u8, usize), Vec<Member>> = BTreeMap::new();
        for (group, member) in members {
            let part = parts.entry((member.priority, group)).or_default();
            part.push(member);
        }
        let parts = parts.into_iter().map(|((priority, group), members)| {
            let weights = members.iter().map(|member| u64::from(member.weight));
            let born = members.iter().map(|member| member.target.born_ms);
            Arc::new(PoolPart {
                priority,
                group,
                weight: weights.sum(),
                born_ms: born.max().unwrap_or(0),
                draw: Draw::new(&members, balancer),
                members: members.into(),
                by_mark: OnceLock::new(),
                out: AtomicU32::new(0),
                // The first choice looks at who is out.
                back_ms: AtomicU64::new(0),
            })
        });
        parts.collect()
    }

    /// The members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member with a mark, which is not looked for one by one.
    pub fn marked(&self, mark: u64) -> Option<&Member> {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        let by_mark = self.by_mark.get_or_init(|| {
            let marks = (0..).zip(&self.members);
            let marks = marks.map(|(at, member)| (member.target.mark(), at));
            let mut marks: Vec<(u64, u32)> = marks.collect();
            marks.sort_unstable();
            marks.into()
        });
        let at = by_mark.partition_point(|(known, _)| *known < mark);
        let (_, at) = by_mark.get(at).filter(|(known, _)| *known == mark)?;
        self.members.get(usize::try_from(*at).ok()?)
    }

    /// The priority of all of them.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// The number of their group of localities; 0 where there are no groups.
    pub fn group(&self) -> usize {
        self.group
    }

    /// The sum of their weights.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// When the last of them came, in milliseconds of [`super::now_ms`].
    pub fn born_ms(&self) -> u64 {
        self.born_ms
    }

    /// The index of a member, drawn by weight.
    pub fn take(&self, dice: &Rng) -> usize {
        self.draw.take(dice)
    }

    /// How many are left out, and when the next one comes back. They are counted whenever somebody
    /// may have come back since the last time.
    pub fn look_who_is_back(&self, now_ms: u64) -> (u32, u64) {
        let back = self.back_ms.load(Relaxed);
        if now_ms < back {
            return (self.out.load(Relaxed), back);
        }
        self.count(now_ms)
    }

    /// Counts who is left out. Adding one to those that were counted would count it twice where
    /// somebody has just counted it, and a part that seems to be out as a whole is passed over.
    pub fn count(&self, now_ms: u64) -> (u32, u64) {
        let (out, back) = count_out(&self.members, now_ms);
        self.out.store(out, Relaxed);
        self.back_ms.store(back, Relaxed);
        (out, back)
    }
}

/// How many members are left out, and when the next of them comes back, in milliseconds.
pub fn count_out(members: &[Member], now_ms: u64) -> (u32, u64) {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + members.len());
    let records = members.iter().map(|member| &member.target.record);
    let backs = records.filter_map(|record| record.back_ms(now_ms));
    backs.fold((0, u64::MAX), |(out, next), back| (out + 1, next.min(back)))
}
