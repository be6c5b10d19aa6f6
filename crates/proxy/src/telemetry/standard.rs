//! Istio's standard metrics: counted by each worker for itself, in a book for each upstream that
//! has had traffic, with a page for each workload of the mesh at the other end.
//!
//! A label never grows with the number of domains: a page has at most [`SERIES_MAX`] sets of
//! labels, at most [`BOOKS_MAX`] upstreams have a book, and there are at most [`PAGES_MAX`] pages
//! of workloads. Of books and pages, a namespace has at most as many as are free then, so that none
//! can use them up. Whatever is beyond is counted in a series of its own, so that sums stay right,
//! and a metric says that it was.

mod shares;
mod show;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use myriad_base::metrics::Counter;
use myriad_model::{Metric, Name, Origin, OriginKind, TagValue};

use super::recording::Recording;
use super::workloads::{Met, WORKLOADS_MAX, WorkloadId, Workloads};
use shares::BookShares;

pub use show::{Workload, register};

/// The most upstreams that have a book. Those of one namespace are at most half of them.
pub const BOOKS_MAX: usize = 1_024;

/// The most sets of labels of an upstream per worker, the last of which is for all others.
pub const SERIES_MAX: usize = 32;

/// Upper bounds of the buckets of every distribution, as Istio's proxies have them.
pub const BOUNDS: [f64; 19] = [
    0.5,
    1.0,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    30_000.0,
    60_000.0,
    300_000.0,
    600_000.0,
    1_800_000.0,
    3_600_000.0,
];

/// The most pages of workloads of the mesh, of all books and workers. Those of the workloads of one
/// namespace are at most half of them.
pub const PAGES_MAX: usize = 8_192;

/// How many places a node on the way to a workload's page has.
const FANOUT: usize = 32;

// Every number of a workload has a place.
const _: () = assert!(
    FANOUT * FANOUT >= WORKLOADS_MAX,
    "two nodes lead to each page"
);

/// The side that reports a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Reporter {
    /// The sender.
    #[default]
    Source,
    /// The receiver.
    Destination,
}

/// All books of a process.
pub struct Library {
    books: Mutex<Vec<Weak<Book>>>,
    shares: Arc<BookShares>,
    /// The books of requests that have no upstream, by reporter.
    nowhere: [Arc<Book>; 2],
    /// The books of upstreams beyond [`BOOKS_MAX`], likewise.
    others: [Arc<Book>; 2],
    /// The identity of the proxy itself, as its certificate says.
    own: ArcSwapOption<Met>,
    /// The changes to the metrics.
    recording: ArcSwapOption<Recording>,
    workers: usize,
    bounds: Arc<Bounds>,
}

/// The properties that all books share.
struct Bounds {
    pages: AtomicUsize,
    /// The pages of each namespace's workloads, at the place of the first of them.
    pages_of: Box<[AtomicUsize]>,
    /// The workloads that requests came from or went to.
    workloads: Workloads,
    /// How often something was counted together with others, since a maximum was reached.
    overflows: Counter,
}

/// The metrics of one upstream.
pub struct Book {
    destination: Destination,
    reporter: Reporter,
    /// One for each worker.
    sheets: Box<[Sheet]>,
    /// Where its place is given back when it goes.
    shares: Option<Arc<BookShares>>,
    bounds: Arc<Bounds>,
}

/// The counts of one worker for one upstream.
#[derive(Default)]
struct Sheet {
    /// Counts of requests from nobody that is known.
    unknown: OnceLock<Box<SeriesPage>>,
    /// Counts of workloads, by number.
    met: OnceLock<Box<Node<Node<SeriesPage>>>>,
}

type Node<T> = [OnceLock<Box<T>>; FANOUT];

/// The Service that requests went to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    service: String,
    name: String,
    namespace: String,
}

/// The counts of one worker for one upstream and one workload; it is the only writer.
pub struct SeriesPage {
    series: [OnceLock<Box<Series>>; SERIES_MAX],
    bounds: Arc<Bounds>,
}

/// The counts of one set of labels.
struct Series {
    labels: Labels,
    requests: AtomicU64,
    opened: AtomicU64,
    closed: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    duration: Distribution,
    request_bytes: Distribution,
    response_bytes: Distribution,
}

