//! `issue`: certificates that an issuer provides, from the Ingress that is written to the first
//! answer over HTTPS, and the day on which all of them are to be replaced.

mod arrivals;
mod authority;
mod client;
mod drill;
mod objects;
mod ordinary;
mod place;
mod plan;
mod relay;
mod report;
mod stored;
mod world;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::backend;
use crate::cluster;
use crate::cluster::parts::Home;
use crate::domains::{Certificates, Generator};
use crate::probe::Prober;
use arrivals::{Arrivals, Coming};
use client::Client;
use drill::{Drill, DrillFigures};
use ordinary::{Ordinary, OrdinaryFigures};
use plan::{Failing, Plan};
use report::{Come, Report};
use world::World;

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct IssueArgs {
    /// Domains, whose Ingresses are written one after the other.
    #[arg(long, default_value_t = 300)]
    domains: u64,
    /// Domains among them that fail for ever, since their names lead elsewhere: a number, or a
    /// share as in 10%.
    #[arg(long, default_value = "0")]
    failing: Failing,
    /// Where Ingresses are written: files of `serve`, or the API of a cluster, that of
    /// `MYRIAD_CLUSTER` or one that is started for this, with two controllers.
    #[arg(long, value_enum, default_value_t = Source::Dir)]
    source: Source,
    /// Ingresses that are written per second.
    #[arg(long, default_value_t = 20.0)]
    rate: f64,
    /// How often the controller that leads is killed while domains come.
    #[arg(long, default_value_t = 0)]
    kill_leader: u64,
    /// Free the Lease of a leader that was killed, so that the next one need not wait for it.
    #[arg(long, requires = "kill_leader")]
    free_lease: bool,
    /// Ordinary domains, whose certificates are there, that are added before; as many per second
    /// are added while certificates are issued.
    #[arg(long, default_value_t = 100)]
    ordinary: u64,
    /// In the end the authority wants all certificates renewed at once, under load.
    #[arg(long)]
    drill: bool,
    /// Requests per second of that load on connections that are kept.
    #[arg(long, default_value_t = 200.0)]
    load: f64,
    /// Seconds between two looks at when a certificate is to be renewed [default: 10, and so much
    /// more that 50 certificates are looked at in a second].
    #[arg(long)]
    look_seconds: Option<u64>,
    /// Instead: starts with so many certificates that were kept, their memory, and the cost of
    /// knowing when each is to be renewed.
    #[arg(long)]
    stored: Option<u64>,
    /// The folder where those are made, or found again [default: one that is removed].
    #[arg(long, requires = "stored", value_name = "FOLDER")]
    stored_in: Option<PathBuf>,
    /// Threads of the proxy.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Print one JSON object instead of a list.
    #[arg(long)]
    json: bool,
}

/// Where Ingresses are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    /// Files in a directory that `serve` serves.
    Dir,
    /// Objects in a cluster.
    Kubernetes,
}

/// The least seconds between two looks at a window, and the looks per second, unless they are
/// given.
const LOOK_SECONDS_MIN: u64 = 10;
const LOOKS_PER_SECOND: u64 = 50;

/// Orders beyond those that are needed which the budget of the authority has.
const ORDERS_SPARE: u64 = 20;

/// The most orders that the setting takes.
const ORDERS_MAX: u64 = 10_000_000;

/// How often it is looked whether it is time to kill a leader.
const KILL_PAUSE: Duration = Duration::from_millis(10);

impl IssueArgs {
    /// The most orders in three hours: all that are needed, since the run shall not wait.
    fn orders(&self) -> u64 {
        let rounds = 1 + u64::from(self.drill);
        (rounds * self.domains + ORDERS_SPARE).min(ORDERS_MAX)
    }

    /// Seconds between two looks at a window.
    fn look_seconds(&self) -> u64 {
        let most = LOOK_SECONDS_MIN.max(self.domains / LOOKS_PER_SECOND);
        self.look_seconds.unwrap_or(most).clamp(1, 86_400)
    }
}

/// Runs the command.
///
/// # Errors
/// A process that ends, an object that cannot be written.
pub fn run(args: &IssueArgs) -> anyhow::Result<()> {
    if let Some(stored) = args.stored {
        return stored::run(args, stored);
    }
    ensure!(args.rate > 0.0 && args.load > 0.0, "a rate is above zero");
    ensure!(args.domains > 0, "there is a domain");
    let is_cluster = args.source == Source::Kubernetes;
    ensure!(
        args.kill_leader == 0 || is_cluster,
        "leaders are of clusters: --source kubernetes"
    );
    // Nothing can be fetched from within the network of a cluster.
    authority::programs()?;
    match args.source {
        Source::Dir => print(args, &measure(args, Ipv4Addr::LOCALHOST.into())?),
        Source::Kubernetes => cluster::inside(|| print(args, &measure(args, Home::address())?)),
    }
}

