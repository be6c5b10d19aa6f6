//! Sources of clients by the networks that they are of: whoever has a network has all sources in
//! it, so that these have one share of what is short, and not one each.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use foldhash::quality::RandomState;

/// How many networks lie inside one another, with the source itself as the last.
const DEPTH: usize = 4;

/// The depth of networks that are given to whole providers: nobody has many of these, and one
/// client of a provider says little of the others.
const OF_PROVIDERS: usize = 1;

/// How many networks in one of a provider count as one elsewhere: all of a provider's clients by
/// IPv6 are in one, and those by IPv4 in hundreds.
const PROVIDER_SHARE: usize = 16;

/// A network: how many are around it, and its address.
pub(crate) type NetworkKey = (usize, u64);

/// The network of all sources.
pub(crate) const EVERYWHERE: NetworkKey = (0, 0);

/// The networks of a source, the widest first: all of them, then those of 32, 48 and 56 bits by
/// IPv6, or thrice the one of 24 bits by IPv4, and the source itself.
pub(crate) fn networks_of(source: u64) -> [NetworkKey; DEPTH + 1] {
    let [widest, wide, narrow] = match u32::try_from(source) {
        Ok(_) => [8, 8, 8],
        Err(_) => [32, 16, 8],
    };
    [
        EVERYWHERE,
        (OF_PROVIDERS, source >> widest << widest),
        (2, source >> wide << wide),
        (3, source >> narrow << narrow),
        (DEPTH, source),
    ]
}

/// Whether a network is one that a provider is given, and divides among its clients.
pub(crate) fn is_of_provider(network: NetworkKey) -> bool {
    network.0 == OF_PROVIDERS
}

/// Whether a network is a single source.
pub(crate) fn is_source(network: NetworkKey) -> bool {
    network.0 == DEPTH
}

/// The holders of places of which there are few, by their networks. Where one has to go, it is the
/// oldest of the source that has most, of the network that has most: so many networks of a provider
/// have as much as one of somebody else. Each operation costs the logarithm of how many there are.
pub(crate) struct Neighbours<T> {
    places: HashMap<u64, (u64, T), RandomState>,
    networks: HashMap<NetworkKey, Members, RandomState>,
}

/// The sources and places in a network.
#[derive(Default)]
struct Members {
    /// The numbers of all that have a place.
    numbers: BTreeSet<u64>,
    /// The networks inside; the one to lose a place next comes last.
    order: BTreeSet<Rank>,
    /// How many places it has, as it is compared with others.
    weight: usize,
}

/// The weight of a network, the number of its oldest place, and the network.
type Rank = (usize, Reverse<u64>, NetworkKey);

impl<T> Default for Neighbours<T> {
    fn default() -> Self {
        Neighbours {
            places: HashMap::default(),
            networks: HashMap::default(),
        }
    }
}

impl<T> Neighbours<T> {
    /// How many have a place.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Whether one of a number has a place.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.places.contains_key(&number)
    }

    /// Gives a place to one of a source, by a number that is greater than all before.
    pub(crate) fn enter(&mut self, number: u64, source: u64, value: T) {
        self.places.insert(number, (source, value));
        self.change(source, |numbers| {
            numbers.insert(number);
        });
    }

    /// Takes back the place of one; none where it has none any more.
    pub(crate) fn leave(&mut self, number: u64) -> Option<T> {
        let (source, value) = self.places.remove(&number)?;
        self.change(source, |numbers| {
            numbers.remove(&number);
        });
        Some(value)
    }

    /// Takes a place from whoever has to go next; none without any.
    pub(crate) fn evict(&mut self) -> Option<T> {
        let mut network = EVERYWHERE;
        while let Some((_, _, inside)) = self.networks.get(&network)?.order.last() {
            network = *inside;
        }
        let oldest = *self.networks.get(&network)?.numbers.first()?;
        self.leave(oldest)
    }

    /// Changes the numbers of a source in all of its networks, the narrowest first.
    fn change(&mut self, source: u64, change: impl Fn(&mut BTreeSet<u64>)) {
        let networks = networks_of(source);
        let around = networks.iter().rev().skip(1).map(Some).chain([None]);
        for (network, around) in networks.iter().rev().zip(around) {
            let members = self.networks.entry(*network).or_default();
            let before = members.rank(*network);
            change(&mut members.numbers);
            members.weigh(*network);
            let after = members.rank(*network);
            if after.is_none() {
                self.networks.remove(network);
            }
            let Some(around) = around else {
                return;
            };
            let order = &mut self.networks.entry(*around).or_default().order;
            if let Some(before) = before {
                order.remove(&before);
            }
            order.extend(after);
        }
    }
}

impl Members {
    /// Weighs a network after those inside: one of a provider as its heaviest, or by a part of what
    /// all of them have.
    fn weigh(&mut self, network: NetworkKey) {
        let count = self.numbers.len();
        self.weight = match is_of_provider(network) {
            true => {
                let heaviest = self.order.last().map_or(0, |(weight, ..)| *weight);
                heaviest.max(count.div_ceil(PROVIDER_SHARE))
            }
            false => count,
        };
    }