/// How values are distributed.
#[derive(Default)]
struct Distribution {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// The sum, in thousandths.
    sum: AtomicU64,
}

/// The labels that tell the series of one upstream apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    /// The status; 0 for streams.
    pub status: u16,
    /// The failure, in the letters of Envoy; empty for none.
    pub flag: &'static str,
    /// `http`, `grpc` or `tcp`.
    pub protocol: &'static str,
    /// The status of gRPC; empty without one.
    pub grpc_status: &'static str,
    /// The values of further tags, by the places of [`TagValue::BOUNDED`]; empty elsewhere.
    pub tags: [&'static str; TagValue::BOUNDED.len()],
}

/// The labels of whatever is beyond a maximum.
const OVERFLOW: Labels = Labels {
    status: 0,
    flag: "overflow",
    protocol: "overflow",
    grpc_status: "",
    tags: [""; TagValue::BOUNDED.len()],
};

impl Library {
    /// An empty library for so many workers.
    pub fn new(workers: usize) -> Self {
        let bounds = Arc::new(Bounds::new());
        let named = |text: &str| {
            [Reporter::Source, Reporter::Destination].map(|reporter| {
                let to = Destination::called(text);
                Arc::new(Book::new(to, reporter, workers, bounds.clone(), None))
            })
        };
        Library {
            books: Mutex::default(),
            shares: Arc::new(BookShares::new(BOOKS_MAX)),
            nowhere: named("unknown"),
            others: named("overflow"),
            own: ArcSwapOption::empty(),
            recording: ArcSwapOption::empty(),
            workers,
            bounds,
        }
    }

    /// Shows metrics as this says from now on.
    pub fn obey(&self, recording: Option<&Arc<Recording>>) {
        self.recording.store(recording.cloned());
    }

    /// Sets the identity of the proxy, by its certificate.
    pub fn identify(&self, leaf: &[u8]) {
        self.own.store(Met::read(leaf).map(Arc::new));
    }

    /// The number of the workload that has shown this certificate of the mesh, which was verified.
    pub fn meet(&self, leaf: &[u8]) -> WorkloadId {
        self.bounds.workloads.meet(leaf)
    }

    /// The book of requests that have no upstream.
    pub fn nowhere(&self, reporter: Reporter) -> &Arc<Book> {
        let [source, destination] = &self.nowhere;
        match reporter {
            Reporter::Source => source,
            Reporter::Destination => destination,
        }
    }

    /// A book for an upstream, with its first traffic.
    pub fn open(&self, name: &Name, origin: Option<&Origin>, reporter: Reporter) -> Arc<Book> {
        let destination = Destination::of(name, origin, reporter);
        if !self.shares.take(&destination.namespace) {
            self.bounds.overflows.inc();
            let [source, destination] = &self.others;
            return match reporter {
                Reporter::Source => source.clone(),
                Reporter::Destination => destination.clone(),
            };
        }
        let book = Arc::new(Book::new(
            destination,
            reporter,
            self.workers,
            self.bounds.clone(),
            Some(self.shares.clone()),
        ));
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        if books.len() == books.capacity() {
            books.retain(|book| book.strong_count() > 0);
        }
        books.push(Arc::downgrade(&book));
        book
    }

    fn all(&self) -> Vec<Arc<Book>> {
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let books = books.iter().filter_map(Weak::upgrade);
        let special = self.nowhere.iter().chain(&self.others);
        books.chain(special.cloned()).collect()
    }
}

impl Bounds {
    fn new() -> Self {
        let overflows = Counter::default();
        Bounds {
            pages: AtomicUsize::default(),
            pages_of: (0..WORKLOADS_MAX).map(|_| AtomicUsize::default()).collect(),
            workloads: Workloads::new(overflows.clone()),
            overflows,
        }
    }

    /// Takes a page for a workload, if its namespace has fewer than are free.
    fn take_page(&self, workload: WorkloadId) -> bool {
        let all = self.pages.fetch_add(1, Relaxed);
        let own = self.pages_of(workload);
        let own = own.map_or(0, |own| own.fetch_add(1, Relaxed));
        let has_room = own < PAGES_MAX.saturating_sub(all);
        if !has_room {
            self.give_back(workload);
        }
        has_room
    }

