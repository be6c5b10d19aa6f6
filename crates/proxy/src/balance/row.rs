//! The parts that hold the endpoints of one priority: a part is drawn by its weight, and then one
//! of its endpoints. A row is as long as there are parts, whatever they hold.

use std::sync::Arc;

use myriad_model::{Balancer, LocalityShares};

use super::Endpoint;
use super::draw::Urn;
use super::locality;
use super::part::{Member, PoolPart};
use super::turns::PartTurns;
use crate::random::rng::Rng;

/// A part with its weight among all parts of an upstream.
pub struct WeightedPart<'a> {
    /// The part.
    pub part: &'a Arc<PoolPart>,
    /// Its weight; at least 1.
    weight: u64,
    /// The share of its group of localities, and the sum of the weights in all of that.
    scale: Option<(u32, u64)>,
}

/// Parts of one priority in a row. Their endpoints are numbered through.
pub struct PartRow {
    seats: Box<[Seated]>,
    draw: PartDraw,
}

/// A part in its place.
struct Seated {
    part: Arc<PoolPart>,
    /// The number of its first endpoint.
    start: usize,
    /// The weight of its endpoints in the row, for each of the weight that they have in the part.
    scale: f32,
}

enum PartDraw {
    Chance(Urn),
    Turns(PartTurns),
}

impl<'a> WeightedPart<'a> {
    /// Parts by priority, in their order. A group of localities has its share, however many
    /// endpoints there are in it, and those without a share are left away.
    pub fn all(
        parts: impl Iterator<Item = &'a Arc<PoolPart>> + Clone,
        shares: Option<&LocalityShares>,
    ) -> Vec<Self> {
        let mut sums = vec![0_u64; shares.map_or(0, |shares| shares.to.len())];
        for part in parts.clone() {
            if let Some(sum) = sums.get_mut(part.group()) {
                *sum = sum.saturating_add(part.weight());
            }
        }
        let weighted = |part: &'a Arc<PoolPart>| {
            let scale = shares.and_then(|shares| {
                let (_, share) = shares.to.get(part.group())?;
                Some((*share, *sums.get(part.group())?))
            });
            WeightedPart {
                part,
                weight: weigh(part.weight(), scale),
                scale,
            }
        };
        let mut all: Vec<Self> = parts.map(weighted).filter(|it| it.weight > 0).collect();
        all.sort_by_key(|it| it.part.priority());
        all
    }

    /// The marks of its endpoints with their weights, as a table of hashes is made of.
    pub fn marked(&self) -> impl Iterator<Item = (u64, u32)> {
        let scale = self.scale;
        self.part.members().iter().map(move |member| {
            let weight = weigh(u64::from(member.weight), scale);
            let weight = u32::try_from(weight).unwrap_or(u32::MAX);
            (member.target.mark(), weight)
        })
    }
}

