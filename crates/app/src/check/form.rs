//! The forms in which what was found is printed: lines, one JSON object, or workflow commands.

use std::io::{self, Write};

use myriad_api::{Finding, Severity};
use serde::Serialize;

use super::annotations::AnnotationRow;
use super::passed::{self, PassedKind};
use super::upgrade::Affected;
use crate::cli::CheckForm;

/// All that a check found.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckReport<'a> {
    /// How many objects were read.
    pub objects: usize,
    /// Sorted by place.
    pub findings: &'a [Finding],
    /// The findings about annotations, summed up.
    pub annotations: Vec<AnnotationRow<'a>>,
    /// The kinds that are not read.
    pub not_read: Vec<PassedKind>,
    /// The objects that changed defaults affect, with `--upgrade`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Vec<Affected>>,
    /// A line for each of Istio's objects, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub honoured: Vec<String>,
}

impl CheckReport<'_> {
    /// Prints it.
    ///
    /// # Errors
    /// The output's own error.
    pub(super) fn print(&self, form: CheckForm, out: &mut impl Write) -> io::Result<()> {
        match form {
            CheckForm::Json => {
                serde_json::to_writer_pretty(&mut *out, self)?;
                return writeln!(out);
            }
            CheckForm::Text => {
                for finding in self.findings {
                    writeln!(out, "{finding}")?;
                }
            }
            CheckForm::Github => {
                for finding in self.findings {
                    writeln!(out, "{}", command(finding))?;
                }
            }
        }
        for line in &self.honoured {
            writeln!(out, "{line}")?;
        }
        for affected in self.upgrade.iter().flatten() {
            write!(out, "{}", affected.text())?;
        }
        for row in &self.annotations {
            writeln!(out, "{}", row.text())?;
        }
        for kind in &self.not_read {
            writeln!(out, "{}", kind.text())?;
        }
        writeln!(out, "{}", self.sum())
    }

    /// Whether a finding is an error.
    pub(super) fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|found| found.severity == severity).count()
    }

    fn sum(&self) -> String {
        let mut text = format!(
            "{} objects: {} errors, {} warnings, {} notes",
            self.objects,
            self.count(Severity::Error),
            self.count(Severity::Warning),
            self.count(Severity::Info),
        );
        let unread = passed::count_routing(&self.not_read);
        if unread > 0 {
            text.push_str(&format!("; {unread} objects about routing were not read"));
        }
        text
    }
}

/// A finding as a workflow command.
fn command(finding: &Finding) -> String {
    let command = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "notice",
    };
    let mut properties = Vec::new();
    if let Some(place) = &finding.place {
        properties.push(format!("file={}", escape(&place.file, true)));
        properties.push(format!("line={}", place.line));
    }
    if let Some(object) = &finding.object {
        let title = format!("{object} {}", finding.field);
        properties.push(format!("title={}", escape(title.trim_end(), true)));
    }
    let text = format!("{}; {}", finding.message, finding.remedy);
    let lead = if properties.is_empty() { "" } else { " " };
    let properties = properties.join(",");
    format!("::{command}{lead}{properties}::{}", escape(&text, false))
}

/// A text within a workflow command, where it cannot end the line or a property.
fn escape(text: &str, is_property: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '%' => escaped.push_str("%25"),
            '\r' => escaped.push_str("%0D"),
            '\n' => escaped.push_str("%0A"),
            ':' if is_property => escaped.push_str("%3A"),
            ',' if is_property => escaped.push_str("%2C"),
            letter if letter.is_control() => escaped.extend(letter.escape_default()),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use myriad_api::{ObjectKey, ObjectKind, Place};

    use super::*;

    #[test]
    fn a_workflow_command_has_no_control_character() {
        let key = ObjectKey::new(ObjectKind::Ingress, "n", "a");
        let finding = Finding::new(Severity::Error, &key, "a\n::b", "is \u{1b}[2K", "c\r\td");
        assert_eq!(
            command(&finding),
            "::error title=Ingress n/a a%0A%3A%3Ab::is \\u{1b}[2K; c%0D\\td"
        );
    }

    #[test]
    fn a_workflow_command_names_file_and_line_and_nothing_in_it_ends_it() {
        let key = ObjectKey::new(ObjectKind::Ingress, "n", "a");
        let mut finding = Finding::new(
            Severity::Info,
            &key,
            "spec.rules[0].host",
            "is 100% a\n::error::b",
            "correct it",
        );
        finding.place = Some(Place {
            file: "a,b:c.yaml".into(),
            line: 7,
        });
        assert_eq!(
            command(&finding),
            "::notice file=a%2Cb%3Ac.yaml,line=7,title=Ingress n/a spec.rules[0].host::is 100%25 \
             a%0A::error::b; correct it"
        );
    }
}
