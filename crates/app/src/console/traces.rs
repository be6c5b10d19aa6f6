//! Requests that somebody wants to see, as they are served.

use myriad_proxy::telemetry::live_trace::{RequestTrace, StageOutcome, TraceReport};

use super::html::Html;
use super::layout::{self, Column, PageDraft, cell, table, term, time};
use super::{Asked, Console};

const SECTION: &str = "/console/traces";

/// The most traces of the list.
const TRACES_MAX: usize = 50;

/// The most requests of a page, and the most lines of each of their tables.
const REQUESTS_MAX: usize = 50;
const LINES_MAX: usize = 100;

impl Console {
    pub(super) fn traces(&self) -> PageDraft {
        let mut page = PageDraft::new(SECTION, "Live traces");
        let html = &mut page.body;
        html.raw(
            "<p>Ask for one by <code>myriad trace URL</code>: it shows the next requests that ",
        )
        .raw("are like it, here too.</p>");
        let Some(traces) = &self.sources.traces else {
            html.raw("<p>No request comes to a controller: see the console of a proxy.</p>");
            return page;
        };
        let reports = traces.reports();
        if reports.is_empty() {
            html.raw("<p>Nobody has asked for one yet.</p>");
            return page;
        }
        let columns = [
            Column::Text("Trace"),
            Column::Text("Host and path"),
            Column::Text("State"),
            Column::Number("Requests"),
        ];
        table(html, "Traces, the newest first", &columns, |html| {
            for report in reports.iter().take(TRACES_MAX) {
                row(html, report);
            }
        });
        page
    }

    pub(super) fn trace(&self, asked: &Asked) -> PageDraft {
        let traces = self.sources.traces.as_ref();
        let report = traces.and_then(|traces| traces.report(asked.number("id")?));
        let Some(report) = report else {
            return PageDraft::missing(SECTION, "There is no such trace any more.");
        };
        let mut page = PageDraft::new(SECTION, format!("Trace {}", report.id));
        let html = &mut page.body;
        html.raw("<dl>");
        term(html, "Host", &report.host);
        term(html, "Path", &report.path);
        term(html, "Headers asked for", &report.headers.join(", "));
        term(html, "State", &state(&report));
        html.raw("</dl>");
        for (number, request) in report.requests.iter().take(REQUESTS_MAX).enumerate() {
            section(html, number + 1, request);
        }
        page
    }
}

fn row(html: &mut Html, report: &TraceReport) {
    let id = report.id.to_string();
    html.raw("<tr><th scope=\"row\">");
    html.link("/console/trace", &[("id", &*id)], &id)
        .raw("</th><td>");
    html.text(&report.host).text(&report.path).raw("</td>");
    cell(html, &state(report));
    layout::number(html, report.requests.len() as u64);
    html.raw("</tr>");
}

fn state(report: &TraceReport) -> String {
    match report.is_over {
        true => "over".to_owned(),
        false => format!(
            "waits for {} more, {} s longer",
            report.left, report.seconds_left
        ),
    }
}

fn section(html: &mut Html, number: usize, request: &RequestTrace) {
    html.raw("<h2>Request ").shown(number).raw(": ");
    html.text(&request.method).raw(" ").text(&request.target);
    html.raw("</h2><dl>");
    let began = i64::try_from(request.began_unix_ms / 1_000).unwrap_or_default();
    term(html, "Began", &time(began));
    let end = match (request.is_over, request.status) {
        (false, _) => "is being served".to_owned(),
        (true, 0) => format!("no answer, after {} µs", request.micros),
        (true, status) => format!("{status}, after {} µs", request.micros),
    };
    term(html, "Answer", &end);
    if !request.failure.is_empty() {
        let failure = format!("{} {}", request.failure, request.why);
        term(html, "Failure", &failure);
    }
    term(html, "Id", &request.request_id);
    term(html, "Protocol", &request.protocol);
    let from = format!("{} by {}", request.client, request.listener);
    term(html, "Client", &from);
    term(
        html,
        "Host",
        &format!("{}://{}", request.scheme, request.host),
    );
    term(html, "Route", &request.route);
    let bytes = format!(
        "{} received, {} sent",
        request.bytes_received, request.bytes_sent
    );
    term(html, "Bytes", &bytes);
    html.raw("</dl>");
    stages(html, number, request);
    tries(html, number, request);
    waits(html, number, request);
    headers(html, number, request);
    if request.is_cut {
        html.raw("<p class=\"warn\">Some of it was left out for its size.</p>");
    }
}

fn stages(html: &mut Html, number: usize, request: &RequestTrace) {
    let columns = [
        Column::Text("Stage"),
        Column::Text("Outcome"),
        Column::Text("What it decided"),
        Column::Number("µs"),
    ];
    let name = format!("Stages of request {number}");
    table(html, &name, &columns, |html| {
        for stage in request.stages.iter().take(LINES_MAX) {
            html.raw("<tr><th scope=\"row\">")
                .text(&stage.name)
                .raw("</th><td>");
            html.raw(match stage.outcome {
                StageOutcome::Passed => "passed",
                StageOutcome::Answered => "<span class=\"warn\">answered</span>",
                StageOutcome::Refused => "<span class=\"bad\">refused</span>",
                StageOutcome::Forwarded => "<span class=\"good\">forwarded</span>",
            });
            html.raw("</td>");
            cell(html, &stage.text);
            layout::number(html, stage.micros);
            html.raw("</tr>");
        }
    });
}

fn tries(html: &mut Html, number: usize, request: &RequestTrace) {
    if request.tries.is_empty() {
        return;
    }
    let columns = [
        Column::Text("Upstream"),
        Column::Text("Endpoint"),
        Column::Text("Connection"),
        Column::Text("Answer"),
        Column::Number("From µs"),
    ];
    let name = format!("Tries of request {number}");
    table(html, &name, &columns, |html| {
        for one in request.tries.iter().take(LINES_MAX) {
            html.raw("<tr><th scope=\"row\">")
                .text(&one.upstream)
                .raw("</th>");
            cell(html, &one.endpoint);
            let connection = match one.is_reused {
                None => "",
                Some(true) => "reused",
                Some(false) => "new",
            };
            cell(html, connection);
            match one.status {
                0 => cell(html, &one.failure),
                status => cell(html, &format!("{status} {}", one.failure)),
            }
            layout::number(html, one.from_micros);
            html.raw("</tr>");
        }
    });
}

fn waits(html: &mut Html, number: usize, request: &RequestTrace) {
    if request.waits.is_empty() {
        return;
    }
    let columns = [
        Column::Text("Waited for"),
        Column::Number("From µs"),
        Column::Number("For µs"),
    ];
    let name = format!("Waits of request {number}");
    table(html, &name, &columns, |html| {
        for wait in request.waits.iter().take(LINES_MAX) {
            html.raw("<tr><th scope=\"row\">")
                .text(&wait.what)
                .raw("</th>");
            layout::number(html, wait.from_micros);
            match wait.is_over {
                true => layout::number(html, wait.micros),
                false => cell(html, "goes on"),
            }
            html.raw("</tr>");
        }
    });
}

fn headers(html: &mut Html, number: usize, request: &RequestTrace) {
    let columns = [Column::Text("Header"), Column::Text("Value")];
    let name = format!("Headers of request {number}, without secrets");
    table(html, &name, &columns, |html| {
        for header in request.headers.iter().take(LINES_MAX) {
            html.raw("<tr><th scope=\"row\">")
                .text(&header.name)
                .raw("</th>");
            cell(html, &header.value);
            html.raw("</tr>");
        }
    });
}
