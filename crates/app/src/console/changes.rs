//! The commits that changed something, and when they were live.

use super::html::Html;
use super::layout::{self, Column, PageDraft, bytes, cell, grouped, table, term};
use super::{Asked, Console};
use crate::history::{EntryReport, LiveLine, ObjectLine, TimelineFilter, TimelineReport};

const SECTION: &str = "/console/changes";

/// The commits of a page.
const COMMITS_MAX: usize = 50;

/// The objects of a commit that a list names.
const OBJECTS_LISTED_MAX: usize = 3;

/// The objects, resources and findings of a commit that its page shows.
const LINES_MAX: usize = 200;

/// The hosts of a resource that are shown.
const HOSTS_MAX: usize = 5;

const NO_HISTORY: &str = "<p>This process keeps no history: ask a controller, or serve with \
                          --history-bytes.</p>";

impl Console {
    pub(super) fn changes(&self, asked: &Asked) -> PageDraft {
        let mut page = PageDraft::new(SECTION, "What changed");
        let html = &mut page.body;
        let Some(history) = &self.sources.history else {
            html.raw(NO_HISTORY);
            return page;
        };
        let some = |name: &str| Some(asked.text(name).to_owned()).filter(|text| !text.is_empty());
        let filter = TimelineFilter {
            host: some("host"),
            namespace: some("namespace"),
            before: asked.number("before"),
            count_max: COMMITS_MAX,
        };
        let (host, namespace) = (asked.text("host"), asked.text("namespace"));
        filter_form(html, host, namespace);
        let report = history.timeline(&filter, self.sources.reporter.live.as_ref());
        html.raw("<p>Kept since ")
            .text(&report.kept_since)
            .raw(": ");
        let (held, held_max) = (bytes(report.bytes as u64), bytes(report.bytes_max as u64));
        html.text(&held).raw(" of ").text(&held_max).raw(".</p>");
        timeline(html, &report);
        if let Some(next) = report.next {
            let next = next.to_string();
            let older = [("host", host), ("namespace", namespace), ("before", &*next)];
            html.raw("<p>").link(SECTION, &older, "Older").raw("</p>");
        }
        page
    }

    pub(super) fn change(&self, asked: &Asked) -> PageDraft {
        let live = self.sources.reporter.live.as_ref();
        let number = asked.number("number");
        let history = self.sources.history.as_ref();
        let Some(entry) = history.and_then(|history| history.entry(number?, live)) else {
            return PageDraft::missing(SECTION, "No such commit is kept any more.");
        };
        let mut page = PageDraft::new(SECTION, format!("Commit {}", entry.number));
        let html = &mut page.body;
        html.raw("<dl>");
        term(html, "Made", &entry.time);
        term(html, "Live", &live_words(entry.live.as_ref()));
        term(html, "Objects", &grouped(entry.objects_total as u64));
        term(html, "Resources", &grouped(entry.resources_total as u64));
        html.raw("</dl>");
        let lost = entry.lost.iter().filter(|namespace| !namespace.is_empty());
        for namespace in lost {
            html.raw("<p class=\"warn\">Not kept: the part of namespace ")
                .text(namespace)
                .raw(", which has written too much.</p>");
        }
        if !entry.is_whole && entry.lost.iter().all(String::is_empty) {
            html.raw("<p class=\"warn\">It was too large to be kept as a whole.</p>");
        }
        objects(html, &entry);
        resources(html, &entry);
        for (name, lines) in [
            ("Findings that appeared", &entry.appeared),
            ("Findings that went", &entry.gone),
        ] {
            html.raw("<h2>").raw(name).raw("</h2><ul>");
            for line in lines.iter().take(LINES_MAX) {
                html.raw("<li>").text(line).raw("</li>");
            }
            html.raw(match lines.is_empty() {
                true => "<li>none</li></ul>",
                false => "</ul>",
            });
        }
        page
    }
}

fn filter_form(html: &mut Html, host: &str, namespace: &str) {
    html.raw("<form role=\"search\" method=\"get\" action=\"/console/changes\">");
    html.raw("<div><label for=\"host\">Host</label><input id=\"host\" name=\"host\"")
        .attribute("value", host)
        .raw("></div><div><label for=\"namespace\">Namespace</label>")
        .raw("<input id=\"namespace\" name=\"namespace\"")
        .attribute("value", namespace)
        .raw("></div><div><button type=\"submit\">Filter</button></div></form>");
}

