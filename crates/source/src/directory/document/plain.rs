//! YAML as machines and most people write it, turned into JSON in one pass over its lines.
//!
//! A parser of all of YAML takes 15 ms for a Gateway of a thousand servers, which would be most of
//! what a further server costs. This takes the plain style and nothing else: block mappings and
//! lists, plain and quoted scalars on one line without escapes, flow collections on one line. Of
//! whatever is not certain it says nothing (anchors, tags, block scalars, other bytes than
//! printable ASCII, words that YAML's versions disagree on), and the document goes the long way.
//!
//! Its value means the same as that of the parser of all of YAML, or is refused by a type that
//! wants a text where there is a number or a word; then the document goes the long way too.

mod flow;
mod scalar;
#[cfg(test)]
mod tests;

use super::DEPTH_MAX;

/// The most nodes of one document; they take a tenth of what a parser of all of YAML takes.
const NODES_MAX: usize = 125_000;
/// The most fields of one mapping, since each is compared with those before it.
const FIELDS_MAX: usize = 64;
/// The longest name of a field; parsers of YAML look no further than 1,024 for its colon.
const NAME_BYTES_MAX: usize = 256;

/// The document as JSON, if it is a mapping in the plain style.
pub(super) fn to_json(text: &str) -> Option<String> {
    if !is_printable(text) {
        return None;
    }
    let mut scanner = Scanner {
        lines: text.split('\n'),
        line: None,
        json: String::with_capacity(text.len() + text.len() / 4),
        names: Vec::new(),
        depth: 0,
        nodes: 0,
    };
    scanner.advance();
    if scanner.line?.indent != 0 {
        return None;
    }
    scanner.mapping(0)?;
    let is_all = scanner.line.is_none() && scanner.nodes < NODES_MAX;
    is_all.then_some(scanner.json)
}

/// A line that says something.
#[derive(Clone, Copy)]
struct Line<'a> {
    /// The column on which its text begins.
    indent: usize,
    text: &'a str,
}

struct Scanner<'a> {
    lines: std::str::Split<'a, char>,
    /// The line under way.
    line: Option<Line<'a>>,
    json: String,
    /// The fields of all open mappings.
    names: Vec<&'a str>,
    depth: usize,
    nodes: usize,
}

/// Each method returns nothing where the document is to go the long way.
impl<'a> Scanner<'a> {
    /// Goes to the next line that is neither empty nor a comment.
    fn advance(&mut self) {
        self.line = self.lines.find_map(|line| {
            let text = line.trim_ascii_start();
            let indent = line.len() - text.len();
            let is_silent = text.is_empty() || text.starts_with('#');
            let text = text.trim_ascii_end();
            (!is_silent).then_some(Line { indent, text })
        });
    }

    /// The mapping or list that begins on the line under way.
    fn block(&mut self, line: Line<'a>) -> Option<()> {
        match is_item(line.text) {
            true => self.list(line.indent),
            false => self.mapping(line.indent),
        }
    }

    fn mapping(&mut self, column: usize) -> Option<()> {
        self.enter()?;
        let base = self.names.len();
        self.json.push('{');
        while let Some(line) = self.line.filter(|line| line.indent >= column) {
            if line.indent > column {
                return None;
            }
            let (name, rest) = split_name(line.text)?;
            self.name(base, name)?;
            if without_comment(rest).is_empty() {
                self.advance();
                self.below(column, true)?;
            } else {
                self.value(rest.trim_ascii_start())?;
                self.advance();
            }
        }
        self.leave(base, '}');
        Some(())
    }

    fn list(&mut self, column: usize) -> Option<()> {
        self.enter()?;
        self.json.push('[');
        let mut is_first = true;
        while let Some(line) = self.line.filter(|line| line.indent >= column) {
            if line.indent > column {
                return None;
            }
            let Some(rest) = line.text.strip_prefix('-').filter(|_| is_item(line.text)) else {
                // A list may stand at the column of the field that it is the value of.
                break;
            };
            if !std::mem::take(&mut is_first) {
                self.json.push(',');
            }
            let text = rest.trim_ascii_start();
            if without_comment(rest).is_empty() {
                self.advance();
                self.below(column, false)?;
            } else if split_name(text).is_some() {
                let indent = column + line.text.len() - text.len();
                self.line = Some(Line { indent, text });
                self.mapping(indent)?;
            } else {
                self.value(text)?;
                self.advance();
            }
        }
        self.leave(self.names.len(), ']');
        Some(())
    }

    /// Reads the lines below a field or the dash of an item at a column.
    fn below(&mut self, column: usize, is_field: bool) -> Option<()> {
        match self.line {
            Some(line) if line.indent > column => self.block(line),
            Some(line) if is_field && line.indent == column && is_item(line.text) => {
                self.list(column)
            }
            _ => {
                self.nodes += 1;
                self.json.push_str("null");
                Some(())
            }
        }
    }

    /// A value that begins and ends on this line.
    fn value(&mut self, text: &'a str) -> Option<()> {
        self.nodes += 1;
        let rest = match text.as_bytes().first()? {
            b'[' | b'{' => self.flow(text)?,
            b'"' | b'\'' => scalar::quoted(text, &mut self.json)?,
            _ => {
                scalar::plain(without_comment(text), &mut self.json)?;
                ""
            }
        };
        without_comment(rest).is_empty().then_some(())
    }

    /// Writes the name of a field that is none of those since `base`.
    fn name(&mut self, base: usize, name: &'a str) -> Option<()> {
        let known = self.names.get(base..)?;
        if known.len() >= FIELDS_MAX || known.contains(&name) {
            return None;
        }
        self.nodes += 1;
        if !known.is_empty() {
            self.json.push(',');
        }
        self.names.push(name);
        // Names have no byte that JSON escapes.
        self.json.push('"');
        self.json.push_str(name);
        self.json.push_str("\":");
        Some(())
    }

    fn enter(&mut self) -> Option<()> {
        self.depth += 1;
        self.nodes += 1;
        // The bound is the parser's, with room for what it counts otherwise.
        (self.depth < DEPTH_MAX - 2).then_some(())
    }

    fn leave(&mut self, base: usize, end: char) {
        self.depth -= 1;
        self.names.truncate(base);
        self.json.push(end);
    }
}

/// Whether the text has only printable ASCII, spaces and line feeds.
fn is_printable(text: &str) -> bool {
    // In pieces without a way out of them, so that many bytes are looked at together.
    text.as_bytes().chunks(256).all(|piece| {
        piece.iter().fold(true, |is, byte| {
            is & (*byte == b'\n' || (b' '..=b'~').contains(byte))
        })
    })
}

/// Whether a line is an item of a list.
fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// The name of a field and what stands behind its colon.
fn split_name(text: &str) -> Option<(&str, &str)> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./-".contains(byte);
    let end = text.bytes().position(|byte| !is_part(&byte))?;
    let (name, rest) = text.split_at_checked(end)?;
    let rest = rest.strip_prefix(':')?;
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.len() <= NAME_BYTES_MAX
        && !name.eq_ignore_ascii_case("null");
    (is_name && (rest.is_empty() || rest.starts_with(' '))).then_some((name, rest))
}

/// The text before a comment, without the white space around it.
fn without_comment(text: &str) -> &str {
    let text = match text.find(" #") {
        Some(at) => text.get(..at).unwrap_or(""),
        None => text,
    };
    text.trim_ascii()
}
