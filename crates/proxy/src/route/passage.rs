//! Passages: which stream leads where.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use myriad_model::{Host, Name, Passage, SealedArc, host::Pattern};
use smallvec::SmallVec;

use super::leaf::{Hosted, Keyed, has_listener, place};
use crate::admission::share::Owner;
use crate::random::hash::hash;
use crate::upstream::entry;

/// The class of listener names among hashes.
const CLASS: u8 = 12;

/// A passage, ready to be matched. Hosts that share a passage share this.
pub struct PassageEntry {
    /// The resource, whose value is a passage.
    sealed: SealedArc,
    /// Hashes of the names of upstreams, in their order.
    upstreams: SmallVec<[u64; 1]>,
}

/// The key that passages are found by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum StreamRouteKey {
    /// A host pattern.
    Host(Host),
    /// A listener, for all of its connections.
    Listener(Name),
}

/// The passages of a host pattern.
pub struct HostPassages {
    hash: u64,
    host: Host,
    passages: Passages,
}

/// The passages for all connections of a listener.
pub struct ListenerPassages {
    hash: u64,
    listener: Name,
    passages: Passages,
}

/// Passages by rank, then by name; never empty.
type Passages = Box<[Arc<PassageEntry>]>;

/// The properties of a connection that looks for its passage.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// The listener that accepted it.
    pub listener: &'a Name,
    /// The other end.
    pub client: IpAddr,
    /// The address that the client connected to; none where the system does not tell.
    pub own: Option<IpAddr>,
    /// Whether TLS has ended before.
    pub is_terminated: bool,
}

impl PassageEntry {
    /// None, where the resource is not a passage.
    pub fn new(sealed: SealedArc) -> Option<Self> {
        let shares = sealed.passage()?.upstreams.iter();
        let upstreams = shares
            .map(|share| entry::hash_of(&share.upstream))
            .collect();
        Some(PassageEntry { sealed, upstreams })
    }

    /// The resource.
    pub fn sealed(&self) -> &SealedArc {
        &self.sealed
    }

    /// The value; always there, since [`PassageEntry::new`] makes nothing else.
    pub fn passage(&self) -> Option<&Passage> {
        self.sealed.passage()
    }

    /// The owner of its streams: the namespace that it came from, and there its first host, or else
    /// the listener that accepted them.
    pub fn owner(&self, listener: &Name) -> Owner {
        let Some(resource) = self.sealed.resource() else {
            return Owner::default();
        };
        match self.passage().and_then(|passage| passage.hosts.first()) {
            Some(host) => Owner::of(&resource.origin, host),
            None => Owner::of_listener(&resource.origin, listener),
        }
    }

    /// Hashes of the names of upstreams, in their order.
    pub fn upstream_hashes(&self) -> &[u64] {
        &self.upstreams
    }

    /// Whether any upstream has a share.
    pub fn leads_somewhere(&self) -> bool {
        let shares = self.passage().map(|passage| &*passage.upstreams);
        shares.is_some_and(|shares| shares.iter().any(|share| share.weight > 0))
    }

    /// The keys that it is found by.
    pub fn keys(&self) -> Vec<StreamRouteKey> {
        let Some(passage) = self.passage() else {
            return Vec::new();
        };
        match passage.hosts.is_empty() {
            true => passage
                .listeners
                .iter()
                .cloned()
                .map(StreamRouteKey::Listener)
                .collect(),
            false => passage
                .hosts
                .iter()
                .cloned()
                .map(StreamRouteKey::Host)
                .collect(),
        }
    }

    fn takes(&self, arrival: Arrival<'_>) -> bool {
        let Some(passage) = self.passage() else {
            return false;
        };
        passage.terminate == arrival.is_terminated
            && has_listener(&passage.listeners, arrival.listener)
            && is_within(&passage.sources, Some(arrival.client))
            && is_within(&passage.destinations, arrival.own)
    }
}

impl HostPassages {
    /// The passages of a host pattern.
    pub fn new(host: Host, passages: Vec<Arc<PassageEntry>>) -> Self {
        HostPassages {
            hash: place(host.pattern()),
            host,
            passages: in_order(passages),
        }
    }

    /// They, in the order of precedence.
    pub fn passages(&self) -> &[Arc<PassageEntry>] {
        &self.passages
    }

    /// The first that takes a connection.
    pub fn find(&self, arrival: Arrival<'_>) -> Option<&Arc<PassageEntry>> {
        self.passages.iter().find(|entry| entry.takes(arrival))
    }
}

impl ListenerPassages {
    /// The passages of a listener.
    pub fn new(listener: Name, passages: Vec<Arc<PassageEntry>>) -> Self {
        ListenerPassages {
            hash: listener_hash(&listener),
            listener,
            passages: in_order(passages),
        }
    }

    /// The listener.
    pub fn listener(&self) -> &Name {
        &self.listener
    }

    /// They, in the order of precedence.
    pub fn passages(&self) -> &[Arc<PassageEntry>] {
        &self.passages
    }

    /// The first that takes a connection.
    pub fn find(&self, arrival: Arrival<'_>) -> Option<&Arc<PassageEntry>> {
        self.passages.iter().find(|entry| entry.takes(arrival))
    }
}

impl Keyed for HostPassages {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.host == other.host
    }
}

impl Hosted for HostPassages {
    fn host(&self) -> &Host {
        &self.host
    }
}

impl Keyed for ListenerPassages {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.listener == other.listener
    }
}

/// The hash of a listener's name.
pub fn listener_hash(listener: &Name) -> u64 {
    hash(CLASS, listener)
}

/// How specific a pattern is, among those that cover one name.
pub fn specificity(pattern: Pattern<'_>) -> (usize, bool) {
    match pattern {
        Pattern::Exact(_) => (usize::MAX, true),
        Pattern::OneLabel(suffix) => (suffix.len(), true),
        Pattern::AnyLabels(suffix) => (suffix.len(), false),
        Pattern::Any => (0, false),
    }
}

fn in_order(mut passages: Vec<Arc<PassageEntry>>) -> Passages {
    let rank = |entry: &PassageEntry| entry.passage().map_or(u64::MAX, |passage| passage.rank);
    passages.sort_by(|a, b| {
        let by_rank = rank(a).cmp(&rank(b));
        by_rank.then_with(|| a.sealed.name().cmp(b.sealed.name()))
    });
    passages.into()
}

/// Whether an address is within any range; every address is, where there is no range.
fn is_within(ranges: &[IpNet], address: Option<IpAddr>) -> bool {
    let address = address.map(|address| address.to_canonical());
    ranges.is_empty()
        || address.is_some_and(|address| ranges.iter().any(|range| range.contains(&address)))
}

#[cfg(test)]
mod tests;
