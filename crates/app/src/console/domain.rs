//! One domain: its objects and since when they are live, its certificates, routes and endpoints,
//! what was found about it, and what changed.

use std::collections::BTreeSet;

use myriad_api::{Finding, ObjectKey};
use myriad_base::clock;
use myriad_model::{
    Action, Key, Kind, Name, Origin, PathView, RedirectTarget, RouteView, SealedArc, Value,
};
use x509_parser::prelude::{GeneralName, X509Certificate};

use super::changes::timeline;
use super::html::Html;
use super::layout::{self, Column, PageDraft, cell, lasting, table, term, time};
use super::{Asked, Console, findings};
use crate::board;
use crate::catalog::{self, HostEntry, RESOURCES_MAX};
use crate::history::TimelineFilter;

const SECTION: &str = "/console/domains";

/// The most routes of the page.
const ROUTES_MAX: usize = 200;

/// The most objects of it.
const OBJECTS_MAX: usize = 50;

/// The most certificates of it.
const CERTIFICATES_MAX: usize = 16;

/// The most upstreams of it.
const UPSTREAMS_MAX: usize = 20;

/// The most findings of it.
const FINDINGS_MAX: usize = 100;

/// The most findings of one object.
const FINDINGS_OF_OBJECT_MAX: usize = 20;

/// The most findings that are searched for the name of the host.
const FINDINGS_SEARCHED_MAX: usize = 50_000;

/// The most commits of it.
const COMMITS_MAX: usize = 10;

/// How soon the end of a certificate is a warning.
const ENDS_SOON_SECONDS: i64 = 14 * 86_400;

/// The parts that the page is made of.
#[derive(Default)]
struct Parts {
    objects: BTreeSet<ObjectKey>,
    listeners: BTreeSet<Name>,
    certificates: BTreeSet<Name>,
    upstreams: BTreeSet<Name>,
    has_mesh: bool,
    has_default: bool,
}

impl Console {
    pub(super) fn domain(&self, asked: &Asked) -> PageDraft {
        let host = asked.text("host").to_ascii_lowercase();
        let Some(entry) = self.board().catalog().host(&host) else {
            let words = "Nothing here is about that host. Search for it by a part of its name, or \
                         look at the findings: its objects may be broken, or claim it in vain.";
            return PageDraft::missing(SECTION, words);
        };
        let mut page = PageDraft::new(SECTION, host.clone());
        let html = &mut page.body;
        let mut parts = Parts::default();
        let mut routes = Html::default();
        self.routes(&mut routes, &entry, &mut parts);
        if entry.has_more {
            html.raw("<p class=\"warn\">There is more about this host than a page shows.</p>");
        }
        html.raw("<dl>");
        let listeners: Vec<&str> = parts.listeners.iter().map(Name::as_str).collect();
        term(html, "Listeners", &listeners.join(", "));
        html.raw("<dt>Explain a request</dt><dd><code>myriad explain https://");
        html.text(&host).raw("/</code></dd></dl>");
        self.objects(html, &parts);
        self.findings_about(html, &host, &parts);
        self.certificates(html, &parts);
        html.append(routes);
        self.endpoints(html, &parts);
        html.raw("<h2>What changed</h2>");
        let filter = TimelineFilter {
            host: Some(host),
            count_max: COMMITS_MAX,
            ..TimelineFilter::default()
        };
        match &self.sources.history {
            None => html.raw("<p>This process keeps no history.</p>"),
            Some(history) => {
                let live = self.sources.reporter.live.as_ref();
                timeline(html, &history.timeline(&filter, live));
                html
            }
        };
        page
    }

    /// The routes of a host; notes what they and its domains refer to.
    fn routes(&self, html: &mut Html, entry: &HostEntry, parts: &mut Parts) {
        html.raw("<h2>Routes</h2>");
        let columns = [
            Column::Text("Path"),
            Column::Number("Other conditions"),
            Column::Text("Action"),
            Column::Text("Object"),
        ];
        let (mut count, mut left_out) = (0, 0);
        table(
            html,
            "Routes, in the order of their blocks",
            &columns,
            |html| {
                for sealed in &entry.resources {
                    let Some(resource) = catalog::resource(sealed) else {
                        continue;
                    };
                    parts.note(&resource.origin);
                    parts.take(&resource.value);
                    for (at, route) in resource.value.routes().enumerate() {
                        if count >= ROUTES_MAX {
                            left_out += 1;
                            continue;
                        }
                        count += 1;
                        let origin = resource.origin_of(at);
                        parts.note(origin);
                        parts.take_route(route);
                        route_row(html, route, origin);
                    }
                }
            },
        );
        if left_out > 0 {
            html.raw("<p>")
                .shown(left_out)
                .raw(" more are left out.</p>");
        }
    }

