//! Stream routes: which stream leads where.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
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
    /// Their numbers by the listeners that they are on: of those for connections as they come, and
    /// of those for what comes out of TLS. None where they are few, and all are tried.
    partings: Option<Box<[NumberParting; 2]>>,
}

/// The stream routes for all connections of a listener.
pub struct ListenerStreamRoutes {
    hash: u64,
    listener: Name,
    stream_routes: StreamRoutes,
    /// The rows for connections as they come, and for what comes out of TLS, each up to the first
    /// that takes all of them.
    reachable: [RowsByAddress; 2],
    /// The rows by the address that connections are for.
    addressed: RowsByAddress,
}

/// Stream routes of which those for single addresses are found by these, however many there are.
struct RowsByAddress {
    rows: StreamRoutes,
    /// The addresses of rows that are for single ones alone, with the numbers of these; sorted.
    singles: Box<[(IpAddr, u32)]>,
    /// The numbers of all other rows, which are tried one by one.
    others: Box<[u32]>,
}

/// Stream routes by rank, then by name.
type StreamRoutes = Box<[Arc<StreamRouteEntry>]>;

/// The numbers of stream routes by the listeners that they are on.
type NumberParting = Parting<Box<[u32]>>;

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

    /// Whether it is for what comes out of TLS.
    fn is_behind_tls(&self) -> bool {
        self.stream_route().is_some_and(|it| it.terminate)
    }

    /// Whether it is for clients of all addresses, to all addresses.
    fn has_no_ranges(&self) -> bool {
        self.sources.is_empty() && self.destinations.is_empty()
    }

    /// Whether it is for connections to single addresses alone.
    fn is_for_singles(&self) -> bool {
        let ranges = self.destinations.as_slice();
        let is_single = |range: &IpNet| range.prefix_len() == range.max_prefix_len();
        !ranges.is_empty() && ranges.iter().all(is_single)
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
        let mut lengths = lists.map(<[Name]>::len);
        let are_few =
            stream_routes.len() <= LINEAR_MAX && lengths.all(|length| length <= LISTENERS_MAX);
        // One of the other kind is on no listener.
        let parting = |is_behind_tls: bool| {
            let lists = stream_routes.iter().map(|entry| {
                let is_own = entry.is_behind_tls() == is_behind_tls;
                if is_own { entry.listeners() } else { &[] }
            });
            Parting::new(lists, |numbers| numbers)
        };
        let partings = (!are_few).then(|| Box::new([false, true].map(parting)));
        HostStreamRoutes {
            hash: place(host.pattern()),
            host,
            partings,
            stream_routes,
        }
    }

    /// The stream routes, in the order of precedence.
    pub fn stream_routes(&self) -> &[Arc<StreamRouteEntry>] {
        &self.stream_routes
    }

    /// The first that takes a connection.
    pub fn find(&self, arrival: Arrival<'_>) -> Option<&Arc<StreamRouteEntry>> {
        let Some(partings) = &self.partings else {
            return self.stream_routes.iter().find(|entry| entry.takes(arrival));
        };
        let suits = |number: &u32| {
            let entry = self.stream_routes.get(*number as usize);
            entry.is_some_and(|entry| entry.suits(arrival))
        };
        let parting = partings.get(usize::from(arrival.is_terminated))?;
        let mut first: Option<u32> = None;
        for part in parting.on(arrival.listener) {
            let is_before = |number: &u32| first.is_none_or(|first| *number < first);
            // Parts are in the order of their first rows.
            if !part.first().is_some_and(is_before) {
                break;
            }
            let found = part.iter().copied().take_while(is_before).find(suits);
            first = found.or(first);
        }
        self.stream_routes.get(first? as usize)
    }
}

impl ListenerStreamRoutes {
    /// The stream routes of a listener.
    pub fn new(listener: Name, stream_routes: Vec<Arc<StreamRouteEntry>>) -> Self {
        let stream_routes = in_order(stream_routes);
        let reachable = [false, true].map(|is_behind_tls| up_to_all(&stream_routes, is_behind_tls));
        let addressed = stream_routes.iter();
        let addressed = addressed.filter(|entry| !entry.destinations.is_empty());
        ListenerStreamRoutes {
            hash: listener_hash(&listener),
            listener,
            reachable,
            addressed: RowsByAddress::new(addressed.cloned().collect()),
            stream_routes,
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
        let reachable = self.reachable.get(usize::from(arrival.is_terminated))?;
        reachable.find(arrival, reachable.rows.len())
    }

    /// The first that takes a connection by the address that it is for, of a lower rank than this.
    pub fn find_addressed(
        &self,
        arrival: Arrival<'_>,
        rank: u64,
    ) -> Option<&Arc<StreamRouteEntry>> {
        let rows = &self.addressed.rows;
        let end = rows.partition_point(|it| it.rank() < rank);
        self.addressed.find(arrival, end)
    }
}

impl RowsByAddress {
    fn new(rows: StreamRoutes) -> Self {
        let numbered = || (0_u32..).zip(&rows);
        let of_singles = numbered().filter(|(_, row)| row.is_for_singles());
        let singles = of_singles.flat_map(|(number, row)| {
            let ranges = row.destinations.as_slice().iter();
            ranges.map(move |range| (range.addr(), number))
        });
        let mut singles: Vec<(IpAddr, u32)> = singles.collect();
        singles.sort_unstable();
        let others = numbered().filter(|(_, row)| !row.is_for_singles());
        let others = others.map(|(number, _)| number).collect();
        RowsByAddress {
            singles: singles.into(),
            others,
            rows,
        }
    }

    /// The first row that takes a connection, of so many from the first on.
    fn find(&self, arrival: Arrival<'_>, end: usize) -> Option<&Arc<StreamRouteEntry>> {
        let takes = |number: &u32| {
            let row = self.rows.get(*number as usize);
            row.is_some_and(|row| row.takes(arrival))
        };
        let own = arrival.own.map(|own| own.to_canonical());
        let begin = self.singles.partition_point(|(at, _)| Some(*at) < own);
        let singles = self.singles.get(begin..).unwrap_or_default().iter();
        let singles = singles.take_while(|(at, _)| Some(*at) == own);
        let single = singles.map(|(_, number)| *number).find(takes);
        let is_before =
            |number: &u32| (*number as usize) < end && single.is_none_or(|single| *number < single);
        let mut others = self.others.iter().copied().take_while(is_before);
        let first = others.find(takes).or(single)?;
        self.rows.get(..end)?.get(first as usize)
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

/// The stream routes of a kind up to the first that is for all addresses: nothing comes to those
/// behind it.
fn up_to_all(stream_routes: &[Arc<StreamRouteEntry>], is_behind_tls: bool) -> RowsByAddress {
    let own = stream_routes.iter();
    let own = own.filter(|entry| entry.is_behind_tls() == is_behind_tls);
    let mut reachable = Vec::new();
    for entry in own {
        reachable.push(entry.clone());
        if entry.has_no_ranges() {
            break;
        }
    }
    RowsByAddress::new(reachable.into())
}

/// Whether an address is within any range; every address is, where there is no range.
fn is_within(ranges: &SourceRanges, address: Option<IpAddr>) -> bool {
    let contains = |address: IpAddr| ranges.contains(address.to_canonical());
    ranges.is_empty() || address.is_some_and(contains)
}

#[cfg(test)]
mod tests;
