//! The running proxy: a control handle, worker threads, and what passes between them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use myriad_base::metrics::{Counter, Metrics};
use myriad_model::{CaptureDirection, Change, Commit, Key, Kind, Name, SealedArc, Version};
use tokio::sync::{mpsc, oneshot};

use crate::balance::locality::Locality;
use crate::http::spans::Spans;
use crate::net::bucket::Buckets;
use crate::net::count::{self, Counts};
use crate::net::dice::Dice;
use crate::net::hash::hash;
use crate::net::journal::Journal;
use crate::net::limits::Limits;
use crate::net::local::Local;
use crate::net::names::{NameSettings, Names};
use crate::net::socket;
use crate::net::standard::{self, Library};
use crate::route::edit::Edit;
use crate::route::identity::{Identity, IdentityEntry};
use crate::route::tables::Tables;
use crate::tls::accept::Handshakes;
use crate::tls::key::{self, Unusable};
use crate::upstream::secure;
use crate::upstream::target::Targets;

mod accept;
mod keys;
mod open;
mod worker;

pub use crate::net::standard::Workload;
use worker::{Command, Setup};

/// The most commands that wait for a worker. Only listeners and the drain make any.
const COMMANDS_MAX: usize = 4_096;

/// The most former tables that wait for the last request that reads them.
const FORMER_MAX: usize = 1_024;

/// How a proxy is run.
pub struct Settings {
    /// Worker threads; at least one.
    pub workers: usize,
    /// How long new connections are still accepted once a drain has begun, so that whoever
    /// balances load before the proxy can learn of it.
    pub drain_delay: Duration,
    /// How long requests have to end after that.
    pub drain_timeout: Duration,
    /// What anybody outside can make grow, and how far.
    pub limits: Limits,
    /// Where the proxy is; none where nobody said, which prefers no endpoint.
    pub locality: Option<Locality>,
    /// Who is asked for the addresses of names.
    pub names: NameSettings,
    /// Where the access log goes; none for no log.
    pub access_log: Option<Box<dyn io::Write + Send>>,
    /// How many proxies in front of this one are believed when they tell the client's address.
    pub trusted_hops: usize,
    /// What the proxy is, as standard metrics tell it; none counts them only beside a workload,
    /// and where Telemetry says something of them.
    pub workload: Option<Workload>,
    /// Where connections come in that a workload's network rules lead here; none captures none.
    pub captures: Vec<(CaptureDirection, SocketAddr)>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            limits: Limits::default(),
            locality: None,
            names: NameSettings::default(),
            access_log: None,
            trusted_hops: 0,
            workload: None,
            captures: Vec::new(),
        }
    }
}

/// The control handle of a running proxy. It lives on the control thread; there is one writer.
pub struct Proxy {
    tables: Arc<ArcSwap<Tables>>,
    /// The tables as they are, owned, so that changes begin without a load.
    next: Tables,
    targets: Targets,
    workers: Vec<WorkerHandle>,
    bound: HashMap<Name, Bound>,
    /// Where listeners that were refused wanted to listen.
    unbound: HashMap<Name, SocketAddr>,
    listeners_max: usize,
    /// What is in service of resources whose newest version was refused.
    last_good: HashMap<Key, Option<SealedArc>>,
    /// Former tables that requests may still read. They are dropped here, so that no worker has
    /// to walk what only they held.
    former: Vec<Arc<Tables>>,
    sockets_opened: u64,
    swaps: Counter,
    keys: keys::Fetcher,
    journal: Journal,
    library: Arc<Library>,
    spans: Spans,
    limits: Arc<Limits>,
    names: Names,
    /// Those of what the proxy does of its own accord.
    own_counts: Arc<Counts>,
    captures: Vec<(CaptureDirection, SocketAddr)>,
}

struct WorkerHandle {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
}

struct Bound {
    /// As the resource says.
    wanted: SocketAddr,
    /// As the system gave it.
    address: SocketAddr,
    /// Tells the sockets of one opening from those of another.
    id: u64,
}

/// What became of a commit.
#[derive(Debug, Default)]
pub struct Applied {
    /// Resources that were not taken. What they replace stays in service.
    pub refused: Vec<Receipt>,
    /// How many nodes of the tables were copied.
    pub nodes_copied: u64,
}

