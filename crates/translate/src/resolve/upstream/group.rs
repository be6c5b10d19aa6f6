//! Addresses as they are found, each once, with their weights and where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use myriad_model::{Endpoint, Endpoints};

/// Addresses, each with its weight and its locality.
#[derive(Default)]
pub struct Group(BTreeMap<SocketAddr, Found>);

struct Found {
    weight: u32,
    /// Empty where it is not known.
    locality: Box<str>,
    /// Whether it speaks mutual TLS of the mesh.
    mesh: bool,
}

/// The locality of an address, and whether it is of the mesh.
#[derive(Clone, Copy, Default)]
pub struct Marks<'a> {
    /// Empty where it is not known.
    pub locality: &'a str,
    /// Whether it speaks mutual TLS of the mesh.
    pub mesh: bool,
}

impl Group {
    /// Whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many addresses there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an address, unless it is there.
    pub fn add(&mut self, address: SocketAddr, weight: u32, marks: Marks<'_>) {
        self.0.entry(address).or_insert_with(|| Found {
            weight,
            locality: marks.locality.trim_matches('/').into(),
            mesh: marks.mesh,
        });
    }

    /// Adds an address with a zone alone, which is one of the region around the proxy.
    pub fn add_in_zone(&mut self, address: SocketAddr, zone: Option<&str>, mesh: bool) {
        self.0.entry(address).or_insert_with(|| Found {
            weight: 1,
            locality: zone.map_or_else(Box::default, |zone| format!("/{zone}").into()),
            mesh,
        });
    }

    /// The addresses alone.
    pub fn addresses(&self) -> impl Iterator<Item = (SocketAddr, u32)> {
        self.0
            .iter()
            .map(|(address, found)| (*address, found.weight))
    }

    /// The endpoints, by address. Where there are more localities than are told apart, those of
    /// the last count as unknown.
    pub fn endpoints(self) -> Endpoints {
        let known = self.0.values().map(|found| &found.locality);
        let known: BTreeSet<Box<str>> = known.filter(|text| !text.is_empty()).cloned().collect();
        let known = known.into_iter().take(Endpoints::LOCALITIES_MAX);
        let localities: Box<[Box<str>]> = known.collect();
        let place = |locality: &str| {
            let found = localities.binary_search_by(|known| (**known).cmp(locality));
            let found = found.ok().and_then(|index| u16::try_from(index + 1).ok());
            found.unwrap_or(0)
        };
        let endpoints = self.0.into_iter().map(|(address, found)| Endpoint {
            weight: found.weight,
            locality: place(&found.locality),
            mesh: found.mesh,
            ..Endpoint::even(address)
        });
        let endpoints = endpoints.collect();
        Endpoints {
            endpoints,
            localities,
            is_part: false,
        }
    }
}
