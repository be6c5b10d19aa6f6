//! The line of each field of a document, for findings that name a field by its path.
//!
//! Only a check asks, and only about documents with findings, so lines are not kept while a
//! document is read: the file is read again, and the parser's events are walked once.

use std::collections::HashMap;

use granit_parser::{Event, Parser};
use myriad_api::ObjectKey;
use myriad_api::meta::DEFAULT_NAMESPACE;

/// The deepest nesting that is walked; translation reads nothing deeper.
const DEPTH_MAX: usize = 48;
/// The most fields of a document whose lines are kept; those behind get the line of the nearest
/// field around them.
const FIELDS_MAX: usize = 250_000;
/// The longest key that is told apart, in bytes.
const KEY_BYTES_MAX: usize = 512;

/// The lines of one document, counted from 1 within it.
#[derive(Debug, Default)]
pub(crate) struct FieldLines {
    lines: HashMap<String, u32>,
    /// The items of a list, by their number.
    items: Vec<Item>,
    /// The numbers of the first items of their identities.
    numbers: HashMap<Identity, usize>,
}

/// Kind, namespace and name of an item. Without a kind it is of the one of its list; without a
/// namespace it stands for objects that have none, whatever is written.
type Identity = (String, String, String);

/// The identity of an object within a list, as far as it is written.
#[derive(Debug, Default)]
struct Item {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

/// A collection that is open.
enum Frame {
    /// A mapping, and the key whose value comes next.
    Mapping {
        path: String,
        key: Option<(String, u32)>,
    },
    /// A sequence, and the number of the element that comes next.
    Sequence { path: String, next: usize },
    /// A collection that is itself a key; nothing in it has a path.
    Key,
}

/// The place in the document that a node takes.
enum Position {
    /// The root, an element or a value, under this path.
    At(String),
    /// A key of the innermost mapping.
    Key,
    /// Somewhere below a key.
    Nowhere,
}

impl FieldLines {
    /// Walks the text of one document; behind an error nothing more has a line.
    pub(crate) fn of(text: &str) -> FieldLines {
        let mut found = FieldLines::default();
        let mut stack: Vec<Frame> = Vec::new();
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else {
                break;
            };
            let line = u32::try_from(span.start.line()).unwrap_or(u32::MAX);
            let frame: fn(String) -> Frame = match event {
                Event::MappingStart(..) => |path| Frame::Mapping { path, key: None },
                Event::SequenceStart(..) => |path| Frame::Sequence { path, next: 0 },
                Event::MappingEnd | Event::SequenceEnd => {
                    if matches!(stack.pop(), Some(Frame::Key)) {
                        set_key(&mut stack, "", line);
                    }
                    continue;
                }
                Event::Scalar(text, ..) => {
                    found.scalar(&mut stack, &text, line);
                    continue;
                }
                Event::Alias(_) => {
                    found.scalar(&mut stack, "", line);
                    continue;
                }
                _ => continue,
            };
            if stack.len() >= DEPTH_MAX || found.lines.len() >= FIELDS_MAX {
                break;
            }
            match found.position(&mut stack, line) {
                Position::At(path) => stack.push(frame(path)),
                Position::Key | Position::Nowhere => stack.push(Frame::Key),
            }
        }
        for (number, item) in found.items.drain(..).enumerate() {
            for identity in item.identities() {
                found.numbers.entry(identity).or_insert(number);
            }
        }
        found
    }

    /// The line of a field, or of the nearest one around it that is written. `object` tells which
    /// item of a list is meant.
    pub(crate) fn find(&self, object: &ObjectKey, field: &str) -> u32 {
        // A list of one kind may leave it out of its items.
        let number = |kind: &str| {
            let (namespace, name) = (object.namespace(), object.name());
            let identity = (kind.to_owned(), namespace.to_owned(), name.to_owned());
            self.numbers.get(&identity).copied()
        };
        let numbers = [number(object.kind.as_str()), number("")];
        let item = numbers.into_iter().flatten().min();
        let mut path = match item {
            Some(number) => join_path(&format!("items[{number}]"), field),
            None => field.to_owned(),
        };
        loop {
            if let Some(line) = self.lines.get(&path) {
                return *line;
            }
            match parent_length(&path) {
                Some(length) => path.truncate(length),
                None => return 1,
            }
        }
    }

