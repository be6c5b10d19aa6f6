//! Collections in flow style that end on their line: `[a, "b"]`, `{name: a}`.

use super::{Scanner, scalar, split_name};

impl<'a> Scanner<'a> {
    /// Writes the collection that a text begins with, and returns what stands behind it.
    pub(super) fn flow(&mut self, text: &'a str) -> Option<&'a str> {
        self.enter()?;
        let base = self.names.len();
        let is_mapping = text.starts_with('{');
        let (start, end) = if is_mapping { ('{', '}') } else { ('[', ']') };
        self.json.push(start);
        let mut rest = text.strip_prefix(start)?.trim_ascii_start();
        let mut is_first = true;
        while !rest.starts_with(end) {
            if !std::mem::take(&mut is_first) {
                rest = rest.strip_prefix(',')?.trim_ascii_start();
                if !is_mapping {
                    self.json.push(',');
                }
            }
            if is_mapping {
                let (name, behind) = split_name(rest)?;
                self.name(base, name)?;
                rest = behind.trim_ascii_start();
            }
            rest = self.flow_value(rest)?.trim_ascii_start();
        }
        self.leave(base, end);
        rest.strip_prefix(end)
    }

    fn flow_value(&mut self, text: &'a str) -> Option<&'a str> {
        self.nodes += 1;
        match text.as_bytes().first()? {
            b'[' | b'{' => self.flow(text),
            b'"' | b'\'' => {
                let rest = scalar::quoted(text, &mut self.json)?;
                is_end(rest).then_some(rest)
            }
            _ => {
                let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte);
                let end = text.bytes().position(|byte| !is_part(byte))?;
                let (word, rest) = text.split_at_checked(end)?;
                scalar::plain(word, &mut self.json)?;
                is_end(rest).then_some(rest)
            }
        }
    }
}

/// Whether an entry ends here, and is no part of something longer.
fn is_end(rest: &str) -> bool {
    rest.trim_ascii_start().starts_with([',', ']', '}'])
}
