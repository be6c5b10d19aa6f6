//! Findings summed up by annotation: how many objects have it, and what to do about it.

use std::collections::{BTreeMap, BTreeSet};

use myriad_api::{Finding, ObjectKey, Severity, one_line};
use serde::Serialize;

/// The most annotations that are summed up; the findings name them all.
const ROWS_MAX: usize = 100;

/// One annotation that is not honoured as it is meant.
#[derive(Debug, Serialize)]
pub(super) struct AnnotationRow<'a> {
    name: &'a str,
    objects: usize,
    /// The worst that was found about it.
    severity: Severity,
    remedy: &'a str,
}

#[derive(Default)]
struct Row<'a> {
    objects: BTreeSet<&'a ObjectKey>,
    worst: Option<&'a Finding>,
}

/// The annotations with errors or warnings, those of most objects first.
pub(super) fn sum_up(findings: &[Finding]) -> Vec<AnnotationRow<'_>> {
    let mut rows: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    for finding in findings {
        let (Some(name), Some(object)) = (annotation(&finding.field), &finding.object) else {
            continue;
        };
        if finding.severity == Severity::Info {
            continue;
        }
        let row = rows.entry(name).or_default();
        row.objects.insert(object);
        let is_worse = |worst: &Finding| finding.severity < worst.severity;
        if row.worst.is_none_or(is_worse) {
            row.worst = Some(finding);
        }
    }
    let mut rows: Vec<AnnotationRow<'_>> = rows
        .into_iter()
        .filter_map(|(name, row)| {
            let worst = row.worst?;
            Some(AnnotationRow {
                name,
                objects: row.objects.len(),
                severity: worst.severity,
                remedy: &worst.remedy,
            })
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.objects));
    rows.truncate(ROWS_MAX);
    rows
}

/// The name of the annotation that a field is.
fn annotation(field: &str) -> Option<&str> {
    field
        .strip_prefix("metadata.annotations[")?
        .strip_suffix(']')
}

impl AnnotationRow<'_> {
    /// The row as a line of text.
    pub(super) fn text(&self) -> String {
        let AnnotationRow {
            name,
            objects,
            remedy,
            ..
        } = self;
        let objects = match objects {
            1 => "1 object".to_owned(),
            objects => format!("{objects} objects"),
        };
        one_line(&format!("annotation {name}: {objects}; {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::ObjectKind;

    use super::*;

    #[test]
    fn an_annotation_is_summed_up_once_with_its_worst_finding() {
        let finding = |name: &str, severity, field: &str, remedy: &str| {
            let key = ObjectKey::new(ObjectKind::Ingress, "n", name);
            Finding::new(severity, &key, field, "is wrong", remedy)
        };
        let field = "metadata.annotations[n.io/auth-url]";
        let findings = [
            finding("a", Severity::Warning, "metadata.annotations[n.io/x]", "x"),
            finding("a", Severity::Warning, field, "mild"),
            finding("a", Severity::Error, field, "grave"),
            finding("b", Severity::Error, field, "other"),
            finding("b", Severity::Info, "metadata.annotations[n.io/y]", "y"),
            finding("b", Severity::Error, "spec.rules[0].host", "z"),
        ];
        let lines: Vec<String> = sum_up(&findings).iter().map(AnnotationRow::text).collect();
        assert_eq!(
            lines,
            [
                "annotation n.io/auth-url: 2 objects; grave",
                "annotation n.io/x: 1 object; x",
            ]
        );
    }
}
