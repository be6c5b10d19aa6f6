//! Names: which addresses the hosts file and DNS say that a host has, and for how long.
//!
//! One thread asks for the whole process, started by the first question, so that no worker has
//! sockets, timers or caches of DNS. It keeps nothing: whoever asks keeps what it is told, and is
//! looked at now and then. No namespace has more than a quarter of the questions, so that one whose
//! names nobody answers does not hold up those of another. Its clients have them in turns. Long
//! messages are cut short before they are unpacked, and a question whose answer took long keeps
//! its place for a while where others are asked, so that large answers do not hold them up either.

mod cut;
pub(crate) mod known;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name as DnsName;
use hickory_resolver::{Resolver, system_conf};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Counter, Metrics};
use myriad_base::task;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::MissedTickBehavior;

use self::cut::CuttingRuntime;
use self::known::{KnownAddresses, LOOK_AGAIN};
use super::border::{Border, BorderSettings};
use super::lane::{Lane, LaneBounds, Turn};
use crate::limits::namespace_max;
use crate::random::hash::hash;

/// The most addresses that are used of one answer.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// How long a question waits for its answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// How long one server has before it is asked again, or another one is.
const TRY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a question may hold up others of its namespace: far longer than servers take that
/// answer at all.
const QUICK: Duration = Duration::from_millis(500);

/// How often one question is asked where nobody answers.
const TRIES: usize = 3;

/// The most questions that wait to be asked; further ones fail at once.
const WAITING_MAX: usize = 4_096;

/// The most questions that are being asked at a time.
const ASKED_MAX: usize = 256;

/// The lanes that namespaces are divided over by hash.
const LANES: usize = 256;

/// The most questions of a lane that are asked beyond [`QUICK`].
const SLOW_MAX: usize = namespace_max(namespace_max(ASKED_MAX));

/// The bounds of a lane.
const LANE: LaneBounds = LaneBounds {
    quick: namespace_max(ASKED_MAX) - SLOW_MAX,
    slow: SLOW_MAX,
    waiting: namespace_max(WAITING_MAX),
};

/// How many times as long as its answer has taken on the thread a question keeps its place where
/// those of other lanes are asked: a lane has a quarter of the thread's time then, and somewhat
/// more where messages come over TCP, which are unpacked apart from questions.
const KEPT_TIMES: u32 = 4 * namespace_max(ASKED_MAX) as u32;

/// The longest that it does: as long as a question without an answer may hold up others.
const KEPT_MAX: Duration = QUICK;

/// The class of namespaces, and of names that are known, among hashes.
const CLASS: u8 = 15;

/// How often it is looked whether the system's files are others.
const LOOK: Duration = Duration::from_secs(5);

/// The system's files of names.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// The servers that are asked, and the bounds on answers.
#[derive(Clone, Debug)]
pub struct NameSettings {
    /// The servers of DNS; those of the system where there is none.
    pub servers: Vec<SocketAddr>,
    /// The shortest time that an answer is used, whatever it says.
    pub ttl_min: Duration,
    /// The longest.
    pub ttl_max: Duration,
    /// The addresses that names may lead to.
    pub border: BorderSettings,
}

impl Default for NameSettings {
    fn default() -> Self {
        NameSettings {
            servers: Vec::new(),
            ttl_min: Duration::from_secs(1),
            ttl_max: Duration::from_secs(300),
            border: BorderSettings::default(),
        }
    }
}

/// The resolver of names. Cheap to clone; for use on any thread.
#[derive(Clone)]
pub struct Names {
    inner: Arc<Inner>,
}

struct Inner {
    settings: NameSettings,
    counters: Counters,
    border: Border,
    /// The number of questions without an answer.
    asking: AtomicUsize,
    /// The questions of namespaces. Those that share a lane by chance share what it has.
    lanes: Box<[Arc<Lane>]>,
    /// The addresses that those keep who asked.
    known: Arc<KnownAddresses>,
    /// The thread's end for questions; none where it could not be started.
    questions: OnceLock<Option<mpsc::Sender<Question>>>,
}

/// A question that somebody waits for.
struct Waiting<'a>(&'a AtomicUsize);

/// How questions ended.
#[derive(Clone, Default)]
struct Counters {
    answered: Counter,
    empty: Counter,
    failed: Counter,
    refused: Counter,
    cut: Counter,
    reduced: Counter,
}

