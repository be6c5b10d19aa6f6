//! Endpoints that DNS tells: asked for off the request path, and kept while they are young.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_model::{Dns, DnsMode, DnsName, UpstreamOptions};
use tokio::sync::Mutex;

use crate::balance::{Manner, Member, Pool, Target};
use crate::net::failure::{Failure, FailureKind};

/// The most addresses that are used of one answer.
const ADDRESSES_MAX: usize = 64;

/// How long an answer without addresses is kept, so that a broken name is not asked for by
/// every request.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// How long the first request for a name waits for its addresses.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Names and what DNS last said of them. Bounded by their number and by one answer for each.
pub struct Resolution {
    shared: Arc<Shared>,
}

struct Shared {
    dns: Dns,
    manner: Arc<Manner>,
    options: UpstreamOptions,
    answer: ArcSwapOption<Answer>,
    is_asking: AtomicBool,
    /// Held by whoever asks for the first time, so that others wait instead of asking too.
    first: Mutex<()>,
}

/// One answer of DNS.
pub struct Answer {
    /// Its addresses; empty where the names have none.
    pub pool: Pool,
    /// The addresses of each name.
    found: Box<[Box<[SocketAddr]>]>,
    until: Instant,
}

impl Resolution {
    /// Names that nobody has asked for yet, unless those before were the same: then what is known
    /// of them stays.
    pub fn new(
        dns: Dns,
        manner: Arc<Manner>,
        options: UpstreamOptions,
        before: Option<&Resolution>,
    ) -> Self {
        let is_same = |before: &&Resolution| {
            let known = &before.shared;
            known.dns == dns && known.manner == manner && known.options == options
        };
        if let Some(before) = before.filter(is_same) {
            let shared = before.shared.clone();
            return Resolution { shared };
        }
        Resolution {
            shared: Arc::new(Shared {
                dns,
                manner,
                options,
                answer: ArcSwapOption::empty(),
                is_asking: AtomicBool::new(false),
                first: Mutex::new(()),
            }),
        }
    }

    /// The endpoints. Only the first request for a name waits; later ones take what is there
    /// while it is refreshed.
    ///
    /// # Errors
    /// When no name has an address.
    pub async fn answer(&self, ttl: Duration) -> Result<Arc<Answer>, Failure> {
        let answer = match self.shared.known() {
            Known::Young(answer) => answer,
            Known::Old(answer) => {
                self.refresh(ttl);
                answer
            }
            Known::Nothing => self.shared.ask_first(ttl).await,
        };
        if answer.pool.is_empty() {
            return Err(FailureKind::Unresolved.into());
        }
        Ok(answer)
    }

    fn refresh(&self, ttl: Duration) {
        if self.shared.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.shared.clone();
        task::spawn_local("dns refresh", async move {
            shared.ask(ttl).await;
            shared.is_asking.store(false, Ordering::Release);
        });
    }
}

/// What is known of names.
enum Known {
    Young(Arc<Answer>),
    /// To be used while it is asked for anew.
    Old(Arc<Answer>),
    Nothing,
}

impl Shared {
    fn known(&self) -> Known {
        let now = clock::now();
        match self.answer.load_full() {
            Some(answer) if answer.until > now => Known::Young(answer),
            Some(answer) if !answer.pool.is_empty() => Known::Old(answer),
            _ => Known::Nothing,
        }
    }

    async fn ask_first(&self, ttl: Duration) -> Arc<Answer> {
        let _first = self.first.lock().await;
        match self.known() {
            Known::Young(answer) | Known::Old(answer) => answer,
            Known::Nothing => self.ask(ttl).await,
        }
    }

    async fn ask(&self, ttl: Duration) -> Arc<Answer> {
        let before = self.answer.load_full();
        let names = self.dns.names.iter().enumerate();
        let found = join_all(names.map(|(index, name)| {
            let before = before.as_ref().and_then(|before| before.found.get(index));
            look_up(name, self.dns.mode, before.map(|before| &**before))
        }))
        .await;
        let pool = self.pool(&found, before.as_deref());
        let ttl = if pool.is_empty() { FAILURE_TTL } else { ttl };
        let answer = Arc::new(Answer {
            pool,
            found: found.into(),
            until: clock::now() + ttl,
        });
        self.answer.store(Some(answer.clone()));
        answer
    }

