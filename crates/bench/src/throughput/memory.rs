//! The memory of a proxy: at boot, for idle connections, and after load.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;

use super::report::Spread;
use super::subject::{Ground, Subject};
use super::traffic::{Plan, Traffic};
use super::work::{Case, LOAD_CONNECTIONS, Work};
use super::{SETTLING, ThroughputArgs};
use crate::cluster::usage;
use crate::scale::report::{hundredth, tenth};
use crate::table;

/// How long all connections and their requests may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The memory of one proxy, in MiB.
pub(super) struct Kept {
    boot: f64,
    idle: f64,
    load: f64,
    after: f64,
    errors: u64,
    last_error: Option<String>,
}

/// A row.
#[derive(Debug, Serialize)]
pub(super) struct MemoryRow {
    work: Work,
    connections: usize,
    peer: String,
    /// The memory at boot that each idle connection has added. It has had one request.
    kib_per_connection: f64,
    peer_kib_per_connection: f64,
    ratio: Spread,
    rss_boot_mib: f64,
    peer_rss_boot_mib: f64,
    /// The memory with all idle connections.
    rss_idle_mib: f64,
    peer_rss_idle_mib: f64,
    /// Under load of 1,000 connections, after that.
    rss_mib: f64,
    peer_rss_mib: f64,
    /// When all connections have been closed for some seconds.
    rss_after_mib: f64,
    peer_rss_after_mib: f64,
    errors: u64,
    peer_errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Lets one proxy keep connections and then serve load.
///
/// # Errors
/// Connections are not made, or the proxy ends.
pub(super) fn look(
    args: &ThroughputArgs,
    ground: &Ground,
    subject: &Subject,
    case: &Case,
) -> anyhow::Result<Kept> {
    let rss = || usage::memory_mib(subject.id()).map(|(now, _)| now);
    let settling = if args.short { args.warming() } else { SETTLING };
    let plan = Plan {
        requests_max: Some(1),
        ..ground.plan(subject, case)
    };
    let traffic = Traffic::start(plan)?;
    traffic.wait_connected()?;
    let (begun, wanted) = (Instant::now(), case.connections as u64);
    while traffic.answered() < wanted {
        let answered = traffic.answered();
        let is_late = begun.elapsed() > ANSWER_TIMEOUT;
        ensure!(!is_late, "{answered} of {wanted} requests are answered");
        std::thread::sleep(LOOK_INTERVAL);
    }
    std::thread::sleep(settling);
    let idle = rss()?;
    let mut ended = vec![traffic.end()?];
    let load = Case {
        connections: LOAD_CONNECTIONS.min(case.connections),
        ..*case
    };
    let traffic = Traffic::start(ground.plan(subject, &load))?;
    traffic.wait_connected()?;
    std::thread::sleep(args.warming() + Duration::from_secs_f64(args.seconds));
    let load = rss()?;
    ended.push(traffic.end().context("the load")?);
    std::thread::sleep(settling);
    Ok(Kept {
        boot: subject.rss_boot_mib(),
        idle,
        load,
        after: rss()?,
        errors: ended.iter().map(|it| it.failed()).sum(),
        last_error: ended.iter().find_map(|it| it.seen.last_error.clone()),
    })
}

impl Kept {
    fn kib_per_connection(&self, case: &Case) -> f64 {
        (self.idle - self.boot).max(0.0) * 1_024.0 / case.connections as f64
    }
}

impl MemoryRow {
    /// The figures of Myriad and a peer.
    pub(super) fn new(case: &Case, peer: &str, own: &Kept, theirs: &Kept) -> MemoryRow {
        let (each, of_peer) = (
            own.kib_per_connection(case),
            theirs.kib_per_connection(case),
        );
        let last_error = own.last_error.clone();
        MemoryRow {
            work: case.work,
            connections: case.connections,
            peer: peer.to_owned(),
            kib_per_connection: hundredth(each),
            peer_kib_per_connection: hundredth(of_peer),
            ratio: Spread::of(std::iter::once(each / of_peer.max(f64::MIN_POSITIVE))),
            rss_boot_mib: tenth(own.boot),
            peer_rss_boot_mib: tenth(theirs.boot),
            rss_idle_mib: tenth(own.idle),
            peer_rss_idle_mib: tenth(theirs.idle),
            rss_mib: tenth(own.load),
            peer_rss_mib: tenth(theirs.load),
            rss_after_mib: tenth(own.after),
            peer_rss_after_mib: tenth(theirs.after),
            errors: own.errors,
            peer_errors: theirs.errors,
            last_error: last_error.or_else(|| theirs.last_error.clone()),
        }
    }
}

impl table::Row<12> for MemoryRow {
    const COLUMNS: [(&'static str, usize); 12] = [
        ("work", 4),
        ("conns", 6),
        ("peer", 16),
        ("KiB each", 8),
        ("peer", 6),
        ("boot MiB", 8),
        ("peer", 6),
        ("load MiB", 8),
        ("peer", 6),
        ("after MiB", 9),
        ("peer", 6),
        ("errors", 6),
    ];

    fn cells(&self) -> [String; 12] {
        [
            format!("{:?}", self.work),
            self.connections.to_string(),
            self.peer.clone(),
            format!("{:.1}", self.kib_per_connection),
            format!("{:.1}", self.peer_kib_per_connection),
            format!("{:.0}", self.rss_boot_mib),
            format!("{:.0}", self.peer_rss_boot_mib),
            format!("{:.0}", self.rss_mib),
            format!("{:.0}", self.peer_rss_mib),
            format!("{:.0}", self.rss_after_mib),
            format!("{:.0}", self.peer_rss_after_mib),
            (self.errors + self.peer_errors).to_string(),
        ]
    }

    fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}
