//! Whether a request comes within the rate that its route allows.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use myriad_model::RateLimit;

use super::client;
use crate::admission::bucket::{BucketOutcome, Buckets, Entered, Rate, Running};
use crate::codec::client::ClientAddress;
use crate::random::hash::hash_numbers;
use crate::telemetry::count::{Count, Counts};

/// The class of the names of rate limits among hashes.
const CLASS: u8 = 12;

/// Takes what a request costs from every limit that it counts for; none where one of them has
/// nothing left: how long until it has.
pub fn wait(
    limits: &[RateLimit],
    buckets: &Buckets,
    counts: &Counts,
    client: ClientAddress,
) -> Option<Duration> {
    let mut rates = limits.iter().filter(|limit| !limit.is_at_once);
    rates.find_map(|limit| {
        if is_exempt(limit, client) {
            return None;
        }
        let rate = Rate {
            spacing: limit.interval / limit.requests.max(1),
            burst: limit.burst,
        };
        match buckets.take(key(limit, client), limit.is_per_client, rate) {
            BucketOutcome::Yes => None,
            BucketOutcome::Evicting => {
                counts.add(Count::RateEvicted);
                None
            }
            BucketOutcome::No(wait) => {
                counts.add(Count::RateLimited);
                Some(wait)
            }
        }
    })
}

/// Takes a place of every limit of requests at the same time; false where one has none left.
pub fn enter(
    limits: &[RateLimit],
    buckets: &Arc<Buckets>,
    counts: &Counts,
    client: ClientAddress,
    running: &mut Vec<Running>,
) -> bool {
    let mut limits = limits.iter().filter(|limit| limit.is_at_once);
    limits.all(|limit| {
        if is_exempt(limit, client) {
            return true;
        }
        match buckets.enter(key(limit, client), limit.requests) {
            Entered::Yes(place) => {
                running.push(place);
                true
            }
            Entered::Uncounted => {
                counts.add(Count::RateEvicted);
                true
            }
            Entered::Full => {
                counts.add(Count::RateLimited);
                false
            }
        }
    })
}

/// Whether a client is one that a limit does not count.
pub fn is_exempt(limit: &RateLimit, client: ClientAddress) -> bool {
    !limit.exempt.is_empty() && client::is_allowed(&limit.exempt, client)
}

/// `Retry-After` (RFC 9110, section 10.2.3): whole seconds, at least one.
pub fn retry_after(wait: Duration) -> Box<[u8]> {
    let seconds = wait.as_millis().div_ceil(1_000).max(1);
    seconds.to_string().into_bytes().into()
}

/// A limit that changes is another one. Of IPv6 a client has a network of 64 bits; all clients
/// that are not known are one.
fn key(limit: &RateLimit, client: ClientAddress) -> u64 {
    let client = match client.known().filter(|_| limit.is_per_client) {
        None => u64::from(limit.is_per_client) << 33,
        Some(IpAddr::V4(ip)) => u64::from(ip.to_bits()) | 1 << 32,
        Some(IpAddr::V6(ip)) => (ip.to_bits() >> 64) as u64,
    };
    let interval = u64::try_from(limit.interval.as_millis()).unwrap_or(u64::MAX);
    let burst = u64::from(limit.burst) << 32 | u64::from(limit.requests);
    hash_numbers(CLASS, &limit.name, &[client, interval, burst])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_model::RateLimit;

    use super::{enter, retry_after, wait};
    use crate::admission::bucket::Buckets;
    use crate::codec::client::ClientAddress;
    use crate::telemetry::count::{Count, Counts};

    fn limit(is_per_client: bool) -> RateLimit {
        RateLimit {
            name: "VirtualService/ns/a".into(),
            requests: 1,
            interval: Duration::from_secs(3_600),
            burst: 1,
            is_per_client,
            exempt: ["192.0.2.128/25".parse().unwrap()].into(),
            is_at_once: false,
        }
    }

    #[test]
    fn requests_at_the_same_time_are_no_rate() {
        let limits = [RateLimit {
            is_at_once: true,
            ..limit(true)
        }];
        let (buckets, counts) = (Arc::new(Buckets::new()), Counts::new());
        let read = |entry: &str| ClientAddress::parse(entry.as_bytes());
        let ask = |client: &str| {
            let mut running = Vec::new();
            let client = read(client);
            assert!(wait(&limits, &buckets, &counts, client).is_none());
            enter(&limits, &buckets, &counts, client, &mut running).then_some(running)
        };
        let held = ask("192.0.2.1");
        assert!(held.is_some() && ask("192.0.2.1").is_none());
        assert!(ask("192.0.2.2").is_some());
        assert_eq!(ask("192.0.2.200").map(|it| it.len()), Some(0));
        drop(held);
        assert!(ask("192.0.2.1").is_some());
        assert_eq!(counts.get(Count::RateLimited), 1);
    }

    #[test]
    fn clients_count_together_or_each_for_itself() {
        let clients = ["192.0.2.1", "192.0.2.2", "2001:db8::1"];
        let read = |entry: &str| ClientAddress::parse(entry.as_bytes());
        let counts = Counts::new();
        for (is_per_client, served) in [(false, 2), (true, 6)] {
            let (buckets, limits) = (Buckets::new(), [limit(is_per_client)]);
            let ask = |client| wait(&limits, &buckets, &counts, read(client));
            let all = clients.iter().flat_map(|client| [*client; 3]);
            assert_eq!(all.filter(|client| ask(*client).is_none()).count(), served);
            // The same network of another address of IPv6, and whoever is not counted.
            assert!(ask("2001:db8::2").is_some());
            assert!(ask("192.0.2.200").is_none());
        }
        assert_eq!(counts.get(Count::RateLimited), 12);
    }

    #[test]
    fn clients_that_are_not_known_are_one_client_that_no_exemption_is_for() {
        let limits = [RateLimit {
            exempt: ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()].into(),
            ..limit(true)
        }];
        let (buckets, counts) = (Buckets::new(), Counts::new());
        let ask = |entry: &[u8]| wait(&limits, &buckets, &counts, ClientAddress::parse(entry));
        let asked = [&b"unknown"[..], b"", b"a"].map(|entry| ask(entry).is_none());
        assert_eq!(asked, [true, true, false]);
        assert!(ask(b"\xff").is_some());
    }

    #[test]
    fn clients_are_told_whole_seconds() {
        for (milliseconds, text) in [(0, "1"), (1_000, "1"), (1_001, "2")] {
            let told = retry_after(Duration::from_millis(milliseconds));
            assert_eq!(*told, *text.as_bytes());
        }
    }
}
