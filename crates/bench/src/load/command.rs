//! `load`: requests to a URL, with the options, the results and the thresholds of other tools.

use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use time::OffsetDateTime;

use super::destination::{Destination, Extra, Trust};
use super::fortio::{Report, Requested};
use super::generator::{self, Pace, Plan};
use super::outcome::{NO_RESPONSE, Outcome};
use super::processes;
use super::schedule::Schedule;
use super::segment::{Segment, Sequence, Stripes};
use super::threshold::{Judged, Threshold};

/// The code that a run ends with which is not within its thresholds: that of k6.
const BEYOND_THRESHOLDS: u8 = 99;

/// The most generator processes, and the most connections of each run.
const PROCESSES_MAX: u64 = 64;
const CONNECTIONS_MAX: u64 = 65_536;

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Where requests go: `http://` or `https://`.
    url: String,
    /// Requests per second, which are sent whether those before have been answered or not; 0 for
    /// as many as all connections can make one after the other.
    #[arg(long, default_value_t = 8.0, value_parser = parse_rate)]
    qps: f64,
    /// How long, such as `30s`, `500ms` or `2m`.
    #[arg(long, short = 't', default_value = "5s", value_parser = parse_duration)]
    duration: Duration,
    /// So many requests, however long that takes.
    #[arg(long, short = 'n', default_value_t = 0)]
    exactly: u64,
    /// Connections, of all processes together.
    #[arg(
        long,
        short = 'c',
        default_value_t = 4,
        value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX)
    )]
    connections: u64,
    /// Sends each request at a random moment of its turn, instead of all equally far apart.
    #[arg(long)]
    jitter: bool,
    /// A header field, `Name: value`; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    headers: Vec<String>,
    /// A body; requests are then POST.
    #[arg(long)]
    payload: Option<String>,
    /// The address of the server, instead of the one that its name has.
    #[arg(long, value_name = "IP")]
    resolve: Option<IpAddr>,
    /// Takes any certificate.
    #[arg(long, short = 'k')]
    insecure: bool,
    /// Authorities of the server's certificate, in PEM.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,
    /// How long a connection, and a response, may take.
    #[arg(long, default_value = "3s", value_parser = parse_duration)]
    timeout: Duration,
    /// Percentiles that are reported.
    #[arg(
        long,
        short = 'p',
        value_delimiter = ',',
        default_value = "50,75,90,99,99.9",
        value_parser = parse_percentile
    )]
    percentiles: Vec<f64>,
    /// The width of the first buckets of latencies, of which the further ones are multiples.
    #[arg(long, short = 'r', default_value = "1ms", value_parser = parse_duration)]
    resolution: Duration,
    /// Words that are reported with the run.
    #[arg(long, default_value = "")]
    labels: String,
    /// Writes the results in fortio's JSON to a file, or to standard output for `-`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A bound that the run must keep, such as `p99<50ms` or `errors<0.1%`, or it ends with 99;
    /// may be given several times.
    #[arg(long = "threshold", value_name = "BOUND")]
    thresholds: Vec<Threshold>,
    /// The part of the run that this is, such as `1/4:1/2`, as k6 has it.
    #[arg(long = "execution-segment", value_name = "FROM:TO")]
    segment: Option<Segment>,
    /// The ends of all parts, such as `0,1/4,1/2,3/4,1`: without it those of which others are told
    /// may not add up to the whole.
    #[arg(
        long = "execution-segment-sequence",
        value_name = "ENDS",
        requires = "segment"
    )]
    sequence: Option<Sequence>,
    /// Generator processes that share the run.
    #[arg(
        long,
        default_value_t = 1,
        conflicts_with = "segment",
        value_parser = clap::value_parser!(u64).range(1..=PROCESSES_MAX)
    )]
    processes: u64,
    /// The number of such a process.
    #[arg(long, hide = true)]
    part: Option<usize>,
}

