//! `activate`: how long a new domain takes, and what it costs, at any number of domains.

mod report;
mod samples;
mod served;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::backend;
use crate::cluster;
use crate::cluster::ground::Ground;
use crate::cluster::parts::Home;
use crate::domains::{Certificates, DomainObjects, Generator};
use crate::load::{self, Load, Measured};
use report::{Live, Report, Row};
use samples::Samples;
use served::{Beside, Served, Source};

pub use samples::{Pace, PerDomain, Quantiles};

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct ActivateArgs {
    /// Numbers of domains, one run for each.
    #[arg(long, value_delimiter = ',', required = true)]
    domains: Vec<u64>,
    /// Where changes come from: files in a directory, typed objects into the inbox, or objects in
    /// a cluster, that of `MYRIAD_CLUSTER` or one that is started for this. Or the same domains in
    /// Envoy, which asks for what it needs, or is sent a filter chain for each.
    #[arg(long, value_enum, default_value_t = Source::Inbox)]
    source: Source,
    /// The objects that lead to domains.
    #[arg(long, value_enum, default_value_t = DomainObjects::Ingresses)]
    objects: DomainObjects,
    /// How certificates are spread over domains; by default each has its own, and with HTTPRoutes
    /// on one listener, all have one.
    #[arg(long, value_enum)]
    certificates: Option<Certificates>,
    /// Domains per file, with `--source dir`; those of a ListenerSet are in one in any case.
    #[arg(long, default_value_t = 1)]
    domains_per_file: u64,
    /// Requests per second of the live traffic.
    #[arg(long, default_value_t = 200.0)]
    load: f64,
    /// Domains that are added, changed and removed.
    #[arg(long, default_value_t = 500)]
    samples: u64,
    /// Changes per second.
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// Domains that are added, changed and removed under traffic at half of what the proxy can
    /// serve, if there are as many samples; 0 for none.
    #[arg(long, default_value_t = 100)]
    samples_at_half: u64,
    /// Routes of other domains that are changed per second, while as many domains are added,
    /// changed and removed once more; 0 for none.
    #[arg(long, default_value_t = 0.0, default_missing_value = "20", num_args = 0..=1)]
    under_churn: f64,
    /// Threads of the proxy.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Most seconds of the idle baseline, which repeats the connections of the changes.
    #[arg(long, default_value_t = 30)]
    idle_seconds: u64,
    /// In a cluster: endpoints that are changed per second, in the end; 0 for none.
    #[arg(long, default_value_t = 0, default_missing_value = "100", num_args = 0..=1)]
    churn: u32,
    /// Seconds of that.
    #[arg(long, default_value_t = 10)]
    churn_seconds: u64,
    /// In a cluster: Ingresses that are posted at once, in the end; 0 for none.
    #[arg(long, default_value_t = 0, default_missing_value = "1000", num_args = 0..=1)]
    burst: u64,
    /// Print one JSON object per number of domains instead of a table.
    #[arg(long)]
    json: bool,
}

/// How long the heap is left alone before memory is looked at: freed pages go back after a second.
const SETTLING: Duration = Duration::from_secs(3);

/// How long traffic runs before it is measured, so that connections are made and pools filled.
const WARMING: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// A child that ends, a name that does not become live in time.
pub fn run(args: &ActivateArgs) -> anyhow::Result<()> {
    ensure!(args.rate > 0.0 && args.load > 0.0, "a rate is above zero");
    ensure!(!args.domains.contains(&0), "a number of domains is above 0");
    ensure!(args.under_churn >= 0.0, "a rate is not below zero");
    args.check_objects()?;
    match args.source {
        Source::Dir | Source::Inbox | Source::EnvoyOnDemand | Source::EnvoyChains => {
            measure_each(args, Ipv4Addr::LOCALHOST.into())
        }
        Source::Kubernetes => cluster::inside(|| measure_each(args, Home::address())),
    }
}

impl ActivateArgs {
    /// How certificates are spread, where that is said or not.
    fn certificates(&self) -> Certificates {
        self.certificates.unwrap_or(match self.objects {
            DomainObjects::Ingresses | DomainObjects::ListenerSets => Certificates::Unique,
            DomainObjects::HttpRoutes => Certificates::Wildcard,
        })
    }

    fn check_objects(&self) -> anyhow::Result<()> {
        ensure!(
            self.objects != DomainObjects::HttpRoutes
                || self.certificates() == Certificates::Wildcard,
            "one listener has one certificate: --certificates wildcard"
        );
        ensure!(
            self.objects == DomainObjects::Ingresses || self.burst == 0,
            "--burst is of Ingresses"
        );
        ensure!(
            !self.source.is_peer()
                || self.objects == DomainObjects::Ingresses && self.under_churn <= 0.0,
            "a peer has no objects, and none of them changes beside samples"
        );
        Ok(())
    }
}

