//! Endpoints of the host that a request names: resolved when it comes, and kept for the next.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The most hosts of one upstream that are kept though nobody has answered for them yet. They take
/// no place of those above.
pub const UNANSWERED_MAX: usize = SHELVES * SHELF_UNANSWERED_MAX;

/// Hosts are kept apart by hash, so that hardly any two workers wait for each other.
const SHELVES: usize = 16;

const SHELF_HOSTS_MAX: usize = 64;

const SHELF_UNANSWERED_MAX: usize = 32;

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

#[derive(Default)]
struct Shelf {
    /// Hosts that had addresses when they were put here.
    answered: Hosts,
    /// Hosts that nobody has answered for yet.
    unanswered: Hosts,
}

type Hosts = HashMap<Box<str>, Slot, RandomState>;

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

    /// The endpoints of a host that a client asks for, which a number stands for.
    ///
    /// # Errors
    /// When no pattern covers it, or it has no address that may be connected to.
    pub async fn answer(
        &self,
        names: &Names,
        host: &str,
        asker: u64,
    ) -> Result<Arc<DnsAnswer>, Failure> {
        let (host, port) = self.covered(host).ok_or(FailureKind::Unresolved)?;
        let found = self.resolution(&host, port);
        let (resolution, is_kept) = found.ok_or(FailureKind::Unresolved)?;
        let answer = resolution.answer_to(names, Some(asker)).await?;
        if !is_kept {
            self.keep(&host, &resolution);
        }
        Ok(answer)
    }

    /// How many hosts are kept.
    pub fn len(&self) -> usize {
        let shelves = self.shared.shelves.iter();
        let lengths = shelves.map(|shelf| {
            let shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            shelf.answered.len() + shelf.unanswered.len()
        });
        lengths.sum()
    }

    /// Whether no host is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A host as it is kept, and the port of its endpoints; none where no pattern covers it.
    fn covered<'a>(&self, host: &'a str) -> Option<(Cow<'a, str>, u16)> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let host = match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        };
        // An address needs no name, and stands in no zone that anybody vouches for.
        if host.parse::<IpAddr>().is_ok() || host.starts_with('[') {
            return None;
        }
        let mut patterns = self.shared.patterns.iter();
        let (_, port) = patterns.find(|(pattern, _)| pattern.covers(&host))?;
        Host::parse(&host).ok()?;
        Some((host, *port))
    }

    fn shelf(&self, host: &str) -> Option<MutexGuard<'_, Shelf>> {
        let place = usize::try_from(hash(CLASS, host) >> 32).unwrap_or(0) % SHELVES;
        let shelf = self.shared.shelves.get(place)?;
        Some(shelf.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The resolution of a host, and whether it is kept among those that were answered.
    fn resolution(&self, host: &str, port: u16) -> Option<(Arc<Resolution>, bool)> {
        let shared = &*self.shared;
        let mut shelf = self.shelf(host)?;
        let asked_ms = now_ms();
        if let Some(slot) = shelf.answered.get_mut(host) {
            slot.asked_ms = asked_ms;
            return Some((slot.resolution.clone(), true));
        }
        if let Some(slot) = shelf.unanswered.get_mut(host) {
            slot.asked_ms = asked_ms;
            return Some((slot.resolution.clone(), false));
        }
        let mut dns = Dns::strict(host, port);
        dns.mode = DnsMode::Dynamic;
        let (manner, options) = (shared.manner.clone(), shared.options.clone());
        let resolution = Arc::new(Resolution::new(shared.owner, dns, manner, options, None));
        let slot = Slot {
            resolution: resolution.clone(),
            asked_ms,
        };
        make_room(&mut shelf.unanswered, SHELF_UNANSWERED_MAX);
        shelf.unanswered.insert(host.into(), slot);
        Some((resolution, false))
    }

    /// Keeps a host that was answered, in a place that none without an answer takes.
    fn keep(&self, host: &str, resolution: &Arc<Resolution>) {
        let Some(mut shelf) = self.shelf(host) else {
            return;
        };
        shelf.unanswered.remove(host);
        if shelf.answered.contains_key(host) {
            return;
        }
        let slot = Slot {
            resolution: resolution.clone(),
            asked_ms: now_ms(),
        };
        make_room(&mut shelf.answered, SHELF_HOSTS_MAX);
        shelf.answered.insert(host.into(), slot);
    }
}

