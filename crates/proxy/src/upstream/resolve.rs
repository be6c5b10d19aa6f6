//! Endpoints that DNS tells: asked for off the request path, and kept for as long as it says.
//!
//! An upstream has so many addresses at most, whatever its names and their answers. As long as
//! they stay the same, its endpoints do; others of them are put together in the turns of
//! namespaces, beside whoever serves. Endpoints that nobody has asked for in some minutes are
//! dropped, and an address of each name stays, for where no server answers any more.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use foldhash::fast::RandomState;
use futures_util::future::join_all;
use myriad_base::log::sparse::SparseLines;
use myriad_base::log::suppressed::Topic;
use myriad_base::task;
use myriad_model::{Balancer, Dns, DnsMode, DnsName, UpstreamOptions};
use tokio::sync::Mutex;

use crate::balance::tables::HashTables;
use crate::balance::{Endpoint, Member, Pool, TransportSettings, now_ms};
use crate::failure::{Failure, FailureKind};
use crate::net::names::known::{AnswerKeeper, HeldAddresses, KeeperPlace};
use crate::net::names::{ADDRESSES_MAX, NameError, Names};

/// The lines about endpoints that cannot be chosen.
static LINES: SparseLines = SparseLines::untold();

/// The most addresses of an upstream, which its names share: each has as many, and one at least.
pub const UPSTREAM_ADDRESSES_MAX: usize = 1_024;

/// The most addresses of a host that requests name: there may be a thousand such hosts.
pub const HOST_ADDRESSES_MAX: usize = 4;

/// The most addresses that endpoints are made of by whoever serves: no longer work than a question.
const AT_ONCE_MAX: usize = 16;

/// How long it is kept that a name has no address, in milliseconds, so that a broken one is not
/// asked for by every request.
const NOTHING_MS: u64 = 1_000;

/// How long the addresses before are used once nobody has answered, in milliseconds, until it is
/// asked again.
const FAILURE_MS: u64 = 5_000;

/// How long requests use addresses that are too old while new ones are asked for, in milliseconds.
/// Beyond, they wait: a name that nobody asked for in a while may be anywhere by now.
const GRACE_MS: u64 = 10_000;

/// How long endpoints are kept once their addresses are too old, in milliseconds. Any request for
/// them asks anew, so that nobody has sent one since.
const UNUSED_MS: u64 = 2 * 60 * 1_000;

/// Names and what DNS last said of them. Bounded by [`UPSTREAM_ADDRESSES_MAX`].
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
    /// Its place among those that keep answers, from the first on.
    place: OnceLock<KeeperPlace>,
}

/// One answer of DNS.
pub struct DnsAnswer {
    /// Its addresses; empty where the names have none.
    pub pool: Pool,
    /// The state of each name.
    told: Box<[Told]>,
    /// When the first of them is too old, in milliseconds of [`now_ms`].
    until_ms: AtomicU64,
    /// Its addresses, as they count for the namespace; none where it is no answer of DNS, or what
    /// is left of one.
    held: Option<HeldAddresses>,
}

/// The state of one name.
struct Told {
    /// The addresses that it has, sorted.
    addresses: Addresses,
    until_ms: AtomicU64,
}

/// The addresses of a name, sorted.
type Addresses = Arc<[IpAddr]>;

/// The addresses of a name, and until when they are used, in milliseconds of [`now_ms`].
#[derive(Clone, Default)]
struct Found {
    addresses: Addresses,
    until_ms: u64,
}

