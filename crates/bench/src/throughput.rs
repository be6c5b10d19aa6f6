//! `throughput`: what a request and a connection cost, beside other proxies on the same work and
//! beside the least that a proxy can cost.
//!
//! All serve the same thousand names with a hundred routes each, on the same core, and take turns
//! in each round; what drives them and what answers them have another core. What counts is the
//! processor time that the kernel has charged each proxy with, by answered request.

pub mod floor;
mod latency;
mod memory;
mod peers;
mod report;
mod requests;
mod silent;
pub mod soak;
mod subject;
mod traffic;
mod work;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::cluster::usage;
use crate::istio::Keys;
use crate::scale::cores::Cores;
use crate::scale::raise_descriptors_to;
use crate::table::Table;
use latency::LatencyRow;
use memory::MemoryRow;
use report::{Row, Turn};
use silent::{Flood, SilentRow};
use subject::{Builds, Ground, Peer, Subject};
use traffic::{Plan, Traffic};
use work::{Case, Work};

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct ThroughputArgs {
    /// The peers to measure beside Myriad; the floor always takes part where it can.
    #[arg(long, value_enum, value_delimiter = ',')]
    against: Vec<Peer>,
    /// The works, one row for each and each peer.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        ignore_case = true,
        default_value = "W1,W2"
    )]
    work: Vec<Work>,
    /// The binary of Myriad; without it a process of this program serves by the same code.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The binary of another build of Myriad, as one more peer.
    #[arg(long)]
    before: Option<PathBuf>,
    /// Rounds; in each, all have their turn.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Measured seconds of a turn.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Names, each with a certificate of its own.
    #[arg(long, default_value_t = 1_000)]
    names: u32,
    /// Exact paths of each name.
    #[arg(long, default_value_t = 100)]
    paths: u32,
    /// Numbers of connections of the works that have several, instead of theirs.
    #[arg(long, value_delimiter = ',')]
    connections: Vec<usize>,
    /// Seconds instead of minutes, few names, the floor alone: whether it works, not what it says.
    #[arg(long)]
    short: bool,
    /// Print one JSON object per row instead of a table.
    #[arg(long)]
    json: bool,
}

/// How long traffic runs before it is measured, so that pools are filled.
const WARMING: Duration = Duration::from_secs(1);

/// How long proxies are left alone before memory is looked at.
const SETTLING: Duration = Duration::from_secs(3);

/// Runs the command.
///
/// # Errors
/// A proxy is missing, ends or does not serve, or the machine has too few descriptors.
pub fn run(args: &ThroughputArgs) -> anyhow::Result<()> {
    let args = &args.clone().shortened();
    ensure!(args.rounds > 0 && args.seconds > 0.0, "there is a round");
    ensure!(args.names > 0 && args.paths > 0, "there is a route");
    let cases: Vec<Case> = args.work.iter().flat_map(|work| work.cases(args)).collect();
    let descriptors = cases.iter().map(Case::descriptors).max();
    raise_descriptors_to(descriptors.context("there is a work")?)?;
    // Memory is that of proxies that have done nothing else.
    for (keys, is_memory) in [(Keys::P256, false), (Keys::Rsa, false), (Keys::P256, true)] {
        let is_meant = |case: &&Case| case.keys == keys && case.is_memory() == is_memory;
        let cases: Vec<Case> = cases.iter().filter(is_meant).copied().collect();
        if !cases.is_empty() {
            measure(args, keys, &cases)?;
        }
    }
    Ok(())
}

/// Starts all proxies, and lets them take turns at every case.
fn measure(args: &ThroughputArgs, keys: Keys, cases: &[Case]) -> anyhow::Result<()> {
    let machine = Cores::of_this_process()?;
    let (proxy, rest) = machine.split(1)?;
    let ground = Ground::prepare(args.names, args.paths, keys)?;
    let connections = cases.iter().map(|case| case.connections).max();
    let builds = Builds {
        now: args.binary.as_deref(),
        before: args.before.as_deref(),
    };
    let connections = connections.unwrap_or(1);
    let mut subjects = ground.start(&args.against, builds, connections, &proxy)?;
    // The backend and the traffic are threads of this process.
    rest.pin_process()?;
    std::thread::sleep(if args.short { Duration::ZERO } else { SETTLING });
    for subject in &mut subjects {
        subject.settle()?;
    }
    let stage = Stage {
        args,
        ground: &ground,
        subjects: &subjects,
        is_shared: proxy.overlap(&rest),
    };
    let mut tables = Tables {
        costs: Table::new(args.json),
        latencies: Table::new(args.json),
        memory: Table::new(args.json),
        silent: Table::new(args.json),
    };
    for case in cases {
        let measured = stage.measure(case, &mut tables);
        measured.with_context(|| case.to_string())?;
    }
    subjects.into_iter().try_for_each(Subject::stop)?;
    machine.pin_process()
}

/// Proxies that run, Myriad first.
struct Stage<'a> {
    args: &'a ThroughputArgs,
    ground: &'a Ground,
    subjects: &'a [Subject],
    /// Whether what drives them runs on the same core.
    is_shared: bool,
}

/// The tables that are printed.
struct Tables {
    costs: Table,
    latencies: Table,
    memory: Table,
    silent: Table,
}