    fn pool(&self, found: &[Box<[SocketAddr]>], before: Option<&Answer>) -> Pool {
        let known = |address: SocketAddr| {
            let members = before.iter().flat_map(|before| before.pool.members());
            let mut targets = members.map(|member| &member.target);
            targets.find(|target| target.address == address).cloned()
        };
        let mut members: Vec<Member> = Vec::new();
        for (name, addresses) in self.dns.names.iter().zip(found) {
            for address in addresses {
                // Names may share an address, which is one endpoint all the same.
                let listed = members.iter_mut().find(|m| m.target.address == *address);
                let weight = weight(&self.dns, name, addresses.len());
                if let Some(listed) = listed {
                    listed.weight = listed.weight.saturating_add(weight);
                    listed.priority = listed.priority.min(name.priority);
                    continue;
                }
                let fresh = || Arc::new(Target::new(*address, self.manner.clone()));
                members.push(Member {
                    target: known(*address).unwrap_or_else(fresh),
                    weight,
                    priority: name.priority,
                });
            }
        }
        Pool::with(members.into_iter(), &self.options)
    }
}

/// The share of one address of a name, so that the name has its own however many it has.
fn weight(dns: &Dns, name: &DnsName, addresses: usize) -> u32 {
    if dns.names.len() == 1 {
        return 1;
    }
    let count = u32::try_from(addresses.max(1)).unwrap_or(u32::MAX);
    let whole = name.weight.saturating_mul(ADDRESSES_MAX as u32);
    (whole / count).max(1)
}

/// The addresses of a name, in an order of their own; those before where there are none now:
/// they serve better than nothing while the resolver is away.
async fn look_up(
    name: &DnsName,
    mode: DnsMode,
    before: Option<&[SocketAddr]>,
) -> Box<[SocketAddr]> {
    let found = tokio::net::lookup_host((&*name.host, name.port));
    let mut addresses: Vec<SocketAddr> = match tokio::time::timeout(TIMEOUT, found).await {
        Ok(Ok(addresses)) => addresses.take(ADDRESSES_MAX).collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    if addresses.is_empty() {
        return before.unwrap_or_default().into();
    }
    if mode == DnsMode::Logical {
        addresses.truncate(1);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_model::{Dns, DnsMode, DnsName, UpstreamOptions};

    use super::Resolution;
    use crate::balance::Manner;

    const TTL: Duration = Duration::from_secs(30);

    fn name(host: &str, port: u16, weight: u32, priority: u8) -> DnsName {
        DnsName {
            host: host.into(),
            port,
            weight,
            priority,
        }
    }

    fn resolution(names: Vec<DnsName>, before: Option<&Resolution>) -> Resolution {
        let dns = Dns {
            mode: DnsMode::Strict,
            names: names.into(),
        };
        Resolution::new(
            dns,
            Manner::shared(None),
            UpstreamOptions::default(),
            before,
        )
    }

    #[tokio::test]
    async fn each_name_has_its_share_and_its_priority() {
        let names = vec![
            name("127.0.0.1", 81, 3, 0),
            name("127.0.0.2", 81, 1, 0),
            name("127.0.0.3", 81, 1, 1),
            name("no.such.name.invalid", 81, 1, 1),
        ];
        let answer = resolution(names, None).answer(TTL).await.unwrap();
        let told: Vec<(u32, u8)> = answer
            .pool
            .members()
            .iter()
            .map(|member| (member.weight, member.priority))
            .collect();
        assert_eq!(told, [(192, 0), (64, 0), (64, 1)]);
    }

    #[tokio::test]
    async fn what_is_known_of_the_same_names_stays() {
        let before = resolution(vec![name("127.0.0.1", 81, 1, 0)], None);
        let answer = before.answer(TTL).await.unwrap();
        let same = resolution(vec![name("127.0.0.1", 81, 1, 0)], Some(&before));
        assert!(Arc::ptr_eq(&same.answer(TTL).await.unwrap(), &answer));
        let other = resolution(vec![name("127.0.0.1", 82, 1, 0)], Some(&before));
        assert!(!Arc::ptr_eq(&other.answer(TTL).await.unwrap(), &answer));
    }

    #[tokio::test]
    async fn names_without_addresses_are_a_failure() {
        let nothing = resolution(vec![name("no.such.name.invalid", 81, 1, 0)], None);
        assert!(nothing.answer(TTL).await.is_err());
    }
}
