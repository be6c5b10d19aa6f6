//! Stream routes: which stream leads where.

use std::net::IpAddr;
use std::sync::Arc;

use myriad_model::{Host, Name, SealedArc, SourceRanges, StreamRoute, host::Pattern};
use smallvec::SmallVec;

use super::leaf::{Hosted, Keyed, has_listener, place};
use super::parting::Parting;
use crate::admission::share::Owner;
use crate::random::hash::hash;
use crate::upstream::entry;

/// The class of listener names among hashes.
const CLASS: u8 = 12;

/// Up to here stream routes of a host are asked one by one whether they are on a listener, each of
/// so many.
const LINEAR_MAX: usize = 8;
const LISTENERS_MAX: usize = 16;

/// A stream route, ready to be matched. Hosts that share a stream route share this.
pub struct StreamRouteEntry {
    /// The resource, whose value is a stream route.
    sealed: SealedArc,
    /// Hashes of the names of upstreams, in their order.
    upstreams: SmallVec<[u64; 1]>,
    /// The client addresses, and those that clients connect to, sorted.
    sources: SourceRanges,
    destinations: SourceRanges,
}

/// The key that stream routes are found by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum StreamRouteKey {
    /// A host pattern.
    Host(Host),
    /// A listener, for all of its connections.
    Listener(Name),
}

/// The stream routes of a host pattern.
pub struct HostStreamRoutes {
    hash: u64,
    host: Host,
    stream_routes: StreamRoutes,
    /// Their numbers by the listeners that they are on; none where they are few, and all are tried.
    parting: Option<Box<Parting<Box<[u32]>>>>,
}

/// The stream routes for all connections of a listener.
pub struct ListenerStreamRoutes {
    hash: u64,
    listener: Name,
    stream_routes: StreamRoutes,
}

/// Stream routes by rank, then by name; never empty.
type StreamRoutes = Box<[Arc<StreamRouteEntry>]>;

/// The properties of a connection that looks for its stream route.
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

impl StreamRouteEntry {
    /// The entry of a stream route; none for another kind of resource.
    pub fn new(sealed: SealedArc) -> Option<Self> {
        let stream_route = sealed.stream_route()?;
        let shares = stream_route.upstreams.iter();
        let upstreams = shares
            .map(|share| entry::hash_of(&share.upstream))
            .collect();
        let sources = stream_route.sources.iter().copied().collect();
        let destinations = stream_route.destinations.iter().copied().collect();
        Some(StreamRouteEntry {
            sealed,
            upstreams,
            sources,
            destinations,
        })
    }

    /// The resource.
    pub fn sealed(&self) -> &SealedArc {
        &self.sealed
    }

    /// The value; always there, since [`StreamRouteEntry::new`] makes nothing else.
    pub fn stream_route(&self) -> Option<&StreamRoute> {
        self.sealed.stream_route()
    }

    /// The owner of its streams: the namespace that it came from, and there its first host, or else
    /// the listener that accepted them.
    pub fn owner(&self, listener: &Name) -> Owner {
        let Some(resource) = self.sealed.resource() else {
            return Owner::default();
        };
        match self
            .stream_route()
            .and_then(|stream_route| stream_route.hosts.first())
        {
            Some(host) => Owner::of(&resource.origin, host),
            None => Owner::of_listener(&resource.origin, listener),
        }
    }

    /// Hashes of the names of upstreams, in their order.
    pub fn upstream_hashes(&self) -> &[u64] {
        &self.upstreams
    }

    /// The rank below which those of its listener go before it that say addresses.
    pub fn behind(&self) -> u64 {
        self.stream_route().map_or(0, |it| it.behind)
    }

    fn rank(&self) -> u64 {
        self.stream_route().map_or(u64::MAX, |it| it.rank)
    }

    /// Whether it takes handshakes by the name in them, to hand them on as they are.
    pub fn hands_handshakes_on(&self) -> bool {
        let stream_route = self.stream_route();
        stream_route.is_some_and(|it| !it.terminate && !it.hosts.is_empty())
    }

    /// Whether any upstream has a share.
    pub fn leads_somewhere(&self) -> bool {
        let shares = self
            .stream_route()
            .map(|stream_route| &*stream_route.upstreams);
        shares.is_some_and(|shares| shares.iter().any(|share| share.weight > 0))
    }

    /// Whether an upstream has a share.
    pub fn leads_to(&self, upstream: &Name) -> bool {
        let shares = self
            .stream_route()
            .map(|stream_route| &*stream_route.upstreams);
        let mut shares = shares.into_iter().flatten();
        shares.any(|share| share.weight > 0 && share.upstream == *upstream)
    }

    /// The keys that it is found by.
    pub fn keys(&self) -> Vec<StreamRouteKey> {
        let Some(stream_route) = self.stream_route() else {
            return Vec::new();
        };
        match stream_route.hosts.is_empty() {
            true => stream_route
                .listeners
                .iter()
                .cloned()
                .map(StreamRouteKey::Listener)
                .collect(),
            false => stream_route
                .hosts
                .iter()
                .cloned()
                .map(StreamRouteKey::Host)
                .collect(),
        }
    }

