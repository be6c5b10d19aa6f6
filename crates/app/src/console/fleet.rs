//! The proxies, and how far each has come.

use super::Console;
use super::html::Html;
use super::layout::{self, Column, PageDraft, cell, grouped, lasting, table, term, time};
use crate::live::{LiveReport, ProxyReport};
use crate::status::report::FollowedReport;

const SECTION: &str = "/console/fleet";

/// The most proxies, and the most refusals, of the page: those that are furthest behind.
const PROXIES_MAX: usize = 500;
const REFUSALS_MAX: usize = 100;

impl Console {
    pub(super) fn fleet(&self) -> PageDraft {
        let mut page = PageDraft::new(SECTION, "Fleet");
        let reporter = &self.sources.reporter;
        match (&reporter.live, &reporter.followed) {
            (Some(live), _) => proxies(&mut page.body, &live.report()),
            (None, Some(followed)) => controller(&mut page.body, &followed()),
            (None, None) => {
                page.body.raw("<p>Nobody follows this process.</p>");
            }
        }
        page
    }
}

fn proxies(html: &mut Html, live: &LiveReport) {
    html.raw("<dl>");
    let (in_step, total) = (
        grouped(live.in_step as u64),
        grouped(live.proxies_total as u64),
    );
    term(html, "Proxies in step", &format!("{in_step} of {total}"));
    let (done, commits) = (grouped(live.commits_live), grouped(live.commits));
    term(html, "Commits live", &format!("{done} of {commits}"));
    html.raw("</dl>");
    let columns = [
        Column::Text("Proxy"),
        Column::Text("View"),
        Column::Text("Account"),
        Column::Number("Schema"),
        Column::Text("Connected for"),
        Column::Text("State"),
        Column::Number("Commits behind"),
        Column::Number("Resources behind"),
        Column::Number("Refused"),
    ];
    table(
        html,
        "Proxies, those furthest behind first",
        &columns,
        |html| {
            for proxy in live.proxies.iter().take(PROXIES_MAX) {
                row(html, proxy);
            }
        },
    );
    if live.proxies_total > PROXIES_MAX {
        html.raw("<p>There are more, which are not further behind.</p>");
    }
    html.raw("<h2>Refused by proxies</h2><ul>");
    for refusal in live.refusals.iter().take(REFUSALS_MAX) {
        html.raw("<li>").text(refusal).raw("</li>");
    }
    html.raw(match live.refusals.is_empty() {
        true => "<li>nothing</li></ul>",
        false => "</ul>",
    });
}

fn row(html: &mut Html, proxy: &ProxyReport) {
    html.raw("<tr><th scope=\"row\">")
        .text(&proxy.instance)
        .raw("</th>");
    cell(html, &proxy.view);
    cell(html, &proxy.subject);
    layout::number(html, proxy.schema.into());
    cell(html, &lasting(proxy.connected_seconds));
    html.raw(match proxy.is_in_step {
        true => "<td><span class=\"good\">in step</span></td>",
        false => "<td><span class=\"warn\">behind</span></td>",
    });
    for behind in [proxy.commits_behind, proxy.resources_behind] {
        match behind {
            Some(behind) => layout::number(html, behind),
            None => {
                html.raw("<td class=\"number\">not known</td>");
            }
        }
    }
    layout::number(html, proxy.refused);
    html.raw("</tr>");
}

fn controller(html: &mut Html, followed: &FollowedReport) {
    html.raw("<p>This process is a proxy: the console of a controller shows all of them.</p><dl>");
    term(html, "Controller", &followed.controller);
    html.raw("<dt>Connected</dt><dd>")
        .raw(match followed.is_connected {
            true => "<span class=\"good\">yes</span>",
            false => "<span class=\"bad\">no: what was kept is served</span>",
        });
    html.raw("</dd>");
    let when = |unix: Option<i64>| unix.map_or_else(|| "not since the start".to_owned(), time);
    term(html, "Followed last", &when(followed.followed_unix));
    term(html, "Kept on disk last", &when(followed.kept_unix));
    html.raw("</dl>");
}