/// Forgets a host where another would be one too many: one without an address first, and among
/// equals the one that nobody asked for the longest.
fn make_room(hosts: &mut Hosts, max: usize) {
    if hosts.len() < max {
        return;
    }
    let missed_least = hosts
        .iter()
        .min_by_key(|(_, slot)| (slot.resolution.is_answered(), slot.asked_ms))
        .map(|(host, _)| host.clone());
    if let Some(host) = missed_least {
        hosts.remove(&host);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use myriad_base::metrics::Metrics;
    use myriad_model::{Dns, DnsMode, UpstreamOptions};

    use super::{Dynamic, HOSTS_MAX, Resolution, UNANSWERED_MAX};
    use crate::balance::TransportSettings;
    use crate::net::name_server::{NameServer, Saying};
    use crate::net::names::{NameSettings, Names};
    use crate::upstream::resolve::HOST_ADDRESSES_MAX;

    const CLIENT: u64 = 9;

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

    fn ask(dynamic: &Dynamic, host: &str) -> (Arc<Resolution>, bool) {
        dynamic.resolution(host, 443).unwrap()
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
            let answer = dynamic.answer(&names, host, CLIENT).await.unwrap();
            let upper = host.to_ascii_uppercase();
            let again = dynamic.answer(&names, &upper, CLIENT).await;
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
            assert!(
                dynamic.answer(&names, host, CLIENT).await.is_err(),
                "{host}"
            );
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
        let answer = dynamic
            .answer(&names, "both.example.com", CLIENT)
            .await
            .unwrap();
        assert_eq!(answer.pool.len(), 1);
        // There may be very many hosts, so that each has few.
        let many = (1..=20).map(|last| IpAddr::from([93, 184, 216, last]));
        server.say("many.example.com", Saying::Addresses(many.collect(), 60));
        let answer = dynamic.answer(&names, "many.example.com", CLIENT).await;
        assert_eq!(answer.unwrap().pool.len(), HOST_ADDRESSES_MAX);
        server.say("inside.example.com", at("169.254.169.254"));
        assert!(
            dynamic
                .answer(&names, "inside.example.com", CLIENT)
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn hosts_are_bounded_and_stay_where_the_upstream_does() {
        let server = NameServer::start();
        let names = names(&server);
        let before = dynamic("**.example.com", None);
        for number in 0..UNANSWERED_MAX + 500 {
            ask(&before, &format!("h{number}.example.com"));
        }
        assert!((UNANSWERED_MAX / 2..=UNANSWERED_MAX).contains(&before.len()));
        server.say("a.example.com", at("93.184.216.34"));
        let answer = before
            .answer(&names, "a.example.com", CLIENT)
            .await
            .unwrap();
        let same = dynamic("**.example.com", Some(&before));
        let known = same.answer(&names, "a.example.com", CLIENT).await.unwrap();
        assert!(Arc::ptr_eq(&answer, &known));
        assert!(dynamic("**.example.org", Some(&before)).is_empty());
    }

    #[tokio::test]
    async fn hosts_without_an_answer_take_no_place_of_those_that_have_one() {
        let server = NameServer::start();
        let names = names(&server);
        let dynamic = dynamic("**.example.com", None);
        let hosts: Vec<String> = (0..100).map(|it| format!("h{it}.example.com")).collect();
        for host in &hosts {
            server.say(host, at("93.184.216.34"));
            // One is asked for while others come, and is not forgotten for them.
            let (resolution, is_kept) = ask(&dynamic, host);
            assert!(!is_kept);
            for number in 0..50 {
                ask(&dynamic, &format!("{number}.{host}"));
            }
            resolution.answer(&names).await.unwrap();
            dynamic.keep(host, &resolution);
        }
        for number in 0..4 * HOSTS_MAX {
            ask(&dynamic, &format!("r{number}.example.com"));
        }
        for host in &hosts {
            dynamic.answer(&names, host, CLIENT).await.unwrap();
            assert_eq!(server.asked(host), 1, "{host}");
        }
        assert!(dynamic.len() <= UNANSWERED_MAX + hosts.len());
    }

    #[tokio::test]
    async fn hosts_that_are_answered_are_bounded_too() {
        let server = NameServer::start();
        let names = names(&server);
        let dynamic = dynamic("**.example.com", None);
        server.say("a.example.com", at("93.184.216.34"));
        let (answered, _) = ask(&dynamic, "a.example.com");
        answered.answer(&names).await.unwrap();
        for number in 0..HOSTS_MAX + 500 {
            dynamic.keep(&format!("h{number}.example.com"), &answered);
        }
        assert!((HOSTS_MAX / 2..=HOSTS_MAX + 1).contains(&dynamic.len()));
    }
}
