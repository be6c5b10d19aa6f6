//! How many endpoints the subsets of one host may have.
//!
//! The endpoints that a subset may have follow from its place among the subsets and from how many
//! endpoints the host has, and not from what other subsets have: so each is translated alone.
//! Together they have at most twice what is bounded, and those that share the endpoints of the host
//! out have all.

/// How often the endpoints of a host may be there in its subsets, however many it has.
const COPIES_MIN: u64 = 8;

/// How many endpoints may be looked at for each that subsets may have.
const LOOKS: u64 = 16;

/// The place of a subset among those of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    /// How many are before it.
    pub before: usize,
    /// How many there are.
    pub count: usize,
}

impl Rank {
    /// The endpoints that the subset may have, of a host that has `endpoints`, where `max` are
    /// bounded; zero is no bound. A subset that has more has none.
    pub(super) fn room(self, endpoints: usize, max: u64) -> usize {
        if max == 0 {
            return usize::MAX;
        }
        let endpoints = endpoints as u64;
        let all = max.max(endpoints.saturating_mul(COPIES_MIN));
        let up_to_here = endpoints.saturating_mul(self.before as u64 + 1);
        if up_to_here <= all {
            return usize::MAX;
        }
        // To find out what a subset has is work, even where it has nothing.
        if up_to_here > all.max(max.saturating_mul(LOOKS)) {
            return 0;
        }
        let share = all / (self.count as u64).max(1);
        usize::try_from(share).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::Rank;

    const MAX: u64 = 65_536;

    fn room(before: usize, count: usize, endpoints: usize) -> usize {
        Rank { before, count }.room(endpoints, MAX)
    }

    #[test]
    fn the_first_may_have_all_and_the_others_a_share() {
        // 256 of 256 are what is bounded.
        assert_eq!(room(255, 256, 256), usize::MAX);
        assert_eq!(room(254, 256, 257), usize::MAX);
        assert_eq!(room(255, 256, 257), 256);
        assert_eq!(room(64, 100, 1_000), usize::MAX);
        assert_eq!(room(65, 100, 1_000), 655);
        // Eight times all are there, however many there are.
        assert_eq!(room(7, 256, 14_000), usize::MAX);
        assert_eq!(room(8, 256, 14_000), 437);
        assert_eq!(room(7, 9, 1_000_000), usize::MAX);
        assert_eq!(
            Rank {
                before: 9,
                count: 10
            }
            .room(1_000_000, 0),
            usize::MAX
        );
    }

    #[test]
    fn subsets_that_share_a_host_out_have_all_and_equal_ones_twice_the_bound() {
        for (count, endpoints) in [(2, 9), (100, 1_000), (256, 4_096), (70, 14_000)] {
            let (mut sum, mut least) = (0, usize::MAX);
            for before in 0..count {
                let room = room(before, count, endpoints);
                sum += room.min(endpoints);
                least = least.min(room);
            }
            assert!(least >= endpoints.div_ceil(count), "{count} {endpoints}");
            assert!(sum <= 2 * endpoints.saturating_mul(8).max(65_536), "{sum}");
        }
    }

    #[test]
    fn no_more_are_looked_at_than_is_bounded() {
        assert_eq!(room(73, 256, 14_000), 437);
        assert_eq!(room(74, 256, 14_000), 0);
        assert_eq!(room(8, 256, 250_000), 0);
    }
}
