//! The findings that stand, whoever found them. Readers take them by the page, so that nobody who
//! writes waits for a search of all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::Key;

/// The findings of a page, about: what a source reports of one subject stays together.
pub(super) const PAGE_MAX: usize = 1_024;

/// All findings that stand.
#[derive(Default)]
pub(super) struct StandingFindings {
    /// The findings of sources, by subject.
    reports: BTreeMap<Arc<str>, Vec<Arc<Finding>>>,
    /// The findings on what proxies have refused.
    refusals: BTreeMap<Key, Arc<Finding>>,
    /// The findings of translation.
    own: BTreeSet<Arc<Finding>>,
    count: usize,
    errors: usize,
}

/// The place up to which a reader has come: reports go first, then refusals.
pub(super) enum Cursor {
    /// Behind a subject, or before all.
    Reports(Option<Arc<str>>),
    /// Behind a resource, or before all.
    Refusals(Option<Key>),
    /// Behind a finding of translation, or before all.
    Own(Option<Arc<Finding>>),
    /// Behind all.
    End,
}

impl Default for Cursor {
    /// Before all.
    fn default() -> Self {
        Cursor::Reports(None)
    }
}

impl Cursor {
    /// Whether nothing is left.
    pub(super) fn is_at_end(&self) -> bool {
        matches!(self, Cursor::End)
    }
}

impl StandingFindings {
    /// How many there are: errors, and all.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.errors, self.count)
    }

    /// How many of them are of translation.
    pub(super) fn of_translation(&self) -> usize {
        self.own.len()
    }

    /// Whether anything was refused.
    pub(super) fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }

    /// Replaces what a source says of a subject; returns what it said before.
    pub(super) fn set_report(
        &mut self,
        subject: Arc<str>,
        findings: Vec<Arc<Finding>>,
    ) -> Vec<Arc<Finding>> {
        let former = self.reports.remove(&subject).unwrap_or_default();
        for finding in &former {
            self.uncount(finding);
        }
        for finding in &findings {
            self.count(finding);
        }
        if !findings.is_empty() {
            self.reports.insert(subject, findings);
        }
        former
    }

    /// Replaces what is said of the refusal of a resource; none where it is not refused.
    pub(super) fn set_refusal(&mut self, key: Key, finding: Option<Finding>) {
        if let Some(former) = self.refusals.remove(&key) {
            self.uncount(&former);
        }
        if let Some(finding) = finding {
            self.count(&finding);
            self.refusals.insert(key, Arc::new(finding));
        }
    }

    /// Adds a finding of translation.
    pub(super) fn add(&mut self, finding: Arc<Finding>) {
        if self.own.insert(finding.clone()) {
            self.count(&finding);
        }
    }

    /// Takes a finding of translation out.
    pub(super) fn remove(&mut self, finding: &Finding) {
        if self.own.remove(finding) {
            self.uncount(finding);
        }
    }

    /// The next of them, some [`PAGE_MAX`], where a reader has come to; it is moved on. Only the
    /// last page has fewer.
    pub(super) fn page(&self, cursor: &mut Cursor) -> Vec<Arc<Finding>> {
        let mut page: Vec<Arc<Finding>> = Vec::new();
        if let Cursor::Reports(last) = cursor {
            let rest = self.reports.range::<str, _>(behind(last.as_deref()));
            *cursor = Cursor::Refusals(None);
            for (subject, findings) in rest {
                page.extend(findings.iter().cloned());
                if page.len() >= PAGE_MAX {
                    *cursor = Cursor::Reports(Some(subject.clone()));
                    return page;
                }
            }
        }
        if let Cursor::Refusals(last) = cursor {
            let rest = self.refusals.range::<Key, _>(behind(last.as_ref()));
            *cursor = Cursor::Own(None);
            for (key, finding) in rest {
                page.push(finding.clone());
                if page.len() >= PAGE_MAX {
                    *cursor = Cursor::Refusals(Some(key.clone()));
                    return page;
                }
            }
        }
        if let Cursor::Own(last) = cursor {
            let rest = self.own.range::<Finding, _>(behind(last.as_deref()));
            *cursor = Cursor::End;
            for finding in rest {
                page.push(finding.clone());
                if page.len() >= PAGE_MAX {
                    *cursor = Cursor::Own(Some(finding.clone()));
                    return page;
                }
            }
        }
        page
    }

    /// The findings of translation about an object, at most so many, the worst first.
    pub(super) fn about(&self, object: &ObjectKey, count_max: usize) -> Vec<Arc<Finding>> {
        let severities = [Severity::Error, Severity::Warning, Severity::Info].into_iter();
        let found = severities.flat_map(|severity| {
            let first = Finding {
                severity,
                object: Some(object.clone()),
                field: String::new(),
                message: String::new(),
                remedy: String::new(),
                place: None,
            };
            let behind = self.own.range::<Finding, _>(&first..);
            behind
                .take_while(move |it| it.severity == severity && it.object.as_ref() == Some(object))
        });
        found.take(count_max).cloned().collect()
    }

    fn count(&mut self, finding: &Finding) {
        self.count += 1;
        self.errors += usize::from(is_error(finding));
    }

    fn uncount(&mut self, finding: &Finding) {
        self.count -= 1;
        self.errors -= usize::from(is_error(finding));
    }
}

fn is_error(finding: &Finding) -> bool {
    finding.severity == Severity::Error
}

/// The range behind a key; everything where there is none.
fn behind<T: ?Sized>(last: Option<&T>) -> (Bound<&T>, Bound<&T>) {
    let start = last.map_or(Bound::Unbounded, Bound::Excluded);
    (start, Bound::Unbounded)
}
