//! Endpoints that DNS tells: asked for off the request path, and kept while they are young.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_model::{DnsName, UpstreamOptions};

use crate::balance::{Manner, Member, Pool, Target};
use crate::net::failure::{Failure, FailureKind};

/// The most addresses that are used of one answer.
const ADDRESSES_MAX: usize = 64;

/// How long an answer without addresses is kept, so that a broken name is not asked for by
/// every request.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// How long the first request for a name waits for its addresses.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A name and what DNS last said of it. Bounded by its one answer.
pub struct Resolution {
    shared: Arc<Shared>,
}

struct Shared {
    name: DnsName,
    manner: Arc<Manner>,
    options: UpstreamOptions,
    answer: ArcSwapOption<Answer>,
    is_asking: AtomicBool,
}

/// One answer of DNS.
pub struct Answer {
    /// Its addresses; empty where the name has none.
    pub pool: Pool,
    until: Instant,
}

impl Resolution {
    /// A name that nobody has asked for yet.
    pub fn new(name: DnsName, manner: Arc<Manner>, options: UpstreamOptions) -> Self {
        Resolution {
            shared: Arc::new(Shared {
                name,
                manner,
                options,
                answer: ArcSwapOption::empty(),
                is_asking: AtomicBool::new(false),
            }),
        }
    }

    /// The endpoints. Only the first request for a name waits; later ones take what is there
    /// while it is refreshed.
    ///
    /// # Errors
    /// When the name has no address.
    pub async fn answer(&self, ttl: Duration) -> Result<Arc<Answer>, Failure> {
        let now = clock::now();
        let known = self.shared.answer.load_full();
        let answer = match known {
            Some(answer) if answer.until > now => answer,
            Some(answer) if !answer.pool.is_empty() => {
                self.refresh(ttl);
                answer
            }
            _ => self.shared.ask(ttl).await,
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

impl Shared {
    async fn ask(&self, ttl: Duration) -> Arc<Answer> {
        let name = (&*self.name.host, self.name.port);
        let found = tokio::time::timeout(TIMEOUT, tokio::net::lookup_host(name)).await;
        let mut addresses: Vec<_> = match found {
            Ok(Ok(addresses)) => addresses.take(ADDRESSES_MAX).collect(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        addresses.sort_unstable();
        addresses.dedup();
        let before = self.answer.load_full();
        if let (true, Some(before)) = (addresses.is_empty(), &before)
            && !before.pool.is_empty()
        {
            // Old addresses serve better than none while the resolver is away.
            let members = before.pool.members().iter().map(|member| Member {
                target: member.target.clone(),
                weight: member.weight,
                priority: member.priority,
            });
            return self.keep(Pool::with(members, &self.options), ttl);
        }
        let members = addresses.into_iter().map(|address| {
            let known = before.iter().flat_map(|before| before.pool.members());
            let target = known
                .map(|member| &member.target)
                .find(|target| target.address == address);
            Member {
                target: target.map_or_else(
                    || Arc::new(Target::new(address, self.manner.clone())),
                    Arc::clone,
                ),
                weight: 1,
                priority: 0,
            }
        });
        self.keep(Pool::with(members, &self.options), ttl)
    }

    fn keep(&self, pool: Pool, ttl: Duration) -> Arc<Answer> {
        let ttl = if pool.is_empty() { FAILURE_TTL } else { ttl };
        let until = clock::now() + ttl;
        let answer = Arc::new(Answer { pool, until });
        self.answer.store(Some(answer.clone()));
        answer
    }
}
