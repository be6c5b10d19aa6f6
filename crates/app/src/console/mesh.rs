//! The mesh as a graph.

use std::sync::PoisonError;

use myriad_base::clock;

use super::Console;
use super::edges::{Edge, Edges};
use super::graph;
use super::html::Html;
use super::layout::{self, Column, PageDraft, cell, table};

const SECTION: &str = "/console/mesh";

/// The rates of all proxies together, as the dashboard of the mesh asks Prometheus for them, and
/// those of errors alone.
const RATES: &str = "sum by (source_workload, destination_workload) \
                     (rate(istio_requests_total{reporter=\"destination\"}[1m]))";
const ERROR_RATES: &str = "sum by (source_workload, destination_workload) \
                           (rate(istio_requests_total{reporter=\"destination\",\
                           response_code=~\"5..\"}[1m]))";

/// The most edges of the table.
const ROWS_MAX: usize = 500;

impl Console {
    pub(super) fn mesh(&self) -> PageDraft {
        let mut page = PageDraft::new(SECTION, "Mesh");
        let html = &mut page.body;
        let edges = self.edges(html);
        if edges.edges.is_empty() {
            html.raw(
                "<p>There is nothing to show yet. Sidecars count requests, and gateways where ",
            )
            .raw("<code>--workload</code> says what they are.</p>");
            return page;
        }
        let drawn = graph::draw(html, &edges);
        html.raw("<p>Whole lines are mutual TLS or not known, dashed lines plain text or ")
            .raw("TLS of one side; the thicker, the more requests. ");
        if drawn < edges.edges.len() {
            html.raw("The picture has the busiest alone.");
        }
        html.raw("</p>");
        let columns = [
            Column::Text("From"),
            Column::Text("To"),
            Column::Text("Mutual TLS"),
            Column::Number("Requests"),
            Column::Number("Errors"),
            Column::Number("Per second"),
        ];
        table(html, "Who sends requests to whom", &columns, |html| {
            for ((from, to), edge) in edges.edges.iter().take(ROWS_MAX) {
                row(html, (from.as_str(), to.as_str()), edge);
            }
        });
        if edges.has_more || edges.edges.len() > ROWS_MAX {
            html.raw("<p>There are more than are shown.</p>");
        }
        page
    }

    fn edges(&self, html: &mut Html) -> Edges {
        if self.tables.is_none() {
            html.raw("<p>What sidecars may reach, of some of their views. A controller serves no ")
                .raw("requests and is told of none: proxies count them. The console of a proxy ")
                .raw("has its own rates, and Prometheus those of all: <code>");
            html.text(RATES).raw("</code>, and of errors <code>");
            html.text(ERROR_RATES)
                .raw("</code>. The dashboard <code>mesh</code> for Grafana ")
                .raw("shows them.</p>");
            return Edges::reachable(self.board());
        }
        html.raw("<p>Requests that this process has passed on. Rates are of the time between two ")
            .raw("looks at this page, of about ten seconds.</p>");
        let mut edges = Edges::counted(&self.sources.metrics.encode());
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.fill(&mut edges, clock::now());
        edges
    }
}

fn row(html: &mut Html, (from, to): (&str, &str), edge: &Edge) {
    html.raw("<tr><th scope=\"row\">").text(from).raw("</th>");
    cell(html, to);
    html.raw("<td>").raw(match edge.is_mutual {
        Some(true) => "<span class=\"good\">yes</span>",
        Some(false) => "<span class=\"warn\">no</span>",
        None => "not known, or not always",
    });
    html.raw("</td>");
    match edge.requests {
        Some(requests) => {
            figure(html, requests);
            figure(html, edge.errors);
        }
        None => {
            html.raw("<td class=\"number\">–</td><td class=\"number\">–</td>");
        }
    }
    html.raw("<td class=\"number\">");
    match edge.rate {
        Some(rate) => html.shown(format_args!("{rate:.1}")),
        None => html.raw("–"),
    };
    html.raw("</td></tr>");
}

/// A cell with a number that was counted.
fn figure(html: &mut Html, number: f64) {
    html.raw("<td class=\"number\">");
    html.text(&layout::counted(number)).raw("</td>");
}
