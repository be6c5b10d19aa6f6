//! Splits the text of a file into its documents without parsing them.
//!
//! YAML says that a line which begins with `---` or `...`, followed by white space or its end,
//! is a marker wherever it stands, even inside a quoted or block scalar. So lines suffice.

use serde_json::value::RawValue;

/// The text of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// The text from the first line that says something, so that comments above it do not count.
    pub(crate) text: &'a str,
    /// The line of the file on which it begins, counted from 1.
    pub(crate) line: u32,
}

/// The documents of a YAML stream; those that hold only comments are left out.
pub(crate) fn split_yaml(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut open: Option<(usize, u32)> = None;
    let mut offset = 0;
    let mut line_number = 1_u32;
    for line in text.split_inclusive('\n') {
        let marker = read_marker(line);
        if marker != Marker::None
            && let Some((start, first_line)) = open.take()
        {
            push(&mut pieces, text, start, offset, first_line);
        }
        let begins = match marker {
            Marker::None => !is_silent(line),
            Marker::Bare => false,
            Marker::WithContent => true,
        };
        if begins && open.is_none() {
            open = Some((offset, line_number));
        }
        offset += line.len();
        line_number = line_number.saturating_add(1);
    }
    if let Some((start, first_line)) = open {
        push(&mut pieces, text, start, text.len(), first_line);
    }
    pieces
}

/// The values of a stream of JSON, and where it stops being JSON.
pub(crate) fn split_json(text: &str) -> (Vec<Piece<'_>>, Option<serde_json::Error>) {
    let mut pieces = Vec::new();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let mut counted = 0;
    let mut line = 1_u32;
    loop {
        match values.next() {
            Some(Ok(value)) => {
                let value = value.get();
                let end = values.byte_offset();
                let start = end.saturating_sub(value.len());
                line = line.saturating_add(count_lines(text.get(counted..start)));
                counted = start;
                pieces.push(Piece { text: value, line });
            }
            Some(Err(error)) => return (pieces, Some(error)),
            None => return (pieces, None),
        }
    }
}

/// How many lines end in the text.
pub(crate) fn count_lines(text: Option<&str>) -> u32 {
    let count = text.map_or(0, |text| text.bytes().filter(|byte| *byte == b'\n').count());
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    None,
    /// `---` or `...` with nothing but a comment behind it.
    Bare,
    /// `--- {a: 1}`: the document begins on the line of the marker.
    WithContent,
}

fn read_marker(line: &str) -> Marker {
    let Some(rest) = line.strip_prefix("---") else {
        let is_end = line
            .strip_prefix("...")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        return if is_end { Marker::Bare } else { Marker::None };
    };
    if !rest.is_empty() && !rest.starts_with([' ', '\t', '\r', '\n']) {
        return Marker::None;
    }
    let rest = rest.trim();
    if rest.is_empty() || rest.starts_with('#') {
        Marker::Bare
    } else {
        Marker::WithContent
    }
}

/// Blank lines, comments and directives (`%YAML 1.2`) between documents.
fn is_silent(line: &str) -> bool {
    let trimmed = line.trim();
    trimmed.is_empty() || trimmed.starts_with('#') || line.starts_with('%')
}

fn push<'a>(pieces: &mut Vec<Piece<'a>>, text: &'a str, start: usize, end: usize, line: u32) {
    if let Some(text) = text.get(start..end) {
        pieces.push(Piece { text, line });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(text: &str) -> Vec<(u32, &str)> {
        split_yaml(text).iter().map(|p| (p.line, p.text)).collect()
    }

    #[test]
    fn documents_end_at_markers() {
        assert_eq!(yaml("a: 1\n---\nb: 2\n"), [(1, "a: 1\n"), (3, "b: 2\n")]);
        assert_eq!(
            yaml("---\na: 1\n--- # two\nb: 2"),
            [(2, "a: 1\n"), (4, "b: 2")]
        );
        assert_eq!(
            yaml("a: 1\n...\n---\nb: 2\n...\n"),
            [(1, "a: 1\n"), (4, "b: 2\n")]
        );
        assert_eq!(
            yaml("a: 1\r\n---\r\nb: 2\r\n"),
            [(1, "a: 1\r\n"), (3, "b: 2\r\n")]
        );
        assert_eq!(yaml("---\t\na: 1\n"), [(2, "a: 1\n")]);
    }

    #[test]
    fn what_only_looks_like_a_marker_is_text() {
        for text in [
            "a: |\n  ---\n  x\n",
            "----\n",
            "---a\n",
            " ---\n",
            "....\n",
            "a: ---\n",
        ] {
            assert_eq!(yaml(text), [(1, text)]);
        }
    }

    #[test]
    fn content_may_follow_the_marker() {
        let found = yaml("--- {a: 1}\n--- |\n x\n");
        assert_eq!(found, [(1, "--- {a: 1}\n"), (2, "--- |\n x\n")]);
    }

    #[test]
    fn comments_and_directives_are_no_documents() {
        assert_eq!(yaml(""), []);
        assert_eq!(yaml("# a\n\n---\n# b\n---\n"), []);
        assert_eq!(yaml("%YAML 1.2\n---\n# why\n\na: 1\n"), [(5, "a: 1\n")]);
    }

    #[test]
    fn json_values_follow_each_other() {
        let (pieces, error) = split_json("{\"a\":\n1}\n\n {\"b\":2}[3]\n");
        let found: Vec<_> = pieces.iter().map(|p| (p.line, p.text)).collect();
        assert_eq!(found, [(1, "{\"a\":\n1}"), (4, "{\"b\":2}"), (4, "[3]")]);
        assert!(error.is_none());
        let (pieces, error) = split_json("{\"a\":1}\n{\"b\":");
        assert_eq!(pieces.len(), 1);
        assert_eq!(error.map(|error| error.line()), Some(2));
        let deep = "[".repeat(1 << 20);
        let (pieces, error) = split_json(&deep);
        assert!(pieces.is_empty() && error.is_some());
    }
}