fn print(args: &IssueArgs, report: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match args.json {
        true => serde_json::to_writer(&mut out, report)?,
        false => serde_json::to_writer_pretty(&mut out, report)?,
    }
    writeln!(out)?;
    Ok(out.flush()?)
}

fn measure(args: &IssueArgs, address: IpAddr) -> anyhow::Result<Report> {
    let endpoints = backend::start(address)?;
    let generator = Generator::new(Certificates::Unique, endpoints)?;
    let plan = Plan::new(args.domains, args.failing);
    let mut world = World::start(args, &generator, &plan, endpoints[0])?;
    let roots = world.authority.manage()?.root()?;
    let client = Client::new(world.https(), &roots)?;
    let come = issue(args, &mut world, (&plan, &client), &generator)?;
    let drill = args.drill.then(|| drill(args, &world, &client, &come));
    let report = Report::new(args, come, drill.transpose()?);
    world.stop()?;
    Ok(report)
}

/// Lets all domains come, beside ordinary ones, while leaders are killed.
fn issue(
    args: &IssueArgs,
    world: &mut World,
    (plan, client): (&Plan, &Client),
    generator: &Generator,
) -> anyhow::Result<Come> {
    let (place, runtime) = (world.place(), world.runtime()?);
    let prober = Prober::new(world.https())?;
    let mut ordinary = Ordinary::new((place.clone(), runtime.clone()), generator, prober);
    let quiet = ordinary.add(args.ordinary)?;
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let bar = progress(args.json, plan.good().count() as u64);
    let coming = Coming {
        plan: *plan,
        place: &place,
        client,
        rate: args.rate,
        written: &written,
        bar: &bar,
    };
    let begun = Instant::now();
    let (arrivals, ended, kills, during) = std::thread::scope(|scope| {
        let kills = scope.spawn(|| kill_leaders(args, world, (&written, &is_over)));
        let during = scope.spawn(|| match args.ordinary {
            0 => Ok(Vec::new()),
            _ => ordinary.add_until(&is_over),
        });
        let arrivals: anyhow::Result<Arrivals> = runtime.block_on(coming.all());
        let ended = Instant::now();
        is_over.store(true, Ordering::Relaxed);
        let kills = kills.join().ok().context("the killer panicked")??;
        let during = during.join().ok().context("a prober panicked")??;
        anyhow::Ok((arrivals?, ended, kills, during))
    })?;
    bar.finish_and_clear();
    let failed = world.failures()?;
    Ok(Come {
        failed,
        counted: Instant::now(),
        counts: world.authority.counts()?,
        rss_mib: world.memory_mib()?,
        ordinary: OrdinaryFigures::new(&quiet, &during),
        arrivals,
        kills,
        begun,
        ended,
    })
}

/// Kills leaders, evenly spread over the domains that are written, unless all is over before.
fn kill_leaders(
    args: &IssueArgs,
    world: &mut World,
    (written, is_over): (&AtomicU64, &AtomicBool),
) -> anyhow::Result<Vec<Instant>> {
    let mut kills = Vec::new();
    for turn in 1..=args.kill_leader {
        let due = args.domains * turn / (args.kill_leader + 1);
        while written.load(Ordering::Relaxed) < due {
            if is_over.load(Ordering::Relaxed) {
                return Ok(kills);
            }
            std::thread::sleep(KILL_PAUSE);
        }
        world.kill_leader(args.free_lease)?;
        kills.push(Instant::now());
    }
    Ok(kills)
}

fn drill(
    args: &IssueArgs,
    world: &World,
    client: &Client,
    come: &Come,
) -> anyhow::Result<DrillFigures> {
    let drill = Drill {
        world,
        client,
        arrivals: &come.arrivals.live,
        rps: args.load,
        look: Duration::from_secs(args.look_seconds()),
    };
    drill.run()
}

fn progress(is_hidden: bool, length: u64) -> ProgressBar {
    if is_hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(length).with_message("domains live");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::IssueArgs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: IssueArgs,
    }

    #[test]
    fn a_run_may_order_what_it_needs_and_looks_no_faster_than_an_authority_bears() {
        let read = |more: &[&str]| Line::parse_from([&["x"][..], more].concat()).args;
        let usual = read(&[]);
        assert_eq!((usual.orders(), usual.look_seconds()), (320, 10));
        let large = read(&["--domains=10000", "--drill"]);
        assert_eq!((large.orders(), large.look_seconds()), (20_020, 200));
        assert_eq!(read(&["--look-seconds=0"]).look_seconds(), 1);
        assert!(Line::try_parse_from(["x", "--failing=all"]).is_err());
        assert!(Line::try_parse_from(["x", "--free-lease"]).is_err());
    }
}
