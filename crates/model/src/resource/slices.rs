//! Endpoints of one upstream in several resources, so that one that changes sends few others.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::cut::{Ids, hash_of};
use super::upstream::{Endpoint, Endpoints};
use crate::Name;

/// The character between the name of an upstream and the id of a part of its endpoints.
const NAME_END: char = '#';

/// One in so many endpoints begins a part.
const CUT_ONE_IN: u64 = 32;

/// The endpoints that a part has at least, where something follows.
const PART_MIN: usize = 16;

impl Endpoints {
    /// The most endpoints of a resource that is a part of all of its upstream's.
    pub const PART_MAX: usize = 128;

    /// The upstream that the resource of a name has endpoints of.
    pub fn upstream_of(name: &str) -> &str {
        name.rsplit_once(NAME_END)
            .map_or(name, |(upstream, _)| upstream)
    }

    /// The resources for the endpoints of an upstream, with their names: one, unless there are
    /// many.
    pub fn divide(self, upstream: &str) -> Vec<(Name, Endpoints)> {
        self.divide_by(upstream, &[])
    }

    /// The same, by the hashes of the addresses in their order, for who has them at hand: see
    /// [`Endpoints::hash_of`].
    pub fn divide_by(self, upstream: &str, hashes: &[u64]) -> Vec<(Name, Endpoints)> {
        if self.endpoints.len() <= Self::PART_MAX {
            return vec![(Self::name(upstream, 0), self)];
        }
        let (mut ids, mut parts) = (Ids::default(), Vec::new());
        let mut part: Vec<&Endpoint> = Vec::new();
        let mut id = 0;
        let mut hashes = hashes.iter().copied();
        for endpoint in &self.endpoints {
            let known = hashes.next();
            let hash = known.unwrap_or_else(|| Self::hash_of(endpoint.address));
            let is_cut = part.len() >= PART_MIN && hash.is_multiple_of(CUT_ONE_IN);
            if is_cut || part.len() >= Self::PART_MAX {
                parts.push(self.part(upstream, id, &std::mem::take(&mut part)));
            }
            if part.is_empty() {
                id = ids.next(hash);
            }
            part.push(endpoint);
        }
        parts.push(self.part(upstream, id, &part));
        parts
    }

    /// The hash of an address, which says whether it begins a part.
    pub fn hash_of(address: SocketAddr) -> u64 {
        let port = address.port().to_be_bytes();
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        hash_of(&[&ip.octets()[..], &port].concat())
    }

    /// All endpoints of an upstream, of its parts in any order. An address that is in two parts,
    /// of which one is about to change, is there once.
    pub fn join<'a>(parts: &[&'a Endpoints]) -> Cow<'a, Endpoints> {
        if let [only] = parts {
            return Cow::Borrowed(only);
        }
        let known = parts.iter().flat_map(|part| &part.localities);
        let known: BTreeSet<&Box<str>> = known.collect();
        let localities: Box<[Box<str>]> = known
            .into_iter()
            .take(Self::LOCALITIES_MAX)
            .cloned()
            .collect();
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for part in parts {
            let moved = part.endpoints.iter().map(|it| Endpoint {
                locality: place(&localities, part.locality_of(it)),
                ..it.clone()
            });
            endpoints.extend(moved);
        }
        endpoints.sort_by_key(|endpoint| endpoint.address);
        endpoints.dedup_by_key(|endpoint| endpoint.address);
        Cow::Owned(Endpoints {
            endpoints: endpoints.into(),
            localities,
            is_part: false,
        })
    }

    fn part(&self, upstream: &str, id: u64, endpoints: &[&Endpoint]) -> (Name, Endpoints) {
        let known = endpoints.iter().filter_map(|it| self.locality_of(it));
        let known: BTreeSet<&str> = known.collect();
        let localities: Box<[Box<str>]> = known.into_iter().map(Box::from).collect();
        let endpoints = endpoints.iter().map(|it| Endpoint {
            locality: place(&localities, self.locality_of(it)),
            ..(*it).clone()
        });
        let part = Endpoints {
            endpoints: endpoints.collect(),
            localities,
            is_part: true,
        };
        (Self::name(upstream, id), part)
    }

    /// The name of a part: the first has that of the upstream, unless it would be read as a part
    /// of another, as subsets may be called anything.
    fn name(upstream: &str, id: u64) -> Name {
        match id {
            0 if !upstream.contains(NAME_END) => Name::from(upstream),
            id => Name::new(format!("{upstream}{NAME_END}{id:x}")),
        }
    }

    /// The locality of an endpoint, where it is known.
    fn locality_of(&self, endpoint: &Endpoint) -> Option<&str> {
        let at = usize::from(endpoint.locality).checked_sub(1)?;
        self.localities.get(at).map(|text| &**text)
    }
}