    fn scalar(&mut self, stack: &mut [Frame], text: &str, line: u32) {
        match self.position(stack, line) {
            Position::At(path) => self.identify(&path, text),
            Position::Key => set_key(stack, text, line),
            Position::Nowhere => {}
        }
    }

    /// The position of the node that comes now; a value and an element get their line.
    fn position(&mut self, stack: &mut [Frame], line: u32) -> Position {
        let (path, line) = match stack.last_mut() {
            None => return Position::At(String::new()),
            Some(Frame::Key) => return Position::Nowhere,
            Some(Frame::Mapping { key: None, .. }) => return Position::Key,
            Some(Frame::Mapping { path, key }) => {
                let (key, line) = key.take().unwrap_or_default();
                (join(path, &key), line)
            }
            Some(Frame::Sequence { path, next }) => {
                let path_of_element = format!("{path}[{next}]");
                *next += 1;
                (path_of_element, line)
            }
        };
        if self.lines.len() < FIELDS_MAX {
            // Of a key that is written twice, the first counts, as for the reader of the file.
            self.lines.entry(path.clone()).or_insert(line);
        }
        Position::At(path)
    }

    /// Takes note of what tells the items of a list apart.
    fn identify(&mut self, path: &str, text: &str) {
        let parts = path
            .strip_prefix("items[")
            .and_then(|rest| rest.split_once("]."));
        let Some((Ok(number), part)) = parts.map(|(number, part)| (number.parse::<usize>(), part))
        else {
            return;
        };
        if !matches!(part, "kind" | "metadata.name" | "metadata.namespace") {
            return;
        }
        if self.items.len() <= number {
            self.items.resize_with(number + 1, Item::default);
        }
        if let Some(item) = self.items.get_mut(number) {
            let slot = match part {
                "kind" => &mut item.kind,
                "metadata.name" => &mut item.name,
                _ => &mut item.namespace,
            };
            *slot = Some(text.to_owned());
        }
    }
}

impl Item {
    /// The identities by which an item is found; none without a name.
    fn identities(self) -> impl Iterator<Item = Identity> {
        let namespace = self.namespace.filter(|text| !text.is_empty());
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let kind = self.kind.unwrap_or_default();
        let identities = self.name.map(|name| {
            let unplaced = (kind.clone(), String::new(), name.clone());
            [(kind, namespace, name), unplaced]
        });
        identities.into_iter().flatten()
    }
}

fn set_key(stack: &mut [Frame], text: &str, line: u32) {
    if let Some(Frame::Mapping { key, .. }) = stack.last_mut() {
        let end = text.floor_char_boundary(KEY_BYTES_MAX);
        *key = Some((text.get(..end).unwrap_or_default().to_owned(), line));
    }
}

