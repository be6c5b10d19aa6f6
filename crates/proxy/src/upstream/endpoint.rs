//! The targets of all upstreams, so that equal addresses share connections and counts.

use std::net::SocketAddr;
use std::sync::Arc;

use myriad_model::{Entry, Tree};

use crate::balance::locality::Locality;
use crate::balance::{Endpoint, TransportSettings};
use crate::random::hash::hash_value;

/// The class of targets among hashes.
const CLASS: u8 = 9;

/// Every target that some upstream names, with the number of them. Owned by the control thread.
#[derive(Default)]
pub struct EndpointTable {
    tree: Tree<Use>,
    /// The locality of the proxy, which decides the preference among endpoints.
    home: Option<Locality>,
    acquired: u64,
    weighed: u64,
}

#[derive(Clone)]
struct Use {
    hash: u64,
    target: Arc<Endpoint>,
    users: u32,
}

impl Entry for Use {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        is_same(&self.target, other.target.address, &other.target.manner)
    }
}

impl EndpointTable {
    /// An empty table of targets.
    pub fn new() -> Self {
        EndpointTable::default()
    }

    /// The same for a proxy that is somewhere.
    pub fn seen_from(home: Option<Locality>) -> Self {
        EndpointTable {
            home,
            ..EndpointTable::default()
        }
    }

    /// The locality of the proxy, if it knows.
    pub fn home(&self) -> Option<&Locality> {
        self.home.as_ref()
    }

    /// The target of an address that is spoken to in a manner, for one more user.
    pub fn acquire(
        &mut self,
        address: SocketAddr,
        manner: &Arc<TransportSettings>,
    ) -> Arc<Endpoint> {
        self.acquired += 1;
        let hash = place(address, manner);
        let known = self
            .tree
            .get(hash, |entry| is_same(&entry.target, address, manner));
        let (target, users) = match known {
            Some(entry) => (entry.target.clone(), entry.users),
            None => (Arc::new(Endpoint::new(address, manner.clone())), 0),
        };
        let users = users + 1;
        let entry = Use {
            hash,
            target: target.clone(),
            users,
        };
        self.tree.insert(entry);
        target
    }

    /// One user less. Without users, it is forgotten here; requests in flight still hold it.
    pub fn release(&mut self, target: &Endpoint) {
        let (address, manner) = (target.address, &target.manner);
        let hash = place(address, manner);
        let is_it = |entry: &Use| is_same(&entry.target, address, manner);
        let Some(entry) = self.tree.get(hash, is_it) else {
            return;
        };
        if entry.users > 1 {
            let mut entry = entry.clone();
            entry.users -= 1;
            self.tree.insert(entry);
        } else {
            self.tree.remove(hash, is_it);
        }
    }

    /// How often a target has been asked for so far.
    pub fn acquired(&self) -> u64 {
        self.acquired
    }

    /// So many endpoints were put into tables that they are drawn from.
    pub fn note_weighed(&mut self, count: usize) {
        self.weighed += count as u64;
    }

    /// How many endpoints have been put into tables so far that they are drawn from.
    pub fn weighed(&self) -> u64 {
        self.weighed
    }

    /// How many targets are in use.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether no target is in use.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }
}

fn is_same(target: &Endpoint, address: SocketAddr, manner: &Arc<TransportSettings>) -> bool {
    let is_same = || Arc::ptr_eq(&target.manner, manner) || target.manner == *manner;
    target.address == address && is_same()
}

