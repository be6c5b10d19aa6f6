//! `scale`: requests per second, latency, processor time and memory with many domains and routes,
//! beside Envoy with the same routes.

mod changes;
pub(crate) mod cores;
pub(crate) mod report;
mod subject;
mod traffic;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use myriad_lab::peer;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::backend;
use crate::istio::{Filters, Mode, Setup};
use cores::Cores;
use report::{Report, Row};
use subject::{Round, Subject};
use traffic::Traffic;

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct ScaleArgs {
    /// The setup of objects and requests.
    #[arg(long, value_enum)]
    requests: Requests,
    /// The filters that requests meet. Envoy has its turn in `nofilters` alone.
    #[arg(long, value_enum, default_value = "nofilters")]
    mode: Mode,
    #[command(flatten)]
    setup: Setup,
    /// Numbers of cores that each proxy is pinned to, one run for each.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    cores: Vec<usize>,
    /// Keep-alive connections, each to another domain while there are enough.
    #[arg(long, default_value_t = 1_000)]
    connections: usize,
    /// Rounds; in each, both proxies have their turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measured seconds of a turn.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Envoy's binary; without it, the pinned version is taken from its registry and kept.
    #[arg(long)]
    envoy: Option<PathBuf>,
    /// Leave Envoy out.
    #[arg(long)]
    alone: bool,
    /// Instead of requests: what so many changes of one rule cost, and so many domains that are
    /// added, each with its own Gateway and as servers of one. Prints an object for each kind.
    #[arg(long, default_missing_value = "50", num_args = 0..=1)]
    changes: Option<u32>,
    /// Seconds instead of minutes, and without Envoy: whether it works, not what it says.
    #[arg(long)]
    short: bool,
    /// Print one JSON object per number of cores instead of a table.
    #[arg(long)]
    json: bool,
}

/// The setup of objects and requests that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Requests {
    /// Istio's published setup at the ingress gateway.
    Istio,
}

/// Descriptors beside those of connections.
const DESCRIPTORS_SPARE: u64 = 512;

/// How long the heap is left alone before memory is looked at: freed pages go back after a second.
const SETTLING: Duration = Duration::from_secs(3);

/// Runs the command.
///
/// # Errors
/// A proxy that ends or does not serve, a machine without so many cores.
pub fn run(args: &ScaleArgs) -> anyhow::Result<()> {
    let args = &args.clone().shortened();
    let Requests::Istio = args.requests;
    ensure!(args.rounds > 0 && args.seconds > 0.0, "there is a round");
    ensure!(args.connections > 0, "there is a connection");
    if let Some(samples) = args.changes {
        let [endpoint, _] = backend::start(Ipv4Addr::LOCALHOST.into())?;
        return changes::run(&args.setup, endpoint, samples);
    }
    raise_descriptors(args.connections)?;
    let is_alone = args.alone || args.mode != Mode::Nofilters;
    let envoy = match (is_alone, &args.envoy) {
        (true, _) => None,
        (false, Some(path)) => Some(path.clone()),
        (false, None) => Some(peer::provide()?),
    };
    let machine = Cores::of_this_process()?;
    let [endpoint, _] = backend::start(Ipv4Addr::LOCALHOST.into())?;
    let mut report = Report::new(args.json);
    for &count in &args.cores {
        let row = measure(args, &machine, count, endpoint, envoy.as_deref());
        report.add(&row.with_context(|| format!("on {count} cores"))?)?;
    }
    Ok(())
}

fn measure(
    args: &ScaleArgs,
    machine: &Cores,
    count: usize,
    endpoint: std::net::SocketAddr,
    envoy: Option<&std::path::Path>,
) -> anyhow::Result<Row> {
    let (proxy, rest) = machine.split(count)?;
    let all = args.setup.make()?;
    let authorizer = backend::start_authorizer(Ipv4Addr::LOCALHOST.into())?;
    let filters = Filters::new(args.mode, authorizer)?;
    let subject = match args.mode {
        Mode::Direct => Subject::endpoint(endpoint),
        _ => Subject::myriad(&args.setup, &all, endpoint, &filters, &proxy)?,
    };
    let mut subjects = vec![subject];
    if let Some(envoy) = envoy {
        let peer = Subject::envoy(envoy, &args.setup, &all, endpoint, &proxy)?;
        subjects.push(peer);
    }
    drop(all);
    // The endpoint and the traffic are threads of this process.
    rest.pin_process()?;
    std::thread::sleep(if args.short { Duration::ZERO } else { SETTLING });
    for subject in &mut subjects {
        subject.settle()?;
    }
    let mut rounds: Vec<Vec<Round>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds {
        for (subject, rounds) in subjects.iter().zip(&mut rounds) {
            let traffic = Traffic {
                address: subject.address(),
                setup: args.setup,
                connections: args.connections,
                threads: rest.count(),
                is_tls: args.mode != Mode::Direct,
                token: filters.token.as_deref().map(Into::into),
            };
            let round = subject.round(&traffic, Duration::from_secs_f64(args.seconds));
            rounds.push(round.with_context(|| subject.name().to_owned())?);
        }
    }
    let results = subjects.iter().zip(rounds);
    let results = results.map(|(subject, rounds)| subject.result(rounds));
    let row = Row::new(args, &proxy, &rest, results.collect());
    for subject in subjects {
        subject.stop()?;
    }
    machine.pin_process()?;
    Ok(row)
}

impl ScaleArgs {
    fn shortened(mut self) -> Self {
        if self.short {
            self.setup = Setup {
                workspaces: 2,
                domains: 10,
                paths: 10,
            };
            self.cores = vec![1];
            (self.connections, self.rounds, self.seconds) = (50, 1, 1.0);
            self.alone = true;
        }
        self
    }
}

/// Each connection takes a descriptor here and one at the endpoint, which is here as well; the
/// proxies inherit the limit.
fn raise_descriptors(connections: usize) -> anyhow::Result<()> {
    raise_descriptors_to(4 * connections as u64 + DESCRIPTORS_SPARE)
}

/// Lets this process and those that it starts have so many descriptors.
pub(crate) fn raise_descriptors_to(wanted: u64) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    // Only the administrator may go beyond the hard limit.
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        limit.maximum = Some(wanted);
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).with_context(|| {
        format!("this needs {wanted} descriptors; raise the hard limit (ulimit -Hn)")
    })
}
