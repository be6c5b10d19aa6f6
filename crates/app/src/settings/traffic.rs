//! Settings of how connections are served.

use std::path::PathBuf;
use std::time::Duration;

use myriad_model::LogFormat;
use myriad_proxy::{
    Introductions, Limits, Locality, NameSettings, RequestIds, TopSeries, Workload,
};
use myriad_translate::mesh_config::Edge;

use super::captures::{self, Captures};
use super::requests::{self, AccessLog};
use super::texts::{restart_socket, workload};
use super::{introductions, limits, memory, names};
use crate::cli::RawTraffic;
use crate::tickets;

/// The most workers: a guard against a typing error, not a tuning limit.
const WORKERS_MAX: usize = 1_024;

/// The longest drain.
const DRAIN_SECONDS_MAX: u64 = 3_600;

/// How connections are served.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Threads, at least 1.
    pub workers: usize,
    /// How long connections are still accepted in a drain.
    pub drain_delay: Duration,
    /// When the connections that remain are cut.
    pub drain_timeout: Duration,
    /// The memory that the process may have; none for no budget.
    pub memory_max: Option<u64>,
    /// The socket where the process before is met, and the next one waited for.
    pub restart_socket: Option<PathBuf>,
    /// The file of the keys of session tickets.
    pub ticket_keys: Option<PathBuf>,
    /// The output of the access log.
    pub access_log: AccessLog,
    /// The format of its lines where nothing else is said.
    pub access_log_format: LogFormat,
    /// How many domains and objects have series of their own.
    pub top_series: TopSeries,
    /// The treatment of clients' request ids.
    pub request_ids: RequestIds,
    /// The proxy's workload in the labels of standard metrics, which are counted for it.
    pub workload: Option<Workload>,
    /// Proxies in front of this one that are believed about the client's address.
    pub trusted_hops: usize,
    /// The listeners where load balancers introduce clients; `None` for no listener.
    pub introductions: Option<Introductions>,
    /// The locality of the proxy, if it knows.
    pub locality: Option<Locality>,
    /// The servers that are asked for the addresses of names.
    pub names: NameSettings,
    /// The sockets where captured connections come in.
    pub captures: Captures,
    /// The limits of what anybody outside can make grow.
    pub limits: Limits,
}

impl Traffic {
    pub(super) fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> Traffic {
        let workers = raw
            .workers
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        if !(1..=WORKERS_MAX).contains(&workers) {
            problems.push(format!("--workers is {workers}, not 1 to {WORKERS_MAX}"));
        }
        for (name, seconds) in [
            ("--drain-delay", raw.drain_delay),
            ("--drain-timeout", raw.drain_timeout),
        ] {
            if seconds > DRAIN_SECONDS_MAX {
                problems.push(format!("{name} is {seconds}, over {DRAIN_SECONDS_MAX}"));
            }
        }
        Traffic {
            workers,
            drain_delay: Duration::from_secs(raw.drain_delay),
            drain_timeout: Duration::from_secs(raw.drain_timeout),
            memory_max: memory::read(&raw.life.memory_max, problems),
            restart_socket: restart_socket(raw, problems),
            ticket_keys: tickets::check(raw.life.ticket_keys.as_deref(), problems),
            access_log: AccessLog::read(raw, problems),
            access_log_format: requests::log_format(raw, problems),
            top_series: requests::top_series(raw, problems),
            request_ids: requests::request_ids(raw),
            workload: workload(raw.workload.as_deref(), problems),
            trusted_hops: raw.trusted_hops.unwrap_or_default(),
            introductions: introductions::read(raw, problems),
            locality: Locality::parse(&raw.names.locality),
            names: names::read(raw, problems),
            captures: captures::read(raw, problems),
            limits: limits::read(raw, problems),
        }
    }

    /// Takes from the mesh's settings what no flag says.
    pub(super) fn follow(&mut self, raw: &RawTraffic, edge: &Edge) {
        if let (None, Some(rule)) = (&raw.path_normalization, edge.paths) {
            self.limits.paths = limits::rule_of(rule);
        }
        if let (None, Some(hops)) = (raw.trusted_hops, edge.trusted_hops) {
            self.trusted_hops = hops;
        }
    }

    /// The longest that a drain may take.
    pub fn drain_longest(&self) -> Duration {
        self.drain_delay + self.drain_timeout
    }

    /// The settings of the proxy.
    pub fn proxy(&self) -> myriad_proxy::Settings {
        myriad_proxy::Settings {
            workers: self.workers,
            drain_delay: self.drain_delay,
            drain_timeout: self.drain_timeout,
            access_log: self.access_log.writer(),
            access_log_format: self.access_log_format.clone(),
            top_series: self.top_series,
            request_ids: self.request_ids,
            trusted_hops: self.trusted_hops,
            introductions: self.introductions.clone(),
            workload: self.workload.clone(),
            locality: self.locality.clone(),
            names: self.names.clone(),
            captures: self.captures.sockets.clone(),
            memory_max: self.memory_max,
            hands_over: self.restart_socket.is_some(),
            limits: Limits {
                detection_timeout: self.captures.detection_timeout,
                ..self.limits.clone()
            },
            ..myriad_proxy::Settings::default()
        }
    }
}
