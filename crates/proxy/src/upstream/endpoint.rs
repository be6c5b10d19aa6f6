//! The targets of all upstreams, so that equal addresses share connections and counts.

use std::net::SocketAddr;
use std::sync::Arc;

use myriad_model::{Entry, Tree};

use crate::balance::locality::Locality;
use crate::balance::{Endpoint, TransportSettings};
use crate::random::hash::hash;

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

fn place(address: SocketAddr, manner: &TransportSettings) -> u64 {
    // Addresses hash by their text's parts without being printed.
    let ip = match address.ip() {
        std::net::IpAddr::V4(ip) => u128::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => ip.to_bits(),
    };
    let name = manner.tls.as_ref().map_or("", |tls| &tls.server_name);
    let owner = manner.owner.as_ref().map_or(0, |owner| hash(11, owner));
    let low = ip as u64 ^ (u64::from(address.port()) << 48);
    hash(9, name)
        .wrapping_add(owner)
        .wrapping_add(low.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(((ip >> 64) as u64).wrapping_mul(0xd6e8_feb8_6659_fd93))
        .rotate_left(31)
        .wrapping_mul(0xff51_afd7_ed55_8ccd)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::EndpointTable;
    use crate::balance::TransportSettings;

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
