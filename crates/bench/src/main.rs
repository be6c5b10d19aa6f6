//! `myriad-bench`: measures Myriad as a user meets it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use myriad_bench::activate::{self, ActivateArgs};
use myriad_bench::allocation::Counting;
use myriad_bench::child::{self, ChildArgs};
use myriad_bench::console::{self, ConsoleArgs};
use myriad_bench::egress::{self, EgressArgs};
use myriad_bench::flap::{self, FlapArgs};
use myriad_bench::fleet::{self, FleetArgs};
use myriad_bench::gateway_api::{self, GatewayApiArgs};
use myriad_bench::issue::{self, IssueArgs};
use myriad_bench::istio::{self, GenerateArgs};
use myriad_bench::latency::{self, LatencyArgs};
use myriad_bench::load::{self, LoadArgs};
use myriad_bench::mesh::service::{self, ServiceArgs};
use myriad_bench::mesh::{self, MeshArgs};
use myriad_bench::regex::{self, RegexArgs};
use myriad_bench::report::{self, ReportArgs};
use myriad_bench::scale::{self, ScaleArgs};
use myriad_bench::throughput::floor::{self, FloorArgs};
use myriad_bench::throughput::soak::{self, SoakArgs};
use myriad_bench::throughput::{self, ThroughputArgs};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measures Myriad as a user meets it.
#[derive(Debug, Parser)]
#[command(name = "myriad-bench", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// How long a new domain takes, and what it costs, when so many exist.
    Activate(ActivateArgs),
    /// How long pages of the console take with many domains under load.
    Console(ConsoleArgs),
    /// The cost of each way out of a mesh, to a database behind TLS.
    Egress(EgressArgs),
    /// An endpoint that fails half of the time, without and with ejection of outliers.
    Flap(FlapArgs),
    /// The cost of a change, and of a controller that starts anew, with so many proxies.
    Fleet(FleetArgs),
    /// A scenario of gateway-api-bench, by its name there.
    GatewayApi(GatewayApiArgs),
    /// Certificates that an issuer provides: how long a new domain takes, that each gets one, and
    /// a mass revocation.
    Issue(IssueArgs),
    /// The cost of a pair of sidecars, and what they add to a request, beside Envoy as the same
    /// pair.
    Latency(LatencyArgs),
    /// Requests to any URL, with the results of fortio and the thresholds and segments of k6.
    Load(Box<LoadArgs>),
    /// A graph of services, each with a sidecar, under one controller.
    Mesh(MeshArgs),
    /// The cost of finding a route on a host with many regexes.
    Regex(RegexArgs),
    /// The published experiments beside real peers, as one page of plots.
    Report(ReportArgs),
    /// Requests per second, latency, processor time and memory with many domains and routes.
    Scale(ScaleArgs),
    /// Mixed traffic for long, and whether memory stays flat.
    Soak(SoakArgs),
    /// Processor time of the proxy for a request and for a connection, beside other proxies.
    Throughput(ThroughputArgs),
    /// Writes the objects of such a setup into a directory.
    Generate(GenerateArgs),
    /// The process under measurement; started by the other commands.
    #[command(hide = true)]
    Child(ChildArgs),
    /// A proxy without policy; started by `throughput`.
    #[command(hide = true)]
    Floor(FloorArgs),
    /// A service of a graph; started by `mesh`.
    #[command(hide = true)]
    Service(ServiceArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    let done = match Cli::parse().command {
        // It also ends well and says that thresholds were crossed.
        Command::Load(args) => return load::run(&args),
        Command::Activate(args) => activate::run(&args),
        Command::Console(args) => console::run(&args),
        Command::Egress(args) => egress::run(&args),
        Command::Flap(args) => flap::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::GatewayApi(args) => gateway_api::run(&args),
        Command::Issue(args) => issue::run(&args),
        Command::Latency(args) => latency::run(&args),
        Command::Mesh(args) => mesh::run(&args),
        Command::Service(args) => service::run(&args),
        Command::Regex(args) => regex::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Throughput(args) => throughput::run(&args),
        Command::Floor(args) => floor::run(&args),
        Command::Generate(args) => istio::run(&args),
        Command::Child(args) => child::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