    fn objects(&self, html: &mut Html, parts: &Parts) {
        html.raw("<h2>Objects</h2>");
        let columns = [
            Column::Text("Object"),
            Column::Text("Live on"),
            Column::Text("Changed"),
            Column::Text("Live since"),
            Column::Text("Lacking proxies and refusals"),
        ];
        table(html, "Objects, and where they are live", &columns, |html| {
            for key in parts.objects.iter().take(OBJECTS_MAX) {
                self.object_row(html, key);
            }
        });
        if parts.objects.len() > OBJECTS_MAX {
            let more = parts.objects.len() - OBJECTS_MAX;
            html.raw("<p>").shown(more).raw(" more are left out.</p>");
        }
    }

    fn object_row(&self, html: &mut Html, key: &ObjectKey) {
        html.raw("<tr><th scope=\"row\">").shown(key).raw("</th>");
        let Some(live) = &self.sources.reporter.live else {
            html.raw("<td>this proxy</td>");
            for _ in 0..3 {
                html.raw("<td class=\"quiet\">ask a controller</td>");
            }
            html.raw("</tr>");
            return;
        };
        let report = live.report_of(key);
        let is_everywhere = report.live == report.proxies_total && report.proxies_total > 0;
        html.raw("<td>");
        match is_everywhere {
            true => html.raw("<span class=\"good\">all "),
            false => html
                .raw("<span class=\"warn\">")
                .shown(report.live)
                .raw(" of "),
        };
        html.shown(report.proxies_total).raw(" proxies</span></td>");
        let since =
            |unix: Option<i64>| unix.map_or_else(|| "longer than is remembered".into(), time);
        cell(html, &since(report.changed_unix));
        let after = report.live_after_ms.map(|ms| format!(", after {ms} ms"));
        let is_known = report.live_since_unix.is_some() || is_everywhere;
        let live_since = match is_known {
            true => since(report.live_since_unix) + &after.unwrap_or_default(),
            false => "not yet".to_owned(),
        };
        cell(html, &live_since);
        let lacking: Vec<&str> = report
            .missing
            .iter()
            .chain(&report.refused)
            .map(String::as_str)
            .collect();
        cell(html, &lacking.join("; "));
        html.raw("</tr>");
    }

    fn findings_about(&self, html: &mut Html, host: &str, parts: &Parts) {
        let board = self.board();
        let mut found: BTreeSet<Finding> = BTreeSet::new();
        for key in parts.objects.iter().take(OBJECTS_MAX) {
            found.extend(board.findings_of(key, FINDINGS_OF_OBJECT_MAX));
        }
        let names = |finding: &Finding| {
            let is_of = finding.object.as_ref();
            finding.message.contains(host) || is_of.is_some_and(|key| parts.objects.contains(key))
        };
        let (named, is_whole) = board.findings_among(FINDINGS_SEARCHED_MAX, FINDINGS_MAX, names);
        found.extend(named);
        html.raw("<h2>Findings</h2>");
        findings::list(html, found.iter().take(FINDINGS_MAX));
        if !is_whole {
            html.raw("<p>There are so many findings that not all were searched for the host.</p>");
        }
    }

    fn certificates(&self, html: &mut Html, parts: &Parts) {
        html.raw("<h2>Certificates</h2>");
        if parts.has_mesh {
            html.raw("<p>The certificate is the identity of the proxy in the mesh.</p>");
        }
        if parts.has_default {
            html.raw("<p>A handshake without a certificate of its own gets the default one.</p>");
        }
        if parts.certificates.is_empty() {
            html.raw("<p>No certificate is named for this host.</p>");
            return;
        }
        let columns = [
            Column::Text("Secret"),
            Column::Text("Names"),
            Column::Text("Issuer"),
            Column::Text("Ends"),
            Column::Text("State"),
        ];
        table(html, "Certificates", &columns, |html| {
            for name in parts.certificates.iter().take(CERTIFICATES_MAX) {
                let key = Key::new(Kind::Certificate, name.clone());
                let sealed = self.board().catalog().named(&key);
                certificate_row(html, name, sealed.as_ref());
            }
        });
    }

    fn endpoints(&self, html: &mut Html, parts: &Parts) {
        html.raw("<h2>Endpoints</h2>");
        if parts.upstreams.is_empty() {
            html.raw("<p>No route of this host is sent to an endpoint.</p>");
            return;
        }
        for name in parts.upstreams.iter().take(UPSTREAMS_MAX) {
            self.upstream(html, name);
        }
        if parts.upstreams.len() > UPSTREAMS_MAX {
            let more = parts.upstreams.len() - UPSTREAMS_MAX;
            html.raw("<p>")
                .shown(more)
                .raw(" more upstreams are left out.</p>");
        }
    }
}

impl Parts {
    fn note(&mut self, origin: &Origin) {
        // The sets are bounded by what the catalog and the rows of blocks give.
        if self.objects.len() < RESOURCES_MAX
            && let Some(key) = board::object_of(origin)
        {
            self.objects.insert(key);
        }
    }