    fn give_back(&self, workload: WorkloadId) {
        self.pages.fetch_sub(1, Relaxed);
        if let Some(own) = self.pages_of(workload) {
            own.fetch_sub(1, Relaxed);
        }
    }

    fn pages_of(&self, workload: WorkloadId) -> Option<&AtomicUsize> {
        let first = self.workloads.first_of_namespace(workload);
        self.pages_of.get(first.index())
    }
}

impl Destination {
    fn called(text: &str) -> Destination {
        Destination {
            service: text.to_owned(),
            name: text.to_owned(),
            namespace: text.to_owned(),
        }
    }

    fn of(name: &Name, origin: Option<&Origin>, reporter: Reporter) -> Destination {
        let Some(origin) = origin else {
            return Destination {
                service: "unknown.unknown.svc.cluster.local".to_owned(),
                ..Destination::called("unknown")
            };
        };
        let (namespace, object) = (origin.namespace(), origin.name());
        match origin.kind {
            // Its upstreams are named after their hosts: `.../namespace/host:port`.
            OriginKind::ServiceEntry => {
                let host = name.rsplit('/').next().unwrap_or_default();
                let host = host.split([':', '@']).next().unwrap_or_default();
                Destination {
                    service: host.to_owned(),
                    name: host.to_owned(),
                    namespace: namespace.to_owned(),
                }
            }
            // Of no Service: what nobody declared passes through, as Istio calls it.
            OriginKind::Settings => Destination {
                name: match reporter {
                    Reporter::Source => "PassthroughCluster".to_owned(),
                    Reporter::Destination => "InboundPassthroughCluster".to_owned(),
                },
                ..Destination::called("unknown")
            },
            // A port of which a Sidecar speaks, and nobody else.
            OriginKind::Object => Destination::called("unknown"),
            _ => Destination {
                service: format!("{object}.{namespace}.svc.cluster.local"),
                name: object.to_owned(),
                namespace: namespace.to_owned(),
            },
        }
    }
}

impl Book {
    fn new(
        destination: Destination,
        reporter: Reporter,
        workers: usize,
        bounds: Arc<Bounds>,
        shares: Option<Arc<BookShares>>,
    ) -> Book {
        Book {
            destination,
            reporter,
            sheets: (0..workers).map(|_| Sheet::default()).collect(),
            shares,
            bounds,
        }
    }

    /// The counts of a worker for a workload.
    pub fn page(&self, worker: usize, workload: WorkloadId) -> Option<&SeriesPage> {
        let sheet = self.sheets.get(worker)?;
        let new = || Box::new(SeriesPage::new(self.bounds.clone()));
        if workload == WorkloadId::UNKNOWN {
            return Some(sheet.unknown.get_or_init(new));
        }
        let slot = sheet.slot(workload)?;
        if let Some(page) = slot.get() {
            return Some(page);
        }
        // The page of whatever is beyond is always there.
        let is_bound = workload != WorkloadId::OVERFLOW;
        if is_bound && !self.bounds.take_page(workload) {
            self.bounds.overflows.inc();
            return Some(sheet.slot(WorkloadId::OVERFLOW)?.get_or_init(new));
        }
        Some(slot.get_or_init(new))
    }

    /// All pages, and whose they are.
    fn pages(&self) -> impl Iterator<Item = (WorkloadId, &SeriesPage)> {
        self.sheets.iter().flat_map(|sheet| {
            let unknown = sheet.unknown.get().into_iter();
            let unknown = unknown.map(|page| (WorkloadId::UNKNOWN, &**page));
            let nodes = sheet.met.get().into_iter().flat_map(|node| node.iter());
            let met = nodes.enumerate().flat_map(|(high, node)| {
                let pages = node.get().into_iter().flat_map(|node| node.iter());
                pages.enumerate().filter_map(move |(low, page)| {
                    Some((WorkloadId::at(high * FANOUT + low), &**page.get()?))
                })
            });
            unknown.chain(met)
        })
    }
}

