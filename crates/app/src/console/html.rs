//! HTML on its way. Markup comes from the program alone, and every text is escaped and bounded,
//! wherever it comes from: people who write objects, routes and requests decide what it says.

use std::fmt::{self, Write as _};

/// The most bytes of a page; what comes beyond is left out, and the page says so.
pub(super) const PAGE_BYTES_MAX: usize = 1 << 20;

/// The most characters of one text.
pub(super) const TEXT_CHARS_MAX: usize = 512;

/// The sign for what is left out of a text.
const CUT: char = '…';

/// The sign for a character that does something to its neighbours.
const HIDDEN: char = '\u{fffd}';

/// HTML that is written.
pub(super) struct Html {
    text: String,
    bytes_max: usize,
    is_cut: bool,
}

impl Default for Html {
    /// An empty page.
    fn default() -> Self {
        Html {
            text: String::new(),
            bytes_max: PAGE_BYTES_MAX,
            is_cut: false,
        }
    }
}

impl Html {
    /// Writes markup of the program.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Writes a text.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        if self.is_full() {
            return self;
        }
        let mut characters = text.chars();
        for character in characters.by_ref().take(TEXT_CHARS_MAX) {
            self.escape(character);
        }
        if characters.next().is_some() {
            self.text.push(CUT);
        }
        self
    }

    /// Writes what shows itself as a text.
    pub(super) fn shown(&mut self, value: impl fmt::Display) -> &mut Self {
        let mut limited = Limited::default();
        // It is an error beyond the bound, which is cut all the same.
        let _ = write!(limited, "{value}");
        self.text(&limited.0)
    }

    /// Writes an attribute behind a space. The name is the program's.
    pub(super) fn attribute(&mut self, name: &'static str, value: &str) -> &mut Self {
        self.raw(" ").raw(name).raw("=\"");
        self.text(value).raw("\"")
    }

    /// Writes a link to a page of the program, with parameters. They are not cut, since a part
    /// of one would mean something else.
    pub(super) fn link(
        &mut self,
        path: &'static str,
        parameters: &[(&'static str, &str)],
        text: &str,
    ) -> &mut Self {
        if self.is_full() {
            return self;
        }
        self.raw("<a href=\"").raw(path);
        if !parameters.is_empty() {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(parameters);
            self.raw("?");
            for character in query.finish().chars() {
                self.escape(character);
            }
        }
        self.raw("\">").text(text).raw("</a>")
    }

    /// Whether no more rows are worth their while.
    pub(super) fn is_full(&mut self) -> bool {
        self.is_cut |= self.text.len() > self.bytes_max;
        self.is_cut
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// An empty part, which has the room that is left here.
    pub(super) fn part(&self) -> Html {
        Html {
            bytes_max: self.bytes_max.saturating_sub(self.text.len()),
            ..Html::default()
        }
    }

    /// Writes all of another.
    pub(super) fn append(&mut self, other: Html) -> &mut Self {
        self.text.push_str(&other.text);
        self.is_cut |= other.is_cut;
        self
    }

    /// The text that was written.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn escape(&mut self, character: char) {
        match character {
            '&' => self.text.push_str("&amp;"),
            '<' => self.text.push_str("&lt;"),
            '>' => self.text.push_str("&gt;"),
            '"' => self.text.push_str("&quot;"),
            '\'' => self.text.push_str("&#39;"),
            '`' => self.text.push_str("&#96;"),
            '\t' | '\n' => self.text.push(' '),
            other if is_hidden(other) => self.text.push(HIDDEN),
            other => self.text.push(other),
        }
    }
}

/// Whether a character controls how others are shown, or is not seen itself: by such ones a name
/// looks like another.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{00ad}'
                | '\u{034f}'
                | '\u{061c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// A text that takes no more than is shown of it.
#[derive(Default)]
struct Limited(String);

impl fmt::Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One character more than is shown, so that it is seen that there are more.
        let room = (4 * (TEXT_CHARS_MAX + 1)).saturating_sub(self.0.len());
        let mut ends = (0..=room.min(text.len())).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        let start = end.and_then(|end| text.get(..end)).unwrap_or_default();
        self.0.push_str(start);
        match start.len() == text.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Html, PAGE_BYTES_MAX, TEXT_CHARS_MAX};

    fn text(text: &str) -> String {
        let mut html = Html::default();
        html.text(text);
        html.finish()
    }

    #[test]
    fn nothing_in_a_text_is_markup() {
        let hostile = "<script>alert('1')</script>\" onload=`x` & &lt;";
        let escaped = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&#96;x&#96; \
                       &amp; &amp;lt;";
        assert_eq!(text(hostile), escaped);
        let mut html = Html::default();
        html.attribute("value", "\"><img src=x onerror=alert(1)>");
        let written = " value=\"&quot;&gt;&lt;img src=x onerror=alert(1)&gt;\"";
        assert_eq!(html.finish(), written);
    }

    #[test]
    fn nothing_in_a_parameter_leaves_it() {
        let mut html = Html::default();
        html.link("/console/domain", &[("host", "a&b=\"'<c>#é")], "<a>");
        let written =
            "<a href=\"/console/domain?host=a%26b%3D%22%27%3Cc%3E%23%C3%A9\">&lt;a&gt;</a>";
        assert_eq!(html.finish(), written);
    }

    #[test]
    fn characters_that_change_how_others_look_are_shown() {
        assert_eq!(
            text("a\u{202e}b\u{200b}c\u{0}d\u{1b}[31m"),
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}[31m"
        );
        assert_eq!(text("a\nb\tc"), "a b c");
        assert_eq!(text("Zürich 東京"), "Zürich 東京");
    }

    #[test]
    fn texts_and_pages_have_an_end() {
        let long = "é".repeat(TEXT_CHARS_MAX + 1);
        assert_eq!(text(&long).chars().count(), TEXT_CHARS_MAX + 1);
        assert!(text(&long).ends_with('…'));
        let mut html = Html::default();
        html.shown(format_args!("{}", "&".repeat(1 << 20)));
        assert!(html.finish().len() <= 6 * TEXT_CHARS_MAX);
        let mut html = Html::default();
        for _ in 0..10_000 {
            html.text(&long).link("/console", &[("host", &long)], &long);
        }
        assert!(html.is_full());
        assert!(html.finish().len() < PAGE_BYTES_MAX + 20 * TEXT_CHARS_MAX);
    }
}
