//! The running proxy: a control handle, worker threads, and what passes between them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use myriad_base::metrics::{Counter, Metrics};
use myriad_model::{
    CaptureDirection, Change, Commit, Key, Kind, LogFormat, Name, SealedArc, Version,
    on_demand_host,
};
use tokio::sync::{mpsc, oneshot};

use crate::admission::bucket::Buckets;
use crate::admission::room::ConnectionRoom;
use crate::admission::share::Fairness;
use crate::admission::turns::HandshakeTurns;
use crate::balance::locality::Locality;
use crate::balance::tables::HashTables;
use crate::codec::proxy_header::Introductions;
use crate::http::spans::Spans;
use crate::limits::Limits;
use crate::local::Local;
use crate::net::names::{NameSettings, Names};
use crate::pattern;
use crate::random::hash::hash;
use crate::random::rng::Rng;
use crate::route::edit::Edit;
use crate::route::identity::{Identity, IdentityEntry};
use crate::route::tables::Tables;
use crate::telemetry::access_log::AccessLogWriter;
use crate::telemetry::count::{self, Count, Counts};
use crate::telemetry::live_trace::LiveTraces;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::standard::{self, Library};
use crate::telemetry::top::{TopReader, TopSeries};
use crate::tls::accept::Handshakes;
use crate::tls::demand::Demand;
use crate::tls::key::{self, UnusableCertificate};
use crate::tls::tickets::TicketKeys;
use crate::upstream::endpoint::EndpointTable;
use crate::upstream::secure;

mod accept;
mod expiry;
mod hear;
mod introduce;
mod keys;
mod listen;
mod listener_quota;
mod listener_sockets;
mod open;
mod parts;
mod sockets;
mod within;
mod worker;

pub use crate::telemetry::standard::Workload;
use expiry::Expiries;
use listen::{Doors, Order};
use parts::{memory, open_access_log, tickets};
pub use sockets::{Inherited, Role, Sockets};
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
    /// The limits of what anybody outside can make grow.
    pub limits: Limits,
    /// The locality of the proxy; `None` where nobody said, which prefers no endpoint.
    pub locality: Option<Locality>,
    /// The servers that are asked for the addresses of names.
    pub names: NameSettings,
    /// The output of the access log; `None` for no log.
    pub access_log: Option<Box<dyn io::Write + Send>>,
    /// The format of its lines where nothing else is said.
    pub access_log_format: LogFormat,
    /// How many proxies in front of this one are believed when they tell the client's address.
    pub trusted_hops: usize,
    /// The treatment of clients' request ids.
    pub request_ids: RequestIds,
    /// The listeners where a balancer in front introduces clients; `None` for no listener.
    pub introductions: Option<Introductions>,
    /// The workload of the proxy in standard metrics; `None` counts them only beside a workload,
    /// and where Telemetry says something of them.
    pub workload: Option<Workload>,
    /// The sockets that a workload's network rules lead to; empty captures nothing.
    pub captures: Vec<(CaptureDirection, SocketAddr)>,
    /// The addresses that listeners of all addresses are opened at; empty for all of them.
    pub bind: Vec<IpAddr>,
    /// The memory in bytes that the process may have; none for no budget.
    pub memory_max: Option<u64>,
    /// The sockets and keys of the process before; `None` where there was none. With them nothing
    /// is accepted before [`Proxy::go_live`].
    pub inherited: Option<Inherited>,
    /// Whether there may be a next process that is given the sockets.
    pub hands_over: bool,
    /// How many domains, and objects, have series of their own.
    pub top_series: TopSeries,
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
            access_log_format: LogFormat::Own,
            trusted_hops: 0,
            request_ids: RequestIds::Keep,
            introductions: None,
            workload: None,
            captures: Vec::new(),
            bind: Vec::new(),
            memory_max: None,
            inherited: None,
            hands_over: false,
            top_series: TopSeries::default(),
        }
    }
}

/// The control handle of a running proxy. It lives on the control thread; there is one writer.
pub struct Proxy {
    tables: Arc<ArcSwap<Tables>>,
    /// The tables as they are, owned, so that changes begin without a load.
    next: Tables,
    targets: EndpointTable,
    workers: Vec<WorkerHandle>,
    doors: Doors,
    /// The versions in service of resources whose newest version was refused.
    last_good: HashMap<Key, Option<SealedArc>>,
    /// Former tables that requests may still read. They are dropped here, so that no worker has
    /// to walk what only they held.
    former: Vec<Arc<Tables>>,
    swaps: Counter,
    keys: keys::Fetcher,
    expiries: Expiries,
    demand: Demand,
    access_log: AccessLogWriter,
    live_traces: LiveTraces,
    library: Arc<Library>,
    spans: Spans,
    limits: Arc<Limits>,
    names: Names,
    /// One row for each worker.
    counts: Vec<Arc<Counts>>,
    /// The counts of what the proxy does of its own accord.
    own_counts: Arc<Counts>,
}

struct WorkerHandle {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
}

