//! `flap`: what clients see of an endpoint that fails half of the time, without and with ejection
//! of outliers.
//!
//! Endpoints of one Service answer behind a Gateway; one of them answers 503 in every second half
//! of a period. Nothing is tried twice, so that each of its failures is seen.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use memchr::memmem;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::child::Running;
use crate::load::{Asked, OpenLoop, Schedule, Seen};
use crate::table::{self, Table};

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct FlapArgs {
    /// Endpoints, of which one fails.
    #[arg(long, default_value_t = 4)]
    endpoints: usize,
    /// Seconds from one failure to the next; it lasts half of them.
    #[arg(long, default_value_t = 8.0)]
    period: f64,
    /// Measured seconds, of each of both ways.
    #[arg(long, default_value_t = 40.0)]
    seconds: f64,
    /// Requests per second.
    #[arg(long, default_value_t = 500.0)]
    rps: f64,
    /// Keep-alive connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Print one JSON object per way instead of a table.
    #[arg(long)]
    json: bool,
}

/// The policy by which an endpoint is left out for a while.
const EJECTION: &str = "consecutive5xxErrors: 3, interval: 1s, baseEjectionTime: 2s, \
                        maxEjectionPercent: 50";

const HOST: &str = "flap.test";

/// The body of every good answer.
const BODY: &str = "ok";

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// How long the first answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How long traffic runs before it is measured.
const WARMING: Duration = Duration::from_secs(1);

/// An endpoint.
struct Endpoint {
    address: SocketAddr,
    /// Good answers, and failures.
    answered: Arc<[AtomicU64; 2]>,
}

/// The times at which an endpoint fails.
#[derive(Clone, Copy, Debug)]
struct Flapping {
    begun: Instant,
    half: Duration,
}

/// One way.
#[derive(Debug, Serialize)]
struct Row {
    scenario: &'static str,
    endpoints: usize,
    rps: f64,
    period_s: f64,
    requests: u64,
    errors: u64,
    errors_percent: f64,
    /// Failures that the endpoint answered with.
    failures: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The proxy ends, or does not serve.
pub fn run(args: &FlapArgs) -> anyhow::Result<()> {
    ensure!(
        args.endpoints > 1,
        "others are needed beside the one that fails"
    );
    ensure!(args.period > 0.0 && args.seconds > 0.0, "there is time");
    ensure!(args.rps > 0.0 && args.connections > 0, "there is a request");
    let mut table = Table::new(args.json);
    for (scenario, policy) in [
        ("flapping, no ejection", ""),
        ("flapping, ejection", EJECTION),
    ] {
        let row = measure(args, scenario, policy);
        table.add(&row.with_context(|| scenario.to_owned())?)?;
    }
    Ok(())
}

fn measure(args: &FlapArgs, scenario: &'static str, policy: &str) -> anyhow::Result<Row> {
    let flapping = Flapping {
        begun: Instant::now(),
        half: Duration::from_secs_f64(args.period / 2.0),
    };
    let mut endpoints = vec![Endpoint::start(Some(flapping))?];
    for _ in 1..args.endpoints {
        endpoints.push(Endpoint::start(None)?);
    }
    let directory = tempfile::tempdir()?;
    write(directory.path(), &endpoints, policy)?;
    let mut child = Running::start(Some(directory.path()), 1)?;
    let address = child.wait_ready()?.http;
    let asked = Asked {
        address,
        request: format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
        body_bytes: BODY.len(),
    };
    let schedule = Schedule {
        rps: args.rps,
        connections: args.connections,
        requests: 0,
        has_jitter: true,
    };
    wait_answered(&asked)?;
    let load = OpenLoop::start(asked, args.connections, || Ok(()))?;
    load.run(schedule.lasting(WARMING))?;
    let failures = || -> u64 { endpoints.iter().map(Endpoint::failures).sum() };
    let before = failures();
    let seen = load.run(schedule.lasting(Duration::from_secs_f64(args.seconds)))?;
    let failures = failures() - before;
    child.stop()?;
    Ok(Row::new(args, scenario, seen, failures))
}

/// Waits until a request is answered as it should be.
fn wait_answered(asked: &Asked) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let load = OpenLoop::start(asked.clone(), 1, || Ok(()))?;
        let once = Schedule {
            rps: 1_000.0,
            connections: 1,
            requests: 1,
            has_jitter: false,
        };
        let seen = load.run(once)?;
        if seen.errors == 0 {
            return Ok(());
        }
        let last = seen.last_error.unwrap_or_default();
        ensure!(
            begun.elapsed() < ANSWER_TIMEOUT,
            "nothing is served: {last}"
        );
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Writes the objects: a Gateway for HTTP, a route without second tries, and the policy.
fn write(directory: &Path, endpoints: &[Endpoint], policy: &str) -> anyhow::Result<()> {
    let mut text = format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: flap, namespace: bench}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [{HOST}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: flap, namespace: bench}}
spec:
  hosts: [{HOST}]
  gateways: [flap]
  http:
  - route:
    - destination: {{host: flap.bench.svc.cluster.local, port: {{number: 80}}}}
    retries: {{attempts: 0}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: flap, namespace: bench}}
