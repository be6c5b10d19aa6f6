//! The memory that resources hold, by namespace, and the limits that were reached.

use std::collections::BTreeMap;

use super::Console;
use super::html::Html;
use super::layout::{self, Column, PageDraft, bytes, cell, grouped, table};
use super::samples::samples;
use crate::holdings::Held;

const SECTION: &str = "/console/memory";

/// The most limits that are shown.
const LIMITS_MAX: usize = 200;

impl Console {
    pub(super) fn memory(&self) -> PageDraft {
        let mut page = PageDraft::new(SECTION, "Limits and memory");
        let html = &mut page.body;
        let metrics = self.sources.metrics.encode();
        let resident = samples(&metrics, "process_resident_memory_bytes").next();
        html.raw("<dl><dt>Memory of the process</dt><dd>");
        match resident {
            Some(resident) => html.text(&bytes(layout::whole(resident.value))),
            None => html.raw("not known"),
        };
        html.raw("</dd></dl><h2>What resources make the process hold</h2>");
        let report = self.board().holdings().report();
        parts(html, "All namespaces", &report.parts);
        html.raw("<p>")
            .text(&grouped(report.namespaces_total as u64));
        html.raw(" namespaces hold something. Those that hold most:</p>");
        let columns = [
            Column::Text("Namespace"),
            Column::Text("In all"),
            Column::Text("Most of it"),
        ];
        table(html, "Namespaces that hold most", &columns, |html| {
            for namespace in &report.namespaces {
                html.raw("<tr><th scope=\"row\">")
                    .text(&namespace.namespace);
                html.raw("</th>");
                cell(html, &bytes(namespace.bytes));
                let most = namespace.parts.iter().max_by_key(|(_, held)| held.bytes);
                let most = most.map(|(part, held)| format!("{part}: {}", bytes(held.bytes)));
                cell(html, &most.unwrap_or_default());
                html.raw("</tr>");
            }
        });
        html.raw("<h2>Limits that were reached</h2>");
        limits(html, &metrics);
        html.raw("<p>All limits: <code>myriad limits</code>. What a namespace may hold: ")
            .raw("<code>--tenants</code> and the bounds of the command line.</p>");
        page
    }
}

fn parts(html: &mut Html, name: &'static str, parts: &BTreeMap<String, Held>) {
    let columns = [
        Column::Text("Part"),
        Column::Number("Count"),
        Column::Text("Bytes"),
    ];
    table(html, name, &columns, |html| {
        for (part, held) in parts {
            html.raw("<tr><th scope=\"row\">").text(part).raw("</th>");
            layout::number(html, held.count);
            cell(html, &bytes(held.bytes));
            html.raw("</tr>");
        }
    });
}

fn limits(html: &mut Html, metrics: &str) {
    let reached = samples(metrics, "myriad_limits_reached_total");
    let mut reached = reached.filter(|sample| sample.value > 0.0).peekable();
    if reached.peek().is_none() {
        html.raw("<p class=\"good\">None since the start.</p>");
        return;
    }
    let columns = [Column::Text("Limit"), Column::Number("Times")];
    table(html, "Limits that were reached", &columns, |html| {
        for sample in reached.take(LIMITS_MAX) {
            html.raw("<tr><th scope=\"row\">")
                .text(sample.label("limit"));
            html.raw("</th>");
            layout::number(html, layout::whole(sample.value));
            html.raw("</tr>");
        }
    });
}