/// The number of a locality in a sorted list, from 1; 0 where it is not known.
fn place(localities: &[Box<str>], locality: Option<&str>) -> u16 {
    let found = locality.and_then(|text| {
        let found = localities.binary_search_by(|known| (**known).cmp(text));
        found.ok()
    });
    let found = found.and_then(|at| u16::try_from(at + 1).ok());
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::HashMap;

    use crate::{
        Endpoint, Endpoints, Form, Name, Origin, Resource, Sealer, Value, Version, wire::decode,
    };

    /// As many endpoints, in turns of three localities and of none.
    fn endpoints(numbers: impl Iterator<Item = u32>) -> Endpoints {
        let endpoint = |number: u32| {
            let [_, a, b, c] = number.to_be_bytes();
            Endpoint {
                locality: (number % 4) as u16,
                ..Endpoint::even(([10, a, b, c], 80).into())
            }
        };
        Endpoints {
            localities: ["r/a", "r/b", "r/c"].map(Box::from).into(),
            ..Endpoints::new(numbers.map(endpoint).collect())
        }
    }

    /// The versions of the parts by their names, and their lengths.
    fn sealed(endpoints: Endpoints) -> HashMap<Name, (Version, usize)> {
        let mut sealer = Sealer::new([0; 32], Form::Encoded);
        let parts = endpoints.divide("ns/u:80").into_iter();
        let sealed = parts.map(|(name, part)| {
            let resource = Resource {
                origin: Origin::settings(),
                value: Value::Endpoints(Box::new(part)),
            };
            let sealed = sealer.seal(name, resource);
            let size = (sealed.version(), sealed.bytes_encoded());
            assert!(decode(sealed.encoded().unwrap()).is_ok());
            (sealed.name().clone(), size)
        });
        sealed.collect()
    }

    #[test]
    fn few_endpoints_are_one_resource_as_they_were() {
        let few = endpoints(0..128);
        assert_eq!(few.clone().divide("u"), [(Name::from("u"), few)]);
    }

    #[test]
    fn endpoints_are_of_their_upstream_whatever_a_subset_is_called() {
        for upstream in ["ns/u:80", "ns/u:80@v", "ns/u:80@v#1", "ns/u:80@v#"] {
            for count in [1, 1_000] {
                let parts = endpoints(0..count).divide(upstream);
                let mut names = parts.iter().map(|(name, _)| Endpoints::upstream_of(name));
                assert!(names.all(|name| name == upstream), "{upstream}");
            }
        }
    }

    #[test]
    fn parts_are_what_was_divided() {
        let whole = endpoints(0..5_000);
        let mut parts = whole.clone().divide("u+https");
        assert!(parts.len() > 30, "{}", parts.len());
        parts.rotate_left(7);
        let sizes = parts.iter().map(|(_, part)| part.endpoints.len());
        assert!(sizes.clone().all(|size| size <= Endpoints::PART_MAX));
        assert!(
            parts
                .iter()
                .all(|(name, part)| { part.is_part && Endpoints::upstream_of(name) == "u+https" })
        );
        let parts: Vec<&Endpoints> = parts.iter().map(|(_, part)| part).collect();
        assert_eq!(*Endpoints::join(&parts), whole);
        assert!(matches!(Endpoints::join(&[&whole]), Cow::Borrowed(_)));
    }

    #[test]
    fn hashes_that_are_known_divide_like_those_that_are_not() {
        let whole = endpoints(0..1_000);
        let hashes = whole.endpoints.iter();
        let hashes: Vec<u64> = hashes.map(|it| Endpoints::hash_of(it.address)).collect();
        let parts = whole.clone().divide("u");
        assert_eq!(whole.clone().divide_by("u", &hashes), parts);
        assert_eq!(whole.divide_by("u", &hashes[..500]), parts);
    }

    #[test]
    fn one_of_five_thousand_that_comes_or_goes_sends_little() {
        let before = sealed(endpoints(0..5_000));
        let mut sent_most = 0;
        for number in [0, 1, 777, 2_500, 4_999] {
            for after in [
                sealed(endpoints((0..5_000).filter(|it| *it != number))),
                sealed(endpoints(
                    (0..5_000).map(|it| if it < number { it } else { it + 1 }),
                )),
            ] {
                let changed = after
                    .iter()
                    .filter(|(name, part)| before.get(*name) != Some(*part));
                let new: usize = changed.map(|(name, (_, bytes))| name.len() + bytes).sum();
                let gone = before.keys().filter(|name| !after.contains_key(*name));
                let gone: usize = gone.map(|name| name.len()).sum();
                sent_most = sent_most.max(new + gone);
            }
        }
        assert!(sent_most <= 8 << 10, "{sent_most} bytes");
    }
}