/// The outcome of a commit.
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
    /// The resource's key.
    pub key: Key,
    /// Which version of it.
    pub version: Version,
    /// The reason.
    pub reason: String,
}

impl Proxy {
    /// Starts the worker threads. Nothing listens yet but for captured connections, which are
    /// closed until there are listeners that they belong to.
    ///
    /// # Errors
    /// When a thread cannot be started, or a socket for captured connections not opened.
    pub fn start(mut settings: Settings, metrics: &Metrics) -> io::Result<Proxy> {
        let (count, limits) = (settings.workers.max(1), Arc::new(settings.limits));
        let logs_all = settings.access_log.is_some();
        let access_log = open_access_log(settings.access_log, settings.access_log_format)?;
        let counts = counts(count, settings.top_series, metrics);
        let own_counts = counts.last().cloned().unwrap_or_default();
        let (spans, live_traces) = (Spans::default(), LiveTraces::default());
        let library = Arc::new(Library::new(count));
        // As with Istio's: a sidecar counts by default, a gateway where it is told what it is.
        let counts_all = settings.workload.is_some() || !settings.captures.is_empty();
        standard::register(metrics, &library, settings.workload);
        let tables = Arc::new(ArcSwap::from_pointee(Tables::default()));
        let pressure = memory(settings.memory_max, &limits, metrics);
        let (buckets, names) = (Arc::default(), Names::new(settings.names, metrics));
        let tickets = tickets(settings.inherited.as_mut(), metrics)?;
        let (mut workers, demand) = (Vec::with_capacity(count), Demand::new(metrics));
        let handshakes = Arc::new(Handshakes::new(&limits, tickets.clone(), demand.clone()));
        for (number, counts) in counts.iter().take(count).enumerate() {
            let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
            let setup = Setup {
                limits: limits.clone(),
                buckets: Arc::clone(&buckets),
                names: names.clone(),
                counts: counts.clone(),
                library: library.clone(),
                counts_all,
                spans: spans.clone(),
                access_log: access_log.clone(),
                live_traces: live_traces.clone(),
                logs_all,
                trusted_hops: settings.trusted_hops,
                request_ids: settings.request_ids,
                introductions: settings.introductions.clone().map(Arc::new),
                tables: tables.clone(),
                handshakes: handshakes.clone(),
                pressure: pressure.clone(),
                drain_delay: settings.drain_delay,
                drain_timeout: settings.drain_timeout,
            };
            let thread = worker::start(number, setup, inbox)?;
            workers.push(WorkerHandle { commands, thread });
        }
        let senders = workers.iter().map(|it| it.commands.clone()).collect();
        let sockets = (Sockets::new(settings.hands_over, tickets), settings.bind);
        let listeners = (limits.listeners_max, own_counts.clone());
        let mut doors = Doors::new(senders, listeners, sockets, settings.inherited);
        let captured = doors.open_captures(&settings.captures)?;
        names.border().set_listeners(captured);
        Ok(Proxy {
            tables,
            next: Tables::default(),
            targets: EndpointTable::seen_from(settings.locality),
            workers,
            doors,
            last_good: HashMap::new(),
            former: Vec::new(),
            swaps: swaps(metrics),
            keys: keys::Fetcher::new(metrics, names.clone()),
            expiries: Expiries::new(metrics),
            demand,
            access_log,
            live_traces,
            library,
            spans,
            limits,
            names,
            counts,
            own_counts,
        })
    }