impl Stage<'_> {
    fn measure(&self, case: &Case, tables: &mut Tables) -> anyhow::Result<()> {
        let [subject, peers @ ..] = self.subjects else {
            return Ok(());
        };
        if case.is_memory() {
            let look = |it: &Subject| {
                let kept = memory::look(self.args, self.ground, it, case);
                kept.with_context(|| it.name().to_owned())
            };
            let own = look(subject)?;
            for peer in peers {
                let row = MemoryRow::new(case, peer.name(), &own, &look(peer)?);
                tables.memory.add(&row)?;
            }
            return Ok(());
        }
        if case.has_silent() {
            return self.measure_silent(case, &mut tables.silent);
        }
        let (direct, turns) = self.take_turns(case)?;
        let [own, of_peers @ ..] = turns.as_slice() else {
            return Ok(());
        };
        let pairs = peers.iter().zip(of_peers);
        let mut pairs: Vec<_> = pairs.filter(|(_, turns)| !turns.is_empty()).collect();
        if pairs.is_empty() {
            // Nobody else can do it: it stands beside itself, so that it has its row.
            pairs.push((subject, own));
        }
        for (peer, turns) in pairs {
            if case.schedule.is_some() {
                let three = [&direct[..], own, turns];
                let row = LatencyRow::new(case, peer.name(), three, self.is_shared);
                tables.latencies.add(&row)?;
            } else {
                let row = Row::new(case, (subject, peer), own, turns, self.is_shared);
                tables.costs.add(&row)?;
            }
        }
        Ok(())
    }

    /// Turns beside connections that say nothing, and without them.
    fn measure_silent(&self, case: &Case, table: &mut Table) -> anyhow::Result<()> {
        let mut all: Vec<silent::Turns> =
            self.subjects.iter().map(|_| Default::default()).collect();
        for _ in 0..self.args.rounds {
            for (subject, turns) in self.subjects.iter().zip(&mut all) {
                let plan = self.ground.plan(subject, case);
                let address = plan.address;
                turns.idle.push(self.turn(plan.clone(), subject.id())?);
                let flood = Flood::start(address)?;
                let turn = self.turn(plan, subject.id());
                turns.silent += flood.end()?;
                turns
                    .flooded
                    .push(turn.with_context(|| subject.name().to_owned())?);
            }
        }
        let [own, ..] = all.as_slice() else {
            return Ok(());
        };
        for (peer, theirs) in self.subjects.iter().zip(&all).skip(1) {
            let row = SilentRow::new(case, peer.name(), [own, theirs], self.is_shared);
            table.add(&row)?;
        }
        Ok(())
    }

    /// All turns of a case: of the backend alone, where latency is measured, and by subject; none
    /// of those that cannot do it.
    fn take_turns(&self, case: &Case) -> anyhow::Result<(Vec<Turn>, Vec<Vec<Turn>>)> {
        let mut direct = Vec::new();
        let mut turns: Vec<Vec<Turn>> = self.subjects.iter().map(|_| Vec::new()).collect();
        for round in 0..self.args.rounds {
            if case.schedule.is_some() {
                let plan = self.ground.direct_plan(case);
                let turn = self.turn(plan, std::process::id());
                direct.push(turn.context("the backend")?);
            }
            let mut order: Vec<_> = self.subjects.iter().zip(&mut turns).collect();
            // Whoever comes first in one round comes last in the next.
            if round % 2 == 1 {
                order.reverse();
            }
            for (subject, turns) in order {
                if case.suits(subject.peer()) {
                    let turn = self.turn(self.ground.plan(subject, case), subject.id());
                    turns.push(turn.with_context(|| subject.name().to_owned())?);
                }
            }
        }
        Ok((direct, turns))
    }

    /// One turn: connections are made, traffic runs warm, and then it counts.
    fn turn(&self, plan: Plan, process: u32) -> anyhow::Result<Turn> {
        let traffic = Traffic::start(plan)?;
        traffic.wait_connected()?;
        std::thread::sleep(self.args.warming());
        let look = || {
            let proxy = usage::processor_time(process)?;
            let load = traffic.worked()?;
            let backend = usage::thread_time(self.ground.backend_thread())?;
            anyhow::Ok((traffic.answered(), proxy, load, backend))
        };
        let (begun, before) = (Instant::now(), look()?);
        traffic.measure();
        std::thread::sleep(Duration::from_secs_f64(self.args.seconds));
        let (after, time) = (look()?, begun.elapsed());
        let (rss_mib, _) = usage::memory_mib(process)?;
        let ended = traffic.end()?;
        Ok(Turn {
            time,
            answered: after.0 - before.0,
            proxy: after.1.saturating_sub(before.1),
            load: after.2.saturating_sub(before.2),
            backend: after.3.saturating_sub(before.3),
            rss_mib,
            ended,
        })
    }
}

impl ThroughputArgs {
    fn shortened(mut self) -> Self {
        if self.short {
            (self.names, self.paths) = (10, 10);
            (self.rounds, self.seconds) = (1, 0.5);
            self.connections = vec![8];
        }
        self
    }

    fn warming(&self) -> Duration {
        match self.short {
            true => Duration::from_millis(100),
            false => WARMING,
        }
    }
}