/// A resource that was not taken.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// Which.
    pub key: Key,
    /// Which version of it.
    pub version: Version,
    /// Why.
    pub reason: String,
}

impl Proxy {
    /// Starts the worker threads. Nothing listens yet but for captured connections, which are
    /// closed until there are listeners that they belong to.
    ///
    /// # Errors
    /// When a thread cannot be started, or a socket for captured connections not opened.
    pub fn start(settings: Settings, metrics: &Metrics) -> io::Result<Proxy> {
        let count = settings.workers.max(1);
        let limits = Arc::new(settings.limits);
        let listeners_max = limits.listeners_max;
        let journal = Journal::default();
        let logs_all = settings.access_log.is_some();
        if let Some(out) = settings.access_log {
            journal.open(out)?;
        }
        // The last row is that of whoever sends spans.
        let counts: Vec<Arc<Counts>> = (0..=count).map(|_| Arc::new(Counts::new())).collect();
        count::register(metrics, &counts);
        let own_counts = counts.last().cloned().unwrap_or_default();
        let spans = Spans::default();
        let library = Arc::new(Library::new(count));
        // As with Istio's: a sidecar counts by default, a gateway where it is told what it is.
        let counts_all = settings.workload.is_some() || !settings.captures.is_empty();
        standard::register(metrics, &library, settings.workload);
        let swaps = Counter::default();
        metrics.register("table_swaps", "Commits that took effect", swaps.clone());
        let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
        let buckets = Arc::new(Buckets::new());
        let names = Names::new(settings.names, metrics);
        let handshakes = Arc::new(Handshakes::new(&limits));
        let mut workers = Vec::with_capacity(count);
        for (number, counts) in counts.into_iter().take(count).enumerate() {
            let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
            let setup = Setup {
                limits: limits.clone(),
                buckets: buckets.clone(),
                names: names.clone(),
                counts,
                library: library.clone(),
                counts_all,
                spans: spans.clone(),
                journal: journal.clone(),
                logs_all,
                trusted_hops: settings.trusted_hops,
                tables: tables.clone(),
                handshakes: handshakes.clone(),
                drain_delay: settings.drain_delay,
                drain_timeout: settings.drain_timeout,
            };
            let thread = worker::start(number, setup, inbox)?;
            workers.push(WorkerHandle { commands, thread });
        }
        let captures = open_captures(&settings.captures, &workers)?;
        Ok(Proxy {
            captures,
            tables,
            next: Tables::default(),
            targets: Targets::seen_from(settings.locality),
            workers,
            bound: HashMap::new(),
            unbound: HashMap::new(),
            listeners_max,
            last_good: HashMap::new(),
            former: Vec::new(),
            sockets_opened: 0,
            swaps,
            keys: keys::Fetcher::new(metrics),
            journal,
            library,
            spans,
            limits,
            names,
            own_counts,
        })
    }

    /// Makes the next tables from the present ones, and puts them in their place at once.
    pub fn apply(&mut self, commit: &Commit) -> Applied {
        let copied_before = self.next.nodes_copied();
        let mut applied = Applied::default();
        let mut orders = Vec::new();
        let mut listeners_refused = Vec::new();
        for change in &commit.changes {
            if change.key.kind == Kind::Listener {
                match self.prepare_listener(change) {
                    Ok(order) => orders.extend(order),
                    Err(error) => listeners_refused.push((change.key.clone(), error.to_string())),
                }
            }
        }
        let mut edit = Edit::new(&mut self.next, &mut self.targets);
        for change in &commit.changes {
            let in_service = match self.last_good.remove(&change.key) {
                Some(last_good) => last_good,
                None => change.old.clone(),
            };
            let mut unbound = listeners_refused.iter();
            let result = match unbound.find(|(key, _)| *key == change.key) {
                Some((_, reason)) => Err(format!("its address cannot be listened on: {reason}")),
                None => edit
                    .change(in_service.as_ref(), change.new.as_ref())
                    .map_err(|error| error.to_string()),
            };
            if let (Err(reason), Some(new)) = (result, &change.new) {
                applied.refused.push(Receipt {
                    key: change.key.clone(),
                    version: new.version(),
                    reason,
                });
                self.last_good.insert(change.key.clone(), in_service);
            } else if verifies(change) {
                secure::prepare();
            }
        }
        edit.finish();
        applied.nodes_copied = self.next.nodes_copied() - copied_before;
        self.obey_recording();
        self.swap();
        self.keys.take(self.next.guards());
        for order in orders {
            self.carry_out(order);
        }
        if commit.changes.iter().any(was_captured) {
            // A worker that is busy has its connections look all the same, if later.
            for worker in &self.workers {
                let _ = worker.commands.try_send(Command::Wake);
            }
        }
        applied
    }

