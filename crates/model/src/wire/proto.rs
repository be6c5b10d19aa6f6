//! The text of the .proto file, as messages are described.

use std::fmt::Write as _;

/// A field in the .proto file.
pub(super) struct Line {
    /// The comment.
    pub docs: &'static [&'static str],
    /// The number.
    pub field: u32,
    /// The name.
    pub name: &'static str,
    /// The schema that it came with.
    pub since: u32,
}

/// The text of the .proto file, as far as it is written.
#[derive(Default)]
pub(super) struct Proto {
    /// Messages by name, each before those that it names first.
    messages: Vec<(&'static str, String)>,
    /// The fields of the message that is being described.
    fields: String,
    is_in_forms: bool,
    newest: u32,
}

impl Proto {
    /// Describes a message, unless that has been done; its name.
    pub(super) fn message(
        &mut self,
        docs: &[&str],
        name: &'static str,
        describe: impl FnOnce(&mut Proto),
    ) -> &'static str {
        if self.messages.iter().any(|(known, _)| *known == name) {
            return name;
        }
        let at = self.messages.len();
        self.messages.push((name, String::new()));
        let outer = std::mem::take(&mut self.fields);
        let is_in_forms = std::mem::take(&mut self.is_in_forms);
        describe(self);
        self.is_in_forms = is_in_forms;
        let fields = std::mem::replace(&mut self.fields, outer);
        if let Some((_, text)) = self.messages.get_mut(at) {
            comment(text, "", docs);
            _ = write!(text, "message {name} {{\n{fields}}}\n");
        }
        name
    }

    /// Adds a field.
    pub(super) fn field(&mut self, line: Line, kind: &str) {
        self.needs(line.since);
        let indent = if self.is_in_forms { "    " } else { "  " };
        let Line {
            docs, field, name, ..
        } = line;
        comment(&mut self.fields, indent, docs);
        _ = write!(self.fields, "{indent}{kind} {name} = {field};");
        if line.since > 1 {
            _ = write!(self.fields, "  // schema {}", line.since);
        }
        self.fields.push('\n');
    }

    /// Adds the fields of forms, of which a message has one.
    pub(super) fn forms(&mut self, line: Line, describe: impl FnOnce(&mut Proto)) {
        comment(&mut self.fields, "  ", line.docs);
        _ = writeln!(self.fields, "  oneof {} {{", line.name);
        self.is_in_forms = true;
        describe(self);
        self.is_in_forms = false;
        self.fields.push_str("  }\n");
    }

    /// Notes a schema that something described came with.
    pub(super) fn needs(&mut self, schema: u32) {
        self.newest = self.newest.max(schema);
    }

    /// The newest schema that anything described came with.
    pub(super) fn newest(&self) -> u32 {
        self.newest
    }

    /// All messages, with a line between them.
    pub(super) fn text(&self) -> String {
        let texts = self.messages.iter().map(|(_, text)| text.as_str());
        texts.collect::<Vec<_>>().join("\n")
    }
}

fn comment(text: &mut String, indent: &str, docs: &[&str]) {
    for line in docs {
        _ = writeln!(text, "{indent}//{line}");
    }
}
