//! Names: which addresses the hosts file and DNS say that a host has, and for how long.
//!
//! One thread asks for the whole process, started by the first question, so that no worker has
//! sockets, timers or caches of DNS. It keeps nothing: whoever asks keeps what it is told.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name as DnsName;
use hickory_resolver::{TokioResolver, system_conf};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Counter, Metrics};
use myriad_base::task;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;

use super::border::{Border, BorderSettings};

/// The most addresses that are used of one answer.
pub const ADDRESSES_MAX: usize = 64;

/// How long a question waits for its answer.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// How long one server has before it is asked again, or another one is.
const TRY_TIMEOUT: Duration = Duration::from_secs(1);

/// How often one question is asked where nobody answers.
const TRIES: usize = 3;

/// The most questions that wait to be asked; further ones fail at once.
const WAITING_MAX: usize = 4_096;

/// The most questions that are being asked at a time.
const ASKED_MAX: usize = 256;

/// How often it is looked whether the system's files are others.
const LOOK: Duration = Duration::from_secs(5);

/// What the system says of names.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Who is asked, and what answers are held to.
#[derive(Clone, Debug)]
pub struct NameSettings {
    /// The servers of DNS; those of the system where there is none.
    pub servers: Vec<SocketAddr>,
    /// The shortest time that an answer is used, whatever it says.
    pub ttl_min: Duration,
    /// The longest.
    pub ttl_max: Duration,
    /// Where names may lead.
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

/// Where names are asked for. Cheap to clone; for use on any thread.
#[derive(Clone)]
pub struct Names {
    inner: Arc<Inner>,
}

struct Inner {
    settings: NameSettings,
    counters: Counters,
    border: Border,
    /// None where the thread could not be started.
    questions: OnceLock<Option<mpsc::Sender<Question>>>,
}

/// How questions ended.
#[derive(Clone, Default)]
struct Counters {
    answered: Counter,
    empty: Counter,
    failed: Counter,
    refused: Counter,
}

struct Question {
    host: Box<str>,
    answer: oneshot::Sender<Result<Found, NameError>>,
}

/// The addresses of a host; at least one, at most [`ADDRESSES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// In the order of the answer.
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
        ] {
            metrics.register(name, help, counter.clone());
        }
        Names {
            inner: Arc::new(Inner {
                border: Border::new(settings.border.clone(), metrics),
                settings,
                counters,
                questions: OnceLock::new(),
            }),
        }
    }

    /// Where names, and endpoints, may lead.
    pub fn border(&self) -> &Border {
        &self.inner.border
    }

    /// The addresses of a host. One with a dot is asked for as it is; only others are looked for
    /// in the search domains of the system.
    ///
    /// # Errors
    /// When it has none, or nobody can tell within [`TIMEOUT`].
    pub async fn look_up(&self, host: &str) -> Result<Found, NameError> {
        if let Ok(ip) = host.parse() {
            return Ok(Found {
                addresses: vec![ip],
                ttl: self.inner.settings.ttl_max,
            });
        }
        let start = || {
            let (settings, counters) = (&self.inner.settings, &self.inner.counters);
            start(settings.clone(), counters.clone())
                .inspect_err(|error| tracing::error!(%error, "names are not resolved"))
                .ok()
        };
        let questions = self.inner.questions.get_or_init(start).as_ref();
        let (answer, answered) = oneshot::channel();
        let host = host.into();
        let sent = questions.map(|questions| questions.try_send(Question { host, answer }));
        if !matches!(sent, Some(Ok(()))) {
            self.inner.counters.refused.inc();
            return Err(NameError::Failed);
        }
        let answered = tokio::time::timeout(TIMEOUT, answered).await;
        answered
            .ok()
            .and_then(Result::ok)
            .unwrap_or(Err(NameError::Failed))
    }
}

/// Starts the thread, which ends with the last of those who ask.
fn start(settings: NameSettings, counters: Counters) -> io::Result<mpsc::Sender<Question>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (questions, inbox) = mpsc::channel(WAITING_MAX);
    std::thread::Builder::new()
        .name("names".to_owned())
        .spawn(move || LocalSet::new().block_on(&runtime, run(settings, counters, inbox)))?;
    Ok(questions)
}

async fn run(settings: NameSettings, counters: Counters, mut inbox: mpsc::Receiver<Question>) {
    let room = Arc::new(Semaphore::new(ASKED_MAX));
    let mut server = Server::new(&settings.servers);
    let (ttl_min, ttl_max) = (settings.ttl_min, settings.ttl_max);
    while let Some(question) = inbox.recv().await {
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        if question.answer.is_closed() {
            continue;
        }
        server.look(&settings.servers);
        let (resolver, counters) = (server.resolver.clone(), counters.clone());
        task::spawn_local("dns question", async move {
            let _place = place;
            let asked = tokio::time::timeout(TIMEOUT, ask(resolver.as_deref(), &question.host));
            let mut found = asked.await.unwrap_or(Err(NameError::Failed));
            match &mut found {
                Ok(found) => {
                    found.ttl = found.ttl.clamp(ttl_min, ttl_max.max(ttl_min));
                    counters.answered.inc();
                }
                Err(NameError::Nothing) => {
                    counters.empty.inc();
                }
                Err(NameError::Failed) => {
                    counters.failed.inc();
                }
            }
            // Who does not wait any more needs no answer.
            let _ = question.answer.send(found);
        });
    }
}

/// Who is asked, as the settings or the system's files say.
struct Server {
    resolver: Option<Arc<TokioResolver>>,
    looked: Instant,
    changed: [Option<SystemTime>; FILES.len()],
}

impl Server {
    fn new(servers: &[SocketAddr]) -> Self {
        Server {
            resolver: resolver(servers),
            looked: clock::now(),
            changed: changed(),
        }
    }

    /// Reads the system's files again where they are others.
    fn look(&mut self, servers: &[SocketAddr]) {
        let now = clock::now();
        if now.duration_since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let changed = changed();
        if self.changed != changed {
            self.changed = changed;
            self.resolver = resolver(servers);
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

fn resolver(servers: &[SocketAddr]) -> Option<Arc<TokioResolver>> {
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
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
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

async fn ask(resolver: Option<&TokioResolver>, host: &str) -> Result<Found, NameError> {
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