spec:
  host: flap.bench.svc.cluster.local
  trafficPolicy:
    loadBalancer: {{simple: ROUND_ROBIN}}
"
    );
    if !policy.is_empty() {
        text.push_str(&format!("    outlierDetection: {{{policy}}}\n"));
    }
    text.push_str(
        "---
apiVersion: v1
kind: Service
metadata: {name: flap, namespace: bench}
spec:
  ports:
  - {name: http, port: 80}
",
    );
    for (number, endpoint) in endpoints.iter().enumerate() {
        let (address, port) = (endpoint.address.ip(), endpoint.address.port());
        text.push_str(&format!(
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: flap-{number}
  namespace: bench
  labels: {{kubernetes.io/service-name: flap}}
addressType: IPv4
endpoints:
- addresses: [{address}]
ports:
- {{name: http, port: {port}}}
"
        ));
    }
    Ok(std::fs::write(directory.join("flap.yaml"), text)?)
}

impl Endpoint {
    /// Starts one on a thread that ends with the process.
    fn start(flapping: Option<Flapping>) -> anyhow::Result<Endpoint> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let answered: Arc<[AtomicU64; 2]> = Arc::default();
        let of_thread = answered.clone();
        let thread = std::thread::Builder::new().name("endpoint".to_owned());
        thread.spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build()?;
            runtime.block_on(serve(listener, flapping, of_thread))
        })?;
        Ok(Endpoint { address, answered })
    }

    fn failures(&self) -> u64 {
        self.answered[1].load(Ordering::Relaxed)
    }
}

impl Flapping {
    /// Whether it fails at this moment: in every second half of a period.
    fn fails_at(self, now: Instant) -> bool {
        let halves = now.duration_since(self.begun).as_nanos() / self.half.as_nanos().max(1);
        halves % 2 == 1
    }
}

async fn serve(
    listener: std::net::TcpListener,
    flapping: Option<Flapping>,
    answered: Arc<[AtomicU64; 2]>,
) -> anyhow::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        tokio::spawn(answer(tcp, flapping, answered.clone()));
    }
}

/// Answers the requests of a connection, one after the other; they have no bodies.
async fn answer(
    mut tcp: TcpStream,
    flapping: Option<Flapping>,
    answered: Arc<[AtomicU64; 2]>,
) -> anyhow::Result<()> {
    let good = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let bad = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let mut head = Vec::new();
    loop {
        let end = memmem::find(&head, b"\r\n\r\n");
        let Some(end) = end else {
            ensure!(head.len() < HEAD_BYTES_MAX, "a long head");
            if tcp.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
            continue;
        };
        head.drain(..end + 4);
        let fails = flapping.is_some_and(|it| it.fails_at(Instant::now()));
        answered[usize::from(fails)].fetch_add(1, Ordering::Relaxed);
        let response = if fails { bad } else { good.as_str() };
        tcp.write_all(response.as_bytes()).await?;
    }
}

impl Row {
    fn new(args: &FlapArgs, scenario: &'static str, seen: Seen, failures: u64) -> Row {
        let requests = seen.latency.len() + seen.errors;
        let quantile = |share| (seen.quantile_ms(share) * 1e3).round() / 1e3;
        let percent = seen.errors as f64 * 100.0 / requests.max(1) as f64;
        Row {
            scenario,
            endpoints: args.endpoints,
            rps: args.rps,
            period_s: args.period,
            requests,
            errors: seen.errors,
            errors_percent: (percent * 1e3).round() / 1e3,
            failures,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            max_ms: quantile(1.0),
            last_error: seen.last_error,
        }
    }
}

impl table::Row<7> for Row {
    const COLUMNS: [(&'static str, usize); 7] = [
        ("scenario", 22),
        ("requests", 9),
        ("errors", 8),
        ("percent", 8),
        ("failures", 8),
        ("p50 ms", 8),
        ("p99 ms", 8),
    ];

    fn cells(&self) -> [String; 7] {
        [
            self.scenario.to_owned(),
            self.requests.to_string(),
            self.errors.to_string(),
            format!("{:.3}", self.errors_percent),
            self.failures.to_string(),
            format!("{:.3}", self.p50_ms),
            format!("{:.3}", self.p99_ms),
        ]
    }

    fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_fails_in_every_second_half_of_a_period() {
        let begun = Instant::now();
        let half = Duration::from_secs(4);
        let flapping = Flapping { begun, half };
        let fails = |seconds: u64| flapping.fails_at(begun + Duration::from_secs(seconds));
        let all: Vec<bool> = [0, 3, 4, 7, 8, 12].into_iter().map(fails).collect();
        assert_eq!(all, [false, false, true, true, false, true]);
    }

    #[test]
    fn errors_are_a_share_of_all_requests() {
        let args = FlapArgs {
            endpoints: 4,
            period: 8.0,
            seconds: 1.0,
            rps: 10.0,
            connections: 1,
            json: true,
        };
        let mut seen = Seen::new().unwrap();
        (0..9).for_each(|_| seen.record(Duration::from_millis(2)));
        seen.errors = 1;
        let row = Row::new(&args, "flapping", seen, 1);
        assert_eq!(
            (row.requests, row.errors, row.errors_percent),
            (10, 1, 10.0)
        );
    }
}
