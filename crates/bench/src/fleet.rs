//! `fleet`: what many proxies cost one controller or several, per change and when they start anew.

mod controllers;
mod mesh;
mod proxies;
mod tally;

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use http::Method;
use indicatif::ProgressBar;
use myriad_model::Digest;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Serialize;

use crate::activate::{Pace, Quantiles};
use crate::backend;
use crate::cluster;
use crate::cluster::follower::Way;
use crate::cluster::ground::Ground;
use crate::cluster::parts::Home;
use crate::cluster::process::Process;
use crate::cluster::tenant::Kind;
use crate::domains::{Certificates, Generator};
use controllers::{CONTROLLERS_MAX, ControllerShare, Controllers};
use mesh::MeshArgs;
use proxies::{Pattern, Proxies};

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetArgs {
    /// Proxies: the real client, each on its own connection, without listeners.
    #[arg(long, default_value_t = 2_000)]
    proxies: usize,
    /// Services, each with an Ingress, a slice and a certificate.
    #[arg(long, default_value_t = 1_000)]
    services: u64,
    /// Endpoints that are changed, one at a time.
    #[arg(long, default_value_t = 100)]
    changes: u64,
    /// Changes per second, at most: each waits until all proxies have the one before.
    #[arg(long, default_value_t = 5.0)]
    rate: f64,
    /// Controllers, of which the first leads; proxies and sidecars are spread over all of them.
    #[arg(long, default_value_t = 1)]
    controllers: usize,
    /// Seconds in which nothing happens while the idle fleet is measured.
    #[arg(long, default_value_t = 10)]
    idle_seconds: u64,
    /// Seconds between the end of all controllers and their new start.
    #[arg(long, default_value_t = 3)]
    downtime_seconds: u64,
    /// Threads of all proxies together.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// In the end as many proxies come at once that hold nothing, to a controller that has just
    /// started. Each then has a copy of its own of all there is.
    #[arg(long, conflicts_with = "mesh")]
    reconnect: bool,
    #[command(flatten)]
    mesh: MeshArgs,
    /// Print one JSON object instead of a list.
    #[arg(long)]
    json: bool,
}

/// Services whose endpoints are changed. Each proxy holds its own copy of what changed.
const TOUCHED_MAX: u64 = 50;

/// Descriptors beside those of proxies.
const DESCRIPTORS_SPARE: u64 = 512;

/// The figures of a run.
#[derive(Serialize)]
struct Report {
    proxies: usize,
    services: u64,
    controllers: usize,
    /// The time until the first controller is ready.
    controller_start_s: f64,
    /// The time from the first connection until all proxies, which hold everything already, are in
    /// step.
    join_s: f64,
    /// Processor time of all controllers for that.
    join_cpu_s: f64,
    /// Resident memory of the controller with all proxies; of several, the largest.
    rss_mib: f64,
    /// Processor time of all controllers while nothing happens, in percent of one core.
    idle_cpu_percent: f64,
    changes: Changes,
    /// The part of each controller in the changes, the leader first.
    by_controller: Vec<ControllerShare>,
    restart: Restart,
    #[serde(skip_serializing_if = "Option::is_none")]
    reconnect: Option<Reconnect>,
    /// Resident memory of all proxies together, in this process.
    proxies_rss_mib: f64,
}

#[derive(Serialize)]
struct Changes {
    /// The time from the write of an endpoint until the last proxy has it.
    last_proxy_ms: Quantiles,
    /// Processor time of all controllers.
    cpu_ms_per_change: f64,
    /// The same meanwhile, in percent of one core.
    cpu_percent: f64,
    bytes_per_proxy: f64,
    /// The changes that each proxy was told, which is each one once.
    told: u64,
    /// Streams that were sent something, per change.
    streams_woken: f64,
    /// Nodes of snapshots that were compared for that, per change and stream.
    nodes_visited: f64,
    /// Resident memory of the largest controller in the end.
    rss_mib: f64,
}

