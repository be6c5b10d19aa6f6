//! The frame of every page, and the parts that pages are made of.

use std::time::Duration;

use myriad_admin::site::Reply;
use myriad_source::kubernetes::second_time;

use super::html::Html;

/// The style of every page, which is part of it.
pub(super) const STYLE: &str = include_str!("style.css");

const CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// The sections of the console, by their paths.
const SECTIONS: [(&str, &str); 9] = [
    ("/console", "Overview"),
    ("/console/domains", "Domains"),
    ("/console/findings", "Findings"),
    ("/console/changes", "What changed"),
    ("/console/traces", "Live traces"),
    ("/console/plots", "Plots"),
    ("/console/mesh", "Mesh"),
    ("/console/fleet", "Fleet"),
    ("/console/memory", "Limits and memory"),
];

/// A page on its way.
pub(super) struct PageDraft {
    /// The status of the answer.
    pub(super) status: u16,
    /// The section that the page is of, by its path.
    pub(super) section: &'static str,
    /// The heading.
    pub(super) title: String,
    /// All below the heading.
    pub(super) body: Html,
}

/// A column of a table.
#[derive(Clone, Copy)]
pub(super) enum Column {
    /// Texts.
    Text(&'static str),
    /// Numbers.
    Number(&'static str),
}

impl PageDraft {
    /// An empty page.
    pub(super) fn new(section: &'static str, title: impl Into<String>) -> PageDraft {
        PageDraft {
            status: 200,
            section,
            title: title.into(),
            body: Html::default(),
        }
    }

    /// The page that says that something is not there.
    pub(super) fn missing(section: &'static str, what: &'static str) -> PageDraft {
        let mut page = PageDraft::new(section, "Not found");
        page.status = 404;
        page.body.raw("<p>").raw(what).raw("</p>");
        page
    }

    /// The whole page, as of a process of this role and name.
    pub(super) fn finish(mut self, role: &'static str, instance: &str) -> Reply {
        let is_cut = self.body.is_full();
        let mut html = Html::default();
        html.raw("<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">")
            .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")
            .raw("<link rel=\"icon\" href=\"data:,\"><title>");
        html.text(&self.title).raw(" – Myriad console</title>");
        html.raw("<style>").raw(STYLE).raw("</style></head><body>");
        html.raw("<a class=\"skip\" href=\"#content\">Skip to content</a><header><p>Myriad ");
        html.raw(role).raw(" <span class=\"quiet\">").text(instance);
        html.raw("</span></p><nav aria-label=\"Console\"><ul>");
        for (path, name) in SECTIONS {
            html.raw("<li><a href=\"").raw(path).raw("\"");
            if path == self.section {
                html.raw(" aria-current=\"page\"");
            }
            html.raw(">").raw(name).raw("</a></li>");
        }
        html.raw("</ul></nav></header><main id=\"content\" tabindex=\"-1\"><h1>");
        html.text(&self.title).raw("</h1>").append(self.body);
        if is_cut {
            html.raw("<p class=\"warn\">This page is larger than pages may be; its end is left ")
                .raw("out.</p>");
        }
        html.raw("</main><footer>Read-only. ")
            .raw("Nothing here changes anything; reload for newer figures.</footer></body></html>");
        Reply {
            status: self.status,
            content_type: CONTENT_TYPE,
            body: html.finish(),
        }
    }
}

/// A table with its rows, or the word that there are none. Its name, which no other of the page
/// has, is read out, and it is scrolled by keys.
pub(super) fn table(html: &mut Html, name: &str, columns: &[Column], rows: impl FnOnce(&mut Html)) {
    let mut body = html.part();
    rows(&mut body);
    if body.is_empty() {
        html.raw("<p>").text(name).raw(": none.</p>");
        return;
    }
    html.raw("<div class=\"scroll\" role=\"region\" tabindex=\"0\"");
    html.attribute("aria-label", name).raw("><table><caption>");
    html.text(name).raw("</caption><thead><tr>");
    for column in columns {
        match column {
            Column::Text(name) => html.raw("<th scope=\"col\">").raw(name),
            Column::Number(name) => html.raw("<th scope=\"col\" class=\"number\">").raw(name),
        };
        html.raw("</th>");
    }
    html.raw("</tr></thead><tbody>").append(body);
    html.raw("</tbody></table></div>");
}

/// A cell with a number.
pub(super) fn number(html: &mut Html, number: u64) {
    html.raw("<td class=\"number\">");
    html.shown(grouped(number)).raw("</td>");
}

/// A cell with a text.
pub(super) fn cell(html: &mut Html, text: &str) {
    html.raw("<td>").text(text).raw("</td>");
}

/// A term with its text, in a list of such.
pub(super) fn term(html: &mut Html, name: &'static str, text: &str) {
    html.raw("<dt>").raw(name).raw("</dt><dd>");
    html.text(text).raw("</dd>");
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number that was counted as a fraction, as a whole one; 0 for what is none.
pub(super) fn whole(number: f64) -> u64 {
    // Such numbers are written without a fraction, so that the text holds the whole one.
    format!("{:.0}", number.max(0.0))
        .parse()
        .unwrap_or_default()
}

/// The same as people read it.
pub(super) fn counted(number: f64) -> String {
    grouped(whole(number))
}

/// Bytes as people read them.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.iter().find(|(bits, _)| number >> bits > 0);
    match unit {
        Some((bits, name)) => {
            let tenths = (u128::from(number) * 10) >> bits;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{number} B"),
    }
}

/// A time that was so many seconds after the epoch.
pub(super) fn time(unix_seconds: i64) -> String {
    second_time(Duration::from_secs(
        unix_seconds.try_into().unwrap_or_default(),
    ))
}

/// A length of time as people read it.
pub(super) fn lasting(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::{PageDraft, bytes, counted, grouped, lasting, time};

    #[test]
    fn numbers_and_times_are_read_by_people() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123), "123");
        assert_eq!(counted(1_234.0), "1,234");
        assert_eq!(counted(-1.0), "0");
        assert_eq!(counted(f64::NAN), "0");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "17179869183.9 GiB");
        assert_eq!(time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time(-1), "1970-01-01T00:00:00Z");
        assert_eq!(lasting(59), "59 s");
        assert_eq!(lasting(7_200), "2 h");
        assert_eq!(lasting(864_000), "10 days");
    }

    #[test]
    fn a_page_has_its_landmarks_and_no_script() {
        let mut page = PageDraft::new("/console/fleet", "<b>");
        page.body.text("</main><script>");
        let page = page.finish("controller", "pod\"><i>");
        for part in [
            "<html lang=\"en\">",
            "<title>&lt;b&gt; – Myriad console</title>",
            "<a class=\"skip\" href=\"#content\">",
            "<nav aria-label=\"Console\">",
            "<a href=\"/console/fleet\" aria-current=\"page\">Fleet</a>",
            "<main id=\"content\" tabindex=\"-1\"><h1>&lt;b&gt;</h1>",
            "pod&quot;&gt;&lt;i&gt;",
            "&lt;/main&gt;&lt;script&gt;</main>",
        ] {
            assert!(page.body.contains(part), "{part} is not in {}", page.body);
        }
        assert!(!page.body.contains("<script"));
        assert!(!page.body.contains(" style="));
        assert_eq!(page.body.matches("<main").count(), 1);
        assert_eq!(page.body.matches("<h1").count(), 1);
    }
}
