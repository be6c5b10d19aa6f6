//! The faults of an issuer, each of which keeps it from being used.

use myriad_api::istio::{Note, NoteKind, SpecProblem};
use myriad_api::{Finding, ObjectKey, Severity};

/// The faults that were found so far.
pub(super) struct Faults<'a> {
    object: &'a ObjectKey,
    findings: Vec<Finding>,
}

impl<'a> Faults<'a> {
    /// An empty list of faults of an object.
    pub(super) fn new(object: &'a ObjectKey) -> Self {
        Faults {
            object,
            findings: Vec::new(),
        }
    }

    /// Adds a fault.
    pub(super) fn error(&mut self, field: &str, message: impl Into<String>, remedy: &str) {
        let message = format!("{}, so nothing is obtained of it", message.into());
        let finding = Finding::new(Severity::Error, self.object, field, message, remedy);
        self.findings.push(finding);
    }

    /// Adds the problem of a spec that cannot be read.
    pub(super) fn problem(&mut self, problem: &SpecProblem) {
        let message = format!("cannot be read ({})", problem.message);
        self.error(
            &problem.field,
            message,
            "correct it as docs/certificates.md has it",
        );
    }

    /// Adds fields that no issuer has.
    pub(super) fn note(&mut self, notes: &[Note]) {
        for note in notes {
            let message = match note.kind {
                NoteKind::Refused | NoteKind::Unknown => "is no field of an issuer".to_owned(),
                NoteKind::More(count) => format!("has {count} more fields that no issuer has"),
            };
            self.error(&note.field, message, "correct its name, or remove it");
        }
    }

    /// Adds a fault where a text is empty, too long, or not of letters that can be seen.
    pub(super) fn word(&mut self, field: &str, text: &str, bytes_max: usize) {
        let is_short = (1..=bytes_max).contains(&text.len());
        if !is_short || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("is not 1 to {bytes_max} letters, digits and signs");
            self.error(field, message, "write it as its owner gave it");
        }
    }

    /// The first of them, in words.
    pub(super) fn first(&self) -> Option<String> {
        let first = self.findings.first()?;
        Some(match first.field.is_empty() {
            true => first.message.clone(),
            false => format!("{} {}", first.field, first.message),
        })
    }

    /// The findings about them.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}
