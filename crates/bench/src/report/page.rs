//! The page: one file with all plots, tables and commands, which needs nothing beside it.

use std::fmt::Write as _;

use super::{Report, Results, figures};
use crate::plot::escape;

const STYLE: &str = "\
:root{--ink:#1c2733;--faint:#5c6873;--grid:#dfe5ea;--paper:#fff;--block:#f4f6f8;--gap:#8a4b00;\
color-scheme:light dark}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--faint:#9aa7b3;--grid:#2b3640;\
--paper:#12181f;--block:#1a222b;--gap:#f0b45e}}\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:84rem;padding:1rem;color:var(--ink);background:var(--paper);\
font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid var(--grid);\
padding-top:1rem}\
p{max-width:46rem}.faint{color:var(--faint)}.gap{color:var(--gap)}\
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;padding:0;list-style:none}\
a{color:inherit}\
.plots{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr))}\
figure{margin:0}figure svg{display:block;width:100%;height:auto;border:1px solid var(--grid);\
border-radius:6px}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;white-space:nowrap}\
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--grid)}\
th:first-child,td:first-child{text-align:left}\
pre{overflow-x:auto;padding:.75rem;background:var(--block);border-radius:6px;font-size:.8rem}\
summary{cursor:pointer}dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}\
dd{margin:0;overflow-wrap:anywhere}";

/// The page of a report.
pub(super) fn html(report: &Report) -> String {
    let mut out = String::from("<!doctype html>\n");
    let title = "Myriad and its peers on the same work";
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><main><h1>{title}</h1>\n"
    );
    head(&mut out, report);
    for results in &report.experiments {
        section(&mut out, results);
    }
    out.push_str("</main></body></html>\n");
    out
}

fn head(out: &mut String, report: &Report) {
    let machine = &report.machine;
    let mode = format!("{:?}", report.mode).to_lowercase();
    let mut facts = vec![
        ("written", report.written.clone()),
        ("form", mode),
        ("processor", machine.processor.clone()),
        ("cores", machine.cores.to_string()),
        ("memory", format!("{} MiB", machine.memory_mib)),
        ("kernel", machine.kernel.clone()),
    ];
    let programs = report.programs.iter();
    facts.extend(programs.map(|(name, version)| (name.as_str(), version.clone())));
    let points = format!("{} of {} measured", report.finished, report.points);
    facts.push(("points", points));
    facts.push(("gaps", report.gaps.to_string()));
    out.push_str("<dl>");
    for (name, value) in facts {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value));
    }
    out.push_str(
        "</dl>\n<p>Everything runs on this one machine, load and endpoints included. Each command \
         below can be run by itself. The figures are in <a href=\"report.json\">report.json</a>, \
         those of each point in <a href=\"points/\">points</a>.</p>\n<nav><ul>",
    );
    for results in &report.experiments {
        let _ = write!(
            out,
            "<li><a href=\"#{}\">{}</a></li>",
            escape(&results.id),
            escape(&results.title)
        );
    }
    out.push_str("</ul></nav>\n");
}

fn section(out: &mut String, results: &Results) {
    let _ = write!(
        out,
        "<section id=\"{}\"><h2>{}</h2><p>{}</p>\n<div class=\"plots\">",
        escape(&results.id),
        escape(&results.title),
        escape(&results.question)
    );
    for plot in figures::plots(results) {
        let _ = write!(out, "<figure>{}</figure>", plot.svg().trim_end());
    }
    out.push_str("</div>\n");
    for note in figures::notes(results) {
        let _ = write!(out, "<p>{}</p>", escape(&note));
    }
    table(out, results);
    let gaps = figures::gaps(results);
    if !gaps.is_empty() {
        out.push_str("<h3>Gaps</h3><ul class=\"gap\">");
        for gap in gaps {
            let _ = write!(out, "<li>{}</li>", escape(&gap));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("<details><summary>Commands</summary><pre>");
    for point in &results.points {
        let _ = writeln!(
            out,
            "# {}: {} s, ended {}\n{}",
            escape(&point.name),
            point.seconds,
            escape(&point.ended),
            escape(&point.command)
        );
    }
    out.push_str("</pre></details></section>\n");
}

fn table(out: &mut String, results: &Results) {
    let table = figures::table(results);
    if table.rows.is_empty() {
        return;
    }
    out.push_str("<div class=\"wide\"><table><thead><tr>");
    for head in &table.heads {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(head));
    }
    out.push_str("</tr></thead><tbody>");
    for cells in &table.rows {
        out.push_str("<tr>");
        for cell in cells {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
}
