//! Endpoints that are what clients' connections were meant for: made when one comes, and kept
//! for the next.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use myriad_model::UpstreamOptions;

use super::resolve::DnsAnswer;
use crate::balance::{Endpoint, Member, Pool, TransportSettings, now_ms};

/// The most addresses of one upstream that are kept, with their connections. Beyond, the one
/// that nobody asked for the longest is forgotten.
pub const ADDRESSES_MAX: usize = 1_024;

/// The addresses that connections were meant for.
pub struct Originals {
    shared: Arc<Shared>,
}

struct Shared {
    manner: Arc<TransportSettings>,
    options: UpstreamOptions,
    shelf: Mutex<HashMap<SocketAddr, Slot, RandomState>>,
}

struct Slot {
    answer: Arc<DnsAnswer>,
    /// When it was last asked for, in milliseconds of [`now_ms`].
    asked_ms: u64,
}

impl Originals {
    /// A set without addresses, unless the upstream before was the same.
    pub fn new(
        manner: Arc<TransportSettings>,
        options: UpstreamOptions,
        before: Option<&Originals>,
    ) -> Self {
        let is_same = |before: &&Originals| {
            let known = &before.shared;
            known.manner == manner && known.options == options
        };
        if let Some(before) = before.filter(is_same) {
            let shared = before.shared.clone();
            return Originals { shared };
        }
        Originals {
            shared: Arc::new(Shared {
                manner,
                options,
                shelf: Mutex::default(),
            }),
        }
    }

    /// The one endpoint at an address.
    pub fn answer(&self, address: SocketAddr) -> Arc<DnsAnswer> {
        let shared = &*self.shared;
        let asked_ms = now_ms();
        let shelf = shared.shelf.lock();
        let mut shelf = shelf.unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = shelf.get_mut(&address) {
            slot.asked_ms = asked_ms;
            return slot.answer.clone();
        }
        if shelf.len() >= ADDRESSES_MAX {
            let oldest = shelf.iter().min_by_key(|(_, slot)| slot.asked_ms);
            let oldest = oldest.map(|(address, _)| *address);
            oldest.and_then(|address| shelf.remove(&address));
        }
        let member = Member {
            target: Arc::new(Endpoint::new(address, shared.manner.clone())),
            weight: 1,
            priority: 0,
        };
        let pool = Pool::with([member].into_iter(), &shared.options);
        let answer = Arc::new(DnsAnswer::lasting(pool));
        let slot = Slot {
            answer: answer.clone(),
            asked_ms,
        };
        shelf.insert(address, slot);
        answer
    }

    /// How many addresses are kept.
    pub fn len(&self) -> usize {
        let shelf = self.shared.shelf.lock();
        shelf.unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no address is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_model::UpstreamOptions;

    use super::{ADDRESSES_MAX, Originals};
    use crate::balance::TransportSettings;

    #[test]
    fn addresses_are_bounded_and_stay_where_the_upstream_does() {
        let options = UpstreamOptions::default;
        let before = Originals::new(TransportSettings::shared(None), options(), None);
        let address = |number: usize| {
            let [.., high, low] = number.to_be_bytes();
            ([192, 0, high, low], 80).into()
        };
        let first = before.answer(address(0));
        assert!(Arc::ptr_eq(&first, &before.answer(address(0))));
        let target = &first.pool.members().next().unwrap().target;
        assert_eq!(target.address, address(0));
        let same = Originals::new(TransportSettings::shared(None), options(), Some(&before));
        assert!(Arc::ptr_eq(&first, &same.answer(address(0))));
        for number in 1..ADDRESSES_MAX + 10 {
            before.answer(address(number));
        }
        assert_eq!(before.len(), ADDRESSES_MAX);
        let other = Arc::new(TransportSettings {
            is_http2: true,
            ..TransportSettings::default()
        });
        assert!(Originals::new(other, options(), Some(&before)).is_empty());
    }
}
