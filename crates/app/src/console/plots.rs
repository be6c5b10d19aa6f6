//! The dashboards as plots of what this process has counted.

use myriad_base::clock;

use super::chart::{self, Chart, Curve};
use super::dashboards::DASHBOARDS;
use super::html::Html;
use super::layout::{Column, PageDraft, table};
use super::panels::{Dashboard, Panel};
use super::{Asked, Console};

const SECTION: &str = "/console/plots";

/// A panel, and its lines by name with their values.
type Filled = (&'static Panel, Vec<(&'static str, Curve)>);

impl Console {
    pub(super) fn plots(&self, asked: &Asked) -> PageDraft {
        let name = asked.text("of");
        let mut dashboards = DASHBOARDS.iter();
        let found = dashboards.find(|it| it.name == name || name.is_empty());
        let Some(dashboard) = found else {
            return PageDraft::missing(SECTION, "There are no plots of that name.");
        };
        let mut page = PageDraft::new(SECTION, format!("Plots: {}", dashboard.title));
        let html = &mut page.body;
        choice(html, dashboard);
        html.raw("<p>What this process has counted since its start, every 15 seconds, for two ")
            .raw("hours. All processes together, and the domains and routes that have most: the ")
            .raw("dashboards for Grafana of the same names; the latter at <code>/top</code> too.")
            .raw("</p>");
        let (filled, empty) = self.fill(dashboard);
        html.raw("<div class=\"plots\">");
        for (number, (panel, lines)) in filled.into_iter().enumerate() {
            plot(html, number, panel, lines);
        }
        html.raw("</div>");
        if !empty.is_empty() {
            html.raw("<p>Not counted by this process, or not yet: ");
            for (number, panel) in empty.iter().enumerate() {
                html.raw(if number > 0 { ", " } else { "" })
                    .raw(panel.title);
            }
            html.raw(".</p>");
        }
        page
    }

    /// The panels of a dashboard that have values, and those that have none.
    fn fill(&self, wanted: &Dashboard) -> (Vec<Filled>, Vec<&'static Panel>) {
        let (mut filled, mut empty) = (Vec::new(), Vec::new());
        let (mut number, now) = (0, clock::now());
        for dashboard in DASHBOARDS {
            for panel in dashboard.panels {
                let first = number;
                number += panel.lines.len();
                if dashboard.name != wanted.name {
                    continue;
                }
                let lines = panel.lines.iter().zip(first..);
                let lines = lines.map(|(line, at)| (line.name, self.recorder.values(at, now)));
                let has_values = |(_, curve): &(_, Curve)| curve.iter().any(|it| !it.1.is_nan());
                let lines: Vec<(&'static str, Curve)> = lines.filter(has_values).collect();
                match lines.is_empty() {
                    true => empty.push(panel),
                    false => filled.push((panel, lines)),
                }
            }
        }
        (filled, empty)
    }
}

/// The links to all dashboards.
fn choice(html: &mut Html, shown: &Dashboard) {
    html.raw("<nav aria-label=\"Plots\"><ul>");
    for dashboard in DASHBOARDS {
        html.raw("<li><a href=\"").raw(SECTION).raw("?of=");
        html.raw(dashboard.name).raw("\"");
        if dashboard.name == shown.name {
            html.raw(" aria-current=\"page\"");
        }
        html.raw(">").raw(dashboard.title).raw("</a></li>");
    }
    html.raw("</ul></nav>");
}

/// A panel as a picture, and its lines as a table.
fn plot(html: &mut Html, number: usize, panel: &Panel, mut lines: Vec<(&'static str, Curve)>) {
    let values = lines.iter().flat_map(|(_, curve)| curve);
    let most = values.fold(0.0_f64, |most, (_, value)| most.max(*value));
    let measure = panel.unit.measure(most);
    for (_, curve) in &mut lines {
        for (_, value) in curve {
            *value *= measure.factor;
        }
    }
    let (names, curves): (Vec<&str>, Vec<Curve>) = lines.into_iter().unzip();
    html.raw("<div><h2>").raw(panel.title).raw("</h2>");
    let chart = Chart {
        number,
        title: panel.title,
        measure,
        curves: &curves,
    };
    chart.draw(html);
    let columns = [
        Column::Text("Line"),
        Column::Number("Last"),
        Column::Number("Least"),
        Column::Number("Most"),
    ];
    let name = format!("{}, {}", panel.title, measure.word);
    table(html, &name, &columns, |html| {
        for (number, (name, curve)) in names.iter().zip(&curves).enumerate() {
            row(html, number, name, curve);
        }
    });
    html.raw("</div>");
}

fn row(html: &mut Html, number: usize, name: &str, curve: &[(f64, f64)]) {
    html.raw("<tr><th scope=\"row\">");
    chart::mark(html, number);
    html.raw(" ").text(name).raw("</th>");
    let values = || {
        let values = curve.iter().map(|(_, value)| *value);
        values.filter(|value| !value.is_nan())
    };
    let found = [
        values().next_back(),
        values().reduce(f64::min),
        values().reduce(f64::max),
    ];
    for value in found {
        let text = value.map_or_else(|| "–".to_owned(), chart::short);
        html.raw("<td class=\"number\">").text(&text).raw("</td>");
    }
    html.raw("</tr>");
}