/// The path of a key below another path, written as findings write it: `spec.rules`, but
/// `data[tls.crt]` where the key itself has a dot or a slash.
fn join(path: &str, key: &str) -> String {
    if key.contains(['.', '/']) {
        format!("{path}[{key}]")
    } else if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

fn join_path(path: &str, field: &str) -> String {
    match field {
        "" => path.to_owned(),
        field if field.starts_with('[') => format!("{path}{field}"),
        field => format!("{path}.{field}"),
    }
}

/// The length of the path around a path; none where it is of one part.
fn parent_length(path: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in path.bytes().enumerate().rev() {
        match byte {
            b']' => depth += 1,
            b'[' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return (at > 0).then_some(at);
                }
            }
            b'.' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use myriad_api::{ObjectKey, ObjectKind};

    use super::FieldLines;

    fn find(text: &str, field: &str) -> u32 {
        let key = ObjectKey::new(ObjectKind::Ingress, "n", "a");
        FieldLines::of(text).find(&key, field)
    }

    #[test]
    fn a_field_has_the_line_of_its_key_and_an_element_that_of_its_dash() {
        let text = "kind: Ingress\nmetadata:\n  name: a\n  annotations:\n    # why\n    \
                    n.io/x: |\n      one: 1\n      two\n    n.io/y: \"z\"\nspec:\n  rules:\n  - \
                    host: h\n    http:\n      paths:\n      - path: /\n      - path: /b\n        \
                    backend: {service: {name: s,\n          port: {number: 1}}}\n";
        for (field, line) in [
            ("metadata.annotations[n.io/x]", 6),
            ("metadata.annotations[n.io/y]", 9),
            ("spec.rules[0]", 12),
            ("spec.rules[0].host", 12),
            ("spec.rules[0].http.paths[1].path", 16),
            ("spec.rules[0].http.paths[1].backend.service.name", 17),
            (
                "spec.rules[0].http.paths[1].backend.service.port.number",
                18,
            ),
            // Fields that are not there: the nearest one around them.
            ("spec.rules[0].http.paths[0].pathType", 15),
            ("spec.rules[7].host", 11),
            ("metadata.annotations[n.io/none]", 4),
            ("status", 1),
            ("", 1),
        ] {
            assert_eq!(find(text, field), line, "{field}");
        }
    }

    #[test]
    fn json_anchors_and_odd_keys_have_lines_too() {
        assert_eq!(
            find(
                "{\"spec\":\n {\"tls\": [\n{\"hosts\":[\n\"a\"]}]}}",
                "spec.tls[0].hosts[0]"
            ),
            4
        );
        let text = "base: &b\n  host: h\nspec:\n  rules:\n  - *b\n  ? [1, 2]\n  : x\n  last: 1\n";
        assert_eq!(find(text, "spec.rules[0].host"), 5);
        let text = "? {a: 1}\n: x\nspec:\n  last: 1\n";
        assert_eq!(find(text, "spec.last"), 4);
        // What cannot be parsed has lines up to there.
        assert_eq!(find("spec:\n  host: h\n  x: [\n", "spec.host"), 2);
        assert_eq!(find(&"[".repeat(10_000), "spec.host"), 1);
    }

    #[test]
    fn an_item_of_a_list_is_told_by_kind_and_name() {
        let text = "kind: List\nitems:\n- kind: Service\n  metadata: {name: a, namespace: n}\n  \
                    spec: {}\n- kind: Ingress\n  metadata:\n    name: a\n    namespace: n\n  \
                    spec:\n    defaultBackend: {}\n";
        assert_eq!(find(text, "spec.defaultBackend"), 11);
        assert_eq!(find(text, "spec.rules"), 10);
        assert_eq!(find(text, ""), 6);
    }

    #[test]
    fn of_items_of_one_identity_the_first_counts_and_a_kind_or_namespace_may_be_left_out() {
        let text = "kind: IngressList\nitems:\n- metadata: {name: b, namespace: n}\n- metadata: \
                    {name: a}\n- metadata: {name: a, namespace: n}\n- kind: Ingress\n  metadata: \
                    {name: a, namespace: n}\n- kind: IngressClass\n  metadata: {name: a, \
                    namespace: odd}\n";
        let found = FieldLines::of(text);
        for (kind, namespace, line) in [
            (ObjectKind::Ingress, "n", 5),
            (ObjectKind::Ingress, "default", 4),
            (ObjectKind::Ingress, "other", 1),
            (ObjectKind::Service, "n", 5),
        ] {
            let key = ObjectKey::new(kind, namespace, "a");
            assert_eq!(found.find(&key, ""), line, "{key}");
        }
        let class = ObjectKey::new(ObjectKind::IngressClass, "", "b");
        assert_eq!(found.find(&class, ""), 3);
    }
}
