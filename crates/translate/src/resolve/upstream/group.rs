//! Addresses as they are found, each once, with their weights and where they are.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use myriad_model::{Endpoint, Endpoints};

use crate::resolve::policy_texts::LOCALITY_BYTES_MAX;

/// Addresses, each with its weight and its locality.
#[derive(Default)]
pub(crate) struct Group {
    found: BTreeMap<SocketAddr, Found>,
    /// The localities of all of them, each once.
    localities: BTreeSet<Arc<str>>,
}

/// Addresses that are sorted, to be joined with others.
#[derive(Default)]
pub(crate) struct Spots(Box<[(SocketAddr, Found)]>);

struct Found {
    /// The hash of the address, where endpoints are so many that they are divided by it.
    hash: u64,
    /// None where it is not known.
    locality: Option<Arc<str>>,
    weight: u32,
    /// Whether it speaks mutual TLS of the mesh.
    mesh: bool,
}

/// The locality of an address, and whether it is of the mesh.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks<'a> {
    /// Empty where it is not known.
    pub locality: &'a str,
    /// Whether it speaks mutual TLS of the mesh.
    pub mesh: bool,
}

impl Group {
    /// How many addresses there are.
    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Adds an address, unless it is there.
    pub(crate) fn add(&mut self, address: SocketAddr, weight: u32, marks: Marks<'_>) {
        let Entry::Vacant(entry) = self.found.entry(address) else {
            return;
        };
        // A longer one is nowhere.
        let locality = match marks.locality {
            locality if locality.len() <= LOCALITY_BYTES_MAX => locality.trim_matches('/'),
            _ => "",
        };
        entry.insert(Found {
            hash: 0,
            locality: once(&mut self.localities, locality),
            weight,
            mesh: marks.mesh,
        });
    }

    /// Adds an address with a zone alone, which is one of the region around the proxy.
    pub(crate) fn add_in_zone(&mut self, address: SocketAddr, zone: Option<&str>, mesh: bool) {
        let Entry::Vacant(entry) = self.found.entry(address) else {
            return;
        };
        let locality = zone.and_then(|zone| once(&mut self.localities, &format!("/{zone}")));
        entry.insert(Found {
            hash: 0,
            locality,
            weight: 1,
            mesh,
        });
    }

    /// The addresses alone.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (SocketAddr, u32)> {
        self.found
            .iter()
            .map(|(address, found)| (*address, found.weight))
    }

    /// The endpoints, by address.
    pub(crate) fn endpoints(&self) -> Endpoints {
        let found: Vec<(SocketAddr, &Found)> =
            self.found.iter().map(|(at, found)| (*at, found)).collect();
        endpoints(&found)
    }

    /// The addresses in order, with their hashes where they will be divided by them.
    pub(crate) fn sorted(self, is_divided: bool) -> Spots {
        let found = self.found.into_iter();
        let spots = found.map(|(address, found)| match is_divided {
            true => {
                let hash = Endpoints::hash_of(address);
                (address, Found { hash, ..found })
            }
            false => (address, found),
        });
        Spots(spots.collect())
    }
}

impl Spots {
    /// How many addresses there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The addresses alone.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(|(address, _)| *address)
    }

    /// The endpoints of all of them, and the hashes of their addresses. Of an address that several
    /// have, the first counts.
    pub(crate) fn join<'a>(all: impl Iterator<Item = &'a Spots>) -> (Endpoints, Box<[u64]>) {
        let spots = all.flat_map(|spots| spots.0.iter());
        let mut spots: Vec<(SocketAddr, &Found)> = spots.map(|(at, found)| (*at, found)).collect();
        // A stable sort merges what is sorted already.
        spots.sort_by_key(|(address, _)| *address);
        spots.dedup_by_key(|(address, _)| *address);
        let hashes = spots.iter().map(|(_, found)| found.hash);
        (endpoints(&spots), hashes.collect())
    }
}

/// A text that is held once.
fn once(known: &mut BTreeSet<Arc<str>>, text: &str) -> Option<Arc<str>> {
    if text.is_empty() {
        return None;
    }
    if let Some(found) = known.get(text) {
        return Some(found.clone());
    }
    let new: Arc<str> = text.into();
    known.insert(new.clone());
    Some(new)
}

/// The endpoints at sorted addresses. Where there are more localities than are told apart, those
/// of the last count as unknown.
fn endpoints(found: &[(SocketAddr, &Found)]) -> Endpoints {
    let known = found
        .iter()
        .filter_map(|(_, found)| found.locality.as_deref());
    let known: BTreeSet<&str> = known.collect();
    let known = known.into_iter().take(Endpoints::LOCALITIES_MAX);
    let localities: Box<[Box<str>]> = known.map(Box::from).collect();
    let number = |locality: &str| {
        let found = localities.binary_search_by(|known| (**known).cmp(locality));
        let found = found.ok().and_then(|index| u16::try_from(index + 1).ok());
        found.unwrap_or(0)
    };
    let endpoints = found.iter().map(|(address, found)| Endpoint {
        weight: found.weight,
        locality: found.locality.as_deref().map_or(0, number),
        mesh: found.mesh,
        ..Endpoint::even(*address)
    });
    let endpoints = endpoints.collect();
    Endpoints {
        endpoints,
        localities,
        is_part: false,
    }
}
