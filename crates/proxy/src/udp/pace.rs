//! How fast flows of one namespace begin. Each datagram of a client that nobody knows is a flow,
//! with a socket of its own, and whoever forges the addresses of clients, or leads datagrams in a
//! circle, makes ever new ones.

use std::time::Duration;

use crate::admission::bucket::{BucketOutcome, Buckets, Rate};
use crate::admission::share::Owner;
use crate::random::hash::hash_numbers;

/// The most flows that begin in a second for the objects of one namespace, in all workers together.
/// As many may begin at once after a second in which none did.
const FLOWS_PER_SECOND: u32 = 16_384;

/// The same, as buckets have it.
const RATE: Rate = Rate {
    spacing: Duration::from_nanos(1_000_000_000 / FLOWS_PER_SECOND as u64),
    burst: FLOWS_PER_SECOND - 1,
};

/// Tells hashes of these from those of other buckets.
const PACE_CLASS: u8 = 0x60;

/// Whether one more flow of an owner may begin.
pub(super) fn admits(buckets: &Buckets, owner: Owner) -> bool {
    let key = hash_numbers(PACE_CLASS, "", &[owner.namespace]);
    !matches!(buckets.take(key, false, RATE), BucketOutcome::No(_))
}

#[cfg(test)]
mod tests {
    use super::{Buckets, FLOWS_PER_SECOND, Owner, admits};

    #[test]
    fn flows_of_a_namespace_begin_so_fast_and_others_do_not_wait_for_them() {
        let buckets = Buckets::new();
        let owner = |namespace, domain| Owner { namespace, domain };
        // Its listeners share.
        let mut flows = (0..8 * FLOWS_PER_SECOND).map(|number| owner(1, (number % 3).into()));
        let refused = flows.position(|flow| !admits(&buckets, flow));
        let begun = refused.expect("not all of them begin");
        assert!(begun >= FLOWS_PER_SECOND as usize, "{begun}");
        assert!(admits(&buckets, owner(2, 0)));
    }
}