    /// Makes the proxy this one in its mesh, from the next handshake on. Connections that are
    /// open stay as they are.
    ///
    /// # Errors
    /// When certificate, key or authorities cannot be read; the identity before stays then.
    pub fn identify(&mut self, identity: Identity) -> Result<(), Unusable> {
        let parsed = key::parse(&identity.certificate)?;
        if let Some(leaf) = identity.certificate.chain.first() {
            self.library.identify(leaf);
        }
        let entry = IdentityEntry::new(identity);
        entry.trust.roots().ok_or(Unusable)?;
        entry.certificate.keep(Arc::new(parsed));
        self.next.identify(Arc::new(entry));
        self.swap();
        Ok(())
    }

    /// Where the proxy listens, with the ports that the system chose; by name.
    pub fn addresses(&self) -> Vec<(Name, SocketAddr)> {
        let mut addresses: Vec<(Name, SocketAddr)> = self
            .bound
            .iter()
            .map(|(name, bound)| (name.clone(), bound.address))
            .collect();
        addresses.sort();
        addresses
    }

    /// Where captured connections come in, with the ports that the system chose.
    pub fn captures(&self) -> &[(CaptureDirection, SocketAddr)] {
        &self.captures
    }

    /// Whether a listener that was refused because its address could not be listened on could be
    /// opened now, so that whoever applied it may do so again. Says so once.
    pub fn take_bindable(&mut self) -> bool {
        let before = self.unbound.len();
        self.unbound.retain(|_, address| !socket::is_free(*address));
        self.unbound.len() < before
    }

    /// The tables that requests read now.
    pub fn tables(&self) -> Arc<Tables> {
        self.tables.load_full()
    }

