//! Domains, searched by either end of their names.

use myriad_model::{Kind, SealedArc, Value};

use super::html::Html;
use super::layout::{self, Column, PageDraft, cell, grouped, table};
use super::{Asked, Console};
use crate::catalog::{self, HostEntry, NameEnd};

const SECTION: &str = "/console/domains";

/// The domains of a page.
const HOSTS_MAX: usize = 50;

/// The resources of a domain that are counted on it.
const RESOURCES_MAX: usize = 100;

impl Console {
    pub(super) fn domains(&self, asked: &Asked) -> PageDraft {
        let mut page = PageDraft::new(SECTION, "Domains");
        let html = &mut page.body;
        let end = match asked.text("end") {
            "end" => NameEnd::End,
            _ => NameEnd::Start,
        };
        let text = asked.text("name").to_ascii_lowercase();
        let after = Some(asked.text("after")).filter(|after| !after.is_empty());
        let catalog = self.board().catalog();
        search_form(html, &text, end);
        let found = catalog.search((&text, end), after, (HOSTS_MAX, RESOURCES_MAX));
        let total = grouped(catalog.hosts_len() as u64);
        html.raw("<p>").text(&total).raw(" hosts in all. ");
        if found.hosts.is_empty() {
            html.raw("None of them is behind that.</p>");
            return page;
        }
        html.raw("</p>");
        let columns = [
            Column::Text("Host"),
            Column::Text("Certificate"),
            Column::Number("Domains"),
            Column::Number("Routes and blocks of routes"),
            Column::Number("Stream routes"),
        ];
        table(html, "Hosts", &columns, |html| {
            for entry in &found.hosts {
                row(html, entry);
            }
        });
        if let Some(next) = &found.next {
            let end = end_word(end);
            let next = [("name", &*text), ("end", end), ("after", &**next)];
            html.raw("<p>")
                .link(SECTION, &next, "Next page")
                .raw("</p>");
        }
        page
    }
}

fn row(html: &mut Html, entry: &HostEntry) {
    let count = |kind| {
        let of_kind = entry.resources.iter().filter(|it| it.key().kind == kind);
        of_kind.count() as u64
    };
    html.raw("<tr><th scope=\"row\">");
    let host = [("host", &*entry.host)];
    html.link("/console/domain", &host, &entry.host)
        .raw("</th>");
    let domain = entry
        .resources
        .iter()
        .find(|it| it.key().kind == Kind::Domain);
    cell(
        html,
        &domain.map_or_else(|| "no HTTPS".to_owned(), certificate),
    );
    for kind in [Kind::Domain, Kind::Route, Kind::StreamRoute] {
        layout::number(html, count(kind));
    }
    html.raw("</tr>");
}

/// The certificate of a domain, in words.
fn certificate(domain: &SealedArc) -> String {
    let resource = catalog::resource(domain);
    match resource.as_deref().map(|resource| &resource.value) {
        Some(Value::Domain(domain)) if domain.mesh => "the mesh's".to_owned(),
        Some(Value::Domain(domain)) => {
            let name = domain.certificate.as_ref();
            name.map_or_else(|| "the default one".to_owned(), ToString::to_string)
        }
        _ => String::new(),
    }
}

fn end_word(end: NameEnd) -> &'static str {
    match end {
        NameEnd::Start => "start",
        NameEnd::End => "end",
    }
}

/// The form by which hosts are searched.
pub(super) fn search_form(html: &mut Html, text: &str, end: NameEnd) {
    html.raw("<form role=\"search\" method=\"get\" action=\"/console/domains\"><div>")
        .raw("<label for=\"name\">Host name</label>")
        .raw("<input id=\"name\" name=\"name\" type=\"search\" autocomplete=\"off\" ")
        .raw("autocapitalize=\"none\" spellcheck=\"false\"")
        .attribute("value", text)
        .raw("></div><div><label for=\"end\">that</label><select id=\"end\" name=\"end\">");
    for (value, word) in [
        (NameEnd::Start, "starts with this"),
        (NameEnd::End, "ends with this"),
    ] {
        html.raw("<option value=\"").raw(end_word(value)).raw("\"");
        if value == end {
            html.raw(" selected");
        }
        html.raw(">").raw(word).raw("</option>");
    }
    html.raw("</select></div><div><button type=\"submit\">Search</button></div></form>");
}
