//! Findings: what Myriad tells people about the objects they wrote.

use std::fmt::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use crate::ObjectKey;

/// The most bytes of a text in a finding: objects may have names and values of a MiB, and a finding
/// stands in logs, Events and pages. Of a longer one the beginning and the end are left, which say
/// where it is and what comes of it.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// The bytes of those that are of the end.
const END_BYTES: usize = 256;

/// The mark of what was cut out.
const CUT: &str = "…";

/// How bad it is. Ordered from worst to mildest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something that was asked for is not in effect.
    Error,
    /// It is in effect, but probably not as meant.
    Warning,
    /// Worth knowing.
    Info,
}

/// Where a person finds the text that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// Path as given by the user.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: u32,
}

/// One statement about one object: which, where in it, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The object, where one could be made out.
    #[serde(serialize_with = "object_text")]
    pub object: Option<ObjectKey>,
    /// Path of the field in the object, such as `spec.rules[0].host`; empty for the whole.
    pub field: String,
    /// The problem, one sentence without trailing stop. Never holds key material.
    pub message: String,
    /// The remedy, one sentence without trailing stop.
    pub remedy: String,
    /// File and line, where the object came from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl Finding {
    /// A finding about one field of one object. Texts beyond 1 KiB are cut.
    pub fn new(
        severity: Severity,
        object: &ObjectKey,
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Finding {
            severity,
            object: Some(object.clone()),
            field: cut(field),
            message: cut(message),
            remedy: cut(remedy),
            place: None,
        }
    }
}

/// A text as a finding has it: with at most 1 KiB.
pub fn cut(text: impl Into<String>) -> String {
    let text: String = text.into();
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let begin = text.floor_char_boundary(TEXT_BYTES_MAX - END_BYTES - CUT.len());
    let end = text.ceil_char_boundary(text.len() - END_BYTES);
    let parts = [text.get(..begin), Some(CUT), text.get(end..)];
    parts.into_iter().flatten().collect()
}

impl fmt::Display for Finding {
    /// One line, whatever the object says: names of fields are written by people as well.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = OneLine(f);
        if let Some(place) = &self.place {
            write!(f, "{}:{}: ", place.file, place.line)?;
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        write!(f, "{severity}: ")?;
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{}; {}", self.message, self.remedy)
    }
}

/// A text as one line: what would end it, or show it in another order, is escaped.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    // Writing to a string does not fail.
    let _ = OneLine(&mut line).write_str(text);
    line
}

/// Writes on, with escapes.
struct OneLine<'a, W>(&'a mut W);

impl<W: fmt::Write> fmt::Write for OneLine<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_escaped) {
            let (before, from) = rest.split_at(at);
            self.0.write_str(before)?;
            let mut letters = from.chars();
            if let Some(letter) = letters.next() {
                write!(self.0, "{}", letter.escape_default())?;
            }
            rest = letters.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Control characters, separators of lines and paragraphs, and marks of direction.
fn is_escaped(letter: char) -> bool {
    let is_mark = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || is_mark
}

fn object_text<S: serde::Serializer>(
    object: &Option<ObjectKey>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match object {
        Some(key) => serializer.collect_str(key),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, Place, Severity, TEXT_BYTES_MAX, cut, one_line};
    use crate::{ObjectKey, ObjectKind};

    #[test]
    fn a_finding_is_one_line_whatever_stands_in_its_parts() {
        let key = ObjectKey::new(ObjectKind::VirtualService, "n", "a");
        let forged = "x\nERROR forged\r\u{1b}[2K\u{85}\u{2028}\u{202e}\u{61c}y";
        let shown = "x\\nERROR forged\\r\\u{1b}[2K\\u{85}\\u{2028}\\u{202e}\\u{61c}y";
        let mut finding = Finding::new(Severity::Error, &key, forged, forged, forged);
        finding.place = Some(Place {
            file: "a\n.yaml".into(),
            line: 7,
        });
        assert_eq!(
            finding.to_string(),
            format!("a\\n.yaml:7: error: VirtualService n/a: {shown}: {shown}; {shown}")
        );
        // What it holds stays as it was written.
        assert_eq!(finding.field, forged);
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let key = ObjectKey::new(ObjectKind::VirtualService, "n", "a");
        let field = format!("spec.{}.b", "x".repeat(1_900_000));
        let message = format!("names {}, so it has no effect", "é".repeat(TEXT_BYTES_MAX));
        let finding = Finding::new(Severity::Error, &key, field, message, "correct it");
        for (text, begin, end) in [
            (&finding.field, "spec.xx", "xx.b"),
            (&finding.message, "names éé", "éé, so it has no effect"),
        ] {
            assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
            assert!(text.contains("…") && text.len() <= TEXT_BYTES_MAX);
            assert!(text.len() > TEXT_BYTES_MAX - 8);
        }
        assert_eq!(finding.remedy, "correct it");
        let whole = "x".repeat(TEXT_BYTES_MAX);
        assert_eq!(cut(whole.as_str()), whole);
        assert_eq!(cut(format!("{whole}x")).len(), TEXT_BYTES_MAX);
    }

    #[test]
    fn what_ends_no_line_stays_as_it_is() {
        for text in ["", "spec.http[0].\"é\" \\d+ 漢", "a  b"] {
            assert_eq!(one_line(text), text);
        }
        assert_eq!(one_line("\n"), "\\n");
        assert_eq!(one_line("é\0漢\n"), "é\\u{0}漢\\n");
    }
}
