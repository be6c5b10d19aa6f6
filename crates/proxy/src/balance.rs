//! Which endpoint takes a request.
//!
//! Two endpoints are drawn by weight, and the one with fewer requests in flight for its weight
//! takes it. That needs no scan, and no worker has to know what the others draw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use myriad_model::UpstreamTls;

use crate::net::dice::Dice;
use crate::net::hash::hash_stable;

/// One address that requests are sent to, and how it is spoken to. Upstreams that name the same
/// address share it, with its connections and its count of requests.
pub struct Target {
    /// Unique in the process, and never used again.
    pub id: u64,
    /// The address.
    pub address: SocketAddr,
    /// How TLS is done; none for plain text.
    pub tls: Option<UpstreamTls>,
    active: AtomicU32,
}

/// A request in flight at a target; counted until it is dropped.
pub struct Flight {
    target: Arc<Target>,
}

/// The endpoints of one upstream.
#[derive(Default)]
pub struct Pool {
    members: Box<[Member]>,
    /// The sum of all weights.
    weight: u64,
    /// Whether all weights are equal, so that drawing is one step.
    is_even: bool,
}

/// One endpoint of an upstream.
pub struct Member {
    /// The address.
    pub target: Arc<Target>,
    /// Its share; at least 1.
    pub weight: u32,
}

impl Target {
    /// A target without requests.
    pub fn new(address: SocketAddr, tls: Option<UpstreamTls>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Target {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            address,
            tls,
            active: AtomicU32::new(0),
        }
    }

    /// Requests in flight, of all workers.
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// What an affinity cookie says of it: the same in every process, and not its address.
    pub fn mark(&self) -> u64 {
        let mut bytes = [0; 18];
        let ip = match self.address.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            std::net::IpAddr::V6(ip) => ip,
        };
        bytes[..16].copy_from_slice(&ip.octets());
        bytes[16..].copy_from_slice(&self.address.port().to_be_bytes());
        hash_stable(&bytes)
    }
}

impl Flight {
    /// Counts a request.
    pub fn start(target: Arc<Target>) -> Self {
        target.active.fetch_add(1, Ordering::Relaxed);
        Flight { target }
    }

    /// Where the request is.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.target.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// A pool of members. A weight of 0 is taken out.
    pub fn new(members: impl Iterator<Item = Member>) -> Self {
        let members: Box<[Member]> = members.filter(|member| member.weight > 0).collect();
        let weight = members.iter().map(|member| u64::from(member.weight)).sum();
        let is_even = members
            .windows(2)
            .all(|pair| pair[0].weight == pair[1].weight);
        Pool {
            members,
            weight,
            is_even,
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

    /// The endpoint that a cookie speaks of.
    pub fn marked(&self, mark: u64) -> Option<&Arc<Target>> {
        self.members
            .iter()
            .map(|member| &member.target)
            .find(|target| target.mark() == mark)
    }

    /// Picks an endpoint, another than `tried` where there is one.
    pub fn pick(&self, dice: &Dice, tried: Option<u64>) -> Option<&Arc<Target>> {
        if self.members.len() <= 1 {
            return self.members.first().map(|member| &member.target);
        }
        let first = self.draw(dice);
        let mut second = self.draw(dice);
        if first == second {
            second = (second + 1) % self.members.len();
        }
        let is_tried = |index: usize| Some(self.members[index].target.id) == tried;
        let picked = match (is_tried(first), is_tried(second)) {
            (true, _) => second,
            (_, true) => first,
            _ if self.load(second) < self.load(first) => second,
            _ => first,
        };
        Some(&self.members[picked].target)
    }

    /// An index, by weight.
    fn draw(&self, dice: &Dice) -> usize {
        if self.is_even {
            return dice.roll_below(self.members.len() as u64) as usize;
        }
        let mut left = dice.roll_below(self.weight);
        for (index, member) in self.members.iter().enumerate() {
            match left.checked_sub(u64::from(member.weight)) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        0
    }

    /// Requests in flight for each share, with the one that is about to come.
    fn load(&self, index: usize) -> f32 {
        let member = &self.members[index];
        (member.target.active() as f32 + 1.0) / member.weight as f32
    }
}

/// Draws one of several shares; none where all are 0.
pub fn draw_share(shares: impl Iterator<Item = u32> + Clone, dice: &Dice) -> Option<usize> {
    let sum: u64 = shares.clone().map(u64::from).sum();
    if sum == 0 {
        return None;
    }
    let mut left = dice.roll_below(sum);
    for (index, share) in shares.enumerate() {
        match left.checked_sub(u64::from(share)) {
            Some(rest) => left = rest,
            None => return Some(index),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Flight, Member, Pool, Target, draw_share};
    use crate::net::dice::Dice;

    fn pool(weights: &[u32]) -> Pool {
        let member = |(index, weight): (usize, &u32)| Member {
            target: Arc::new(Target::new(([192, 0, 2, index as u8], 80).into(), None)),
            weight: *weight,
        };
        Pool::new(weights.iter().enumerate().map(member))
    }

    fn shares(pool: &Pool, rolls: usize) -> Vec<usize> {
        let dice = Dice::new(7);
        let mut taken = vec![0; pool.members().len()];
        for _ in 0..rolls {
            let picked = pool.pick(&dice, None).unwrap().id;
            let index = pool.members().iter().position(|m| m.target.id == picked);
            taken[index.unwrap()] += 1;
        }
        taken
    }

    #[test]
    fn idle_endpoints_share_evenly() {
        for share in shares(&pool(&[1, 1, 1, 1]), 8_000) {
            assert!((1_700..2_300).contains(&share), "{share}");
        }
    }

    #[test]
    fn the_busier_of_two_is_left_alone() {
        let pool = pool(&[1, 1]);
        let busy = Flight::start(pool.members()[0].target.clone());
        assert_eq!(shares(&pool, 100), [0, 100]);
        drop(busy);
        assert!(shares(&pool, 100)[0] > 0);
    }

    #[test]
    fn an_endpoint_that_was_tried_is_not_tried_again_while_there_is_another() {
        let pool = pool(&[1, 1]);
        let dice = Dice::new(7);
        let tried = pool.members()[0].target.id;
        for _ in 0..100 {
            assert_ne!(pool.pick(&dice, Some(tried)).unwrap().id, tried);
        }
    }

    #[test]
    fn a_mark_leads_back_to_its_endpoint() {
        let pool = pool(&[1, 1, 1]);
        for member in pool.members() {
            let found = pool.marked(member.target.mark()).unwrap();
            assert_eq!(found.id, member.target.id);
        }
        assert!(pool.marked(1).is_none());
    }

    #[test]
    fn shares_are_drawn_by_weight() {
        let dice = Dice::new(7);
        let mut taken = [0; 3];
        for _ in 0..10_000 {
            taken[draw_share([90, 0, 10].into_iter(), &dice).unwrap()] += 1;
        }
        assert_eq!(taken[1], 0);
        assert!((800..1_200).contains(&taken[2]), "{taken:?}");
        assert_eq!(draw_share([0, 0].into_iter(), &dice), None);
    }
}