/// A future, and the time of the processor that it has taken so far.
struct Timed<F> {
    future: F,
    taken: Duration,
}

struct Question {
    host: Box<str>,
    answer: oneshot::Sender<Result<Found, NameError>>,
    /// One of its owner, given back once it is answered, or given up.
    place: Turn,
}

/// The addresses of a host; at least one, at most [`ADDRESSES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The addresses, in the order of the answer.
    pub addresses: Vec<IpAddr>,
    /// How long they may be used, between the bounds of the settings.
    pub ttl: Duration,
}

/// Why a host has no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// DNS says so.
    #[error("there is no address of that name")]
    Nothing,
    /// Nobody said anything of use in time, so what was known before may still be right.
    #[error("no server of DNS has answered")]
    Failed,
}

impl Names {
    /// Asks nobody yet.
    pub fn new(settings: NameSettings, metrics: &Metrics) -> Self {
        let counters = Counters::default();
        for (name, help, counter) in [
            (
                "dns_answers",
                "Questions that DNS or the hosts file answered",
                &counters.answered,
            ),
            (
                "dns_empty_answers",
                "Questions to which DNS answered that there is no address",
                &counters.empty,
            ),
            (
                "dns_failures",
                "Questions that no server of DNS answered in time or at all",
                &counters.failed,
            ),
            (
                "dns_questions_refused",
                "Questions that were not asked because too many wait",
                &counters.refused,
            ),
            (
                "dns_messages_cut",
                "Messages of servers of DNS that were longer than what is used of them",
                &counters.cut,
            ),
            (
                "dns_upstreams_reduced",
                "Times that each name of an upstream was given one address, since all that are \
                 kept, or those of its namespace, were at their limit",
                &counters.reduced,
            ),
        ] {
            metrics.register(name, help, counter.clone());
        }
        Names {
            inner: Arc::new(Inner {
                border: Border::new(settings.border.clone(), metrics),
                settings,
                counters,
                asking: AtomicUsize::new(0),
                lanes: (0..LANES).map(|_| Arc::new(Lane::new(LANE))).collect(),
                known: Arc::default(),
                questions: OnceLock::new(),
            }),
        }
    }

    /// The addresses that names, and endpoints, may have.
    pub fn border(&self) -> &Border {
        &self.inner.border
    }

    /// The addresses that those keep who asked.
    pub(crate) fn known(&self) -> &Arc<KnownAddresses> {
        &self.inner.known
    }

    /// Counts an upstream whose names were given one address each.
    pub(crate) fn note_reduced(&self) {
        self.inner.counters.reduced.inc();
    }

    /// The addresses of a host, asked for by an upstream of an owner, which [`owner`] tells. One
    /// with a dot is asked for as it is; only others are looked for in the search domains of the
    /// system. The asker is the client that has chosen the host, by a number; where there is none,
    /// the question has a turn of its own.
    ///
    /// # Errors
    /// When it has none, or nobody can tell within [`TIMEOUT`].
    pub async fn look_up(
        &self,
        owner: u64,
        asker: Option<u64>,
        host: &str,
    ) -> Result<Found, NameError> {
        if let Ok(ip) = host.parse() {
            return Ok(Found {
                addresses: vec![ip],
                ttl: self.inner.settings.ttl_max,
            });
        }
        let asker = asker.unwrap_or_else(|| hash(CLASS, host));
        let answered = tokio::time::timeout(TIMEOUT, self.ask((owner, asker), host)).await;
        answered.unwrap_or(Err(NameError::Failed))
    }

    /// Asks once it is the asker's turn among those of the owner, however long that takes.
    async fn ask(&self, (owner, asker): (u64, u64), host: &str) -> Result<Found, NameError> {
        let inner = &*self.inner;
        let start = || {
            start(Means::of(inner))
                .inspect_err(|error| tracing::error!(%error, "names are not resolved"))
                .ok()
        };
        let questions = inner.questions.get_or_init(start).as_ref();
        let waiting = inner.wait(owner, asker).zip(questions);
        let Some(((place, _waiting), questions)) = waiting else {
            inner.counters.refused.inc();
            return Err(NameError::Failed);
        };
        let Ok(place) = place.await else {
            inner.counters.refused.inc();
            return Err(NameError::Failed);
        };
        let (answer, answered) = oneshot::channel();
        let question = Question {
            host: host.into(),
            answer,
            place,
        };
        if questions.try_send(question).is_err() {
            inner.counters.refused.inc();
            return Err(NameError::Failed);
        }
        answered.await.unwrap_or(Err(NameError::Failed))
    }
}