    /// Makes the next tables from the present ones, and puts them in their place at once.
    pub fn apply(&mut self, commit: &Commit) -> Applied {
        let copied_before = self.next.nodes_copied();
        HashTables::of_process().renew();
        let mut applied = Applied::default();
        let mut orders = Vec::new();
        let mut listeners_refused = Vec::new();
        for change in &commit.changes {
            if change.key.kind == Kind::Listener {
                match self.doors.prepare(change) {
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
            } else {
                self.expiries.follow(in_service.as_ref(), change);
                if verifies(change) {
                    secure::prepare();
                }
            }
        }
        edit.finish();
        applied.nodes_copied = self.next.nodes_copied() - copied_before;
        self.obey_recording();
        let has_orders = !orders.is_empty();
        if has_orders {
            self.tell_border(&orders);
        }
        self.swap();
        self.settle_demand(commit);
        self.keys.take(self.next.access_policies());
        for order in orders {
            self.doors.carry_out(order);
        }
        if has_orders {
            self.tell_border(&[]);
        }
        if commit.changes.iter().any(was_captured) {
            // A worker that is busy has its connections look all the same, if later.
            for worker in &self.workers {
                let _ = worker.commands.try_send(Command::Wake);
            }
        }
        applied
    }

    /// Lets handshakes go on whose certificates are there now.
    fn settle_demand(&self, commit: &Commit) {
        let new = commit.changes.iter().filter(|it| it.new.is_some());
        let certificates = new.filter(|it| it.key.kind == Kind::Certificate);
        for host in certificates.filter_map(|it| on_demand_host(&it.key.name)) {
            self.demand.settle(host);
        }
    }

    /// Says where this process listens, and is about to, which no endpoint may be.
    fn tell_border(&self, orders: &[Order]) {
        let opening = orders.iter().flat_map(Order::addresses);
        let own = self.doors.own().chain(opening.copied());
        self.names.border().set_listeners(own);
    }

    /// Makes the proxy this one in its mesh, from the next handshake on. Connections that are
    /// open stay as they are.
    ///
    /// # Errors
    /// When certificate, key or authorities cannot be read; the identity before stays then.
    pub fn identify(&mut self, identity: Identity) -> Result<(), UnusableCertificate> {
        let parsed = key::parse(&identity.certificate)?;
        if let Some(leaf) = identity.certificate.chain.first() {
            self.library.identify(leaf);
        }
        let entry = IdentityEntry::new(identity);
        entry.trust.roots().ok_or(UnusableCertificate)?;
        entry.certificate.keep(Arc::new(parsed));
        self.next.identify(Arc::new(entry));
        self.swap();
        Ok(())
    }

    /// The addresses that the proxy listens on, with the ports that the system chose; by name.
    pub fn addresses(&self) -> Vec<(Name, SocketAddr)> {
        self.doors.addresses()
    }

    /// The sockets of captured connections, with the ports that the system chose.
    pub fn captures(&self) -> &[(CaptureDirection, SocketAddr)] {
        self.doors.captures()
    }

    /// Whether a listener that was refused because its address could not be listened on could be
    /// opened now, so that whoever applied it may do so again. Says so once.
    pub fn take_bindable(&mut self) -> bool {
        self.doors.take_bindable()
    }

    /// Accepts from what was taken over from the process before, if there was one, now that the
    /// tables are whole. From now on large tables of hashes are built beside: whatever a namespace
    /// has of them, a commit is not kept waiting for it.
    pub fn go_live(&mut self) {
        HashTables::of_process().build_beside();
        self.doors.go_live();
    }

    /// The sockets and keys that the next process is given.
    pub fn sockets(&self) -> Sockets {
        self.doors.sockets().clone()
    }

    /// The names that handshakes ask for and that have no certificate. Nobody waits for one before
    /// it is opened.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// The keys that session tickets are made with.
    pub fn ticket_keys(&self) -> Arc<TicketKeys> {
        self.doors.sockets().ticket_keys()
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

    /// The requests that somebody wants to see.
    pub fn live_traces(&self) -> LiveTraces {
        self.live_traces.clone()
    }

    /// Tells which domains and objects have most.
    pub fn top(&self) -> TopReader {
        TopReader::new(self.counts.iter().map(|row| row.top.clone()))
    }

    /// How many connections of clients are open.
    pub fn connections(&self) -> u64 {
        let of = |count| self.counts.iter().map(|it| it.get(count)).sum::<u64>();
        of(Count::Accepted).saturating_sub(of(Count::Closed))
    }

    /// Ends gracefully: accepts for the drain delay, then lets requests end for at most the
    /// drain timeout. Returns when every worker has ended, and the access log is written. Where
    /// another process has taken the sockets over, nothing is accepted any more.
    pub async fn drain(self) {
        let is_succeeded = self.doors.sockets().is_succeeded();
        self.doors.sockets().forget_all();
        drop(self.doors);
        let mut ends = Vec::new();
        for worker in &self.workers {
            let (ended, end) = oneshot::channel();
            // A worker that is gone has nothing to drain.
            let _ = worker
                .commands
                .send(Command::Drain {
                    ended,
                    is_succeeded,
                })
                .await;
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
        self.access_log.settle().await;
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
            && let Err(error) = self.access_log.open(Box::new(io::stdout()))
        {
            tracing::error!(%error, "there is no access log");
        }
    }

    fn open_spans(&self) {
        let (limits, counts) = (self.limits.clone(), self.own_counts.clone());
        let (library, access_log) = (self.library.clone(), self.access_log.clone());
        let (number, names) = (self.workers.len(), self.names.clone());
        let local = move || Local {
            fairness: Fairness::new(&limits, &Arc::default()),
            turns: HandshakeTurns::new(),
            room: Rc::new(ConnectionRoom::new(&limits, Arc::default())),
            limits,
            names,
            buckets: Arc::new(Buckets::new()),
            number,
            library,
            counts_all: false,
            counts,
            dice: Rng::new(hash(0, "spans")),
            access_log,
            live_traces: LiveTraces::default(),
            logs_all: false,
            trusted_hops: 0,
            request_ids: RequestIds::Keep,
            introductions: None,
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
}

fn swaps(metrics: &Metrics) -> Counter {
    let swaps = Counter::default();
    metrics.register("table_swaps", "Commits that took effect", swaps.clone());
    swaps
}

/// A row of counts for each worker, and behind them that of whoever sends spans and opens
/// listeners.
fn counts(workers: usize, series: TopSeries, metrics: &Metrics) -> Vec<Arc<Counts>> {
    let counts: Vec<_> = (0..=workers).map(|_| Arc::new(Counts::new())).collect();
    count::register(metrics, &counts, series);
    pattern::register(metrics);
    counts
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
