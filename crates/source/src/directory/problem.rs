//! Problems of a file or a document, before it is known where the document stands.
//!
//! Messages say what was expected, never what was found: a document may hold a private key, and
//! findings go to logs and pages.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Place, Severity};

/// The longest field path or message that is kept, in bytes.
const TEXT_BYTES_MAX: usize = 400;

const KEEPS: &str = "until then what this file gave before stays in effect";

/// One problem. `line` counts from the first line of the document, which is line 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) line: u32,
    pub(crate) object: Option<ObjectKey>,
    pub(crate) field: Box<str>,
    pub(crate) message: Box<str>,
    pub(crate) remedy: &'static str,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>, remedy: &'static str) -> Self {
        Problem {
            line: 0,
            object: None,
            field: Box::default(),
            message: cut(message.into()),
            remedy,
        }
    }

    pub(crate) fn at(mut self, line: u32) -> Self {
        self.line = line;
        self
    }

    pub(crate) fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = cut(field.into());
        self
    }

    pub(crate) fn with_object(mut self, object: Option<ObjectKey>) -> Self {
        self.object = object;
        self
    }

    /// The problem that a YAML error states. `path` is the field that was being read.
    pub(crate) fn from_yaml(error: &serde_saphyr::Error, path: &str) -> Self {
        let line = error.location().map_or(0, |place| {
            u32::try_from(place.line().saturating_sub(1)).unwrap_or(u32::MAX)
        });
        Stated::from_yaml(error.without_snippet()).at(path, line)
    }

    /// The problem that a JSON error states; errors about values have no line there.
    pub(crate) fn from_json(error: &serde_json::Error, path: &str) -> Self {
        let line = u32::try_from(error.line().saturating_sub(1)).unwrap_or(u32::MAX);
        Stated::from_json(error).at(path, line)
    }

    /// Forgets everything but the position: for documents that may hold a secret.
    pub(crate) fn redacted(self) -> Self {
        Problem {
            // The first part of the path is a fixed name of the kind; later ones may be
            // whatever stands in a document with a broken structure.
            field: self.field.split(['.', '[']).next().unwrap_or("").into(),
            message: "cannot be read at this line (not quoted, as it may hold a secret)".into(),
            ..self
        }
    }

    /// The finding, for a document that begins on `line` of `file`.
    pub(crate) fn finding(&self, file: &Arc<str>, line: u32) -> Finding {
        Finding {
            severity: Severity::Error,
            object: self.object.clone(),
            field: self.field.to_string(),
            message: self.message.to_string(),
            remedy: format!("{}; {KEEPS}", self.remedy),
            place: Some(Place {
                file: file.clone(),
                line: line.saturating_add(self.line),
            }),
        }
    }
}

/// A parser's message, in our words.
struct Stated {
    missing: Option<String>,
    message: String,
    remedy: &'static str,
}

impl Stated {
    fn from_yaml(error: &serde_saphyr::Error) -> Stated {
        use serde_saphyr::Error;
        match error {
            Error::SerdeInvalidType { expected, .. }
            | Error::SerdeInvalidValue { expected, .. } => {
                Stated::wrong(format!("is not {expected}"))
            }
            Error::SerdeUnknownVariant { expected, .. } => {
                Stated::wrong(format!("is none of {}", expected.join(", ")))
            }
            Error::InvalidScalar { ty, .. } => Stated::wrong(format!("is not a {ty}")),
            Error::Unexpected { expected, .. } => {
                let expected = match *expected {
                    "sequence start" => "a list",
                    "mapping start" => "a mapping",
                    "string scalar" => "a text",
                    other => other,
                };
                Stated::wrong(format!("is not {expected}"))
            }
            Error::SerdeMissingField { field, .. } => Stated::missing(field),
            // The text of our own types, which name fields and never values.
            Error::Message { msg, .. } => Stated::wrong(msg.clone()),
            Error::DuplicateMappingKey { .. } => Stated {
                missing: None,
                message: "has a key that stands twice in one mapping".into(),
                remedy: "remove one of the two, or put `---` between two documents",
            },
            other if is_over_budget(other) => Stated {
                missing: None,
                message: format!(
                    "is more than is read of one document: {}",
                    without_place(other)
                ),
                remedy: "divide the document, write its aliases out, or write it as JSON",
            },
            other => Stated {
                missing: None,
                message: format!("is not YAML that can be read: {}", without_place(other)),
                remedy: "correct the YAML at this line",
            },
        }
    }

    fn from_json(error: &serde_json::Error) -> Stated {
        let text = error.to_string();
        let text = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(text, _)| text);
        if !error.is_data() {
            return Stated {
                missing: None,
                message: format!("is not JSON: {text}"),
                remedy: "correct the JSON at this line",
            };
        }
        if let Some(field) = text.strip_prefix("missing field `") {
            return Stated::missing(field.trim_end_matches('`'));
        }
        for quoting in ["invalid ", "unknown variant ", "duplicate field "] {
            if text.starts_with(quoting) {
                // What stands before the last `expected` quotes the value.
                return Stated::wrong(match text.rsplit_once(", expected ") {
                    Some((_, expected)) => format!("is not {expected}"),
                    None => "is not as its kind wants it".into(),
                });
            }
        }
        Stated::wrong(text.to_owned())
    }

    fn wrong(message: String) -> Stated {
        Stated {
            missing: None,
            message,
            remedy: "correct the field",
        }
    }

    fn missing(field: &str) -> Stated {
        Stated {
            missing: Some(field.to_owned()),
            message: "is required".into(),
            remedy: "add the field",
        }
    }

    fn at(self, path: &str, line: u32) -> Problem {
        let path = if path == "." { "" } else { path };
        let field = match self.missing {
            Some(missing) if path.is_empty() => missing,
            Some(missing) => format!("{path}.{missing}"),
            None => path.to_owned(),
        };
        Problem::new(self.message, self.remedy)
            .at(line)
            .with_field(field)
    }
}

/// The parser's words without the position, which the finding has in its own field.
fn without_place(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or("");
    let end = text.find(" at line ").unwrap_or(text.len());
    text.get(..end).unwrap_or(text).to_owned()
}

fn cut(mut text: String) -> Box<str> {
    if text.len() > TEXT_BYTES_MAX {
        let end = text.floor_char_boundary(TEXT_BYTES_MAX);
        text.truncate(end);
        text.push_str("...");
    }
    text.into()
}

/// Whether a document was not read since it is too much, whatever else is wrong with it.
pub(crate) fn is_over_budget(error: &serde_saphyr::Error) -> bool {
    use serde_saphyr::Error;
    match error.without_snippet() {
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => true,
        Error::AliasError { error, .. } => is_over_budget(error),
        _ => false,
    }
}