    fn take(&mut self, value: &Value) {
        match value {
            Value::Domain(domain) => {
                self.listeners.extend(domain.listeners.iter().cloned());
                self.certificates.extend(domain.certificate.clone());
                self.certificates
                    .extend(domain.alternatives.iter().cloned());
                self.has_mesh |= domain.mesh;
                self.has_default |= !domain.mesh && domain.certificate.is_none();
            }
            Value::StreamRoute(stream_route) => {
                self.listeners
                    .extend(stream_route.listeners.iter().cloned());
                let upstreams = stream_route.upstreams.iter();
                self.upstreams
                    .extend(upstreams.map(|it| it.upstream.clone()));
            }
            _ => {}
        }
    }

    fn take_route(&mut self, route: RouteView<'_>) {
        self.listeners.extend(route.listeners.iter().cloned());
        if let Action::Forward(shares) = route.action {
            let upstreams = shares.iter().map(|share| share.upstream.clone());
            self.upstreams.extend(upstreams);
        }
    }
}

fn route_row(html: &mut Html, route: RouteView<'_>, origin: &Origin) {
    html.raw("<tr><th scope=\"row\"><code>");
    let word = match route.path {
        PathView::Exact(path) => {
            html.text(path);
            "exact"
        }
        PathView::Prefix(path) => {
            html.text(path);
            "prefix"
        }
        PathView::Regex(path) => {
            html.text(path);
            "regex"
        }
        PathView::Start(path) => {
            html.text(path);
            "start"
        }
    };
    html.raw("</code> <span class=\"quiet\">")
        .raw(word)
        .raw("</span></th>");
    layout::number(html, route.conditions.len() as u64);
    cell(html, &action(route.action));
    html.raw("<td>").raw(origin.kind.as_str()).raw(" ");
    html.text(origin.id.trim_start_matches('/'))
        .raw("</td></tr>");
}

/// The most upstreams of a row of the table of routes.
const SHARES_SHOWN_MAX: usize = 8;

/// The effect of a route, in words. Bodies of answers are nobody's business here.
fn action(action: &Action) -> String {
    match action {
        Action::Forward(shares) => {
            let shown = shares.iter().take(SHARES_SHOWN_MAX);
            let shown = shown.map(|share| format!("{} (weight {})", share.upstream, share.weight));
            let shown: Vec<String> = shown.collect();
            match shares.len() {
                0 => "answered with 503: it has no upstream".to_owned(),
                len if len > SHARES_SHOWN_MAX => format!("{}, and more", shown.join(", ")),
                _ => shown.join(", "),
            }
        }
        Action::Redirect(redirect) => {
            let target = match &redirect.target {
                RedirectTarget::Url(url) => format!("to {url}"),
                RedirectTarget::Path(path) => format!("to {path}"),
                RedirectTarget::Parts(_) => "to another form of the URL".to_owned(),
            };
            format!("redirect {} {target}", redirect.status)
        }
        Action::Respond(respond) => format!("answered with {}", respond.status),
    }
}

fn certificate_row(html: &mut Html, name: &Name, sealed: Option<&SealedArc>) {
    html.raw("<tr><th scope=\"row\">").text(name).raw("</th>");
    let resource = sealed.and_then(|sealed| catalog::resource(sealed));
    let chain = match resource.as_deref().map(|resource| &resource.value) {
        Some(Value::Certificate(certificate)) => certificate.chain.first(),
        _ => None,
    };
    let Some(leaf) = chain else {
        html.raw("<td></td><td></td><td></td><td><span class=\"bad\">missing</span></td></tr>");
        return;
    };
    let Ok((_, leaf)) = x509_parser::parse_x509_certificate(leaf) else {
        html.raw("<td></td><td></td><td></td><td><span class=\"bad\">unreadable</span></td></tr>");
        return;
    };
    cell(html, &names(&leaf));
    cell(html, &leaf.issuer().to_string());
    let end = leaf.validity().not_after.timestamp();
    cell(html, &time(end));
    let left = end.saturating_sub(clock::unix_seconds());
    html.raw("<td>");
    let lasting = lasting(left.unsigned_abs());
    match left {
        ..0 => html
            .raw("<span class=\"bad\">ended ")
            .text(&lasting)
            .raw(" ago"),
        0..ENDS_SOON_SECONDS => html.raw("<span class=\"warn\">ends in ").text(&lasting),
        _ => html.raw("<span class=\"good\">ends in ").text(&lasting),
    };
    html.raw("</span></td></tr>");
}

/// The most names of a certificate that are shown.
const NAMES_SHOWN_MAX: usize = 10;

fn names(leaf: &X509Certificate<'_>) -> String {
    let Ok(Some(names)) = leaf.subject_alternative_name() else {
        return String::new();
    };
    let all = &names.value.general_names;
    let shown = all.iter().take(NAMES_SHOWN_MAX).map(|name| match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        other => other.to_string(),
    });
    let shown: Vec<String> = shown.collect();
    match all.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
