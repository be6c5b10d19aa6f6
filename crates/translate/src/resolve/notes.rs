//! Findings about fields that are not read.

use myriad_api::istio::{Note, NoteKind};
use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};

/// Findings about fields that are not read.
pub(crate) fn notes(key: &ObjectKey, notes: &[Note]) -> Vec<Finding> {
    let api = match ObjectKind::GATEWAY_API.contains(&key.kind) {
        true => "Gateway API",
        false => "Istio's API",
    };
    let finding = |note: &Note| {
        let (severity, message, remedy) = match note.kind {
            NoteKind::Refused => (
                Severity::Error,
                "is not honoured".to_owned(),
                "remove it, or see docs/istio-reference.md for what stands in its place",
            ),
            NoteKind::Unknown => (
                Severity::Warning,
                format!("is not a field of {api}, so it has no effect"),
                "check its spelling and its place",
            ),
            NoteKind::More(count) => (
                Severity::Warning,
                format!("has {count} more fields that are not read"),
                "mend those that are named first",
            ),
        };
        Finding::new(severity, key, &*note.field, message, remedy)
    };
    notes.iter().map(finding).collect()
}
