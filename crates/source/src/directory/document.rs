//! Reads one document: which kind it is of, and the objects in it.

mod list;
mod plain;
#[cfg(test)]
mod tests;
mod written;

use std::ops::RangeInclusive;

use myriad_api::{Object, ObjectKind};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use self::list::{ITEMS_MAX, Item, List, read_items};
use self::written::Written;
use super::head::Head;
use super::problem::{Problem, is_over_budget};
use super::split::Piece;

/// The first 128 bits of the BLAKE3 hash of a document, or of an item of a list.
pub(crate) type Hash = [u8; 16];

/// The deepest nesting of lists and mappings that is read.
const DEPTH_MAX: usize = 48;
/// The most nodes that a parser of all of YAML reads of one document, aliases expanded. They take
/// some 200 ms in a build for development; an EndpointSlice of 1,000 endpoints has 26,000.
const NODES_MAX: usize = 50_000;
/// The most bytes of the scalars of such a document, aliases expanded: twice those of the longest.
const SCALAR_BYTES_MAX: usize = 4 << 20;
/// The most anchors of one YAML document; `kubectl` writes none.
const ANCHORS_MAX: usize = 256;
/// The most aliases of one YAML document.
const ALIASES_MAX: usize = 1_024;
/// The most events of one YAML document that are kept for its anchors, and those that its aliases
/// stand for: as many as it has bytes, but within these, so that a short document is cheap.
const ALIAS_EVENTS: RangeInclusive<usize> = 1_000..=10_000;
/// The most problems of a document that are kept, as many as there are findings of a file.
pub(super) const PROBLEMS_MAX: usize = 100;

/// The content of a document.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A null, which is an empty document.
    Nothing,
    /// An object of a kind that is not read here.
    Passed(Passed),
    /// One object.
    One(Object),
    /// The items of a list, each with the hash of its content, what is wrong with others, and the
    /// kinds of those that are not read; or the one problem of a document that cannot be read.
    Mixed(Vec<(Object, Hash)>, Problems, Vec<Passed>),
}

/// The first problems of a document.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Problems {
    pub(crate) kept: Vec<Problem>,
    /// How many there are beside.
    pub(crate) dropped: usize,
}

/// The kind of an object that is not read here, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Passed {
    /// The `apiVersion`, cut to [`PASSED_BYTES_MAX`].
    pub api_version: Box<str>,
    /// The `kind`, cut likewise.
    pub kind: Box<str>,
}

/// The longest name of a kind that is told of an object that is not read.
const PASSED_BYTES_MAX: usize = 100;

/// The hash of bytes.
pub(crate) fn hash(bytes: &[u8]) -> Hash {
    let mut short = Hash::default();
    for (to, from) in short.iter_mut().zip(blake3::hash(bytes).as_bytes()) {
        *to = *from;
    }
    short
}

/// Reads a document of YAML; JSON is read as such, since that is ten times faster.
pub(crate) fn read_yaml(piece: &Piece<'_>, bytes_max: usize) -> Outcome {
    let text = piece.text;
    if text.len() > bytes_max {
        return too_large(bytes_max);
    }
    if text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return read_json(piece, bytes_max);
    }
    let lines = Head::read(text);
    if lines.api_version.is_some() && lines.kind.is_some() {
        return read_yaml_as(&lines, text);
    }
    let written = match with_yaml(text, |yaml| Written::deserialize(yaml)) {
        Ok(written) => written,
        Err(error) => return broken(Problem::from_yaml(&error, ""), text),
    };
    match written.head() {
        Ok(Some(head)) => read_yaml_as(&head, text),
        Ok(None) => Outcome::Nothing,
        Err(problem) => broken(problem, text),
    }
}

/// Reads a document of JSON.
pub(crate) fn read_json(piece: &Piece<'_>, bytes_max: usize) -> Outcome {
    let text = piece.text;
    if text.len() > bytes_max {
        return too_large(bytes_max);
    }
    let written = match serde_json::from_str::<Written>(text) {
        Ok(written) => written,
        Err(error) => return broken(Problem::from_json(&error, ""), text),
    };
    let head = match written.head() {
        Ok(Some(head)) => head,
        Ok(None) => return Outcome::Nothing,
        Err(problem) => return broken(problem, text),
    };
    match classify(&head) {
        Class::Known(kind) => match read_json_object(kind, text, true) {
            Ok(object) => Outcome::One(object),
            Err(problem) => broken(problem.with_object(head.key(kind)), text),
        },
        Class::List(kind) => match serde_json::from_str::<List<&RawValue>>(text) {
            Ok(list) => read_list(&list.items, kind, text),
            Err(error) => broken(Problem::from_json(&error, ""), text),
        },
        Class::Near(problem) => broken(*problem, text),
        Class::Other => Outcome::Passed(Passed::of(&head)),
    }
}

impl Passed {
    fn of(head: &Head<'_>) -> Passed {
        let cut = |text: Option<&str>| {
            let text = text.unwrap_or_default();
            let end = text.floor_char_boundary(PASSED_BYTES_MAX);
            text.get(..end).unwrap_or_default().into()
        };
        Passed {
            api_version: cut(head.api_version),
            kind: cut(head.kind),
        }
    }
}

/// The class of a document.
enum Class {
    Known(ObjectKind),
    /// A list; of one kind where the list says so.
    List(Option<ObjectKind>),
    /// Almost a kind that is read, so probably meant for us.
    Near(Box<Problem>),
    Other,
}

