//! Problems of a file, from what is remembered of it.

use std::collections::HashSet;

use myriad_api::{Finding, Place, Severity};

use super::{Document, File, FileId, Index, Owner};

/// The findings about a file in the order of its lines. Beyond `findings_max` the last one says
/// how many there are more.
pub(super) fn findings(index: &Index, id: FileId, findings_max: usize) -> Vec<Finding> {
    let Some(file) = index.file(id) else {
        return Vec::new();
    };
    if let Some(trouble) = &file.trouble {
        return vec![trouble.finding(&file.path, 1)];
    }
    let mut found = Found {
        findings: Vec::new(),
        room: findings_max.saturating_sub(1),
        more: 0,
    };
    for (at, document) in file.documents.iter().enumerate() {
        if document.is_kept {
            continue;
        }
        if let super::Holds::Mixed(mixed) = &document.holds {
            for problem in &mixed.problems {
                found.add(|| problem.finding(&file.path, document.line));
            }
            found.more += mixed.dropped as usize;
        }
        let own = Owner::new(id, at);
        let mut seen = HashSet::new();
        for key in document.holds.keys() {
            if let Some(owner) = index.owners.get(key)
                && (*owner != own || !seen.insert(key))
            {
                found.add(|| duplicate(index, file, document, key, *owner, id));
            }
        }
    }
    found.end(file)
}

/// Findings, of which only the first are kept.
struct Found {
    findings: Vec<Finding>,
    room: usize,
    more: usize,
}

impl Found {
    fn add(&mut self, finding: impl FnOnce() -> Finding) {
        if self.findings.len() < self.room {
            self.findings.push(finding());
        } else {
            self.more += 1;
        }
    }

    fn end(mut self, file: &File) -> Vec<Finding> {
        if self.more > 0 {
            self.findings.push(Finding {
                severity: Severity::Error,
                object: None,
                field: String::new(),
                message: format!("{} more findings in this file are not listed", self.more),
                remedy: "correct the first ones, then look again".into(),
                place: Some(Place {
                    file: file.path.clone(),
                    line: 1,
                }),
            });
        }
        self.findings
    }
}

fn duplicate(
    index: &Index,
    file: &File,
    document: &Document,
    key: &myriad_api::ObjectKey,
    owner: Owner,
    id: FileId,
) -> Finding {
    let other = index.file(owner.file);
    let where_else = match other {
        Some(other) if owner.file != id => format!("in {}", other.path),
        Some(other) => {
            let first = other.documents.get(owner.document as usize);
            format!(
                "on line {} of this file",
                first.map_or(1, |first| first.line)
            )
        }
        None => "in another file".into(),
    };
    let message = format!(
        "is without effect here, since it also stands {where_else}, \
                           which comes first"
    );
    let remedy = "remove one of the two";
    let mut finding = Finding::new(Severity::Error, key, "", message, remedy);
    finding.place = Some(Place {
        file: file.path.clone(),
        line: document.line,
    });
    finding
}