/// Runs the command.
///
/// # Errors
/// The settings contradict each other, the server has no address, or results cannot be written.
pub fn run(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let started = OffsetDateTime::now_utc();
    let plan = args.plan()?;
    ensure!(
        args.connections >= args.processes,
        "each process has a connection, so {} are too few",
        args.connections
    );
    let address = plan.destination.address.to_string();
    let outcome = match (args.part, args.processes) {
        (Some(_), _) => {
            let outcome = generator::run(plan, processes::wait_for_begin)?;
            processes::tell(&outcome)?;
            return Ok(ExitCode::SUCCESS);
        }
        (None, 1) => generator::run(plan, || Ok(()))?,
        (None, count) => processes::run(count)?,
    };
    let judged: Vec<Judged> = args
        .thresholds
        .iter()
        .map(|it| it.judge(&outcome))
        .collect();
    let is_held = judged.iter().all(|it| it.is_held);
    for broken in judged.iter().filter(|it| !it.is_held) {
        let value = match broken.value {
            Some(value) => format!("it was {value}"),
            None => "nothing was answered".to_owned(),
        };
        eprintln!("threshold {} is crossed: {value}", broken.threshold);
    }
    if let Some(text) = &outcome.last_error {
        eprintln!("the last failure: {text}");
    }
    let requested = args.requested(started, address)?;
    args.write(&Report::new(&requested, &outcome, judged)?)?;
    if args.json.is_none() {
        print(&outcome, &args.percentiles)?;
    }
    Ok(match is_held {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(BEYOND_THRESHOLDS),
    })
}

impl LoadArgs {
    /// The requests of this run that are this process's own.
    fn stripes(&self) -> anyhow::Result<Stripes> {
        match (self.part, self.segment) {
            (Some(part), _) => {
                let sequence = Sequence::even(self.processes)?;
                let segment = sequence.segment(part);
                let segment = segment.context("there are fewer processes")?;
                Stripes::new(segment, Some(&sequence))
            }
            (None, Some(segment)) => Stripes::new(segment, self.sequence.as_ref()),
            (None, None) => Ok(Stripes::whole()),
        }
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let trust = match (&self.cacert, self.insecure) {
            (Some(path), _) => Trust::Roots(path),
            (None, true) => Trust::Anybody,
            (None, false) => Trust::Unsaid,
        };
        let destination = Destination::new(&self.url, self.resolve, trust)?;
        let extra = Extra {
            headers: &self.headers,
            payload: self.payload.as_deref(),
        };
        let stripes = self.stripes()?;
        let own = usize::try_from(stripes.count(self.connections))?;
        ensure!(
            own > 0,
            "{} connections are too few for so many segments: one has none",
            self.connections
        );
        Ok(Plan {
            request: destination.request(extra)?,
            destination,
            connections: own,
            pace: self.pace(stripes)?,
            timeout: self.timeout,
        })
    }

    fn pace(&self, stripes: Stripes) -> anyhow::Result<Pace> {
        if self.qps > 0.0 {
            let schedule = Schedule {
                rps: self.qps,
                connections: usize::try_from(self.connections)?,
                requests: self.exactly,
                has_jitter: self.jitter,
            };
            let schedule = match self.exactly {
                0 => schedule.lasting(self.duration),
                _ => schedule,
            };
            return Ok(Pace::Open(schedule, stripes));
        }
        Ok(match self.exactly {
            0 => Pace::Closed {
                time: Some(self.duration),
                requests: None,
            },
            requests => Pace::Closed {
                time: None,
                requests: Some(stripes.count(requests)),
            },
        })
    }

    fn requested(&self, started: OffsetDateTime, address: String) -> anyhow::Result<Requested> {
        Ok(Requested {
            url: self.url.clone(),
            address,
            labels: self.labels.clone(),
            started,
            qps: self.qps,
            duration: self.duration,
            exactly: self.exactly,
            connections: usize::try_from(self.stripes()?.count(self.connections))?,
            has_jitter: self.jitter,
            is_insecure: self.insecure,
            timeout: self.timeout,
            percentiles: self.percentiles.clone(),
            resolution: self.resolution,
            segment: match &self.segment {
                Some(segment) => segment.to_string(),
                None => "0:1".to_owned(),
            },
        })
    }

    fn write(&self, report: &Report) -> anyhow::Result<()> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        let mut out: Box<dyn std::io::Write> = match path.as_os_str() == "-" {
            true => Box::new(std::io::stdout().lock()),
            false => {
                let file = File::create(path);
                Box::new(file.with_context(|| path.display().to_string())?)
            }
        };
        serde_json::to_writer_pretty(&mut out, report)?;
        out.write_all(b"\n")?;
        Ok(out.flush()?)
    }
}