/// The owner of the upstreams of a namespace, as far as questions are concerned.
pub(crate) fn owner(namespace: &str) -> u64 {
    hash(CLASS, namespace)
}

impl Inner {
    /// One more question of an asker among those of an owner, and the place that it waits for;
    /// none where too many wait already.
    fn wait(&self, owner: u64, asker: u64) -> Option<(oneshot::Receiver<Turn>, Waiting<'_>)> {
        let lane = self.lanes.get((owner >> 32) as usize % LANES)?;
        let waiting = Waiting(&self.asking);
        let all = self.asking.fetch_add(1, Ordering::Relaxed);
        if all >= WAITING_MAX + ASKED_MAX {
            return None;
        }
        Some((lane.enter(asker)?, waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The things that the thread works with.
struct Means {
    settings: NameSettings,
    counters: Counters,
    known: Arc<KnownAddresses>,
}

impl Means {
    fn of(inner: &Inner) -> Self {
        Means {
            settings: inner.settings.clone(),
            counters: inner.counters.clone(),
            known: inner.known.clone(),
        }
    }
}

/// Starts the thread, which ends with the last of those who ask.
fn start(means: Means) -> io::Result<mpsc::Sender<Question>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (questions, inbox) = mpsc::channel(WAITING_MAX);
    std::thread::Builder::new()
        .name("names".to_owned())
        .spawn(move || LocalSet::new().block_on(&runtime, run(means, inbox)))?;
    Ok(questions)
}

async fn run(means: Means, mut inbox: mpsc::Receiver<Question>) {
    let room = Arc::new(Semaphore::new(ASKED_MAX));
    let Means {
        settings,
        counters,
        known,
    } = means;
    let mut server = Server::new(&settings.servers, &counters.cut);
    let mut looks = tokio::time::interval(LOOK_AGAIN);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let question = tokio::select! {
            question = inbox.recv() => question,
            _ = looks.tick() => {
                known.look();
                continue;
            }
        };
        let Some(question) = question else {
            return;
        };
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        if question.answer.is_closed() {
            continue;
        }
        server.look(&settings.servers, &counters.cut);
        let resolver = server.resolver.clone();
        let (counters, room) = (counters.clone(), room.clone());
        let ttls = (settings.ttl_min, settings.ttl_max.max(settings.ttl_min));
        task::spawn_local("dns question", async move {
            let mut turn = question.place;
            let (mut found, taken) =
                ask_in_time(resolver.as_deref(), &question.host, &mut turn).await;
            counters.note(&mut found, ttls);
            // Who does not wait any more needs no answer.
            let _ = question.answer.send(found);
            let asked = ASKED_MAX.saturating_sub(room.available_permits());
            if turn.is_beside_others(asked) {
                tokio::time::sleep(kept_for(taken)).await;
            }
            drop(place);
        });
    }
}

impl Counters {
    /// Counts how a question ended, and holds what was found to the bounds of its time.
    fn note(&self, found: &mut Result<Found, NameError>, (min, max): (Duration, Duration)) {
        match found {
            Ok(found) => {
                found.ttl = found.ttl.clamp(min, max);
                self.answered.inc();
            }
            Err(NameError::Nothing) => {
                self.empty.inc();
            }
            Err(NameError::Failed) => {
                self.failed.inc();
            }
        }
    }
}

/// How long a question keeps its place whose answer has taken so long.
fn kept_for(taken: Duration) -> Duration {
    taken.saturating_mul(KEPT_TIMES).min(KEPT_MAX)
}

impl<F: Future + Unpin> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let timed = self.get_mut();
        let before = clock::processor_time();
        let polled = Pin::new(&mut timed.future).poll(context);
        timed.taken += clock::processor_time().saturating_sub(before);
        polled
    }
}