/// The place of a target in the table. Whoever writes endpoints writes all of this, so the hash is
/// of all that tells targets apart, and one that nobody outside can steer.
fn place(address: SocketAddr, manner: &TransportSettings) -> u64 {
    hash_value(CLASS, &(address, manner))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr};
    use std::sync::Arc;

    use myriad_model::{Name, UpstreamTls};

    use super::{EndpointTable, place};
    use crate::balance::TransportSettings;
    use crate::random::rng::Rng;

    /// The nodes that were copied, and the entries that are looked at to find each once, where a
    /// snapshot of the table before each change is held.
    fn cost(all: &[(SocketAddr, Arc<TransportSettings>)]) -> (u64, usize) {
        let mut targets = EndpointTable::new();
        for (address, manner) in all {
            let _before = targets.tree.clone();
            targets.acquire(*address, manner);
        }
        assert_eq!(targets.len(), all.len());
        let rows = all.iter().map(|(address, manner)| {
            let row = targets.tree.with_hash(place(*address, manner));
            row.count()
        });
        (targets.tree.nodes_copied(), rows.sum())
    }

    fn addresses(bits: impl Iterator<Item = u128>) -> Vec<(SocketAddr, Arc<TransportSettings>)> {
        let plain = TransportSettings::shared(None);
        let address = |bits| SocketAddr::from((Ipv6Addr::from_bits(bits), 80));
        bits.map(|bits| (address(bits), plain.clone())).collect()
    }

    /// Two thousand addresses that are equal in `low * LOW + high * HIGH`: whoever knows both
    /// factors finds them.
    fn crafted() -> impl Iterator<Item = u128> {
        const LOW: u64 = 0x9e37_79b9_7f4a_7c15;
        const HIGH: u64 = 0xd6e8_feb8_6659_fd93;
        let inverse = (0..5).fold(LOW, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(LOW.wrapping_mul(inverse)))
        });
        assert_eq!(LOW.wrapping_mul(inverse), 1);
        (1..=2_000_u64).map(move |high| {
            let low = 7_u64.wrapping_sub(high.wrapping_mul(HIGH));
            let low = low.wrapping_mul(inverse) ^ (80 << 48);
            (u128::from(high) << 64) | u128::from(low)
        })
    }

    #[test]
    fn crafted_addresses_cost_what_others_do() {
        let dice = Rng::new(7);
        let random = (0..2_000).map(|_| (u128::from(dice.roll()) << 64) | u128::from(dice.roll()));
        let (copied, looked) = cost(&addresses(random));
        let (copied_crafted, looked_crafted) = cost(&addresses(crafted()));
        assert!(
            copied_crafted <= copied * 5 / 4,
            "{copied_crafted} of {copied}"
        );
        assert_eq!((looked, looked_crafted), (2_000, 2_000));
    }

    #[test]
    fn one_address_in_many_manners_is_not_one_row() {
        let manner = |number: u32| {
            TransportSettings::shared(Some(UpstreamTls {
                trust: Some(Name::new(format!("ns/{number}"))),
                ..UpstreamTls::unverified()
            }))
        };
        let address = SocketAddr::from(([192, 0, 2, 1], 443));
        let all: Vec<_> = (0..2_000).map(|it| (address, manner(it))).collect();
        assert_eq!(cost(&all).1, 2_000);
    }

    #[test]
    fn equal_addresses_share_a_target_until_nobody_uses_it() {
        let mut targets = EndpointTable::new();
        let address = ([192, 0, 2, 1], 80).into();
        let plain = TransportSettings::shared(None);
        let first = targets.acquire(address, &plain);
        let second = targets.acquire(address, &plain);
        let other = targets.acquire(([192, 0, 2, 2], 80).into(), &plain);
        assert!(Arc::ptr_eq(&first, &second));
        assert_ne!(first.id, other.id);
        targets.release(&first);
        assert_eq!(targets.len(), 2);
        targets.release(&second);
        assert_eq!(targets.len(), 1);
        assert_ne!(targets.acquire(address, &plain).id, first.id);
    }

    #[test]
    fn an_upstream_that_counts_has_targets_of_its_own() {
        let mut targets = EndpointTable::new();
        let address = ([192, 0, 2, 1], 80).into();
        let owned = |name: &str| {
            Arc::new(TransportSettings {
                owner: Some(name.into()),
                ..TransportSettings::default()
            })
        };
        let shared = targets.acquire(address, &TransportSettings::shared(None));
        let own = targets.acquire(address, &owned("a"));
        assert_ne!(shared.id, own.id);
        assert_ne!(targets.acquire(address, &owned("b")).id, own.id);
        assert_eq!(targets.acquire(address, &owned("a")).id, own.id);
    }
}