fn measure_each(args: &ActivateArgs, address: IpAddr) -> anyhow::Result<()> {
    let generator = Generator::new(args.certificates(), backend::start(address)?)?;
    let generator = Arc::new(generator);
    let mut ground = match args.source {
        Source::Dir | Source::Inbox | Source::EnvoyOnDemand | Source::EnvoyChains => None,
        Source::Kubernetes => Some(Ground::prepare_for(&generator, args.objects)?),
    };
    let mut report = Report::new(args.json);
    for &domains in &args.domains {
        let row = measure(args, &generator, ground.as_mut(), domains);
        report.add(&row.with_context(|| format!("at {domains} domains"))?)?;
    }
    ground.map_or(Ok(()), Ground::leave)
}

fn measure(
    args: &ActivateArgs,
    generator: &Arc<Generator>,
    ground: Option<&mut Ground>,
    domains: u64,
) -> anyhow::Result<Row> {
    let bar = progress(args.json, domains, "domains generated");
    let mut served = Served::start(args, generator, ground, domains, &bar)?;
    bar.finish_and_clear();
    std::thread::sleep(SETTLING);
    let (rss_mib, rss_peak_mib) = served.world().memory_mib()?;
    let hosts = quiet_hosts(generator, domains);

    let usual = Scene {
        rps: args.load,
        count: args.samples,
        churn: 0.0,
    };
    let (samples, live) = under_load(args, &mut served, &hosts, usual)?;
    let count_at_half = args.samples_at_half.min(args.samples);
    let live_at_half = if count_at_half > 0 {
        let capacity = load::capacity(served.https(), &hosts, Duration::from_secs(2))?;
        let scene = Scene {
            rps: capacity / 2.0,
            count: count_at_half,
            ..usual
        };
        Some(under_load(args, &mut served, &hosts, scene)?)
    } else {
        None
    };
    // The last one: what was changed beside samples stays as it then is.
    let live_under_churn = if args.under_churn > 0.0 {
        let churn = args.under_churn;
        let scene = Scene { churn, ..usual };
        Some(under_load(args, &mut served, &hosts, scene)?)
    } else {
        None
    };
    let (rss_after_mib, _) = served.world().memory_mib()?;
    let cluster = served.world().figures()?;
    let start_s = served.start_s();
    served.stop()?;
    Ok(Row {
        domains,
        source: args.source,
        objects: args.objects,
        certificates: args.certificates(),
        domains_per_file: generator
            .layout(args.objects, domains)
            .per_file(args.domains_per_file),
        samples,
        rss_mib,
        rss_peak_mib,
        rss_after_mib,
        start_s,
        live,
        live_at_half,
        live_under_churn,
        cluster,
    })
}

/// The circumstances of samples.
#[derive(Clone, Copy)]
struct Scene {
    /// Requests per second of the live traffic.
    rps: f64,
    /// Domains that are added, changed and removed.
    count: u64,
    /// Routes of others that are changed per second.
    churn: f64,
}

/// Changes beside live traffic; then the same traffic and as many new connections, to names that
/// exist, without changes.
fn under_load(
    args: &ActivateArgs,
    served: &mut Served<'_>,
    hosts: &[String],
    scene: Scene,
) -> anyhow::Result<(Samples, Live)> {
    let Scene { rps, count, churn } = scene;
    let load = Load::start(served.https(), hosts, rps)?;
    std::thread::sleep(WARMING);
    load.take();
    let beside = match churn > 0.0 {
        true => Some(served.world().beside(churn)?),
        false => None,
    };
    let bar = progress(args.json, count, "domains added, changed and removed");
    let mut samples = Samples::default();
    let mut pace = Pace::new(args.rate);
    for cycle in 0..count {
        samples.cycle(served, (cycle, count), &mut pace)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let changed = beside.map(Beside::stop).transpose()?;
    let during = load.take();
    let idle = idle(args, served, &samples.connections(), &load)?;
    load.stop()?;
    let live = Live {
        rps,
        idle,
        during,
        changed,
    };
    Ok((samples, live))
}

fn idle(
    args: &ActivateArgs,
    served: &Served<'_>,
    connections: &[u32],
    load: &Load,
) -> anyhow::Result<Measured> {
    let most = (args.rate * args.idle_seconds as f64) as usize;
    let bar = progress(
        args.json,
        connections.len().min(most) as u64,
        "without changes",
    );
    let mut pace = Pace::new(args.rate);
    for (turn, &connections) in connections.iter().take(most).enumerate() {
        pace.wait();
        served.repeat(turn as u64, connections)?;
        bar.inc(1);
    }
    pace.wait();
    bar.finish_and_clear();
    Ok(load.take())
}

/// Names that are left alone, spread over the name space.
fn quiet_hosts(generator: &Generator, domains: u64) -> Vec<String> {
    let count = domains.min(1_000);
    let indices = (0..count).map(|at| at * domains / count);
    let hosts = indices.map(|index| generator.host(Generator::existing(index)));
    hosts.collect()
}

fn progress(is_hidden: bool, length: u64, what: &'static str) -> ProgressBar {
    if is_hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(length).with_message(what);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