impl PartRow {
    /// A row of these.
    pub fn new(parts: &[WeightedPart<'_>], balancer: &Balancer) -> Self {
        let mut start = 0;
        let seats = parts.iter().map(|it| {
            let seated = Seated {
                part: it.part.clone(),
                start,
                scale: match it.scale {
                    Some(_) => it.weight as f32 / it.part.weight().max(1) as f32,
                    None => 1.0,
                },
            };
            start += it.part.members().len();
            seated
        });
        let seats: Box<[Seated]> = seats.collect();
        let weights: Vec<u64> = parts.iter().map(|it| it.weight).collect();
        let draw = match balancer {
            Balancer::RoundRobin => {
                let first = parts.first().and_then(|it| it.part.members().first());
                let begin = first.map_or(0, |member| member.target.id);
                PartDraw::Turns(PartTurns::new(&weights, begin as usize))
            }
            Balancer::LeastRequest | Balancer::Random | Balancer::Hash(_) => {
                PartDraw::Chance(Urn::new(&weights))
            }
        };
        PartRow { seats, draw }
    }

    /// How many endpoints there are.
    pub fn count(&self) -> usize {
        let last = self.seats.last();
        last.map_or(0, |last| last.start + last.part.members().len())
    }

    /// How many parts there are.
    pub fn part_count(&self) -> usize {
        self.seats.len()
    }

    /// All endpoints, in the order of their numbers.
    pub fn members(&self) -> impl Iterator<Item = &Member> + Clone {
        let seats = self.seats.iter();
        seats.flat_map(|seated| seated.part.members().iter())
    }

    /// The endpoint with a mark.
    pub fn marked(&self, mark: u64) -> Option<&Member> {
        let mut seats = self.seats.iter();
        seats.find_map(|seated| seated.part.marked(mark))
    }

    /// The endpoint of a number, and what its weight is multiplied by.
    pub fn member(&self, index: usize) -> Option<(&Member, f32)> {
        let behind = self.seats.partition_point(|seated| seated.start <= index);
        let seated = self.seats.get(behind.checked_sub(1)?)?;
        let member = seated.part.members().get(index - seated.start)?;
        Some((member, seated.scale))
    }

    /// The number of an endpoint, drawn by weight; 0 where there is none.
    pub fn take(&self, dice: &Rng) -> usize {
        let place = match &self.draw {
            PartDraw::Chance(urn) => urn.draw(dice),
            PartDraw::Turns(turns) => turns.next(),
        };
        let seated = self.seats.get(place);
        seated.map_or(0, |seated| seated.start + seated.part.take(dice))
    }

    /// The numbers of endpoints from one on, around the row, but for those of parts that are left
    /// out as a whole. Some of the part that it begins in come up twice.
    pub fn in_service(&self, from: usize, now_ms: u64) -> impl Iterator<Item = usize> {
        let behind = self.seats.partition_point(|seated| seated.start <= from);
        let (before, behind) = self.seats.split_at(behind.saturating_sub(1));
        let is_in = move |seated: &&Seated| {
            let (out, _) = seated.part.look_who_is_back(now_ms);
            (out as usize) < seated.part.members().len()
        };
        let end = |seated: &Seated| seated.start + seated.part.members().len();
        let first = behind.first();
        let behind = behind.iter().filter(is_in);
        let behind = behind.flat_map(move |seated| seated.start.max(from)..end(seated));
        let before = before.iter().chain(first).filter(is_in);
        behind.chain(before.flat_map(move |seated| seated.start..end(seated)))
    }

    /// How many are left out, and when the next one comes back, in milliseconds.
    pub fn look_who_is_back(&self, now_ms: u64) -> (u32, u64) {
        let parts = self.seats.iter().map(|seated| &seated.part);
        let looked = parts.map(|part| part.look_who_is_back(now_ms));
        looked.fold((0, u64::MAX), |(out, next), (more, back)| {
            (out + more, next.min(back))
        })
    }

    /// Remembers where an endpoint of a number is, for [`PartRow::note_out`].
    pub fn remember(&self, index: usize, target: &Endpoint) {
        let behind = self.seats.partition_point(|seated| seated.start <= index);
        let seat = u32::try_from(behind.saturating_sub(1));
        target.record.remember_seat(seat.unwrap_or_default());
    }

    /// Counts one more that is left out from now on; false where it is none of these. It is looked
    /// for where it was last taken from, since there may be very many parts, and then everywhere.
    pub fn note_out(&self, target: &Endpoint, now_ms: u64) -> bool {
        let mark = target.mark();
        let is_of = |part: &&Arc<PoolPart>| {
            let found = part.marked(mark);
            found.is_some_and(|found| found.target.id == target.id)
        };
        let seat = usize::try_from(target.record.seat()).unwrap_or(usize::MAX);
        let known = self.seats.get(seat).map(|seated| &seated.part);
        let part = known.filter(is_of).or_else(|| {
            let mut parts = self.seats.iter().map(|seated| &seated.part);
            parts.find(is_of)
        });
        if let Some(part) = part {
            part.count(now_ms);
        }
        part.is_some()
    }
}

fn weigh(weight: u64, scale: Option<(u32, u64)>) -> u64 {
    scale.map_or(weight, |(share, sum)| locality::weigh(weight, share, sum))
}