#[derive(Serialize)]
struct Restart {
    downtime_s: f64,
    /// The time from the start of the process until it is ready.
    ready_s: f64,
    /// The time from there until all proxies are in step.
    settled_s: f64,
    cpu_s: f64,
    bytes_per_proxy: f64,
    bytes_per_proxy_max: u64,
    rss_mib: f64,
    rss_peak_mib: f64,
}

/// Proxies that hold nothing, all at once.
#[derive(Serialize)]
struct Reconnect {
    /// The time from the first connection until all hold all.
    settled_s: f64,
    /// Processor time of the controller for that.
    cpu_s: f64,
    bytes_per_proxy: f64,
    /// Commits that were compared and encoded, and those that were sent as they were for another.
    steps_made: u64,
    steps_shared: u64,
    /// Nodes of snapshots that were compared, for all proxies together.
    nodes_visited: u64,
    rss_mib: f64,
    rss_peak_mib: f64,
}

/// Runs the command.
///
/// # Errors
/// A process that ends, a proxy that does not get in step.
pub fn run(args: &FleetArgs) -> anyhow::Result<()> {
    ensure!(args.proxies > 0, "a fleet has a proxy");
    ensure!(args.services > 0, "there is a service");
    ensure!(args.changes > 0 && args.rate > 0.0, "something changes");
    ensure!(
        (1..=CONTROLLERS_MAX).contains(&args.controllers),
        "--controllers is from 1 to {CONTROLLERS_MAX}"
    );
    cluster::inside(|| match args.mesh.mesh {
        true => {
            raise_descriptors(args.mesh.sidecars_max())?;
            print(args, &mesh::measure(args)?)
        }
        false => {
            raise_descriptors(args.proxies)?;
            print(args, &measure(args)?)
        }
    })
}

fn print(args: &FleetArgs, report: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match args.json {
        true => serde_json::to_writer(&mut out, report)?,
        false => serde_json::to_writer_pretty(&mut out, report)?,
    }
    writeln!(out)?;
    Ok(out.flush()?)
}

fn measure(args: &FleetArgs) -> anyhow::Result<Report> {
    let endpoints = backend::start(Home::address())?;
    let generator = Generator::new(Certificates::Unique, endpoints)?;
    let mut ground = Ground::prepare(&generator)?;
    ground.fill(&generator, args.services, &ProgressBar::hidden())?;
    let holder = || holder(&ground);
    let start = |number| controller(&ground, number);
    let (controllers, ready) = Controllers::start_led(args.controllers, start, holder)?;
    let way = ground.runtime.block_on(ground.home.way())?;
    let ways: Vec<_> = (0..args.controllers).map(|it| way.at(sync(it))).collect();

    let pattern = proxies::pattern(&way, args.services)?;
    let (worked, joined) = (controllers.processor_time()?, Instant::now());
    let proxies = Proxies::start(&ways, &pattern, args.proxies, args.threads)?;
    let in_step = proxies.wait_in_step(None)?;
    let join_cpu = controllers.processor_time()? - worked;
    let worked = controllers.processor_time()?;
    let idle_time = Duration::from_secs(args.idle_seconds.max(1));
    std::thread::sleep(idle_time);
    let idle = controllers.processor_time()? - worked;
    let (rss_mib, _) = controllers.memory_mib()?;
    let (changes, by_controller) = change(args, &ground, &generator, &controllers, &proxies)?;
    controllers.check_leader(holder)?;
    let proxies_rss_mib = cluster::usage::memory_mib(std::process::id())?.0;
    let (restart, digest) = restart(args, &ground, controllers, &proxies)?;
    proxies.stop();
    let reconnect = args
        .reconnect
        .then(|| reconnect(args, &ground, &ways, digest));
    let reconnect = reconnect.transpose()?;
    ground.leave()?;
    Ok(Report {
        proxies: args.proxies,
        services: args.services,
        controllers: args.controllers,
        controller_start_s: seconds(ready),
        join_s: seconds(in_step.at - joined),
        join_cpu_s: seconds(join_cpu),
        rss_mib: tenth(rss_mib),
        idle_cpu_percent: percent(idle, idle_time),
        changes,
        by_controller,
        restart,
        reconnect,
        proxies_rss_mib: tenth(proxies_rss_mib),
    })
}