fn classify(head: &Head<'_>) -> Class {
    let api_version = head.api_version.unwrap_or("");
    let kind = head.kind.unwrap_or("");
    if let Some(kind) = ObjectKind::find(api_version, kind) {
        return Class::Known(kind);
    }
    if let Some(listed) = kind.strip_suffix("List") {
        if listed.is_empty() && api_version == "v1" {
            return Class::List(None);
        }
        if let Some(kind) = ObjectKind::find(api_version, listed) {
            return Class::List(Some(kind));
        }
    }
    let (group, is_core) = match api_version.split_once('/') {
        Some((group, _)) => (group, false),
        None => ("", true),
    };
    let near = ObjectKind::ALL.into_iter().find(|known| {
        let known_group = known
            .api_version()
            .split_once('/')
            .map_or("", |(group, _)| group);
        let is_former = *known == ObjectKind::Ingress && group == "extensions";
        let is_same_group = group == known_group || is_former || is_core;
        is_same_group && known.as_str().eq_ignore_ascii_case(kind)
    });
    let Some(near) = near else {
        return Class::Other;
    };
    let field = if near.as_str() == kind {
        "apiVersion"
    } else {
        "kind"
    };
    let message = format!(
        "is not what is read here: {} of {}",
        near.as_str(),
        near.api_version()
    );
    let remedy = "convert the object to that kind and version";
    let problem = Problem::new(message, remedy).with_field(field);
    Class::Near(Box::new(problem.with_object(head.key(near))))
}

fn read_yaml_as(head: &Head<'_>, text: &str) -> Outcome {
    match classify(head) {
        Class::Known(kind) => match read_yaml_object(kind, text) {
            Ok(object) => Outcome::One(object),
            Err(problem) => broken(problem.with_object(head.key(kind)), text),
        },
        Class::List(kind) => match read_yaml_list(text) {
            Ok(list) => read_list(&list.items, kind, text),
            Err(error) => broken(Problem::from_yaml(&error, ""), text),
        },
        Class::Near(problem) => broken(*problem, text),
        Class::Other => Outcome::Passed(Passed::of(head)),
    }
}

fn read_yaml_object(kind: ObjectKind, text: &str) -> Result<Object, Problem> {
    if let Some(json) = plain::to_json(text)
        && let Ok(object) = Object::from_json(kind, &json)
    {
        return Ok(object);
    }
    with_yaml(text, |yaml| Object::deserialize(kind, yaml)).map_err(|error| {
        if is_over_budget(&error) {
            // What is dear is read once.
            return Problem::from_yaml(&error, "");
        }
        // The path costs time, so it is asked for only now that it is wanted.
        let mut track = serde_path_to_error::Track::new();
        let again = with_yaml(text, |yaml| {
            let tracked = serde_path_to_error::Deserializer::new(yaml, &mut track);
            Object::deserialize(kind, tracked)
        });
        let error = again.err().unwrap_or(error);
        Problem::from_yaml(&error, &track.path().to_string())
    })
}

/// A list in the plain style, or in any other.
fn read_yaml_list(text: &str) -> Result<List<serde_json::Value>, serde_saphyr::Error> {
    if let Some(json) = plain::to_json(text)
        && let Ok(list) = serde_json::from_str(&json)
    {
        return Ok(list);
    }
    with_yaml(text, |yaml| List::deserialize(yaml))
}

/// The items of a list, if there are not more than are read.
fn read_list<T: Item>(items: &[T], kind: Option<ObjectKind>, text: &str) -> Outcome {
    if items.len() > ITEMS_MAX {
        let message = format!("has more than {ITEMS_MAX} items, so it is not read");
        let remedy = "divide the list, for instance into its items with --- between them";
        return broken(Problem::new(message, remedy).with_field("items"), text);
    }
    read_items(items, kind, || may_hold_secret(text))
}

/// The object in a text of JSON. The path of what is wrong costs another look, so it is asked for
/// only where it is told.
fn read_json_object(kind: ObjectKind, text: &str, is_told: bool) -> Result<Object, Problem> {
    Object::from_json(kind, text).map_err(|error| {
        if !is_told {
            return Problem::from_json(&error, "");
        }
        let (error, path) = Object::json_problem(kind, text).unwrap_or((error, String::new()));
        Problem::from_json(&error, &path)
    })
}

fn with_yaml<'a, T>(
    text: &'a str,
    read: impl for<'e> FnOnce(serde_saphyr::Deserializer<'a, 'e>) -> Result<T, serde_saphyr::Error>,
) -> Result<T, serde_saphyr::Error> {
    let (least, most) = (*ALIAS_EVENTS.start(), *ALIAS_EVENTS.end());
    let alias_events = text.len().clamp(least, most);
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_total_scalar_bytes: SCALAR_BYTES_MAX,
            max_aliases: ALIASES_MAX,
            max_anchors: ANCHORS_MAX,
            max_recorded_anchor_events: alias_events,
            max_documents: 2,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: alias_events,
            max_replay_stack_depth: 8,
        },
        with_snippet: false,
    };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, read)
}

fn broken(problem: Problem, text: &str) -> Outcome {
    let problem = if may_hold_secret(text) {
        problem.redacted()
    } else {
        problem
    };
    Outcome::Mixed(Vec::new(), Problems::one(problem), Vec::new())
}

impl Problems {
    /// The one problem of a document that cannot be read.
    pub(crate) fn one(problem: Problem) -> Problems {
        Problems {
            kept: vec![problem],
            dropped: 0,
        }
    }
}

/// Whether the text may hold what must not be quoted. It looks at the text and not at the kind,
/// since in a broken document the kind is not certain.
fn may_hold_secret(text: &str) -> bool {
    ["Secret", "PRIVATE KEY", "tls.key", "stringData"]
        .iter()
        .any(|sign| text.contains(sign))
}

fn too_large(bytes_max: usize) -> Outcome {
    let message = format!("is longer than {bytes_max} bytes, so it is not read");
    let remedy = "divide the document, for instance a list into its items with --- between them";
    broken(Problem::new(message, remedy), "")
}
