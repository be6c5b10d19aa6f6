//! Endpoints that DNS tells: asked for off the request path, and kept for as long as it says.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use myriad_base::clock::{self, Instant};
use myriad_base::log::sparse::SparseLines;
use myriad_base::log::suppressed::Topic;
use myriad_base::task;
use myriad_model::{Balancer, Dns, DnsMode, DnsName, UpstreamOptions};
use tokio::sync::Mutex;

use crate::balance::{Endpoint, Member, Pool, TransportSettings};
use crate::failure::{Failure, FailureKind};
use crate::net::names::{ADDRESSES_MAX, NameError, Names};

/// The lines about endpoints that cannot be chosen.
static LINES: SparseLines = SparseLines::untold();

/// How long it is kept that a name has no address, so that a broken one is not asked for by every
/// request.
const NOTHING_TTL: Duration = Duration::from_secs(1);

/// How long the addresses before are used once nobody has answered, until it is asked again.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// How long requests use addresses that are too old while new ones are asked for. Beyond, they
/// wait: a name that nobody asked for in a while may be anywhere by now.
const GRACE: Duration = Duration::from_secs(10);

/// Names and what DNS last said of them. Bounded by their number and by one answer for each.
pub struct Resolution {
    shared: Arc<Shared>,
}

struct Shared {
    /// The owner of its questions to DNS: a number for its namespace.
    owner: u64,
    dns: Dns,
    manner: Arc<TransportSettings>,
    options: UpstreamOptions,
    answer: ArcSwapOption<DnsAnswer>,
    is_asking: AtomicBool,
    /// Held by whoever asks for the first time, so that others wait instead of asking too.
    first: Mutex<()>,
}

/// One answer of DNS.
pub struct DnsAnswer {
    /// Its addresses; empty where the names have none.
    pub pool: Pool,
    /// The state of each name.
    told: Box<[Told]>,
    /// When the first of them is too old.
    until: Instant,
}

/// The state of one name.
#[derive(Clone)]
struct Told {
    /// The addresses that it has, sorted.
    addresses: Box<[IpAddr]>,
    until: Instant,
}

impl DnsAnswer {
    /// An answer that nobody has to ask for again.
    pub fn lasting(pool: Pool) -> Self {
        DnsAnswer {
            pool,
            told: Box::default(),
            until: clock::now(),
        }
    }

    /// Whether one of its endpoints has an IP address.
    pub fn has_ip(&self, ip: IpAddr) -> bool {
        if self.told.is_empty() {
            let mut members = self.pool.members();
            return members.any(|member| member.target.address.ip() == ip);
        }
        let mut told = self.told.iter();
        told.any(|told| told.addresses.binary_search(&ip).is_ok())
    }
}

impl Resolution {
    /// Names that nobody has asked for yet, unless those before were the same: then what is known
    /// of them stays. The owner is one of [`owner`](crate::net::names::owner).
    pub fn new(
        owner: u64,
        dns: Dns,
        manner: Arc<TransportSettings>,
        options: UpstreamOptions,
        before: Option<&Resolution>,
    ) -> Self {
        let is_same = |before: &&Resolution| {
            let known = &before.shared;
            known.owner == owner
                && known.dns == dns
                && known.manner == manner
                && known.options == options
        };
        if let Some(before) = before.filter(is_same) {
            let shared = before.shared.clone();
            return Resolution { shared };
        }
        Resolution {
            shared: Arc::new(Shared {
                owner,
                dns,
                manner,
                options,
                answer: ArcSwapOption::empty(),
                is_asking: AtomicBool::new(false),
                first: Mutex::new(()),
            }),
        }
    }

    /// The endpoints. Requests wait for the first answer, and where the last one is long out of
    /// date; others take what is there while it is refreshed.
    ///
    /// # Errors
    /// When no name has an address.
    pub async fn answer(&self, names: &Names) -> Result<Arc<DnsAnswer>, Failure> {
        self.answer_to(names, None).await
    }

    /// The endpoints, where a client has chosen the name, as [`Names::look_up`] has it. A name that
    /// was answered before is asked for in a turn of its own.
    ///
    /// # Errors
    /// When no name has an address.
    pub async fn answer_to(
        &self,
        names: &Names,
        asker: Option<u64>,
    ) -> Result<Arc<DnsAnswer>, Failure> {
        let answer = match self.shared.known() {
            Known::Young(answer) => answer,
            Known::Old(answer) => {
                self.refresh(names);
                answer
            }
            // Boxed, because this is rare.
            Known::Nothing => Box::pin(self.shared.ask_first(names, asker)).await,
        };
        if answer.pool.is_empty() {
            return Err(FailureKind::Unresolved.into());
        }
        Ok(answer)
    }

    /// Whether it has addresses, however old they are.
    pub fn is_answered(&self) -> bool {
        let answer = self.shared.answer.load_full();
        answer.is_some_and(|answer| !answer.pool.is_empty())
    }

    fn refresh(&self, names: &Names) {
        if self.shared.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (shared, names) = (self.shared.clone(), names.clone());
        task::spawn_local("dns refresh", async move {
            shared.ask(&names, None).await;
            shared.is_asking.store(false, Ordering::Release);
        });
    }
}

