//! `gateway-api`: the scenarios of gateway-api-bench, by their names there, on a test cluster with
//! our controller and proxy.
//!
//! Each makes the objects that its namesake makes and measures the same; where that starts Pods,
//! servers of this process are the endpoints.

mod asker;
mod attached;
mod changing;
mod churn;
mod failover;
mod objects;
mod origin;
mod probing;
mod stage;
mod traffic;

use std::io::Write as _;
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;

use crate::cluster;
use churn::Churned;
use stage::Stage;

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct GatewayApiArgs {
    /// The scenario.
    #[arg(value_enum)]
    scenario: Scenario,
    /// HTTPRoutes: 100, of each namespace where there are several, and 10 of `probe`. In
    /// `listenerset-load` ListenerSets, each with 16 HTTPRoutes.
    #[arg(long)]
    routes: Option<u64>,
    /// Namespaces of `route-load` and `listenerset-load`.
    #[arg(long, default_value_t = 10)]
    namespaces: u64,
    /// Changes of `routechange`, 10, and failures of `backendfailover`, 5.
    #[arg(long)]
    iterations: Option<u32>,
    /// Seconds between changes of `routechange`, 0.2; of each failure, and of the time before
    /// it, 22; of changes of `route-load` and `listenerset-load`, 30; of each run of `traffic`, 10.
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Seconds between changes of routes, in `route-load` and `listenerset-load`.
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    config_interval: Duration,
    /// Seconds between changes of endpoints, likewise.
    #[arg(long, default_value = "2", value_parser = parse_seconds)]
    workload_interval: Duration,
    /// Connections of `traffic`, a run for each.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256")]
    connections: Vec<usize>,
    /// Requests per second of a further run of `traffic`, over the first of these numbers of
    /// connections; 0 for none.
    #[arg(long, default_value_t = 1_000.0)]
    qps: f64,
    /// Threads of the proxy.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Prints the one JSON object in one line.
    #[arg(long)]
    json: bool,
}

/// A scenario, by its name in gateway-api-bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scenario {
    /// How soon the status of a Gateway counts all routes, and none once they are deleted.
    AttachedRoutes,
    /// How soon each new route is served.
    Probe,
    /// Whether a route that changes all the time is served all the time.
    #[value(name = "routechange")]
    RouteChange,
    /// The cost of many routes and their endpoints, and of their changes.
    RouteLoad,
    /// The cost of many ListenerSets with TLS and their routes, and of their changes.
    #[value(name = "listenerset-load")]
    ListenerSetLoad,
    /// Requests per second and latency through one route.
    Traffic,
    /// An endpoint that fails and comes back, as clients see it.
    #[value(name = "backendfailover")]
    BackendFailover,
}

/// Runs the command.
///
/// # Errors
/// There is no cluster, a process ends, or something is not served in time.
pub fn run(args: &GatewayApiArgs) -> anyhow::Result<()> {
    ensure!(args.routes != Some(0), "there is a route");
    ensure!(args.namespaces > 0, "there is a namespace");
    ensure!(args.qps >= 0.0, "a rate is not below zero");
    let is_connected = !args.connections.is_empty() && !args.connections.contains(&0);
    ensure!(is_connected, "there is a connection");
    cluster::inside(|| measure(args))
}

fn measure(args: &GatewayApiArgs) -> anyhow::Result<()> {
    let mut stage = Stage::start(args.workers)?;
    let watch = stage.watch()?;
    let seconds = |default| args.seconds.unwrap_or(Duration::from_secs_f64(default));
    let routes = args.routes.unwrap_or(100);
    let mut figures = match args.scenario {
        Scenario::AttachedRoutes => attached::run(&stage, routes)?,
        Scenario::Probe => probing::run(&stage, args.routes.unwrap_or(10))?,
        Scenario::RouteChange => {
            changing::run(&stage, args.iterations.unwrap_or(10), seconds(0.2))?
        }
        Scenario::RouteLoad | Scenario::ListenerSetLoad => {
            let churned = Churned {
                namespaces: args.namespaces,
                apps: routes,
                has_sets: args.scenario == Scenario::ListenerSetLoad,
                time: seconds(30.0),
                config_interval: args.config_interval,
                workload_interval: args.workload_interval,
            };
            churned.run(&mut stage)?
        }
        Scenario::Traffic => traffic::run(&stage, &args.connections, args.qps, seconds(10.0))?,
        Scenario::BackendFailover => {
            failover::run(&stage, args.iterations.unwrap_or(5), seconds(22.0))?
        }
    };
    let spent = serde_json::to_value(stage.spent(&watch)?)?;
    let name = clap::ValueEnum::to_possible_value(&args.scenario);
    let name = name.map(|it| it.get_name().to_owned());
    if let (Value::Object(all), Value::Object(spent)) = (&mut figures, spent) {
        all.insert("scenario".to_owned(), Value::from(name));
        all.extend(spent);
    }
    stage.leave()?;
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{figures}")?,
        false => writeln!(out, "{figures:#}")?,
    }
    Ok(out.flush()?)
}

fn parse_seconds(text: &str) -> anyhow::Result<Duration> {
    let time = Duration::try_from_secs_f64(text.parse()?)?;
    ensure!(!time.is_zero(), "a time is above 0");
    Ok(time)
}

/// Milliseconds, to a thousandth.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn scenarios_have_their_names_of_gateway_api_bench() {
        let names = Scenario::value_variants().iter();
        let names = names.map(|it| it.to_possible_value().unwrap().get_name().to_owned());
        let wanted = [
            "attached-routes",
            "probe",
            "routechange",
            "route-load",
            "listenerset-load",
            "traffic",
            "backendfailover",
        ];
        assert_eq!(names.collect::<Vec<_>>(), wanted);
    }
}
