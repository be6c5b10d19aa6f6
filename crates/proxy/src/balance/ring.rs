//! A ring of points: a hash belongs to the first point at or behind it, so that an endpoint that
//! leaves gives away its own share, and nobody else moves.

use crate::random::hash::hash_stable;

/// The most points that are looked at for one hash. Beyond them hardly anybody is left that may be
/// taken.
const WALK_MAX: usize = 1_024;

/// The points of a ring, sorted.
#[derive(Debug, Default)]
pub struct Ring {
    hashes: Box<[u64]>,
    members: Box<[u32]>,
}

impl Ring {
    /// A ring of at least `points_min` points where that is possible within `points_max`.
    /// `members` are marks, the same in every process, with weights; each with a weight has a
    /// point at least.
    pub fn new(members: &[(u64, u32)], points_min: u32, points_max: u32) -> Self {
        let sum: u64 = members.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let least = members
            .iter()
            .map(|(_, weight)| *weight)
            .filter(|w| *w > 0)
            .min();
        let Some(least) = least else {
            return Ring::default();
        };
        // Whoever weighs least has whole points, and everybody the same per weight.
        let wanted = u64::from(points_min) * u64::from(least);
        let points = wanted.div_ceil(sum).max(1);
        let bound = u64::from(points_max).max(members.len() as u64);
        let count = |weight: u32| {
            let own = u64::from(weight) * points / u64::from(least);
            let of_bound = u64::from(weight) * bound / sum;
            own.min(of_bound).max(u64::from(weight > 0))
        };
        let mut ring: Vec<(u64, u32)> = Vec::new();
        for (index, (mark, weight)) in members.iter().enumerate() {
            for point in 0..count(*weight) {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&mark.to_be_bytes());
                bytes[8..].copy_from_slice(&point.to_be_bytes());
                ring.push((hash_stable(&bytes), index as u32));
            }
        }
        ring.sort_unstable();
        let (hashes, members): (Vec<u64>, Vec<u32>) = ring.into_iter().unzip();
        Ring {
            hashes: hashes.into(),
            members: members.into(),
        }
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The members for a hash, in order: its own, then the ones that would have it without those
    /// before, on around the ring, as far as [`WALK_MAX`] points. Members come up more than once.
    pub fn walk(&self, hash: u64) -> impl Iterator<Item = usize> {
        let start = self.hashes.partition_point(|point| *point < hash);
        let (before, behind) = self.members.split_at(start);
        let members = behind.iter().chain(before).take(WALK_MAX);
        members.map(|member| *member as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Ring, hash_stable};

    fn members(count: u64) -> Vec<(u64, u32)> {
        let mark = |index: u64| hash_stable(&index.to_be_bytes());
        (0..count).map(|index| (mark(index), 1)).collect()
    }

    fn owner(ring: &Ring, members: &[(u64, u32)], key: u64) -> u64 {
        let hash = hash_stable(&key.to_le_bytes());
        members[ring.walk(hash).next().unwrap()].0
    }

    proptest! {
        #[test]
        fn one_that_leaves_moves_its_own_share_only(count in 2..12_u64, gone in 0..12_usize) {
            let all = members(count);
            let gone = gone % all.len();
            let mut rest = all.clone();
            let (left, _) = rest.remove(gone);
            // As many points for each as before.
            let before = Ring::new(&all, 1_024, 1 << 20);
            let points = (before.len() as u64 / count * (count - 1)) as u32;
            let after = Ring::new(&rest, points, 1 << 20);
            for key in 0..500 {
                let owned = owner(&before, &all, key);
                if owned != left {
                    prop_assert_eq!(owned, owner(&after, &rest, key));
                }
            }
        }
    }

    #[test]
    fn a_ring_has_points_by_weight_within_its_bounds() {
        let sizes = |weights: &[u32], min, max| {
            let members: Vec<(u64, u32)> = (1..).zip(weights.iter().copied()).collect();
            Ring::new(&members, min, max).len()
        };
        assert_eq!(sizes(&[1, 1, 1], 1_024, 1 << 20), 1_026);
        assert_eq!(sizes(&[1, 3], 1_024, 1 << 20), 1_024);
        assert_eq!(sizes(&[1, 0], 8, 1 << 20), 8);
        assert_eq!(sizes(&[1, 1_000_000], 1_024, 1_024), 1_024);
        assert_eq!(sizes(&[], 8, 8), 0);
        let members = members(4);
        let ring = Ring::new(&members, 4_096, 1 << 20);
        let mut taken = [0; 4];
        for key in 0..10_000_u64 {
            taken[ring.walk(hash_stable(&key.to_be_bytes())).next().unwrap()] += 1;
        }
        for share in taken {
            assert!((2_000..3_000).contains(&share), "{taken:?}");
        }
    }

    #[test]
    fn the_walk_on_a_large_ring_ends() {
        let ring = Ring::new(&members(2), 65_536, 65_536);
        for hash in [0, u64::MAX / 2, u64::MAX] {
            assert_eq!(ring.walk(hash).count(), super::WALK_MAX);
        }
    }

    #[test]
    fn the_walk_goes_around_to_everybody() {
        let ring = Ring::new(&members(3), 9, 9);
        for hash in [0, u64::MAX / 2, u64::MAX] {
            let mut met: Vec<usize> = ring.walk(hash).collect();
            assert_eq!(met.len(), ring.len());
            met.sort_unstable();
            met.dedup();
            assert_eq!(met, [0, 1, 2]);
        }
    }
}
