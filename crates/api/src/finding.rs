//! Findings: what Myriad tells people about the objects they wrote.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::ObjectKey;

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
    /// What is wrong, one sentence without trailing stop. Never holds key material.
    pub message: String,
    /// What to do about it, one sentence without trailing stop.
    pub remedy: String,
    /// File and line, where the object came from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

impl Finding {
    /// A finding about one field of one object.
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
            field: field.into(),
            message: message.into(),
            remedy: remedy.into(),
            place: None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

fn object_text<S: serde::Serializer>(
    object: &Option<ObjectKey>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match object {
        Some(key) => serializer.collect_str(key),
        None => serializer.serialize_none(),
    }
}