impl DnsAnswer {
    /// An answer that nobody has to ask for again.
    pub fn lasting(pool: Pool) -> Self {
        DnsAnswer {
            pool,
            told: Box::default(),
            until_ms: AtomicU64::new(0),
            held: None,
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

    fn until_ms(&self) -> u64 {
        self.until_ms.load(Ordering::Relaxed)
    }

    /// Whether requests use it while new addresses are asked for.
    fn is_used_at(&self, now_ms: u64) -> bool {
        self.until_ms().saturating_add(GRACE_MS) > now_ms
    }

    /// Whether it is an answer of DNS, and not what is left of one.
    fn is_whole(&self) -> bool {
        self.held.is_some()
    }

    /// Uses it for longer where all names have the addresses that they had. Whether they have.
    fn renew(&self, found: &[Found]) -> bool {
        let is_same = self.is_whole() && self.told.len() == found.len() && {
            let mut both = self.told.iter().zip(found);
            both.all(|(told, found)| told.addresses == found.addresses)
        };
        if is_same {
            for (told, found) in self.told.iter().zip(found) {
                told.until_ms.store(found.until_ms, Ordering::Relaxed);
            }
            self.until_ms.store(first_ms(found), Ordering::Relaxed);
        }
        is_same
    }

    /// The rest that is kept of it: an address of each name, which is asked for again before it is
    /// used.
    fn rest(&self) -> Self {
        let told = self.told.iter().map(|told| Told {
            addresses: told.addresses.iter().take(1).copied().collect(),
            until_ms: AtomicU64::new(0),
        });
        DnsAnswer {
            told: told.collect(),
            ..DnsAnswer::lasting(Pool::default())
        }
    }
}

impl Told {
    fn found(&self) -> Found {
        Found {
            addresses: self.addresses.clone(),
            until_ms: self.until_ms.load(Ordering::Relaxed),
        }
    }
}

/// When the first of them is too old.
fn first_ms(found: &[Found]) -> u64 {
    let until = found.iter().map(|found| found.until_ms).min();
    until.unwrap_or_default()
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
                place: OnceLock::new(),
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
        let now = now_ms();
        match self.answer.load_full() {
            Some(answer) if answer.until_ms() > now => Known::Young(answer),
            Some(answer) if answer.is_used_at(now) && !answer.pool.is_empty() => Known::Old(answer),
            _ => Known::Nothing,
        }
    }

    async fn ask_first(self: &Arc<Self>, names: &Names, asker: Option<u64>) -> Arc<DnsAnswer> {
        let _first = self.first.lock().await;
        match self.known() {
            Known::Young(answer) | Known::Old(answer) => answer,
            Known::Nothing => self.ask(names, asker).await,
        }
    }

    /// Asks for those names that are too old. Where all have the addresses that they had, the
    /// answer before is used for longer.
    async fn ask(self: &Arc<Self>, names: &Names, asker: Option<u64>) -> Arc<DnsAnswer> {
        let before = self.answer.load_full();
        let mut found = self.found(names, asker, before.as_deref()).await;
        let is_reduced = self.fit(names, &mut found, before.as_deref());
        if let Some(before) = before.as_ref().filter(|before| before.renew(&found)) {
            // It may have been dropped meanwhile.
            let known = self.answer.load_full();
            if known.is_none_or(|known| !known.is_whole()) {
                self.answer.store(Some(before.clone()));
            }
            return before.clone();
        }
        if is_reduced {
            names.note_reduced();
        }
        let held = names.known().hold(self.owner, count(&found));
        let answer = Arc::new(DnsAnswer {
            pool: self.pool(&found, before).await,
            until_ms: AtomicU64::new(first_ms(&found)),
            told: found.into_iter().map(Told::from).collect(),
            held: Some(held),
        });
        self.answer.store(Some(answer.clone()));
        let keeper: Weak<Shared> = Arc::downgrade(self);
        let _ = self.place.get_or_init(|| names.known().enter(keeper));
        answer
    }

    /// The addresses of all names, of which those are asked for that are too old.
    async fn found(
        &self,
        names: &Names,
        asker: Option<u64>,
        before: Option<&DnsAnswer>,
    ) -> Vec<Found> {
        let now = now_ms();
        let told = |place: usize| before.and_then(|before| before.told.get(place));
        let places = 0..self.dns.names.len();
        let mut all: Vec<Found> = places
            .map(|place| told(place).map_or_else(Found::default, Told::found))
            .collect();
        let named = self.dns.names.iter().zip(&all).enumerate();
        let old = named.filter(|(_, (_, found))| found.until_ms <= now);
        let asked = join_all(old.map(|(place, (name, found))| async move {
            let fresh = self.look_up((names, asker), name, &found.addresses);
            (place, fresh.await)
        }))
        .await;
        for (place, fresh) in asked {
            if let Some(found) = all.get_mut(place) {
                *found = fresh;
            }
        }
        all
    }

    /// The addresses of a name, in an order of their own. While no server answers, those before
    /// serve better than nothing; what DNS says that there is not any more is gone.
    async fn look_up(
        &self,
        (names, asker): (&Names, Option<u64>),
        name: &DnsName,
        before: &Addresses,
    ) -> Found {
        let asker = asker.filter(|_| before.is_empty());
        let (mut addresses, ttl_ms) = match names.look_up(self.owner, asker, &name.host).await {
            Ok(mut found) => {
                let (border, is_chosen) = (names.border(), self.dns.mode == DnsMode::Dynamic);
                let admits = |ip: &IpAddr| border.admits_resolved(&name.host, *ip, is_chosen);
                found.addresses.retain(admits);
                (found.addresses, millis(found.ttl))
            }
            Err(NameError::Failed) if !before.is_empty() => {
                return Found {
                    addresses: before.clone(),
                    until_ms: now_ms().saturating_add(FAILURE_MS),
                };
            }
            Err(_) => (Vec::new(), NOTHING_MS),
        };
        if self.dns.mode == DnsMode::Logical {
            addresses.truncate(1);
        }
        // Servers tell them in any order, and the same ones are to be the same.
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(share(&self.dns));
        Found {
            addresses: addresses.into(),
            until_ms: now_ms().saturating_add(ttl_ms),
        }
    }

    /// Leaves one address to each name where there is no room for all. Whether that is so.
    fn fit(&self, names: &Names, found: &mut [Found], before: Option<&DnsAnswer>) -> bool {
        let held = before.and_then(|before| before.held.as_ref());
        if names.known().has_room(self.owner, count(found), held) {
            return false;
        }
        let mut is_reduced = false;
        for found in found {
            if let [first, _, ..] = *found.addresses {
                found.addresses = Arc::new([first]);
                is_reduced = true;
            }
        }
        is_reduced
    }

    /// The endpoints at these addresses. Long work is done beside, in the turns of namespaces.
    async fn pool(self: &Arc<Self>, found: &[Found], before: Option<Arc<DnsAnswer>>) -> Pool {
        let count_before = before.as_ref().map_or(0, |before| before.pool.len());
        if !self.is_long_work(count(found).max(count_before)) {
            return self.build(found, before.as_deref());
        }
        let (shared, found) = (self.clone(), found.to_vec());
        let build = move || shared.build(&found, before.as_deref());
        let tables = HashTables::of_process();
        let pool = tables.work_beside(self.owner, build).await;
        if pool.is_none() {
            match LINES.admit() {
                Some(left_out) => tracing::error!(left_out, "endpoints cannot be chosen"),
                None => Topic::Failure.suppress(),
            }
        }
        pool.unwrap_or_default()
    }

    /// Whether endpoints at so many addresses, or in place of so many, are not put together by
    /// whoever serves.
    fn is_long_work(&self, count: usize) -> bool {
        let is_table = matches!(self.options.balancer, Balancer::Hash(_)) && count > 1;
        is_table || count > AT_ONCE_MAX
    }

    fn build(&self, found: &[Found], before: Option<&DnsAnswer>) -> Pool {
        let members = self.members(found, before);
        Pool::owned(members.into_iter(), &self.options, self.owner)
    }

    fn members(&self, found: &[Found], before: Option<&DnsAnswer>) -> Vec<Member> {
        // There may be many, so that none is looked for one by one.
        let known = before.into_iter().flat_map(|before| before.pool.members());
        let known = known.map(|member| (member.target.address, &member.target));
        let known: HashMap<SocketAddr, &Arc<Endpoint>, RandomState> = known.collect();
        let mut members: Vec<Member> = Vec::new();
        let mut places: HashMap<SocketAddr, usize, RandomState> = HashMap::default();
        for (name, found) in self.dns.names.iter().zip(found) {
            for ip in &*found.addresses {
                let address = SocketAddr::new(*ip, name.port);
                // Names may share an address, which is one endpoint all the same.
                let place = *places.entry(address).or_insert(members.len());
                let weight = weight(&self.dns, name, found.addresses.len());
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

    /// Drops the answer but for its rest, where it has been too old for long.
    fn drop_unused(&self, now_ms: u64) {
        let answer = self.answer.load();
        let is_unused = |answer: &&DnsAnswer| {
            answer.is_whole() && answer.until_ms().saturating_add(UNUSED_MS) <= now_ms
        };
        if let Some(unused) = answer.as_deref().filter(is_unused) {
            let rest = Some(Arc::new(unused.rest()));
            // Unless there is another one by now.
            drop(self.answer.compare_and_swap(&answer, rest));
        }
    }
}

impl AnswerKeeper for Shared {
    fn drop_old(&self) {
        self.drop_unused(now_ms());
    }
}

impl From<Found> for Told {
    fn from(found: Found) -> Self {
        Told {
            addresses: found.addresses,
            until_ms: AtomicU64::new(found.until_ms),
        }
    }
}

/// How many addresses there are.
fn count(found: &[Found]) -> usize {
    found.iter().map(|found| found.addresses.len()).sum()
}

/// The most addresses of each name.
fn share(dns: &Dns) -> usize {
    match dns.mode {
        DnsMode::Strict => {
            let share = UPSTREAM_ADDRESSES_MAX / dns.names.len().max(1);
            share.clamp(1, ADDRESSES_MAX)
        }
        DnsMode::Logical => 1,
        DnsMode::Dynamic => HOST_ADDRESSES_MAX,
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
