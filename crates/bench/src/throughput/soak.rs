//! `soak`: mixed traffic, clients that stall and changes for a long time, and whether memory and
//! descriptors stay where they were.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;

use super::subject::{Doors, Ground, Subject};
use super::traffic::{Life, Plan, Traffic};
use super::work::{Case, Work};
use crate::cluster::usage;
use crate::istio::Keys;
use crate::load::Schedule;
use crate::scale::cores::Cores;
use crate::scale::raise_descriptors_to;
use crate::scale::report::tenth;

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct SoakArgs {
    /// How long, without the fifth before it in which pools fill and caches settle.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Requests per second over HTTP/1.1; HTTP/2 and new connections come on top.
    #[arg(long, default_value_t = 1_000.0)]
    rps: f64,
    /// The binary under test; without it, a child of this one that runs the same code.
    #[arg(long)]
    binary: Option<std::path::PathBuf>,
    /// Seconds instead of minutes, in which memory has no time to come to rest: it is not judged.
    #[arg(long)]
    short: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Names, and routes of each.
const NAMES: u32 = 200;
const PATHS: u32 = 20;

/// Connections of HTTP/1.1 that are kept, of HTTP/2, and new ones at a time.
const KEPT: usize = 200;
const MULTIPLEXED: usize = 8;
const FRESH: usize = 4;

/// Streams at a time on a connection of HTTP/2.
const STREAMS: usize = 8;

/// Connections to the endpoint that may be kept: as many as there may be requests at a time.
const POOLED_MAX: usize = KEPT + MULTIPLEXED * STREAMS + 2 * FRESH;

/// Clients that stop in the middle of a head, replaced at each look.
const STALLED: usize = 20;

/// Between two looks at the process, each with a change of what it serves.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The short form.
const SHORT: Duration = Duration::from_secs(3);

/// How many looks are shown.
const LOOKS_SHOWN_MAX: usize = 200;

/// How long descriptors may take to be closed behind the last client.
const CLOSING: Duration = Duration::from_secs(10);

/// How far memory may have grown: the larger of a part of it and so many MiB.
const GROWTH_MAX: f64 = 0.05;
const GROWTH_MIB_MAX: f64 = 2.0;

/// Descriptors beside those of connections, pooled ones to the endpoint included.
const DESCRIPTORS: u64 = 8_192;

/// The measurements.
#[derive(Debug, Serialize)]
struct Report {
    minutes: f64,
    looks: usize,
    requests: u64,
    errors: u64,
    changes: usize,
    stalled_clients: usize,
    /// Medians of the first and the last fifth that count.
    rss_begin_mib: f64,
    rss_end_mib: f64,
    rss_max_mib: f64,
    /// The slope of the line through all looks, and its standard error.
    slope_mib_per_hour: f64,
    slope_error_mib_per_hour: f64,
    /// Minutes and memory of some looks, evenly spread.
    looks_mib: Vec<(f64, f64)>,
    /// Before the first client and behind the last one. Pooled connections to the endpoint may
    /// stay open.
    descriptors_begin: usize,
    descriptors_end: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The proxy ends, does not answer all of its clients, or holds more at the end than before.
pub fn run(args: &SoakArgs) -> anyhow::Result<()> {
    ensure!(args.minutes > 0.0 && args.rps > 0.0, "there is traffic");
    raise_descriptors_to(DESCRIPTORS)?;
    let (proxy, rest) = Cores::of_this_process()?.split(1)?;
    let ground = Ground::prepare(NAMES, PATHS, Keys::P256)?;
    let subject = ground.start_own(args.binary.as_deref(), &proxy)?;
    rest.pin_process()?;
    let report = soak(args, &ground, &subject)?;
    let text = match args.json {
        true => serde_json::to_string(&report)?,
        false => serde_json::to_string_pretty(&report)?,
    };
    writeln!(std::io::stdout(), "{text}")?;
    subject.stop()?;
    let allowed = (report.rss_begin_mib * GROWTH_MAX).max(GROWTH_MIB_MAX);
    let grown = report.rss_end_mib - report.rss_begin_mib;
    ensure!(report.errors == 0, "{} requests failed", report.errors);
    ensure!(
        args.short || grown <= allowed,
        "memory grew by {grown:.1} MiB"
    );
    ensure!(
        report.descriptors_end <= report.descriptors_begin + POOLED_MAX,
        "descriptors are left open"
    );
    Ok(())
}

fn soak(args: &SoakArgs, ground: &Ground, subject: &Subject) -> anyhow::Result<Report> {
    let descriptors_begin = descriptors(subject)?;
    let plans = plans(args, ground, subject);
    let traffic: Vec<Traffic> = plans
        .into_iter()
        .map(Traffic::start)
        .collect::<Result<_, _>>()?;
    traffic.iter().try_for_each(Traffic::wait_connected)?;
    let time = match args.short {
        true => SHORT,
        false => Duration::from_secs_f64(args.minutes * 60.0),
    };
    let (begun, warm) = (Instant::now(), time / 5);
    let (mut looks, mut changes, mut stalled_clients) = (Vec::new(), 0, 0);
    let mut stalled = Vec::new();
    let objects = subject.objects().context("it has objects")?;
    while begun.elapsed() < warm + time {
        std::thread::sleep(LOOK_INTERVAL);
        // Those of the look before are dropped in the middle of what they said.
        stalled = stall(subject.doors(), changes)?;
        stalled_clients += stalled.len();
        changes += 1;
        change(objects, changes)?;
        let at = begun.elapsed();
        if at >= warm {
            let (mib, _) = usage::memory_mib(subject.id())?;
            looks.push(((at - warm).as_secs_f64() / 3_600.0, mib));
        }
    }
    drop(stalled);
    let ended: Vec<_> = traffic
        .into_iter()
        .map(Traffic::end)
        .collect::<Result<_, _>>()?;
    let end = Instant::now() + CLOSING;
    while descriptors(subject)? > descriptors_begin && Instant::now() < end {
        std::thread::sleep(LOOK_INTERVAL);
    }
    let fifth = looks.len().div_ceil(5);
    let mib = |looks: &[(f64, f64)]| median(looks.iter().map(|(_, mib)| *mib).collect());
    ensure!(fifth > 0, "it is too short for a look");
    Ok(Report {
        minutes: time.as_secs_f64() / 60.0,
        looks: looks.len(),
        requests: ended.iter().map(|it| it.answered).sum(),
        errors: ended.iter().map(|it| it.failed()).sum(),
        changes,
        stalled_clients,
        rss_begin_mib: tenth(mib(looks.get(..fifth).unwrap_or_default())),
        rss_end_mib: tenth(mib(looks.get(looks.len() - fifth..).unwrap_or_default())),
        rss_max_mib: tenth(looks.iter().map(|(_, mib)| *mib).fold(0.0, f64::max)),
        slope_mib_per_hour: tenth(slope(&looks)),
        slope_error_mib_per_hour: tenth(slope_error(&looks)),
        looks_mib: some_of(&looks),
        descriptors_begin,
        descriptors_end: descriptors(subject)?,
        last_error: ended.into_iter().find_map(|it| it.seen.last_error),
    })
}

/// Kept connections on a schedule, streams, and connections of one request, whole and resumed.
fn plans(args: &SoakArgs, ground: &Ground, subject: &Subject) -> Vec<Plan> {
    let case = |connections| Case {
        work: Work::W1,
        variant: None,
        connections,
        life: Life::Kept,
        keys: Keys::P256,
        streams: None,
        schedule: None,
    };
    let schedule = Schedule {
        rps: args.rps,
        connections: KEPT,
        requests: u64::MAX,
        has_jitter: true,
    };
    let cases = [
        Case {
            schedule: Some(schedule),
            ..case(KEPT)
        },
        Case {
            streams: Some(STREAMS),
            ..case(MULTIPLEXED)
        },
        Case {
            life: Life::Fresh,
            ..case(FRESH)
        },
        Case {
            life: Life::Resumed,
            ..case(FRESH)
        },
    ];
    cases
        .iter()
        .map(|case| ground.plan(subject, case))
        .collect()
}

/// Clients that begin a handshake, or a head, and say no more.
fn stall(doors: Doors, number: usize) -> anyhow::Result<Vec<TcpStream>> {
    let begin = |index: usize| {
        let (address, bytes): (_, &[u8]) = match (index + number) % 2 {
            0 => (doors.https, b"\x16\x03\x01\x02\x00\x01"),
            _ => (doors.http, b"GET / HTTP/1.1\r\nHost: stalled.te"),
        };
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(bytes)?;
        Ok(stream)
    };
    (0..STALLED).map(begin).collect()
}

/// One more domain, in the place of the one before.
fn change(objects: &Path, number: usize) -> anyhow::Result<()> {
    let text = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata:\n  name: changing\n  namespace: soak\n  \
         annotations: {{myriad.dev/respond: \"{number}\"}}\n\
         spec:\n  rules:\n    - host: changing-{number}.test\n      \
         http: {{paths: [{{path: /, pathType: Prefix, backend: \
         {{service: {{name: none, port: {{number: 80}}}}}}}}]}}\n"
    );
    let (file, draft) = (
        objects.join("changing.yaml"),
        objects.join("changing.draft"),
    );
    std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &file))?;
    Ok(())
}

fn descriptors(subject: &Subject) -> anyhow::Result<usize> {
    let all = std::fs::read_dir(format!("/proc/{}/fd", subject.id()));
    Ok(all.context("the proxy has ended")?.count())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The slope of the line of least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len().max(1) as f64;
    let sum = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (sum(|point| point.0), sum(|point| point.1));
    let both = points.iter().map(|point| (point.0 - x) * (point.1 - y));
    let squares = points.iter().map(|point| (point.0 - x).powi(2));
    both.sum::<f64>() / squares.sum::<f64>().max(f64::MIN_POSITIVE)
}

/// The standard error of that slope, from how far the points lie off the line.
fn slope_error(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    if count <= 2.0 {
        return 0.0;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y, slope) = (mean(|point| point.0), mean(|point| point.1), slope(points));
    let off = |point: &(f64, f64)| (point.1 - y - slope * (point.0 - x)).powi(2);
    let off = points.iter().map(off).sum::<f64>();
    let squares = points
        .iter()
        .map(|point| (point.0 - x).powi(2))
        .sum::<f64>();
    (off / (count - 2.0) / squares.max(f64::MIN_POSITIVE)).sqrt()
}

/// Looks for a plot: minutes instead of hours.
fn some_of(looks: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = looks.len().div_ceil(LOOKS_SHOWN_MAX).max(1);
    let some = looks.iter().step_by(step);
    some.map(|&(hours, mib)| ((hours * 6_000.0).round() / 100.0, tenth(mib)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_has_no_error_on_a_line_and_one_beside_it() {
        let line: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), f64::from(x))).collect();
        assert!(slope_error(&line).abs() < 1e-9);
        // Residuals of 1/3, -2/3 and 1/3: the root of 6/9, by a degree of freedom, over 2.
        let bent = [(0.0, 1.0), (1.0, 0.0), (2.0, 1.0)];
        assert!((slope_error(&bent) - (1.0_f64 / 3.0).sqrt()).abs() < 1e-9);
        assert!(slope_error(&bent[..2]).abs() < 1e-9);
    }

    #[test]
    fn a_plot_has_some_of_many_looks() {
        let looks: Vec<(f64, f64)> = (0..1_000).map(|at| (f64::from(at) / 60.0, 20.0)).collect();
        let some = some_of(&looks);
        assert!(
            (100..=LOOKS_SHOWN_MAX).contains(&some.len()),
            "{}",
            some.len()
        );
        assert_eq!(some[1].0, 5.0);
        assert!(some_of(&[]).is_empty());
    }

    #[test]
    fn a_line_has_its_slope_and_a_row_its_middle() {
        let points: Vec<(f64, f64)> = (0..10)
            .map(|x| (f64::from(x), 3.0 * f64::from(x)))
            .collect();
        assert!((slope(&points) - 3.0).abs() < 1e-9);
        assert!(slope(&[]).abs() < 1e-9);
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < 1e-9);
    }
}