    /// The listeners, or sections of them, that it is on.
    pub(super) fn listeners(&self) -> &[Name] {
        self.stream_route().map_or(&[][..], |it| &it.listeners[..])
    }

    fn takes(&self, arrival: Arrival<'_>) -> bool {
        has_listener(self.listeners(), arrival.listener) && self.suits(arrival)
    }

    /// Whether everything but the listener matches.
    fn suits(&self, arrival: Arrival<'_>) -> bool {
        let stream_route = self.stream_route();
        stream_route.is_some_and(|it| it.terminate == arrival.is_terminated)
            && is_within(&self.sources, Some(arrival.client))
            && is_within(&self.destinations, arrival.own)
    }
}

impl HostStreamRoutes {
    /// The stream routes of a host pattern.
    pub fn new(host: Host, stream_routes: Vec<Arc<StreamRouteEntry>>) -> Self {
        let stream_routes = in_order(stream_routes);
        let lists = stream_routes.iter().map(|entry| entry.listeners());
        let mut lengths = lists.clone().map(<[Name]>::len);
        let are_few =
            stream_routes.len() <= LINEAR_MAX && lengths.all(|length| length <= LISTENERS_MAX);
        let parting = (!are_few).then(|| Box::new(Parting::new(lists, |numbers| numbers)));
        HostStreamRoutes {
            hash: place(host.pattern()),
            host,
            parting,
            stream_routes,
        }
    }

    /// The stream routes, in the order of precedence.
    pub fn stream_routes(&self) -> &[Arc<StreamRouteEntry>] {
        &self.stream_routes
    }

    /// The first that takes a connection.
    pub fn find(&self, arrival: Arrival<'_>) -> Option<&Arc<StreamRouteEntry>> {
        let Some(parting) = &self.parting else {
            return self.stream_routes.iter().find(|entry| entry.takes(arrival));
        };
        let suits = |number: &u32| {
            let entry = self.stream_routes.get(*number as usize);
            entry.is_some_and(|entry| entry.suits(arrival))
        };
        let parts = parting.on(arrival.listener);
        let firsts = parts.filter_map(|part| part.iter().copied().find(suits));
        self.stream_routes.get(firsts.min()? as usize)
    }
}

impl ListenerStreamRoutes {
    /// The stream routes of a listener.
    pub fn new(listener: Name, stream_routes: Vec<Arc<StreamRouteEntry>>) -> Self {
        ListenerStreamRoutes {
            hash: listener_hash(&listener),
            listener,
            stream_routes: in_order(stream_routes),
        }
    }

    /// The listener.
    pub fn listener(&self) -> &Name {
        &self.listener
    }

    /// The stream routes, in the order of precedence.
    pub fn stream_routes(&self) -> &[Arc<StreamRouteEntry>] {
        &self.stream_routes
    }

    /// The first that takes a connection.
    pub fn find(&self, arrival: Arrival<'_>) -> Option<&Arc<StreamRouteEntry>> {
        self.stream_routes.iter().find(|entry| entry.takes(arrival))
    }

    /// The first that takes a connection by the address that it is for, of a lower rank than this.
    pub fn find_addressed(
        &self,
        arrival: Arrival<'_>,
        rank: u64,
    ) -> Option<&Arc<StreamRouteEntry>> {
        let before = self.stream_routes.iter().take_while(|it| it.rank() < rank);
        let mut addressed = before.filter(|it| !it.destinations.is_empty());
        addressed.find(|entry| entry.takes(arrival))
    }
}

impl Keyed for HostStreamRoutes {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.host == other.host
    }
}

impl Hosted for HostStreamRoutes {
    fn host(&self) -> &Host {
        &self.host
    }
}

impl Keyed for ListenerStreamRoutes {
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

/// The length of what a pattern names, and whether it covers one name, or names of one length.
pub type Specificity = (usize, bool);

/// How specific a pattern is, among those that cover one name.
pub fn specificity(pattern: Pattern<'_>) -> Specificity {
    match pattern {
        Pattern::Exact(_) => (usize::MAX, true),
        Pattern::OneLabel(suffix) => (suffix.len(), true),
        Pattern::AnyLabels(suffix) => (suffix.len(), false),
        Pattern::Any => (0, false),
    }
}

fn in_order(mut stream_routes: Vec<Arc<StreamRouteEntry>>) -> StreamRoutes {
    stream_routes.sort_by(|a, b| {
        let by_rank = a.rank().cmp(&b.rank());
        by_rank.then_with(|| a.sealed.name().cmp(b.sealed.name()))
    });
    stream_routes.into()
}

/// Whether an address is within any range; every address is, where there is no range.
fn is_within(ranges: &SourceRanges, address: Option<IpAddr>) -> bool {
    let contains = |address: IpAddr| ranges.contains(address.to_canonical());
    ranges.is_empty() || address.is_some_and(contains)
}

#[cfg(test)]
mod tests;
