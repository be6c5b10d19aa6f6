//! `fleet`: what many proxies cost one controller, per change and when it starts anew.

mod mesh;
mod proxies;
mod tally;

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
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
    /// Seconds between the end of the controller and its new start.
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

/// How long nothing happens while the idle fleet is measured: each connection is asked once in
/// that time whether it is there.
const IDLE: Duration = Duration::from_secs(10);

/// Descriptors beside those of proxies.
const DESCRIPTORS_SPARE: u64 = 512;

/// The figures of a run.
#[derive(Serialize)]
struct Report {
    proxies: usize,
    services: u64,
    controller_start_s: f64,
    /// The time from the first connection until all proxies, which hold everything already, are in
    /// step.
    join_s: f64,
    /// Processor time of the controller for that.
    join_cpu_s: f64,
    /// Resident memory of the controller with all proxies.
    rss_mib: f64,
    /// Processor time of the controller while nothing happens, in percent of one core.
    idle_cpu_percent: f64,
    changes: Changes,
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
    cpu_ms_per_change: f64,
    /// The controller's processor time meanwhile, in percent of one core.
    cpu_percent: f64,
    bytes_per_proxy: f64,
    /// Streams that were sent something, per change.
    streams_woken: f64,
    /// Nodes of snapshots that were compared for that, per change and stream.
    nodes_visited: f64,
    /// Resident memory of the controller in the end.
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
    let (controller, ready) = start(&ground)?;
    let way = ground.runtime.block_on(ground.home.way())?;

    let pattern = proxies::pattern(&way, args.services)?;
    let (worked, joined) = (controller.processor_time()?, Instant::now());
    let proxies = Proxies::start(&way, &pattern, args.proxies, args.threads)?;
    let in_step = proxies.wait_in_step(None)?;
    let join_cpu = controller.processor_time()? - worked;
    let worked = controller.processor_time()?;
    std::thread::sleep(IDLE);
    let idle = controller.processor_time()? - worked;
    let (rss_mib, _) = controller.memory_mib()?;
    let changes = change(args, &ground, &generator, &controller, &proxies)?;
    let proxies_rss_mib = cluster::usage::memory_mib(std::process::id())?.0;
    let (restart, digest) = restart(args, &ground, controller, &proxies)?;
    proxies.stop();
    let reconnect = args
        .reconnect
        .then(|| reconnect(args, &ground, &way, digest));
    let reconnect = reconnect.transpose()?;
    ground.leave()?;
    Ok(Report {
        proxies: args.proxies,
        services: args.services,
        controller_start_s: seconds(ready),
        join_s: seconds(in_step.at - joined),
        join_cpu_s: seconds(join_cpu),
        rss_mib: tenth(rss_mib),
        idle_cpu_percent: percent(idle, IDLE),
        changes,
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
    controller: &Process,
    proxies: &Proxies,
) -> anyhow::Result<Changes> {
    let touched = args.services.min(TOUCHED_MAX);
    let mut pace = Pace::new(args.rate);
    let mut times = Vec::new();
    let mut digest = proxies.wait_in_step(None)?.digest;
    let before = controller.figures()?;
    let (bytes_before, worked_before) = (proxies.bytes(), controller.processor_time()?);
    let begun = Instant::now();
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
    let worked = controller.processor_time()? - worked_before;
    let took = begun.elapsed();
    let after = controller.figures()?;
    let since = |name| anyhow::Ok((after.counter(name)? - before.counter(name)?) as f64);
    let sent = since("sync_commits")?;
    let bytes = sum_since(&proxies.bytes(), &bytes_before);
    let count = args.changes as f64;
    Ok(Changes {
        last_proxy_ms: Quantiles::of(times.into_iter()),
        cpu_ms_per_change: tenth(worked.as_secs_f64() * 1e3 / count),
        cpu_percent: percent(worked, took),
        bytes_per_proxy: tenth(bytes as f64 / count / args.proxies as f64),
        streams_woken: tenth(sent / count),
        nodes_visited: tenth(since("sync_nodes_visited")? / sent),
        rss_mib: tenth(controller.memory_mib()?.0),
    })
}

/// Kills the controller, and starts it anew.
fn restart(
    args: &FleetArgs,
    ground: &Ground,
    controller: Process,
    proxies: &Proxies,
) -> anyhow::Result<(Restart, Digest)> {
    controller.kill()?;
    proxies.wait_alone()?;
    let before = proxies.bytes();
    std::thread::sleep(Duration::from_secs(args.downtime_seconds));
    let (controller, ready) = start(ground)?;
    let ready_at = Instant::now();
    let in_step = proxies.wait_in_step(None)?;
    let after = proxies.bytes();
    let each = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after - before);
    let (rss_mib, rss_peak_mib) = controller.memory_mib()?;
    let restart = Restart {
        downtime_s: args.downtime_seconds as f64,
        ready_s: seconds(ready),
        settled_s: seconds(in_step.at.saturating_duration_since(ready_at)),
        cpu_s: seconds(controller.processor_time()?),
        bytes_per_proxy: tenth(sum_since(&after, &before) as f64 / args.proxies as f64),
        bytes_per_proxy_max: each.max().unwrap_or(0),
        rss_mib: tenth(rss_mib),
        rss_peak_mib: tenth(rss_peak_mib),
    };
    Ok((restart, in_step.digest))
}

/// Starts a controller anew, and then as many proxies that hold nothing, until all are where it is.
fn reconnect(
    args: &FleetArgs,
    ground: &Ground,
    way: &Way,
    digest: Digest,
) -> anyhow::Result<Reconnect> {
    let (controller, _) = start(ground)?;
    let before = controller.figures()?;
    let (worked, begun) = (controller.processor_time()?, Instant::now());
    let proxies = Proxies::start(way, &Pattern::empty(), args.proxies, args.threads)?;
    let settled = proxies.wait_at(digest)?;
    let worked = controller.processor_time()? - worked;
    let (rss_mib, rss_peak_mib) = controller.memory_mib()?;
    let after = controller.figures()?;
    let since = |name| anyhow::Ok(after.counter(name)? - before.counter(name)?);
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

fn start(ground: &Ground) -> anyhow::Result<(Process, Duration)> {
    let mut controller = ground.home.controller()?;
    let ready = controller.wait_ready().context("the controller")?;
    Ok((controller, ready))
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

fn sum_since(after: &[u64], before: &[u64]) -> u64 {
    after.iter().sum::<u64>() - before.iter().sum::<u64>()
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