impl Sheet {
    fn slot(&self, workload: WorkloadId) -> Option<&OnceLock<Box<SeriesPage>>> {
        let (high, low) = (workload.index() / FANOUT, workload.index() % FANOUT);
        let nodes = self.met.get_or_init(|| Box::new(node()));
        nodes.get(high)?.get_or_init(|| Box::new(node())).get(low)
    }
}

fn node<T>() -> Node<T> {
    [const { OnceLock::new() }; FANOUT]
}

impl fmt::Debug for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.destination, f)
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        if let Some(shares) = &self.shares {
            shares.give_back(&self.destination.namespace);
        }
        let is_bound = |id: &WorkloadId| *id > WorkloadId::OVERFLOW;
        let workloads = self.pages().map(|(id, _)| id).filter(is_bound);
        workloads.for_each(|id| self.bounds.give_back(id));
    }
}

impl SeriesPage {
    fn new(bounds: Arc<Bounds>) -> SeriesPage {
        SeriesPage {
            series: [const { OnceLock::new() }; SERIES_MAX],
            bounds,
        }
    }

    /// Counts a request.
    pub fn count_request(
        &self,
        labels: Labels,
        duration: Duration,
        bytes_received: u64,
        bytes_sent: u64,
    ) {
        let series = self.series(labels);
        add(&series.requests, 1);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        series.duration.add(micros);
        series
            .request_bytes
            .add(bytes_received.saturating_mul(1_000));
        series.response_bytes.add(bytes_sent.saturating_mul(1_000));
    }

    /// Counts a stream that begins.
    pub fn count_opened(&self, labels: Labels) {
        add(&self.series(labels).opened, 1);
    }

    /// Counts a stream that ends.
    pub fn count_closed(&self, labels: Labels) {
        add(&self.series(labels).closed, 1);
    }

    /// Counts bytes of a stream.
    pub fn count_bytes(&self, labels: Labels, bytes_received: u64, bytes_sent: u64) {
        let series = self.series(labels);
        add(&series.received, bytes_received);
        add(&series.sent, bytes_sent);
    }

    fn series(&self, labels: Labels) -> &Series {
        let (last, series) = match self.series.split_last() {
            Some(split) => split,
            None => return nothing(),
        };
        for slot in series {
            let known = slot.get_or_init(|| Box::new(Series::new(labels)));
            if known.labels == labels {
                return known;
            }
        }
        self.bounds.overflows.inc();
        last.get_or_init(|| Box::new(Series::new(OVERFLOW)))
    }
}

/// A series that is never shown.
fn nothing() -> &'static Series {
    static NOTHING: std::sync::LazyLock<Series> =
        std::sync::LazyLock::new(|| Series::new(OVERFLOW));
    &NOTHING
}

impl Series {
    fn new(labels: Labels) -> Series {
        Series {
            labels,
            requests: AtomicU64::default(),
            opened: AtomicU64::default(),
            closed: AtomicU64::default(),
            sent: AtomicU64::default(),
            received: AtomicU64::default(),
            duration: Distribution::default(),
            request_bytes: Distribution::default(),
            response_bytes: Distribution::default(),
        }
    }
}

impl Distribution {
    /// Adds a value in thousandths.
    fn add(&self, thousandths: u64) {
        let value = thousandths as f64 / 1_000.0;
        let at = BOUNDS.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(at) {
            add(bucket, 1);
        }
        add(&self.sum, thousandths);
    }
}

/// There is one writer, so no other core has to be asked.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// The word for a metric in expositions, without what every counter ends with.
fn name_of(metric: Metric) -> &'static str {
    match metric {
        Metric::Requests => "istio_requests",
        Metric::RequestDuration => "istio_request_duration_milliseconds",
        Metric::RequestBytes => "istio_request_bytes",
        Metric::ResponseBytes => "istio_response_bytes",
        Metric::TcpOpened => "istio_tcp_connections_opened",
        Metric::TcpClosed => "istio_tcp_connections_closed",
        Metric::TcpSent => "istio_tcp_sent_bytes",
        Metric::TcpReceived => "istio_tcp_received_bytes",
    }
}

#[cfg(test)]
mod tests;
