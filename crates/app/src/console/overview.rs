//! How the process is, on one page.

use myriad_base::clock;
use myriad_model::Kind;

use super::domains::search_form;
use super::html::Html;
use super::layout::{self, Column, PageDraft, cell, grouped, lasting, table, term};
use super::{Console, PATH};

impl Console {
    pub(super) fn overview(&self) -> PageDraft {
        let mut page = PageDraft::new(PATH, "Overview");
        let html = &mut page.body;
        search_form(html, "", Default::default());
        html.raw("<h2>This process</h2><dl>");
        self.process(html);
        html.raw("</dl>");
        let snapshot = self.board().snapshot();
        let columns = [Column::Text("Kind"), Column::Number("Resources")];
        table(html, "Resources of the main view", &columns, |html| {
            for kind in Kind::ALL {
                html.raw("<tr>");
                cell(html, kind.as_str());
                layout::number(html, snapshot.count(kind) as u64);
                html.raw("</tr>");
            }
        });
        page
    }

    fn process(&self, html: &mut Html) {
        let reporter = &self.sources.reporter;
        let uptime = clock::now().saturating_duration_since(reporter.started);
        term(html, "Role", reporter.role);
        term(html, "Version", env!("CARGO_PKG_VERSION"));
        term(html, "Running for", &lasting(uptime.as_secs()));
        let waiting = reporter.readiness.pending().join(", ");
        html.raw("<dt>Ready</dt><dd>");
        match waiting.is_empty() {
            true => html.raw("<span class=\"good\">yes</span>"),
            false => html
                .raw("<span class=\"warn\">waits for ")
                .text(&waiting)
                .raw("</span>"),
        };
        html.raw("</dd>");
        let (errors, findings) = self.board().findings_count();
        html.raw("<dt>Findings</dt><dd>");
        let text = format!(
            "{} errors, {} in all",
            grouped(errors as u64),
            grouped(findings as u64)
        );
        html.link("/console/findings", &[], &text).raw("</dd>");
        if let Some(live) = &reporter.live {
            let live = live.report();
            let (proxies, in_step) = (live.proxies_total, live.in_step);
            term(html, "Proxies in step", &format!("{in_step} of {proxies}"));
            let (commits, done) = (grouped(live.commits), grouped(live.commits_live));
            term(html, "Commits live", &format!("{done} of {commits}"));
        }
        if let Some(followed) = &reporter.followed {
            let followed = followed();
            let word = if followed.is_connected {
                "follows"
            } else {
                "does not reach"
            };
            term(
                html,
                "Controller",
                &format!("{word} {}", followed.controller),
            );
        }
        let snapshot = self.board().snapshot();
        term(html, "Digest", &snapshot.digest().to_string());
    }
}
