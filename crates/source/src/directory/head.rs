//! Reads what a YAML document is about from its lines, before it is parsed.
//!
//! Most documents are written by machines or in the plain style, where `apiVersion`, `kind` and
//! `metadata` stand at the left margin. Reading them so saves a parse of every document, names
//! the object even where the document cannot be parsed, and skips other kinds unread.

use myriad_api::{ObjectKey, ObjectKind};

/// The head of a document, as far as it could be made out. A field that is missing here may still
/// be in the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) api_version: Option<&'a str>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
}

impl<'a> Head<'a> {
    /// Reads the head of a document in block style.
    pub(crate) fn read(text: &'a str) -> Head<'a> {
        let mut head = Head::default();
        let mut metadata = Metadata::Ahead;
        for line in text.split_inclusive('\n') {
            let line = line.trim_end();
            if line.is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            if !line.starts_with([' ', '\t']) {
                if matches!(metadata, Metadata::Inside(_)) {
                    metadata = Metadata::Behind;
                }
                head.read_field(line, &mut metadata);
            } else if let Metadata::Inside(indent) = &mut metadata {
                head.read_metadata(line, indent);
            }
            let has_kind = head.api_version.is_some() && head.kind.is_some();
            if has_kind && matches!(metadata, Metadata::Behind) {
                break;
            }
        }
        head
    }

    /// The key of the object, where kind and name are known and the name can be one.
    pub(crate) fn key(&self, kind: ObjectKind) -> Option<ObjectKey> {
        let can_be_name = |text: &str| {
            !text.is_empty()
                && text.len() <= 253
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte))
        };
        let name = self.name.filter(|name| can_be_name(name))?;
        let namespace = match self.namespace {
            None | Some("") => myriad_api::meta::DEFAULT_NAMESPACE,
            Some(namespace) if can_be_name(namespace) => namespace,
            Some(_) => return None,
        };
        Some(ObjectKey::new(kind, namespace, name))
    }

    fn read_field(&mut self, line: &'a str, metadata: &mut Metadata) {
        if let Some(value) = field(line, "apiVersion") {
            self.api_version = self.api_version.or(scalar(value));
        } else if let Some(value) = field(line, "kind") {
            self.kind = self.kind.or(scalar(value));
        } else if let Some(value) = field(line, "metadata")
            && matches!(metadata, Metadata::Ahead)
            && (value.is_empty() || value.starts_with('#'))
        {
            *metadata = Metadata::Inside(None);
        }
    }

    fn read_metadata(&mut self, line: &'a str, indent: &mut Option<usize>) {
        let inner = line.trim_start();
        let depth = line.len() - inner.len();
        // Deeper lines belong to labels, annotations and other maps.
        if depth != *indent.get_or_insert(depth) {
            return;
        }
        if let Some(value) = field(inner, "name") {
            self.name = self.name.or(scalar(value));
        } else if let Some(value) = field(inner, "namespace") {
            self.namespace = self.namespace.or(scalar(value));
        }
    }
}

/// The place of the reader relative to `metadata:`, whose lines have one indentation.
enum Metadata {
    Ahead,
    Inside(Option<usize>),
    Behind,
}

/// The text behind `name:`, if the line is that field.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(name)?.trim_start().strip_prefix(':')?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then(|| rest.trim())
}

/// A scalar that stands for itself: plain, or quoted without escapes.
fn scalar(text: &str) -> Option<&str> {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            let (value, behind) = rest.split_once(quote)?;
            let behind = behind.trim();
            let is_whole = behind.is_empty() || behind.starts_with('#');
            return (is_whole && !value.contains('\\')).then_some(value);
        }
    }
    if text.starts_with(['&', '*', '!', '|', '>', '{', '[', '%', '@', '`', '#']) {
        return None;
    }
    let value = text
        .split_once(" #")
        .map_or(text, |(value, _)| value)
        .trim();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_read_from_plain_lines() {
        let head = Head::read(
            "# why\napiVersion: 'v1'  # core\nkind: \"Service\"\nmetadata: # here\n    labels:\n\
             \x20       name: other\n    name: a.b # x\n    namespace: n\nspec:\n  name: c\n",
        );
        let expected = Head {
            api_version: Some("v1"),
            kind: Some("Service"),
            namespace: Some("n"),
            name: Some("a.b"),
        };
        assert_eq!(head, expected);
        let key = head.key(ObjectKind::Service).expect("a key");
        assert_eq!((key.namespace(), key.name()), ("n", "a.b"));
    }

    #[test]
    fn order_and_line_ends_do_not_matter() {
        let head = Head::read("spec: {}\r\nmetadata:\r\n  name: a\r\nkind: List\r\napiVersion: v1");
        assert_eq!(
            (head.api_version, head.kind, head.name),
            (Some("v1"), Some("List"), Some("a"))
        );
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        for text in [
            "{apiVersion: v1, kind: Service}",
            "kind: &k Service",
            "kind: |\n  Service",
        ] {
            assert_eq!(Head::read(text).kind, None, "{text}");
        }
        assert_eq!(Head::read("  kind: Service\n").kind, None);
        assert_eq!(Head::read("kindness: Service\n").kind, None);
        assert_eq!(
            Head {
                name: Some("a b"),
                ..Head::default()
            }
            .key(ObjectKind::Service),
            None
        );
    }
}
