//! The places of names that were told and have no answer yet: few of them are for networks whose
//! last name was refused, and each network may hold as many as are free.
//!
//! So answers that come late keep back those who asked for these names, and nobody else.

use std::collections::HashMap;

use crate::admission::networks::{NetworkKey, is_of_provider, networks_of};

/// The most names without an answer.
pub const DEMANDS_UNANSWERED_MAX: usize = 16;

/// The most of them that are of networks whose last name was refused.
pub(super) const UNANSWERED_BEHIND_MAX: usize = 4;

/// The places, by their holders.
#[derive(Default)]
pub(super) struct OpenPlaces {
    /// Whether everybody has as many as wanted.
    is_unbounded: bool,
    all: usize,
    behind: usize,
    /// The places of each network that a provider is given, as far as it holds any.
    held: HashMap<NetworkKey, usize>,
}

impl OpenPlaces {
    /// Lets everybody have as many as wanted from now on.
    pub(super) fn unbind(&mut self) {
        self.is_unbounded = true;
    }

    /// Whether a network may hold one more: one that a provider is given holds no more than are
    /// free, so that some are left for others until very many hold some. At most as many networks
    /// as there are places may not.
    pub(super) fn admits(&self, network: NetworkKey) -> bool {
        let held = || self.held.get(&network).copied().unwrap_or_default();
        self.is_unbounded
            || !is_of_provider(network)
            || held() < DEMANDS_UNANSWERED_MAX.saturating_sub(self.all)
    }

    /// Whether a network whose last name was refused may hold one more.
    pub(super) fn admits_behind(&self) -> bool {
        self.is_unbounded || self.behind < UNANSWERED_BEHIND_MAX
    }

    /// Gives a place to a source, whose network's last name was refused or not.
    pub(super) fn take(&mut self, source: u64, is_behind: bool) {
        self.all += 1;
        self.behind += usize::from(is_behind);
        *self.held.entry(provider_of(source)).or_default() += 1;
    }

    /// Takes it back.
    pub(super) fn free(&mut self, source: u64, is_behind: bool) {
        self.all = self.all.saturating_sub(1);
        self.behind = self.behind.saturating_sub(usize::from(is_behind));
        let network = provider_of(source);
        if let Some(held) = self.held.get_mut(&network) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&network);
            }
        }
    }

    /// Takes back all.
    pub(super) fn clear(&mut self) {
        *self = OpenPlaces {
            is_unbounded: self.is_unbounded,
            ..OpenPlaces::default()
        };
    }

    /// How many are held, and by how many networks.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.all, self.held.len())
    }
}

/// The network of a source that a provider is given.
fn provider_of(source: u64) -> NetworkKey {
    let [_, network, ..] = networks_of(source);
    network
}