    fn rank(&self, network: NetworkKey) -> Option<Rank> {
        let oldest = *self.numbers.first()?;
        Some((self.weight, Reverse(oldest), network))
    }
}

#[cfg(test)]
mod tests {
    use super::{Neighbours, PROVIDER_SHARE, is_source, networks_of};
    use crate::admission::silent::source_of;

    fn source(text: &str) -> u64 {
        source_of(text.parse().unwrap())
    }

    #[test]
    fn a_source_is_of_networks_that_lie_inside_one_another() {
        let common = |one: &str, other: &str| {
            let pairs = networks_of(source(one)).into_iter();
            let pairs = pairs.zip(networks_of(source(other)));
            pairs.filter(|(one, other)| one == other).count()
        };
        assert_eq!(common("2001:db8:1:203::1", "2001:db8:1:203::2"), 5);
        assert_eq!(common("2001:db8:1:203::1", "2001:db8:1:2ff::1"), 4);
        assert_eq!(common("2001:db8:1:203::1", "2001:db8:1:ffff::1"), 3);
        assert_eq!(common("2001:db8:1:203::1", "2001:db8:2:203::1"), 2);
        assert_eq!(common("2001:db8:1:203::1", "2001:db9:1:203::1"), 1);
        assert_eq!(common("192.0.2.1", "192.0.2.200"), 4);
        assert_eq!(common("192.0.2.1", "192.0.3.1"), 1);
        assert_eq!(common("0.0.0.0", "2001:db8::1"), 1);
        assert!(
            networks_of(7)
                .into_iter()
                .next_back()
                .is_some_and(is_source)
        );
    }

    #[test]
    fn whoever_has_many_sources_in_one_network_loses_its_own_places() {
        let mut all = Neighbours::default();
        all.enter(0, source("192.0.2.1"), "other");
        for number in 1..=256 {
            let address = format!("2001:db8:1:{number:x}::1");
            all.enter(number, source(&address), "flood");
        }
        let gone: Vec<_> = (0..255).map(|_| all.evict().unwrap()).collect();
        assert!(gone.iter().all(|it| *it == "flood"));
        assert!(all.has(0) && all.has(256));
        // Both have one, so that the older goes.
        assert_eq!(all.evict(), Some("other"));
        assert_eq!(all.evict(), Some("flood"));
        assert_eq!(all.evict(), None);
        assert!(all.networks.is_empty());
    }

    #[test]
    fn many_networks_of_one_provider_take_no_places_from_others() {
        let mut all = Neighbours::default();
        all.enter(0, source("2001:db9:1:1::1"), "other");
        for number in 1..=256 {
            let address = format!("2001:db8:{number:x}::1");
            all.enter(number, source(&address), "flood");
        }
        let gone: Vec<_> = (PROVIDER_SHARE..256)
            .map(|_| all.evict().unwrap())
            .collect();
        assert!(gone.iter().all(|it| *it == "flood"));
        assert!(all.has(0) && all.has(256));
    }

    /// Fifty clients of one provider were one network against a thousand.
    #[test]
    fn clients_of_one_provider_keep_places_among_networks_of_others() {
        let mut all = Neighbours::default();
        for number in 0..1_000 {
            let [high, low] = [number / 256, number % 256];
            all.enter(number, source(&format!("192.{high}.{low}.1")), "botnet");
        }
        for number in 0..50 {
            let address = format!("2001:db8:{number:x}::1");
            all.enter(1_000 + number, source(&address), "carrier");
        }
        let gone: Vec<_> = (0..100).map(|_| all.evict().unwrap()).collect();
        let of_carrier = gone.iter().filter(|it| **it == "carrier").count();
        assert_eq!(of_carrier, 50 - PROVIDER_SHARE);
    }

    /// One source, or one network of 48 bits, has no part of what is its provider's.
    #[test]
    fn a_source_that_has_many_places_is_not_weighed_as_a_provider() {
        for flood in ["2001:db8:1:1::1", "2001:db8:1:{}::1"] {
            let mut all = Neighbours::default();
            all.enter(0, source("192.0.2.1"), "other");
            for number in 1..=8 {
                let address = flood.replace("{}", &number.to_string());
                all.enter(number, source(&address), "flood");
            }
            let gone: Vec<_> = (0..7).map(|_| all.evict().unwrap()).collect();
            assert!(gone.iter().all(|it| *it == "flood"));
        }
    }

    #[test]
    fn the_narrower_network_and_the_source_that_have_most_lose_the_oldest() {
        let mut all = Neighbours::default();
        let addresses = [
            "2001:db8:1:100::",
            "2001:db8:1:200::",
            "2001:db8:1:201::",
            "2001:db8:1:201::",
            "2001:db8:2:1::",
        ];
        for (number, address) in addresses.into_iter().enumerate() {
            all.enter(number as u64, source(address), number);
        }
        let gone: Vec<_> = std::iter::from_fn(|| all.evict()).collect();
        assert_eq!(gone, [2, 1, 0, 3, 4]);
        assert_eq!((all.leave(3), all.count()), (None, 0));
    }
}