/// A table of commits.
pub(super) fn timeline(html: &mut Html, report: &TimelineReport) {
    if report.entries.is_empty() {
        html.raw("<p>Nothing changed since then.</p>");
        return;
    }
    let columns = [
        Column::Text("Commit"),
        Column::Text("Made"),
        Column::Text("Objects"),
        Column::Text("Written by"),
        Column::Number("Resources"),
        Column::Text("Findings"),
        Column::Text("Live"),
    ];
    table(html, "Commits, the newest first", &columns, |html| {
        for entry in report.entries.iter().take(COMMITS_MAX) {
            row(html, entry);
        }
    });
}

fn row(html: &mut Html, entry: &EntryReport) {
    let number = entry.number.to_string();
    html.raw("<tr><th scope=\"row\">");
    html.link("/console/change", &[("number", &*number)], &number);
    html.raw("</th>");
    cell(html, &entry.time);
    let shown = entry.objects.iter().take(OBJECTS_LISTED_MAX);
    let shown: Vec<String> = shown.map(object_words).collect();
    let more = match entry.objects_total.saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    cell(html, &(shown.join(", ") + &more));
    let writers = entry
        .objects
        .iter()
        .filter_map(|object| object.by.as_deref());
    let writers: std::collections::BTreeSet<&str> = writers.collect();
    let writers: Vec<&str> = writers.into_iter().take(OBJECTS_LISTED_MAX).collect();
    cell(html, &writers.join(", "));
    layout::number(html, entry.resources_total as u64);
    let (appeared, gone) = (entry.appeared.len(), entry.gone.len());
    cell(html, &format!("{appeared} new, {gone} gone"));
    cell(html, &live_words(entry.live.as_ref()));
    html.raw("</tr>");
}

fn object_words(object: &ObjectLine) -> String {
    let ObjectLine {
        kind,
        namespace,
        name,
        deed,
        ..
    } = object;
    let word = if deed == "removed" { " (removed)" } else { "" };
    match namespace.is_empty() {
        true => format!("{kind} {name}{word}"),
        false => format!("{kind} {namespace}/{name}{word}"),
    }
}

fn live_words(live: Option<&LiveLine>) -> String {
    let Some(live) = live else {
        return "not known".to_owned();
    };
    let (proxies, total) = (live.proxies, live.proxies_total);
    match (live.is_live, live.after_ms) {
        (true, Some(after)) => format!("after {after} ms, on {proxies} of {total} proxies"),
        (true, None) => format!("on {proxies} of {total} proxies"),
        (false, _) => format!("not yet: on {proxies} of {total} proxies"),
    }
}

fn objects(html: &mut Html, entry: &EntryReport) {
    let columns = [
        Column::Text("Object"),
        Column::Text("Change"),
        Column::Text("Written by"),
    ];
    table(html, "Objects", &columns, |html| {
        for object in entry.objects.iter().take(LINES_MAX) {
            let place = match object.namespace.is_empty() {
                true => format!("{} {}", object.kind, object.name),
                false => format!("{} {}/{}", object.kind, object.namespace, object.name),
            };
            html.raw("<tr><th scope=\"row\">").text(&place).raw("</th>");
            cell(html, &object.deed);
            cell(html, object.by.as_deref().unwrap_or("not said"));
            html.raw("</tr>");
        }
    });
}

fn resources(html: &mut Html, entry: &EntryReport) {
    let columns = [
        Column::Text("Resource"),
        Column::Text("View"),
        Column::Text("Change"),
        Column::Text("Hosts"),
    ];
    table(html, "Resources", &columns, |html| {
        for resource in entry.resources.iter().take(LINES_MAX) {
            html.raw("<tr><th scope=\"row\">").text(&resource.kind);
            html.raw(" ").text(&resource.name).raw("</th>");
            cell(html, &resource.view);
            let change = match (&resource.old, &resource.new) {
                (None, _) => "added",
                (_, None) => "removed",
                _ => "changed",
            };
            cell(html, change);
            html.raw("<td>");
            for host in resource.hosts.iter().take(HOSTS_MAX) {
                html.link("/console/domain", &[("host", host.as_str())], host);
                html.raw(" ");
            }
            html.raw("</td></tr>");
        }
    });
}
