//! ServiceEntries as units read them: with an index of their hosts and ports, where these are many.
//!
//! Each destination on each host looks for a host and a port, and each port is an upstream.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use myriad_api::Object;
use myriad_api::istio::ServiceEntry;
use myriad_api::istio::service_entry::EntryPort;

use super::{LINEAR_MAX, Shelf};
use crate::engine::{Kept, Moment, Reader};
use crate::resolve::facts::SharedFact;

/// The large ServiceEntries that were opened in a batch.
#[derive(Default)]
struct OpenEntries {
    /// Their hosts in lower case.
    hosts: Shelf<Arc<str>, Arc<HashSet<String>>>,
    /// The place of the first port of each number.
    places: Shelf<Arc<str>, Arc<HashMap<u16, usize>>>,
    /// The numbers of the ports of several together, sorted.
    numbers: Shelf<Vec<Arc<str>>, Arc<[u16]>>,
}

impl Kept for OpenEntries {
    fn forget(&mut self, at: Moment) {
        if at != Moment::Run {
            *self = OpenEntries::default();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Reader<'_> {
    /// The ServiceEntries of all namespaces that name a host, in no order that has a meaning.
    pub fn entries(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        self.read(SharedFact::Entries(host));
        self.find_entries(host)
    }

    /// The same, for who reads of them only whose they are, who sees them, and their ports.
    pub fn entry_shapes(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        self.read(SharedFact::EntryShapes(host));
        self.find_entries(host)
    }

    fn find_entries(&mut self, host: &str) -> Vec<Arc<ServiceEntry>> {
        let fact = self.hash(SharedFact::Entries(host));
        let mut found = self.collect(fact, |object| match object {
            Object::ServiceEntry(entry) => Some(entry),
            _ => None,
        });
        found.retain(|entry| self.names_host(entry, host));
        found
    }

    /// Whether a ServiceEntry names a host, which is in lower case.
    fn names_host(&mut self, entry: &ServiceEntry, host: &str) -> bool {
        let hosts = &entry.spec.hosts;
        if hosts.len() <= LINEAR_MAX {
            return hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
        }
        let id = entry.meta.key.id();
        let known = self.open::<OpenEntries>();
        if let Some(known) = known.and_then(|open| open.hosts.get(id)) {
            return known.contains(host);
        }
        let all: HashSet<String> = hosts.iter().map(|it| it.to_ascii_lowercase()).collect();
        let is_named = all.contains(host);
        self.count_entries(hosts.len());
        if let Some(open) = self.open_mut::<OpenEntries>() {
            open.hosts.keep(id.clone(), Arc::new(all), hosts.len());
        }
        is_named
    }

    /// The place of a port of a ServiceEntry among those that it lists. The caller noted that it
    /// reads it.
    pub fn entry_place(&mut self, entry: &ServiceEntry, number: u16) -> Option<usize> {
        let ports = &entry.spec.ports;
        if ports.len() <= LINEAR_MAX {
            return ports.iter().position(|port| port.number == number);
        }
        let id = entry.meta.key.id();
        let known = self.open::<OpenEntries>();
        if let Some(known) = known.and_then(|open| open.places.get(id)) {
            return known.get(&number).copied();
        }
        let mut all: HashMap<u16, usize> = HashMap::new();
        for (at, port) in ports.iter().enumerate() {
            all.entry(port.number).or_insert(at);
        }
        let found = all.get(&number).copied();
        self.count_entries(ports.len());
        if let Some(open) = self.open_mut::<OpenEntries>() {
            open.places.keep(id.clone(), Arc::new(all), ports.len());
        }
        found
    }

    /// The numbers of the ports of ServiceEntries, sorted. As above.
    pub fn entry_numbers(&mut self, entries: &[&ServiceEntry]) -> Arc<[u16]> {
        let count: usize = entries.iter().map(|entry| entry.spec.ports.len()).sum();
        if count <= LINEAR_MAX {
            return numbers(entries.iter().flat_map(|entry| entry.spec.ports.iter()));
        }
        let ids = entries.iter().map(|entry| entry.meta.key.id().clone());
        let ids: Vec<Arc<str>> = ids.collect();
        let known = self.open::<OpenEntries>();
        if let Some(known) = known.and_then(|open| open.numbers.get(&ids)) {
            return known;
        }
        let all = numbers(entries.iter().flat_map(|entry| entry.spec.ports.iter()));
        self.count_entries(count);
        if let Some(open) = self.open_mut::<OpenEntries>() {
            open.numbers.keep(ids, all.clone(), count);
        }
        all
    }
}

fn numbers<'a>(ports: impl Iterator<Item = &'a EntryPort>) -> Arc<[u16]> {
    let mut numbers: Vec<u16> = ports.map(|port| port.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into()
}
