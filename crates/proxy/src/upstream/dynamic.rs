//! Endpoints of the host that a request names: resolved when it comes, and kept for the next.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use myriad_model::{Dns, DnsMode, Host, UpstreamOptions};

use super::resolve::{DnsAnswer, Resolution};
use crate::balance::{TransportSettings, now_ms};
use crate::failure::{Failure, FailureKind};
use crate::net::names::Names;
use crate::random::hash::hash;

/// The most hosts of one upstream whose addresses are kept. Beyond, the one that nobody asked for
/// the longest is forgotten, with its connections.
pub const HOSTS_MAX: usize = SHELVES * SHELF_HOSTS_MAX;

/// Hosts are kept apart by hash, so that hardly any two workers wait for each other.
const SHELVES: usize = 16;

const SHELF_HOSTS_MAX: usize = 64;

/// The class of hosts among hashes.
const CLASS: u8 = 14;

/// The hosts that requests named, each with what DNS says of it.
pub struct Dynamic {
    shared: Arc<Shared>,
}

struct Shared {
    /// The owner of its questions to DNS: a number for its namespace.
    owner: u64,
    dns: Dns,
    manner: Arc<TransportSettings>,
    options: UpstreamOptions,
    /// The hosts that are resolved at all, and the port of their endpoints.
    patterns: Box<[(Host, u16)]>,
    shelves: [Mutex<Shelf>; SHELVES],
}

type Shelf = HashMap<Box<str>, Slot, RandomState>;

struct Slot {
    resolution: Arc<Resolution>,
    /// When it was last asked for, in milliseconds of [`now_ms`].
    asked_ms: u64,
}

impl Dynamic {
    /// Hosts that nobody has named yet, unless the upstream before was the same. The owner is one
    /// of [`owner`](crate::net::names::owner).
    pub fn new(
        owner: u64,
        dns: &Dns,
        manner: Arc<TransportSettings>,
        options: UpstreamOptions,
        before: Option<&Dynamic>,
    ) -> Self {
        let is_same = |before: &&Dynamic| {
            let known = &before.shared;
            known.owner == owner
                && known.dns == *dns
                && known.manner == manner
                && known.options == options
        };
        if let Some(before) = before.filter(is_same) {
            let shared = before.shared.clone();
            return Dynamic { shared };
        }
        let pattern = |host: &str| Host::parse(host).ok();
        let names = dns.names.iter();
        Dynamic {
            shared: Arc::new(Shared {
                patterns: names
                    .filter_map(|name| Some((pattern(&name.host)?, name.port)))
                    .collect(),
                owner,
                dns: dns.clone(),
                manner,
                options,
                shelves: Default::default(),
            }),
        }
    }

    /// The endpoints of a host.
    ///
    /// # Errors
    /// When no pattern covers it, or it has no address that may be connected to.
    pub async fn answer(&self, names: &Names, host: &str) -> Result<Arc<DnsAnswer>, Failure> {
        let resolution = self.resolution(host).ok_or(FailureKind::Unresolved)?;
        resolution.answer(names).await
    }

    /// How many hosts are kept.
    pub fn len(&self) -> usize {
        let shelves = self.shared.shelves.iter();
        let lengths =
            shelves.map(|shelf| shelf.lock().unwrap_or_else(PoisonError::into_inner).len());
        lengths.sum()
    }