/// Asks within [`TIMEOUT`], and tells the time that it took on this thread. Beyond [`QUICK`] the
/// place is the next question's, and where there is no other one this question is given up.
async fn ask_in_time(
    resolver: Option<&CutResolver>,
    host: &str,
    turn: &mut Turn,
) -> (Result<Found, NameError>, Duration) {
    let future = pin!(tokio::time::timeout(TIMEOUT, ask(resolver, host)));
    let taken = Duration::ZERO;
    let mut asking = Timed { future, taken };
    let early = tokio::time::timeout(QUICK, &mut asking).await;
    let asked = match early {
        Ok(asked) => asked,
        Err(_) if turn.step_aside() => (&mut asking).await,
        Err(_) => return (Err(NameError::Failed), asking.taken),
    };
    (asked.unwrap_or(Err(NameError::Failed)), asking.taken)
}

/// A resolver that unpacks no more than what is used.
type CutResolver = Resolver<CuttingRuntime>;

/// The resolver, as the settings or the system's files say.
struct Server {
    resolver: Option<Arc<CutResolver>>,
    looked: Instant,
    changed: [Option<SystemTime>; FILES.len()],
}

impl Server {
    fn new(servers: &[SocketAddr], cuts: &Counter) -> Self {
        Server {
            resolver: resolver(servers, cuts),
            looked: clock::now(),
            changed: changed(),
        }
    }

    /// Reads the system's files again where they are others.
    fn look(&mut self, servers: &[SocketAddr], cuts: &Counter) {
        let now = clock::now();
        if now.duration_since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let changed = changed();
        if self.changed != changed {
            self.changed = changed;
            self.resolver = resolver(servers, cuts);
        }
    }
}

fn changed() -> [Option<SystemTime>; FILES.len()] {
    FILES.map(|path| {
        std::fs::metadata(path)
            .and_then(|file| file.modified())
            .ok()
    })
}

fn resolver(servers: &[SocketAddr], cuts: &Counter) -> Option<Arc<CutResolver>> {
    let own = |servers: &[SocketAddr]| {
        let servers = servers.iter().map(|server| name_server(*server)).collect();
        ResolverConfig::from_parts(None, Vec::new(), servers)
    };
    let (config, mut options) = match servers {
        [] => system_conf::read_system_conf().unwrap_or_else(|error| {
            // As the C library does where the file says nothing.
            tracing::warn!(%error, "resolv.conf cannot be used; DNS is asked for on this machine");
            let local = SocketAddr::from(([127, 0, 0, 1], 53));
            (own(&[local]), ResolverOpts::default())
        }),
        servers => (own(servers), ResolverOpts::default()),
    };
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
    options.timeout = options.timeout.min(TRY_TIMEOUT);
    options.attempts = options.attempts.clamp(1, TRIES);
    let builder = Resolver::builder_with_config(config, CuttingRuntime::new(cuts.clone()));
    match builder.with_options(options).build() {
        Ok(resolver) => Some(Arc::new(resolver)),
        Err(error) => {
            tracing::error!(%error, "names are not resolved");
            None
        }
    }
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    let connections = connections.map(|mut connection| {
        connection.port = server.port();
        connection
    });
    NameServerConfig::new(server.ip(), true, connections.into())
}

async fn ask(resolver: Option<&CutResolver>, host: &str) -> Result<Found, NameError> {
    let resolver = resolver.ok_or(NameError::Failed)?;
    let mut name = DnsName::from_ascii(host).map_err(|_| NameError::Nothing)?;
    if host.contains('.') {
        name.set_fqdn(true);
    }
    let found = resolver
        .lookup_ip(name)
        .await
        .map_err(|error| fault(&error))?;
    let records = found.as_lookup().answers().iter();
    let ttl = records.map(|record| record.ttl).min().unwrap_or(0);
    let addresses: Vec<IpAddr> = found.iter().take(ADDRESSES_MAX).collect();
    match addresses.is_empty() {
        true => Err(NameError::Nothing),
        false => Ok(Found {
            addresses,
            ttl: Duration::from_secs(ttl.into()),
        }),
    }
}

/// Whether DNS has said that there is nothing, or has said nothing.
fn fault(error: &NetError) -> NameError {
    use hickory_resolver::net::DnsError;
    use hickory_resolver::proto::op::ResponseCode;
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => NameError::Nothing,
            _ => NameError::Failed,
        },
        _ => NameError::Failed,
    }
}

#[cfg(test)]
mod tests;