    /// Reads the tables from wherever it is called, for those who explain them.
    pub fn reader(&self) -> impl Fn() -> Arc<Tables> + Send + Sync + 'static {
        let tables = self.tables.clone();
        move || tables.load_full()
    }

    /// Ends gracefully: accepts for the drain delay, then lets requests end for at most the
    /// drain timeout. Returns when every worker has ended, and the access log is written.
    pub async fn drain(self) {
        let mut ends = Vec::new();
        for worker in &self.workers {
            let (ended, end) = oneshot::channel();
            // A worker that is gone has nothing to drain.
            let _ = worker.commands.send(Command::Drain(ended)).await;
            ends.push(end);
        }
        for end in ends {
            let _ = end.await;
        }
        for worker in self.workers {
            drop(worker.commands);
            // It has said its last word already, so this does not wait.
            let _ = worker.thread.join();
        }
        self.journal.settle().await;
    }

    /// Shows metrics as the tables say, and opens the access log as soon as anybody wants one.
    fn obey_recording(&self) {
        let recording = self.next.recording();
        self.library.obey(recording);
        if recording.is_some_and(|recording| recording.told.tracing.is_some()) {
            self.open_spans();
        }
        let has_logs = recording.and_then(|recording| recording.has_logs());
        if has_logs == Some(true)
            && let Err(error) = self.journal.open(Box::new(io::stdout()))
        {
            tracing::error!(%error, "there is no access log");
        }
    }

    fn open_spans(&self) {
        let (limits, counts) = (self.limits.clone(), self.own_counts.clone());
        let (library, journal) = (self.library.clone(), self.journal.clone());
        let (number, names) = (self.workers.len(), self.names.clone());
        let local = move || Local {
            limits,
            names,
            buckets: Arc::new(Buckets::new()),
            number,
            library,
            counts_all: false,
            counts,
            dice: Dice::new(hash(0, "spans")),
            journal,
            logs_all: false,
            trusted_hops: 0,
        };
        if let Err(error) = self.spans.open(local, self.tables.clone()) {
            tracing::error!(%error, "there are no spans");
        }
    }

    fn swap(&mut self) {
        let next = Arc::new(self.next.clone());
        let before = self.tables.swap(next);
        self.swaps.inc();
        self.former.push(before);
        self.former.retain(|tables| Arc::strong_count(tables) > 1);
        if self.former.len() > FORMER_MAX {
            self.former.remove(0);
        }
    }

    /// Opens sockets where a listener needs new ones.
    fn prepare_listener(&mut self, change: &Change) -> io::Result<Vec<Order>> {
        let name = &change.key.name;
        let new = change.new.as_ref().and_then(|sealed| sealed.listener());
        // What is captured comes by the sockets of its direction.
        let own = new.filter(|listener| listener.capture.is_none());
        let wanted = own.map(|listener| listener.address);
        self.unbound.remove(name);
        let known = self.bound.get(name);
        if known.map(|bound| bound.wanted) == wanted {
            return Ok(Vec::new());
        }
        let mut orders = Vec::new();
        if let Some(wanted) = wanted {
            if known.is_none() && self.bound.len() >= self.listeners_max {
                return Err(io::Error::other(
                    "there are as many listeners as there may be",
                ));
            }
            let (address, sockets) = match socket::listen(wanted, self.workers.len()) {
                Ok(opened) => opened,
                Err(error) => {
                    self.unbound.insert(name.clone(), wanted);
                    return Err(error);
                }
            };
            self.sockets_opened += 1;
            orders.push(Order::Open {
                name: name.clone(),
                sockets,
                bound: Bound {
                    wanted,
                    address,
                    id: self.sockets_opened,
                },
            });
        }
        if let Some(known) = known {
            let (name, id) = (name.clone(), known.id);
            orders.push(Order::Close { name, id });
        }
        Ok(orders)
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Open {
                name,
                sockets,
                bound,
            } => {
                for (worker, socket) in self.workers.iter().zip(sockets) {
                    let command = Command::Listen {
                        name: name.clone(),
                        id: bound.id,
                        socket,
                    };
                    if worker.commands.try_send(command).is_err() {
                        tracing::error!(listener = %name, "a worker does not take its socket");
                    }
                }
                self.bound.insert(name, bound);
            }
            Order::Close { name, id } => {
                for worker in &self.workers {
                    if worker.commands.try_send(Command::Close { id }).is_err() {
                        tracing::error!(listener = %name, "a worker does not close its socket");
                    }
                }
                if self.bound.get(&name).is_some_and(|bound| bound.id == id) {
                    self.bound.remove(&name);
                }
            }
        }
    }
}

/// What the workers are told once the tables are in place.
enum Order {
    Open {
        name: Name,
        sockets: Vec<std::net::TcpListener>,
        bound: Bound,
    },
    Close {
        name: Name,
        id: u64,
    },
}

/// Opens the sockets for captured connections, one of each direction for each worker.
fn open_captures(
    wanted: &[(CaptureDirection, SocketAddr)],
    workers: &[WorkerHandle],
) -> io::Result<Vec<(CaptureDirection, SocketAddr)>> {
    let mut opened = Vec::new();
    for (direction, address) in wanted {
        let (address, sockets) = socket::listen(*address, workers.len())?;
        opened.push((*direction, address, sockets));
    }
    let ports: Arc<[u16]> = opened
        .iter()
        .map(|(_, address, _)| address.port())
        .collect();
    let mut captures = Vec::new();
    for (direction, address, sockets) in opened {
        captures.push((direction, address));
        for (worker, socket) in workers.iter().zip(sockets) {
            let command = Command::Capture {
                direction,
                ports: ports.clone(),
                socket,
            };
            let sent = worker.commands.try_send(command);
            sent.map_err(|_| io::Error::other("a worker does not take its socket"))?;
        }
    }
    Ok(captures)
}

/// Whether a change concerns a listener that connections were captured for, which may have to
/// end now.
fn was_captured(change: &Change) -> bool {
    let old = change.old.as_ref().and_then(|sealed| sealed.listener());
    old.is_some_and(|old| old.capture.is_some())
}

/// Whether a change brings an upstream whose endpoints are verified.
fn verifies(change: &Change) -> bool {
    let new = change.new.as_ref().and_then(|sealed| sealed.upstream());
    new.and_then(|upstream| upstream.tls.as_ref())
        .is_some_and(|tls| tls.verify)
}

#[cfg(test)]
mod tests;
