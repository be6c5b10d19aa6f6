//! The findings that stand, and their remedies.

use myriad_api::{Finding, Severity};

use super::html::Html;
use super::layout::{Column, PageDraft, cell, grouped, table};
use super::{Asked, Console};

const SECTION: &str = "/console/findings";

/// The most findings of the page.
const FINDINGS_MAX: usize = 200;

/// The most findings that are searched.
const SEARCHED_MAX: usize = 200_000;

impl Console {
    pub(super) fn findings(&self, asked: &Asked) -> PageDraft {
        let mut page = PageDraft::new(SECTION, "Findings");
        let html = &mut page.body;
        let text = asked.text("text");
        html.raw("<form role=\"search\" method=\"get\" action=\"/console/findings\"><div>")
            .raw("<label for=\"text\">Object, namespace or words</label>")
            .raw("<input id=\"text\" name=\"text\" type=\"search\" autocomplete=\"off\"")
            .attribute("value", text)
            .raw("></div><div><button type=\"submit\">Search</button></div></form>");
        let board = self.board();
        let (errors, total) = board.findings_count();
        let (errors, total) = (grouped(errors as u64), grouped(total as u64));
        html.raw("<p>").text(&errors).raw(" errors, ");
        html.text(&total).raw(" findings in all.</p>");
        let is_wanted = |finding: &Finding| text.is_empty() || has(finding, text);
        let (found, is_whole) = board.findings_among(SEARCHED_MAX, FINDINGS_MAX, is_wanted);
        list(html, found.iter());
        if !is_whole {
            html.raw("<p>There are more; search for what you look for.</p>");
        }
        page
    }
}

/// Whether a finding names something.
fn has(finding: &Finding, text: &str) -> bool {
    let object = finding.object.as_ref().map(ToString::to_string);
    object.is_some_and(|object| object.contains(text))
        || finding.message.contains(text)
        || finding.field.contains(text)
}

/// A table of findings.
pub(super) fn list<'f>(html: &mut Html, findings: impl Iterator<Item = &'f Finding>) {
    let mut findings = findings.peekable();
    if findings.peek().is_none() {
        html.raw("<p class=\"good\">Nothing was found.</p>");
        return;
    }
    let columns = [
        Column::Text("Severity"),
        Column::Text("Object"),
        Column::Text("Field"),
        Column::Text("Problem"),
        Column::Text("Remedy"),
    ];
    table(html, "Findings", &columns, |html| {
        for finding in findings {
            row(html, finding);
        }
    });
}

fn row(html: &mut Html, finding: &Finding) {
    html.raw("<tr><td>").raw(match finding.severity {
        Severity::Error => "<span class=\"bad\">error</span>",
        Severity::Warning => "<span class=\"warn\">warning</span>",
        Severity::Info => "<span class=\"quiet\">info</span>",
    });
    html.raw("</td><th scope=\"row\">");
    match &finding.object {
        Some(object) => html.shown(object),
        None => html.raw("this process"),
    };
    if let Some(place) = &finding.place {
        html.raw(" <span class=\"quiet\">").text(&place.file);
        html.raw(":").shown(place.line).raw("</span>");
    }
    html.raw("</th>");
    cell(html, &finding.field);
    cell(html, &finding.message);
    cell(html, &finding.remedy);
    html.raw("</tr>");
}
