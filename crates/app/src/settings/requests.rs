//! Settings of what is told of requests, to endpoints and to people: ids, the access log, metrics.

use std::io::{self, Write};
use std::time::Duration;

use myriad_model::LogFormat;
use myriad_proxy::{RequestIds, TopSeries};
use myriad_translate::mesh_config;

use crate::cli::RawTraffic;
use crate::cli::otlp::RawOtlp;
use crate::cli::requests::RequestId;
use crate::log_file::LogFile;
use crate::otlp::{Collector, LineQueue, Otlp};

/// The output of the access log.
#[derive(Clone, Debug)]
pub enum AccessLog {
    /// No access log.
    Off,
    /// Standard output.
    Output,
    /// A file.
    File(LogFile),
    /// The collector of OpenTelemetry.
    Collector(LineQueue),
}

impl AccessLog {
    pub(super) fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> AccessLog {
        if raw.requests.access_log_otlp {
            if raw.requests.access_log_file.is_some() {
                let problem = "--access-log-otlp and --access-log-file are two places: give one";
                problems.push(problem.to_owned());
            }
            return AccessLog::Collector(LineQueue::new());
        }
        let Some(path) = &raw.requests.access_log_file else {
            return match raw.access_log {
                true => AccessLog::Output,
                false => AccessLog::Off,
            };
        };
        match LogFile::open(path) {
            Ok(file) => AccessLog::File(file),
            Err(error) => {
                problems.push(format!("--access-log-file {}: {error}", path.display()));
                AccessLog::Off
            }
        }
    }

    /// Opens a file anew at each SIGUSR1.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn reopen_at_signal(&self) -> io::Result<()> {
        match self {
            AccessLog::File(file) => file.reopen_at_signal(),
            AccessLog::Off | AccessLog::Output | AccessLog::Collector(_) => Ok(()),
        }
    }

    /// The end that lines are written to.
    pub(super) fn writer(&self) -> Option<Box<dyn Write + Send>> {
        match self {
            AccessLog::Off => None,
            AccessLog::Output => Some(Box::new(io::stdout())),
            AccessLog::File(file) => Some(Box::new(file.clone())),
            AccessLog::Collector(queue) => Some(Box::new(queue.writer())),
        }
    }
}

/// The format of the access log.
pub(super) fn log_format(raw: &RawTraffic, problems: &mut Vec<String>) -> LogFormat {
    let format = mesh_config::log_format(&raw.requests.access_log_format);
    format.unwrap_or_else(|problem| {
        problems.push(format!("--access-log-format: {problem}"));
        LogFormat::Own
    })
}

/// How many domains and objects have series of their own.
pub(super) fn top_series(raw: &RawTraffic, problems: &mut Vec<String>) -> TopSeries {
    let (count, max) = (raw.requests.top_series, TopSeries::MAX);
    if count > max {
        problems.push(format!("--top-series is {count}, over {max}"));
    }
    TopSeries::new(count)
}

/// The collector of OpenTelemetry, and what it gets of a process that serves: `access_log` says
/// where lines go.
pub(super) fn otlp(
    raw: &RawOtlp,
    access_log: Option<&AccessLog>,
    problems: &mut Vec<String>,
) -> Option<Otlp> {
    let lines = match access_log {
        Some(AccessLog::Collector(queue)) => Some(queue.clone()),
        _ => None,
    };
    let Some(url) = &raw.collector else {
        if lines.is_some() {
            problems.push("--access-log-otlp needs --otlp".to_owned());
        }
        return None;
    };
    match Collector::parse(url) {
        Ok(collector) => Some(Otlp {
            collector,
            interval: Duration::from_secs(raw.interval),
            lines,
        }),
        Err(problem) => {
            problems.push(format!("--otlp: {problem}"));
            None
        }
    }
}

pub(super) fn request_ids(raw: &RawTraffic) -> RequestIds {
    match raw.requests.request_id {
        RequestId::Keep => RequestIds::Keep,
        RequestId::Replace => RequestIds::Replace,
        RequestId::Pass => RequestIds::Pass,
    }
}