    /// Whether no host is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn resolution(&self, host: &str) -> Option<Arc<Resolution>> {
        let shared = &*self.shared;
        let host = host.strip_suffix('.').unwrap_or(host);
        let host = match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        };
        // An address needs no name, and stands in no zone that anybody vouches for.
        if host.parse::<IpAddr>().is_ok() || host.starts_with('[') {
            return None;
        }
        let mut patterns = shared.patterns.iter();
        let (_, port) = patterns.find(|(pattern, _)| pattern.covers(&host))?;
        Host::parse(&host).ok()?;
        let place = usize::try_from(hash(CLASS, &host) >> 32).unwrap_or(0) % SHELVES;
        let mut shelf = shared
            .shelves
            .get(place)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let asked_ms = now_ms();
        if let Some(slot) = shelf.get_mut(&*host) {
            slot.asked_ms = asked_ms;
            return Some(slot.resolution.clone());
        }
        if shelf.len() >= SHELF_HOSTS_MAX {
            let oldest = shelf.iter().min_by_key(|(_, slot)| slot.asked_ms);
            let oldest = oldest.map(|(host, _)| host.clone());
            oldest.and_then(|host| shelf.remove(&host));
        }
        let mut dns = Dns::strict(&*host, *port);
        dns.mode = DnsMode::Dynamic;
        let (manner, options) = (shared.manner.clone(), shared.options.clone());
        let resolution = Arc::new(Resolution::new(shared.owner, dns, manner, options, None));
        let slot = Slot {
            resolution: resolution.clone(),
            asked_ms,
        };
        shelf.insert(host.into(), slot);
        Some(resolution)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use myriad_base::metrics::Metrics;
    use myriad_model::{Dns, DnsMode, UpstreamOptions};

    use super::{Dynamic, HOSTS_MAX};
    use crate::balance::TransportSettings;
    use crate::net::name_server::{NameServer, Saying};
    use crate::net::names::{NameSettings, Names};

    fn names(server: &NameServer) -> Names {
        let settings = NameSettings {
            servers: vec![server.address()],
            ..NameSettings::default()
        };
        Names::new(settings, &Metrics::new())
    }

    fn dynamic(pattern: &str, before: Option<&Dynamic>) -> Dynamic {
        let mut dns = Dns::strict(pattern, 443);
        dns.mode = DnsMode::Dynamic;
        let options = UpstreamOptions::default();
        Dynamic::new(0, &dns, TransportSettings::shared(None), options, before)
    }

    fn at(ip: &str) -> Saying {
        Saying::Addresses(vec![ip.parse::<IpAddr>().unwrap()], 60)
    }

    #[tokio::test]
    async fn a_host_that_is_covered_is_resolved_once_and_others_not_at_all() {
        let server = NameServer::start();
        let names = names(&server);
        let dynamic = dynamic("**.example.com", None);
        for host in ["a.example.com", "b.a.example.com"] {
            server.say(host, at("93.184.216.34"));
            let answer = dynamic.answer(&names, host).await.unwrap();
            let again = dynamic.answer(&names, &host.to_ascii_uppercase()).await;
            assert!(Arc::ptr_eq(&answer, &again.unwrap()));
            let target = &answer.pool.members().next().unwrap().target;
            assert_eq!(target.address, "93.184.216.34:443".parse().unwrap());
            assert_eq!(server.asked(host), 1);
        }
        for host in [
            "example.com",
            "a.example.org",
            "10.0.0.1",
            "[::1]",
            "",
            "a b.example.com",
        ] {
            assert!(dynamic.answer(&names, host).await.is_err(), "{host}");
            assert_eq!(server.asked(host), 0);
        }
    }

    #[tokio::test]
    async fn a_host_that_points_into_the_cluster_is_refused() {
        let server = NameServer::start();
        let names = names(&server);
        let dynamic = dynamic("**.example.com", None);
        let both = ["10.0.0.1", "93.184.216.34"].map(|ip| ip.parse().unwrap());
        server.say("both.example.com", Saying::Addresses(both.into(), 60));
        let answer = dynamic.answer(&names, "both.example.com").await.unwrap();
        assert_eq!(answer.pool.len(), 1);
        server.say("inside.example.com", at("169.254.169.254"));
        assert!(dynamic.answer(&names, "inside.example.com").await.is_err());
    }

    #[tokio::test]
    async fn hosts_are_bounded_and_stay_where_the_upstream_does() {
        let server = NameServer::start();
        let names = names(&server);
        let before = dynamic("**.example.com", None);
        for number in 0..HOSTS_MAX + 500 {
            before
                .resolution(&format!("h{number}.example.com"))
                .unwrap();
        }
        assert!((HOSTS_MAX / 2..=HOSTS_MAX).contains(&before.len()));
        server.say("a.example.com", at("93.184.216.34"));
        let answer = before.answer(&names, "a.example.com").await.unwrap();
        let same = dynamic("**.example.com", Some(&before));
        let known = same.answer(&names, "a.example.com").await.unwrap();
        assert!(Arc::ptr_eq(&answer, &known));
        assert!(dynamic("**.example.org", Some(&before)).is_empty());
    }
}