/// The answer that is known, if any.
enum Known {
    Young(Arc<DnsAnswer>),
    /// An answer that is used while names are asked for anew.
    Old(Arc<DnsAnswer>),
    Nothing,
}

impl Shared {
    fn known(&self) -> Known {
        let now = clock::now();
        match self.answer.load_full() {
            Some(answer) if answer.until > now => Known::Young(answer),
            Some(answer) if answer.until + GRACE > now && !answer.pool.is_empty() => {
                Known::Old(answer)
            }
            _ => Known::Nothing,
        }
    }

    async fn ask_first(&self, names: &Names, asker: Option<u64>) -> Arc<DnsAnswer> {
        let _first = self.first.lock().await;
        match self.known() {
            Known::Young(answer) | Known::Old(answer) => answer,
            Known::Nothing => self.ask(names, asker).await,
        }
    }

    /// Asks for those names that are too old.
    async fn ask(&self, names: &Names, asker: Option<u64>) -> Arc<DnsAnswer> {
        let before = self.answer.load_full();
        let wanted = self.dns.names.iter().enumerate();
        let told = join_all(wanted.map(|(index, name)| {
            let before = before.as_ref().and_then(|before| before.told.get(index));
            look_up((names, self.owner, asker), name, self.dns.mode, before)
        }))
        .await;
        let until = told.iter().map(|told| told.until).min();
        let members = self.members(&told, before.as_deref());
        let answer = Arc::new(DnsAnswer {
            pool: self.pool(members).await,
            told: told.into(),
            until: until.unwrap_or_else(clock::now),
        });
        self.answer.store(Some(answer.clone()));
        answer
    }

    /// A pool of these. One that takes a table of hashes is built on a thread beside: that is long
    /// work for one that serves.
    async fn pool(&self, members: Vec<Member>) -> Pool {
        let is_table = matches!(self.options.balancer, Balancer::Hash(_)) && members.len() > 1;
        if !is_table {
            return Pool::with(members.into_iter(), &self.options);
        }
        let (options, owner) = (self.options.clone(), self.owner);
        let building = move || Pool::owned(members.into_iter(), &options, owner);
        match tokio::task::spawn_blocking(building).await {
            Ok(pool) => pool,
            Err(error) => {
                match LINES.admit() {
                    Some(left_out) => {
                        tracing::error!(%error, left_out, "endpoints cannot be chosen");
                    }
                    None => Topic::Failure.suppress(),
                }
                Pool::default()
            }
        }
    }

    fn members(&self, told: &[Told], before: Option<&DnsAnswer>) -> Vec<Member> {
        // There may be very many, so that none is looked for one by one.
        let known = before.into_iter().flat_map(|before| before.pool.members());
        let known = known.map(|member| (member.target.address, &member.target));
        let known: HashMap<SocketAddr, &Arc<Endpoint>> = known.collect();
        let mut members: Vec<Member> = Vec::new();
        let mut places: HashMap<SocketAddr, usize> = HashMap::new();
        for (name, told) in self.dns.names.iter().zip(told) {
            for ip in &told.addresses {
                let address = SocketAddr::new(*ip, name.port);
                // Names may share an address, which is one endpoint all the same.
                let place = *places.entry(address).or_insert(members.len());
                let weight = weight(&self.dns, name, told.addresses.len());
                if let Some(listed) = members.get_mut(place) {
                    listed.weight = listed.weight.saturating_add(weight);
                    listed.priority = listed.priority.min(name.priority);
                    continue;
                }
                let fresh = || Arc::new(Endpoint::new(address, self.manner.clone()));
                members.push(Member {
                    target: known.get(&address).copied().cloned().unwrap_or_else(fresh),
                    weight,
                    priority: name.priority,
                });
            }
        }
        members
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

/// The addresses of a name, in an order of their own. While no server answers, those before serve
/// better than nothing; what DNS says that there is not any more is gone.
async fn look_up(
    (names, owner, asker): (&Names, u64, Option<u64>),
    name: &DnsName,
    mode: DnsMode,
    before: Option<&Told>,
) -> Told {
    let now = clock::now();
    if let Some(before) = before.filter(|before| before.until > now) {
        return before.clone();
    }
    let is_new = before.is_none_or(|before| before.addresses.is_empty());
    let asker = asker.filter(|_| is_new);
    let found = names.look_up(owner, asker, &name.host).await;
    let now = clock::now();
    let (mut addresses, ttl) = match (found, before) {
        (Ok(mut found), _) => {
            let (border, is_chosen) = (names.border(), mode == DnsMode::Dynamic);
            let admits = |ip: &IpAddr| border.admits_resolved(&name.host, *ip, is_chosen);
            found.addresses.retain(admits);
            (found.addresses, found.ttl)
        }
        (Err(NameError::Failed), Some(before)) if !before.addresses.is_empty() => {
            (before.addresses.to_vec(), FAILURE_TTL)
        }
        (Err(_), _) => (Vec::new(), NOTHING_TTL),
    };
    if mode == DnsMode::Logical {
        addresses.truncate(1);
    }
    addresses.sort_unstable();
    addresses.dedup();
    Told {
        addresses: addresses.into(),
        until: now + ttl,
    }
}

#[cfg(test)]
mod tests;
