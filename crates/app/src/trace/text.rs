//! Traces for people.

use std::fmt;

use myriad_api::one_line;
use myriad_proxy::telemetry::live_trace::{
    RequestTrace, StageOutcome, StageTrace, TraceReport, TryTrace, WaitTrace,
};
use serde::{Serialize, Serializer};

/// A report of what an order has found.
pub struct ShownReport<'a>(pub &'a TraceReport);

/// One request.
pub struct ShownRequest<'a>(pub &'a RequestTrace);

impl Serialize for ShownReport<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl fmt::Display for ShownReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        for request in &report.requests {
            writeln!(f, "{}", ShownRequest(request))?;
        }
        if report.requests.is_empty() {
            let (host, path) = (one_line(&report.host), one_line(&report.path));
            write!(f, "no request to {host}{path}")?;
            if !report.headers.is_empty() {
                write!(f, " with {}", one_line(&report.headers.join(", ")))?;
            }
            writeln!(f, " came meanwhile to this proxy")?;
        }
        if report.passed_over > 0 {
            writeln!(f, "{} more came too fast after others", report.passed_over)?;
        }
        Ok(())
    }
}

impl fmt::Display for ShownRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.0;
        // Much of it is as a client has written it.
        let texts = [
            &request.method,
            &request.scheme,
            &request.host,
            &request.target,
            &request.listener,
            &request.request_id,
        ];
        let [method, scheme, host, target, listener, id] = texts.map(|text| one_line(text));
        writeln!(f, "{method} {scheme}://{host}{target}")?;
        writeln!(f, "{}", Outcome(request))?;
        let (client, protocol) = (&request.client, &request.protocol);
        writeln!(f, "  client       {client}, by {protocol} at {listener}")?;
        writeln!(f, "  id           {id}")?;
        for header in &request.headers {
            let (name, value) = (one_line(&header.name), one_line(&header.value));
            writeln!(f, "  header       {name}: {value}")?;
        }
        for stage in &request.stages {
            write_stage(f, stage)?;
        }
        write_silent(f, &request.stages)?;
        if !request.route.is_empty() {
            writeln!(f, "  route        {}", one_line(&request.route))?;
        }
        for made in &request.tries {
            write_try(f, made)?;
        }
        for wait in &request.waits {
            write_wait(f, wait)?;
        }
        let (received, sent) = (request.bytes_received, request.bytes_sent);
        writeln!(f, "  body         {received} bytes received, {sent} sent")?;
        if request.is_cut {
            writeln!(f, "  and more     that a trace has no room for")?;
        }
        Ok(())
    }
}

/// The end of a request in one line.
struct Outcome<'a>(&'a RequestTrace);

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.0;
        let took = Millis(request.micros);
        match (request.is_over, request.status) {
            (false, _) => return write!(f, "is not over after {took}"),
            (true, 0) => write!(f, "ended without an answer after {took}")?,
            (true, status) => write!(f, "{status} after {took}")?,
        }
        match (request.failure.is_empty(), request.why.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => write!(f, ": {}", one_line(&request.why)),
            (false, _) => write!(f, ": {} ({})", one_line(&request.why), request.failure),
        }
    }
}

/// Microseconds as milliseconds.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000, self.0 % 1_000);
        write!(f, "{whole}.{part:03} ms")
    }
}

/// A stage that had something to say or to do.
fn write_stage(f: &mut fmt::Formatter<'_>, stage: &StageTrace) -> fmt::Result {
    if is_silent(stage) {
        return Ok(());
    }
    let StageTrace {
        name,
        outcome,
        text,
        ..
    } = stage;
    let mark = match outcome {
        StageOutcome::Passed => "passed",
        StageOutcome::Answered => "answered",
        StageOutcome::Refused => "refused",
        StageOutcome::Forwarded => "forwarded",
    };
    writeln!(f, "  {mark:<12} {name}: {}", one_line(text))
}

/// The stages that had nothing to say, in one line.
fn write_silent(f: &mut fmt::Formatter<'_>, stages: &[StageTrace]) -> fmt::Result {
    let silent = stages.iter().filter(|stage| is_silent(stage));
    let mut names: Vec<&str> = silent.map(|stage| &*stage.name).collect();
    names.dedup();
    match names.is_empty() {
        true => Ok(()),
        false => writeln!(f, "  not met      {}", names.join(", ")),
    }
}

fn is_silent(stage: &StageTrace) -> bool {
    stage.outcome == StageOutcome::Passed && stage.text.is_empty()
}

fn write_try(f: &mut fmt::Formatter<'_>, made: &TryTrace) -> fmt::Result {
    let (endpoint, upstream) = (&made.endpoint, one_line(&made.upstream));
    write!(f, "  endpoint     {endpoint} of {upstream}")?;
    match made.is_reused {
        Some(true) => write!(f, ", by a connection that was there")?,
        Some(false) => write!(f, ", by a new connection")?,
        None => {}
    }
    match (made.status, made.failure.is_empty()) {
        (0, true) => writeln!(f),
        (0, false) => writeln!(f, ": {}", made.failure),
        (status, true) => writeln!(f, ": {status}"),
        (status, false) => writeln!(f, ": {status}, then {}", made.failure),
    }
}

fn write_wait(f: &mut fmt::Formatter<'_>, wait: &WaitTrace) -> fmt::Result {
    let (long, from) = (Millis(wait.micros), Millis(wait.from_micros));
    let verb = if wait.is_over { "waited" } else { "waits" };
    writeln!(f, "  {verb:<12} {long} for {}, from {from} on", wait.what)
}
