//! Whether a request comes within the rate that its route allows.

use std::net::IpAddr;
use std::time::Duration;

use myriad_model::RateLimit;

use super::client;
use crate::admission::bucket::{BucketOutcome, Buckets, Rate};
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
    limits.iter().find_map(|limit| {
        if !limit.exempt.is_empty() && client::is_allowed(&limit.exempt, client) {
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
    use std::time::Duration;

    use myriad_model::RateLimit;

    use super::{retry_after, wait};
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
        }
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