/// Moves endpoints one after the other, and waits each time until the whole fleet has followed.
fn change(
    args: &FleetArgs,
    ground: &Ground,
    generator: &Generator,
    controllers: &Controllers,
    proxies: &Proxies,
) -> anyhow::Result<(Changes, Vec<ControllerShare>)> {
    let touched = args.services.min(TOUCHED_MAX);
    let mut pace = Pace::new(args.rate);
    let mut times = Vec::new();
    let mut digest = proxies.wait_in_step(None)?.digest;
    let (before, told_before) = (controllers.look()?, proxies.told());
    let (bytes_before, begun) = (proxies.bytes(), Instant::now());
    for turn in 0..args.changes {
        let index = turn % touched * args.services / touched;
        let domain = generator.domain(Generator::existing(index), 0)?;
        let domain = match (turn / touched).is_multiple_of(2) {
            true => generator.moved(domain),
            false => domain,
        };
        let write = ground.tenant.replace(Kind::EndpointSlice, &domain);
        pace.wait();
        let sent = Instant::now();
        ground.write(write.context("a slice can be replaced")?)?;
        let in_step = proxies.wait_in_step(Some(digest))?;
        digest = in_step.digest;
        times.push(in_step.at.saturating_duration_since(sent));
    }
    pace.wait();
    let (took, after) = (begun.elapsed(), controllers.look_back()?);
    let worked = after.worked_together() - before.worked_together();
    let since = |name| anyhow::Ok((after.sum(name)? - before.sum(name)?) as f64);
    let sent = since("sync_commits")?;
    let bytes = differences(&proxies.bytes(), &bytes_before);
    let told = told_once(&differences(&proxies.told(), &told_before), args.changes)?;
    let count = args.changes as f64;
    let shares = controllers.shares((&before, &after), (0, bytes.as_slice()), count)?;
    let bytes: u64 = bytes.iter().sum();
    let changes = Changes {
        last_proxy_ms: Quantiles::of(times.into_iter()),
        cpu_ms_per_change: tenth(worked.as_secs_f64() * 1e3 / count),
        cpu_percent: percent(worked, took),
        bytes_per_proxy: tenth(bytes as f64 / count / args.proxies as f64),
        told,
        streams_woken: tenth(sent / count),
        nodes_visited: tenth(since("sync_nodes_visited")? / sent),
        rss_mib: tenth(controllers.memory_mib()?.0),
    };
    Ok((changes, shares))
}

/// Kills all controllers, and starts them anew.
fn restart(
    args: &FleetArgs,
    ground: &Ground,
    controllers: Controllers,
    proxies: &Proxies,
) -> anyhow::Result<(Restart, Digest)> {
    controllers.kill()?;
    proxies.wait_alone()?;
    let before = proxies.bytes();
    std::thread::sleep(Duration::from_secs(args.downtime_seconds));
    let start = |number| controller(ground, number);
    let (controllers, ready) = Controllers::start(args.controllers, start)?;
    let ready_at = Instant::now();
    let in_step = proxies.wait_in_step(None)?;
    let after = proxies.bytes();
    let each = differences(&after, &before);
    let (rss_mib, rss_peak_mib) = controllers.memory_mib()?;
    let restart = Restart {
        downtime_s: args.downtime_seconds as f64,
        ready_s: seconds(ready),
        settled_s: seconds(in_step.at.saturating_duration_since(ready_at)),
        cpu_s: seconds(controllers.processor_time()?),
        bytes_per_proxy: tenth(each.iter().sum::<u64>() as f64 / args.proxies as f64),
        bytes_per_proxy_max: each.iter().copied().max().unwrap_or(0),
        rss_mib: tenth(rss_mib),
        rss_peak_mib: tenth(rss_peak_mib),
    };
    Ok((restart, in_step.digest))
}

