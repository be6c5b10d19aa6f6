//! `trace`: the way of real requests, while they are served.
//!
//! The proxy that serves them keeps the records, without secrets and bounded; this orders them, and
//! shows them.

#[cfg(test)]
mod tests;
mod text;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use myriad_base::clock::{self, Instant};
use myriad_proxy::telemetry::live_trace::{LiveTraces, RequestTrace, TraceOrder, TraceReport};

use crate::ask;
use crate::cli::OutputForm;
use crate::cli::trace::RawTrace;

pub use self::text::{ShownReport, ShownRequest};

/// The path by which requests are ordered.
pub const PATH: &str = "/trace";

/// The path of what was found.
pub const FOUND_PATH: &str = "/traces";

/// How often it is looked whether there is more.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the command: exit code 1 where no such request came.
///
/// # Errors
/// A URL that is none, nobody answers, or standard output takes nothing.
pub fn run(raw: &RawTrace) -> anyhow::Result<ExitCode> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("url", &raw.url);
    query.append_pair("count", &raw.count.to_string());
    query.append_pair("seconds", &raw.time.as_secs().to_string());
    for header in &raw.header {
        query.append_pair("header", header);
    }
    let target = format!("{PATH}?{}", query.finish());
    let ordered: TraceReport = ask::tell(&raw.question, &target)?;
    let report = follow(raw, ordered, clock::now() + raw.time)?;
    if raw.question.output == OutputForm::Json {
        ask::print(&raw.question, &ShownReport(&report))?;
    } else if report.requests.is_empty() {
        write!(std::io::stdout().lock(), "{}", ShownReport(&report))?;
    }
    Ok(match report.requests.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Waits for requests and their ends, and writes each once it is over, where it is for people.
fn follow(raw: &RawTrace, ordered: TraceReport, until: Instant) -> anyhow::Result<TraceReport> {
    let id = ordered.id.to_string();
    let mut report = ordered;
    let mut written = 0;
    loop {
        let is_late = clock::now() >= until;
        let is_done = |request: &RequestTrace| request.is_over || is_late;
        if raw.question.output == OutputForm::Text {
            let mut out = std::io::stdout().lock();
            // They are written in their order: one that is not over yet holds the next ones up.
            let more = report.requests.iter().skip(written);
            for request in more.take_while(|request| is_done(request)) {
                writeln!(out, "{}", ShownRequest(request))?;
                written += 1;
            }
            out.flush()?;
        }
        if is_late || (report.is_over && report.requests.iter().all(is_done)) {
            return Ok(report);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the command has one thread, which waits for nothing else"
        )]
        std::thread::sleep(LOOK_INTERVAL);
        let found: Vec<TraceReport> = ask::ask(&raw.question, FOUND_PATH, &[("id", &id)])?;
        let found = found.into_iter().next();
        report = found.context("the process does not keep this trace any more")?;
    }
}

/// Orders requests, as the admin page is asked for them.
///
/// # Errors
/// A message for people about what cannot be ordered.
pub fn start(
    traces: &LiveTraces,
    url: &str,
    headers: &[String],
    (count, seconds): (&str, &str),
) -> Result<TraceReport, String> {
    let (host, path) = split(url)?;
    let number = |text: &str| {
        let read = text.parse::<u32>();
        read.map_err(|_| format!("{text:?} is not a number"))
    };
    let headers: Result<_, String> = headers.iter().map(|it| header(it)).collect();
    let order = TraceOrder {
        host,
        path,
        headers: headers?,
        count: number(count)?,
        time: Duration::from_secs(number(seconds)?.into()),
    };
    let started = traces.start(order);
    started.map_err(|refused| refused.to_string())
}

/// The findings of one order by its number, or of all where none is given.
///
/// # Errors
/// A number that is none, or of an order that is not kept.
pub fn found(traces: &LiveTraces, id: Option<&str>) -> Result<Vec<TraceReport>, String> {
    let Some(id) = id else {
        return Ok(traces.reports());
    };
    let number = id.parse().ok();
    let report = number.and_then(|number| traces.report(number));
    let report = report.ok_or_else(|| format!("no trace {id:?} is kept"))?;
    Ok(vec![report])
}

/// The host, in lower case and without port, and the path of a URL.
fn split(url: &str) -> Result<(String, String), String> {
    let mut schemes = ["https://", "http://"].into_iter();
    let rest = schemes.find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or_else(|| format!("{url:?} is not a URL with http:// or https://"))?;
    if rest.contains(['?', '#', '@', ' ']) {
        return Err("give a host and the start of a path, without query".to_owned());
    }
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let bracket = authority.rfind(']').unwrap_or(0);
    let colon = authority.rfind(':').filter(|colon| *colon > bracket);
    let host = authority.get(..colon.unwrap_or(authority.len()));
    let host = host.unwrap_or_default().trim_end_matches('.');
    if host.is_empty() || host.get(1..).is_some_and(|rest| rest.contains('*')) || host == "*" {
        return Err(format!(
            "{url:?} has no host; `*` stands for its first part alone"
        ));
    }
    let path = if path.is_empty() { "/" } else { path };
    Ok((host.to_ascii_lowercase(), path.to_owned()))
}

/// A header as written: `NAME=VALUE`, or `NAME: VALUE` as for `myriad explain`.
fn header(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(['=', ':']);
    let (name, value) = parts.ok_or_else(|| format!("{text:?} is not a header, NAME=VALUE"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