/// Prints a run for people.
fn print(outcome: &Outcome, percentiles: &[f64]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} requests in {:.3} s, {:.1} per second, {} failed",
        outcome.latency.count(),
        outcome.time.as_secs_f64(),
        outcome.rate(),
        outcome.failed.count()
    )?;
    for &percentile in percentiles {
        let millis = outcome.latency.percentile(percentile) / 1e6;
        let name = format!("p{percentile}");
        writeln!(out, "{name:>8} {millis:>10.3} ms")?;
    }
    writeln!(out, "{:>8} {:>10.3} ms", "max", outcome.latency.max() / 1e6)?;
    for (&code, count) in &outcome.codes {
        let code = match code {
            NO_RESPONSE => "none".to_owned(),
            code => code.to_string(),
        };
        writeln!(out, "{code:>8} {count:>10}")?;
    }
    Ok(())
}

/// The units of durations and their seconds, of which each is found by its end.
const UNITS: [(&str, f64); 5] = [
    ("ms", 1e-3),
    ("us", 1e-6),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3_600.0),
];

fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    let unit = UNITS.iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?;
        Some(number.parse::<f64>().ok()? * seconds)
    });
    let seconds = unit.with_context(|| format!("{text:?} is no duration such as `30s`"))?;
    let time = Duration::try_from_secs_f64(seconds)?;
    ensure!(!time.is_zero(), "a duration is above 0");
    Ok(time)
}

fn parse_rate(text: &str) -> anyhow::Result<f64> {
    let rate: f64 = text.parse()?;
    ensure!(rate.is_finite() && rate >= 0.0, "a rate is not below 0");
    Ok(rate)
}

fn parse_percentile(text: &str) -> anyhow::Result<f64> {
    let percentile: f64 = text.parse()?;
    let is_percentile = (0.0..=100.0).contains(&percentile);
    ensure!(is_percentile, "a percentile is between 0 and 100");
    Ok(percentile)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: LoadArgs,
    }

    fn parse(more: &[&str]) -> Result<LoadArgs, clap::Error> {
        let line = ["load", "http://127.0.0.1:80/"].iter().chain(more);
        Ok(Line::try_parse_from(line)?.args)
    }

    #[test]
    fn durations_have_units() {
        for (text, millis) in [("30s", 30_000), ("500ms", 500), ("1.5m", 90_000)] {
            let wanted = Duration::from_millis(millis);
            assert_eq!(parse_duration(text).unwrap(), wanted, "{text}");
        }
        for text in ["", "5", "s", "-1s", "0s", "1d", "infs", "nans"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn processes_and_segments_share_connections_and_requests() {
        let mut owned = 0;
        let mut connections = 0;
        for part in ["0", "1", "2"] {
            let args = parse(&["--processes=3", "-c=7", "-n=100", "--qps=0", "--part", part]);
            let plan = args.unwrap().plan().unwrap();
            connections += plan.connections;
            let Pace::Closed { requests, .. } = plan.pace else {
                panic!("no rate was asked for");
            };
            owned += requests.unwrap();
        }
        assert_eq!((owned, connections), (100, 7));
        let few = parse(&["--processes=3", "-c=2", "--part=2"]).unwrap();
        assert!(
            few.plan().is_err(),
            "two connections are not shared by three"
        );
        let half = parse(&["-c=8", "--execution-segment=1/2:1"]).unwrap();
        assert_eq!(half.plan().unwrap().connections, 4);
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for more in [
            &["--execution-segment-sequence=0,1/2,1"][..],
            &["--execution-segment=0:1/2", "--processes=2"],
            &["--execution-segment=0:1/2:1"],
            &["--threshold=fast"],
            &["--connections=0"],
            &["--qps=-1"],
            &["--insecure", "--cacert=a.pem"],
        ] {
            assert!(parse(more).is_err(), "{more:?}");
        }
        assert!(parse(&["--qps=100", "--threshold=p99<50ms", "-H=A: b"]).is_ok());
    }
}