/// Starts controllers anew, and then as many proxies that hold nothing, until all are where they
/// are.
fn reconnect(
    args: &FleetArgs,
    ground: &Ground,
    ways: &[Way],
    digest: Digest,
) -> anyhow::Result<Reconnect> {
    let start = |number| controller(ground, number);
    let (controllers, _) = Controllers::start(args.controllers, start)?;
    let (before, begun) = (controllers.look()?, Instant::now());
    let proxies = Proxies::start(ways, &Pattern::empty(), args.proxies, args.threads)?;
    let settled = proxies.wait_at(digest)?;
    let after = controllers.look_back()?;
    let worked = after.worked_together() - before.worked_together();
    let (rss_mib, rss_peak_mib) = controllers.memory_mib()?;
    let since = |name| anyhow::Ok(after.sum(name)? - before.sum(name)?);
    let bytes: u64 = proxies.bytes().iter().sum();
    proxies.stop();
    Ok(Reconnect {
        settled_s: seconds(settled.saturating_duration_since(begun)),
        cpu_s: seconds(worked),
        bytes_per_proxy: tenth(bytes as f64 / args.proxies as f64),
        steps_made: since("sync_steps_made")?,
        steps_shared: since("sync_steps_shared")?,
        nodes_visited: since("sync_nodes_visited")?,
        rss_mib: tenth(rss_mib),
        rss_peak_mib: tenth(rss_peak_mib),
    })
}

/// Starts a controller, by its number from 0.
fn controller(ground: &Ground, number: u16) -> anyhow::Result<Process> {
    match number.checked_sub(1) {
        None => ground.home.controller(),
        Some(further) => ground.home.replica(further, &[]),
    }
}

/// The address where the controller of a number is followed.
fn sync(number: usize) -> SocketAddr {
    let further = number.checked_sub(1).map(u16::try_from);
    match further {
        Some(Ok(further)) => Home::replica_sync(further),
        // No more are started than have a number.
        None | Some(Err(_)) => Home::sync(),
    }
}

/// The one that leads.
fn holder(ground: &Ground) -> Option<String> {
    let namespace = &ground.home.namespace;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/myriad");
    let lease = ground.home.api.call(Method::GET, &path, None);
    controllers::holder(&ground.runtime.block_on(lease).ok()?)
}

/// The changes that each was told, which must be all of them, once.
fn told_once(told: &[u64], changes: u64) -> anyhow::Result<u64> {
    let other = told.iter().position(|told| *told != changes);
    if let Some(at) = other {
        bail!("number {at} was told {} changes, not {changes}", told[at]);
    }
    Ok(changes)
}

/// Each proxy takes a descriptor here and one in the controller, which inherits the limit.
fn raise_descriptors(proxies: usize) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = proxies as u64 + DESCRIPTORS_SPARE;
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= wanted),
        "{proxies} proxies need {wanted} descriptors; raise the hard limit (ulimit -Hn)"
    );
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("the limit of descriptors stays")
}

/// The growth of each; those that have come since began with nothing.
fn differences(after: &[u64], before: &[u64]) -> Vec<u64> {
    let before = before.iter().copied().chain(std::iter::repeat(0));
    let all = after.iter().zip(before);
    all.map(|(after, before)| after - before).collect()
}

fn percent(worked: Duration, of: Duration) -> f64 {
    tenth(worked.as_secs_f64() / of.as_secs_f64() * 100.0)
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_too_few_or_too_many_is_told_of() {
        assert_eq!(told_once(&[3, 3], 3).unwrap(), 3);
        for told in [[3, 2], [4, 3]] {
            assert!(told_once(&told, 3).is_err(), "{told:?}");
        }
    }

    #[test]
    fn what_came_meanwhile_began_with_nothing() {
        assert_eq!(differences(&[5, 7, 9], &[1, 2]), [4, 5, 9]);
    }

    #[test]
    fn controllers_are_followed_at_addresses_of_their_own() {
        let all: Vec<_> = (0..CONTROLLERS_MAX).map(sync).collect();
        let mut different = all.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), all.len());
        assert_eq!(all[0], Home::sync());
    }
}
