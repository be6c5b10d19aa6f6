//! `console`: how long pages of the console take with many domains under load, and whether health
//! and requests wait for them; looked at in a browser where one is named.

mod look;
mod site;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use hdrhistogram::Histogram;
use myriad::cli::{Cli, Command};
use myriad::serve::{self, Input};
use myriad::settings::Serve;
use serde::Serialize;

use crate::backend;
use crate::table::{Row, Table};

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct ConsoleArgs {
    /// Domains that are served.
    #[arg(long, default_value_t = 100_000)]
    domains: u64,
    /// Connections that ask for domains meanwhile, one request after the other.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// How often each page is asked for.
    #[arg(long, default_value_t = 50)]
    times: usize,
    /// Keep pictures of the pages in this folder, as the browser shows them that `MYRIAD_BROWSER`
    /// names.
    #[arg(long)]
    pictures: Option<PathBuf>,
    /// Seconds instead of minutes: whether it works, not what it says.
    #[arg(long)]
    short: bool,
    /// Print one JSON object per page instead of a table.
    #[arg(long)]
    json: bool,
}

/// The token of the console.
const TOKEN: &str = "measured-measured-measured";

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The pages that are measured, and health, which is asked for beside each.
const PAGES: [&str; 10] = [
    "/console",
    "/console/domains",
    "/console/domains?name=d0099&end=start",
    "/console/domains?name=99.many.example&end=end",
    "/console/domain?host=d000042.many.example",
    "/console/findings",
    "/console/findings?text=d000042",
    "/console/plots?of=traffic",
    "/console/mesh",
    "/console/memory",
];

/// The figures of a page.
#[derive(Serialize)]
struct PageRow {
    page: &'static str,
    domains: u64,
    bytes: usize,
    p50_ms: f64,
    max_ms: f64,
    health_max_ms: f64,
    requests_per_second: f64,
}

impl Row<6> for PageRow {
    const COLUMNS: [(&'static str, usize); 6] = [
        ("page", 46),
        ("bytes", 8),
        ("p50 ms", 8),
        ("max ms", 8),
        ("health max ms", 14),
        ("requests/s", 11),
    ];

    fn cells(&self) -> [String; 6] {
        [
            self.page.to_owned(),
            self.bytes.to_string(),
            format!("{:.2}", self.p50_ms),
            format!("{:.2}", self.max_ms),
            format!("{:.2}", self.health_max_ms),
            format!("{:.0}", self.requests_per_second),
        ]
    }
}

/// Runs the command.
///
/// # Errors
/// The app does not start, a page is not answered, or a browser finds something wrong with one.
pub fn run(args: &ConsoleArgs) -> anyhow::Result<()> {
    let mut args = args.clone();
    if args.short {
        (args.domains, args.times, args.connections) = (500, 3, 2);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(measure(&args))
}

async fn measure(args: &ConsoleArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let [endpoint, _] = backend::start(Ipv4Addr::LOCALHOST.into())?;
    let served = folder.path().join("served");
    site::write(&served, args.domains, endpoint)?;
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN)?;
    let token = format!("--console-token-file={}", token.display());
    let line = [
        "myriad",
        "serve",
        "--http=127.0.0.1:0",
        "--https=127.0.0.1:0",
    ];
    let line = line
        .into_iter()
        .chain(["--admin=127.0.0.1:0", "--workers=2", &token]);
    let line = line.chain([served.to_str().context("a path in UTF-8")?]);
    let Command::Serve(raw) = Cli::parse_from(line).command else {
        anyhow::bail!("not serve")
    };
    let mut running = serve::start(Serve::check(&raw)?, Input::Directory)?;
    let addresses = running.wait_ready().await?;
    let http = addresses.iter().find(|(name, _)| name.as_str() == "http");
    let (http, admin) = (http.context("HTTP is served")?.1, running.admin());
    let asked = args.clone();
    let measured = tokio::task::spawn_blocking(move || pages(&asked, http, admin));
    measured.await??;
    if let Some(pictures) = &args.pictures {
        let pages = PAGES.map(|page| format!("http://{admin}{page}"));
        look::look(pictures, &pages, TOKEN)?;
    }
    running.stop().await
}

/// Asks for each page, while domains are asked for.
fn pages(args: &ConsoleArgs, http: SocketAddr, admin: SocketAddr) -> anyhow::Result<()> {
    let (is_over, served) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let threads = (0..args.connections).map(|number| {
        let (is_over, served, domains) = (is_over.clone(), served.clone(), args.domains);
        std::thread::spawn(move || traffic(http, (number as u64, domains), &is_over, &served))
    });
    let threads: Vec<_> = threads.collect();
    let mut table = Table::new(args.json);
    for page in PAGES {
        let (start, before) = (Instant::now(), served.load(Ordering::Relaxed));
        let mut times = Histogram::<u64>::new(3)?;
        let (mut bytes, mut health_max) = (0, Duration::ZERO);
        for _ in 0..args.times {
            let asked = std::thread::spawn(move || timed(admin, page));
            let (_, _, health) = timed(admin, "/healthz")?;
            health_max = health_max.max(health);
            let asked = asked.join().ok().context("it panicked")??;
            let (status, length, took) = asked;
            ensure!(status == 200, "{page} was answered with {status}");
            times.record(u64::try_from(took.as_micros())?)?;
            bytes = length;
        }
        let requests = served.load(Ordering::Relaxed) - before;
        table.add(&PageRow {
            page,
            domains: args.domains,
            bytes,
            p50_ms: times.value_at_quantile(0.5) as f64 / 1e3,
            max_ms: times.max() as f64 / 1e3,
            health_max_ms: health_max.as_secs_f64() * 1e3,
            requests_per_second: requests as f64 / start.elapsed().as_secs_f64(),
        })?;
    }
    is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().ok().context("the traffic panicked")??;
    }
    Ok(())
}

/// Status and length of an answer, and how long it took.
fn timed(admin: SocketAddr, path: &str) -> anyhow::Result<(u16, usize, Duration)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Connection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let status = answer.get(9..12).context("an answer")?;
    let status = std::str::from_utf8(status)?.parse()?;
    Ok((status, answer.len(), start.elapsed()))
}

/// Asks for one domain after the other over a connection, until it is over.
fn traffic(
    http: SocketAddr,
    (number, domains): (u64, u64),
    is_over: &AtomicBool,
    served: &AtomicU64,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let mut next = number;
    while !is_over.load(Ordering::Relaxed) {
        let host = site::host(next % domains);
        // A stride that meets all domains in no order.
        next += 7_919;
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
        let status = read_answer(&mut stream)?;
        ensure!(status == 200, "{host} was answered with {status}");
        served.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// The status of an answer of the endpoint, which is read to its end; of others to some place.
fn read_answer(stream: &mut TcpStream) -> anyhow::Result<u16> {
    let (mut answer, mut piece) = (Vec::new(), vec![0; 4 << 10]);
    loop {
        let length = stream.read(&mut piece)?;
        ensure!(length > 0, "the connection was closed");
        answer.extend_from_slice(piece.get(..length).unwrap_or_default());
        let Some(head) = memchr::memmem::find(&answer, b"\r\n\r\n") else {
            continue;
        };
        let status = answer.get(9..12).context("a status")?;
        let status = std::str::from_utf8(status)?.parse()?;
        if status != 200 || answer.len() >= head + 4 + backend::BODY_BYTES {
            return Ok(status);
        }
    }
}
