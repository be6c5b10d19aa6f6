//! The domains and objects that most of the traffic is of, in bounded memory: what a hundred
//! thousand domains have is told of the few that matter, and of the rest as a sum.
//!
//! Each worker has sketches of its own. A request takes a lock that nobody else wants but who asks
//! for a page, and does not wait for it: what happens while somebody reads is left out.

mod show;
mod sketch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use myriad_base::clock::{self, Instant};
use myriad_model::{Host, Origin};

use crate::random::hash::hash;
pub use show::TopSeries;
pub(super) use show::register;
use sketch::Sketch;

/// The most rows that are told at once.
pub const TOP_ROWS_MAX: usize = 256;

/// The classes of hashes, so that a domain is no object.
const DOMAIN: u8 = 0;
const ROUTE: u8 = 1;

/// A thing that is counted of domains, or of the objects of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TopCount {
    /// Requests of a domain.
    DomainRequests,
    /// Requests of a domain that were answered with 5xx.
    DomainErrors,
    /// Bytes of bodies of a domain, both ways.
    DomainBytes,
    /// TLS handshakes of a domain.
    DomainHandshakes,
    /// Requests that took a route of an object.
    RouteRequests,
    /// Requests that took a route of an object and were answered with 5xx.
    RouteErrors,
}

impl TopCount {
    /// All of them, in their order.
    pub const ALL: [TopCount; 6] = [
        TopCount::DomainRequests,
        TopCount::DomainErrors,
        TopCount::DomainBytes,
        TopCount::DomainHandshakes,
        TopCount::RouteRequests,
        TopCount::RouteErrors,
    ];
}

/// The sketches of one worker.
#[derive(Default)]
pub struct TopDomains(Mutex<[Sketch; TopCount::ALL.len()]>);

/// The end of a request, as far as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct TopRequest<'a> {
    /// The object whose route it took.
    pub origin: &'a Origin,
    /// The host of that route.
    pub host: &'a Host,
    /// The status of its response; 0 for none.
    pub status: u16,
    /// Bytes of its bodies, both ways.
    pub bytes: u64,
    /// When it ended.
    pub now: Instant,
}

impl TopDomains {
    /// Counts a request that is over.
    pub fn note_request(&self, request: &TopRequest<'_>) {
        let Ok(mut sketches) = self.0.try_lock() else {
            return;
        };
        let (host, id) = (
            request.host.as_str(),
            request.origin.id.trim_start_matches('/'),
        );
        let kind = request.origin.kind.as_str();
        let (domain, route) = (hash(DOMAIN, host), hash(ROUTE, id) ^ hash(ROUTE, kind));
        let is_error = u64::from(request.status >= 500);
        let [requests, errors, bytes, _, of_route, errors_of_route] = &mut *sketches;
        let now = request.now;
        requests.add(domain, 1, now, &[host]);
        errors.add(domain, is_error, now, &[host]);
        bytes.add(domain, request.bytes, now, &[host]);
        of_route.add(route, 1, now, &[kind, "/", id]);
        errors_of_route.add(route, is_error, now, &[kind, "/", id]);
    }

    /// Counts a TLS handshake that was done with a domain's certificate.
    pub fn note_handshake(&self, host: &Host) {
        if let Ok(mut sketches) = self.0.try_lock()
            && let Some(sketch) = sketches.get_mut(TopCount::DomainHandshakes as usize)
        {
            let host = host.as_str();
            sketch.add(hash(DOMAIN, host), 1, clock::now(), &[host]);
        }
    }

    /// All that is known, and how much there was in all.
    fn read(&self, of: TopCount) -> (Vec<sketch::CountedName>, u64) {
        let sketches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sketch = sketches.get(of as usize);
        sketch.map(Sketch::read).unwrap_or_default()
    }
}

/// One of those that have most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// The domain, or `kind/namespace/name` of the object.
    pub name: String,
    /// How much it has had of late: numbers are halved every five minutes. Never too little.
    pub count: u64,
    /// How much of that may be of others.
    pub error: u64,
}

/// Tells who has most, of all workers. Cheap to clone.
#[derive(Clone)]
pub struct TopReader {
    workers: Arc<[Arc<TopDomains>]>,
}

/// The known of all workers by their hashes.
struct Merged {
    name: String,
    count: u64,
    error: u64,
    /// The exact count of each worker, since it knows the name.
    seen: Vec<u64>,
}

impl TopReader {
    /// A reader of these workers.
    pub fn new(workers: impl Iterator<Item = Arc<TopDomains>>) -> Self {
        TopReader {
            workers: workers.collect(),
        }
    }

    /// The rows of those that have most, at most so many and never more than [`TOP_ROWS_MAX`].
    pub fn top(&self, of: TopCount, count_max: usize) -> Vec<TopRow> {
        let (merged, _) = self.merge(of);
        let rows = ranked(&merged)
            .into_iter()
            .take(count_max.min(TOP_ROWS_MAX));
        let row = |(_, it): (u64, &Merged)| TopRow {
            name: it.name.clone(),
            count: it.count,
            error: it.error,
        };
        rows.map(row).collect()
    }

    /// All that any worker knows, and how much there was in all.
    fn merge(&self, of: TopCount) -> (HashMap<u64, Merged>, u64) {
        let mut merged: HashMap<u64, Merged> = HashMap::new();
        let mut total = 0_u64;
        for (number, worker) in self.workers.iter().enumerate() {
            let (kept, of_worker) = worker.read(of);
            total = total.saturating_add(of_worker);
            for it in kept {
                let entry = merged.entry(it.hash).or_insert_with(|| Merged {
                    name: it.name,
                    count: 0,
                    error: 0,
                    seen: vec![0; self.workers.len()],
                });
                entry.count = entry.count.saturating_add(it.count);
                entry.error = entry.error.saturating_add(it.error);
                if let Some(seen) = entry.seen.get_mut(number) {
                    *seen = it.seen;
                }
            }
        }
        (merged, total)
    }
}

/// The known, those with most first.
fn ranked(merged: &HashMap<u64, Merged>) -> Vec<(u64, &Merged)> {
    let mut ranked: Vec<(u64, &Merged)> = merged.iter().map(|(hash, it)| (*hash, it)).collect();
    ranked.sort_by(|(_, a), (_, b)| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    ranked
}

#[cfg(test)]
mod tests;
