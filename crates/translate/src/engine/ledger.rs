//! The findings of all units.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Finding, Severity};

/// The most findings of one unit; the rest is one line that counts them.
pub(super) const UNIT_FINDINGS_MAX: usize = 100;

/// Findings by unit. One that two units make (a Secret that two hosts miss) is one finding.
#[derive(Default)]
pub(super) struct Ledger {
    by_unit: BTreeMap<u32, Box<[Arc<Finding>]>>,
    all: BTreeMap<Arc<Finding>, u32>,
    /// Findings touched in this batch, and whether they were there before it.
    touched: BTreeMap<Arc<Finding>, bool>,
}

/// How the findings differ from those before.
#[derive(Clone, Debug, Default)]
pub struct FindingsChange {
    /// New ones, sorted.
    pub added: Vec<Arc<Finding>>,
    /// Findings that no longer hold, sorted.
    pub removed: Vec<Arc<Finding>>,
}

impl FindingsChange {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl Ledger {
    /// All findings, the worst first, then by object and field.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.all.keys().map(|finding| &**finding)
    }

    /// The number of findings.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Replaces the findings of a unit.
    pub(super) fn replace(&mut self, unit: u32, mut findings: Vec<Finding>) {
        findings.sort();
        findings.dedup();
        limit(&mut findings);
        let former = self.by_unit.remove(&unit).unwrap_or_default();
        if former.iter().map(|known| &**known).eq(&findings) {
            if !former.is_empty() {
                self.by_unit.insert(unit, former);
            }
            return;
        }
        for finding in &former {
            self.withdraw(finding);
        }
        if findings.is_empty() {
            return;
        }
        let kept = findings.into_iter().map(|finding| self.state(finding));
        let kept = kept.collect();
        self.by_unit.insert(unit, kept);
    }

    /// The changes since the last call.
    pub(super) fn settle(&mut self) -> FindingsChange {
        let mut change = FindingsChange::default();
        for (finding, was_there) in std::mem::take(&mut self.touched) {
            match (was_there, self.all.contains_key(&finding)) {
                (false, true) => change.added.push(finding),
                (true, false) => change.removed.push(finding),
                _ => {}
            }
        }
        change
    }

    fn state(&mut self, finding: Finding) -> Arc<Finding> {
        let known = self.all.get_key_value(&finding);
        let finding = known.map_or_else(|| Arc::new(finding), |(known, _)| known.clone());
        let uses = self.all.entry(finding.clone()).or_insert(0);
        self.touched.entry(finding.clone()).or_insert(*uses > 0);
        *uses += 1;
        finding
    }

    fn withdraw(&mut self, finding: &Arc<Finding>) {
        self.touched.entry(finding.clone()).or_insert(true);
        if let Some(uses) = self.all.get_mut(finding) {
            *uses -= 1;
            if *uses == 0 {
                self.all.remove(finding);
            }
        }
    }
}

/// Cuts a long list, so that a broken object of thousands of lines stays readable.
fn limit(findings: &mut Vec<Finding>) {
    if findings.len() <= UNIT_FINDINGS_MAX {
        return;
    }
    let rest = findings.split_off(UNIT_FINDINGS_MAX - 1);
    let severity = rest.first().map_or(Severity::Error, |first| first.severity);
    findings.push(Finding {
        severity,
        object: rest.into_iter().find_map(|finding| finding.object),
        field: String::new(),
        message: "has more findings than are listed".into(),
        remedy: "mend the listed ones first".into(),
        place: None,
    });
    findings.sort();
}

#[cfg(test)]
mod tests {
    use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};

    use super::{Ledger, UNIT_FINDINGS_MAX};

    fn finding(field: usize) -> Finding {
        let key = ObjectKey::new(ObjectKind::Ingress, "a", "b");
        Finding::new(
            Severity::Error,
            &key,
            format!("{field:05}"),
            "is wrong",
            "mend it",
        )
    }

    #[test]
    fn a_finding_of_two_units_is_one_until_both_withdraw_it() {
        let mut ledger = Ledger::default();
        ledger.replace(1, vec![finding(1)]);
        ledger.replace(2, vec![finding(1)]);
        assert_eq!(ledger.settle().added.len(), 1);
        ledger.replace(1, vec![]);
        assert!(ledger.settle().is_empty());
        ledger.replace(2, vec![]);
        assert_eq!(ledger.settle().removed.len(), 1);
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn a_unit_has_a_bounded_number_of_findings() {
        let mut ledger = Ledger::default();
        ledger.replace(1, (0..10 * UNIT_FINDINGS_MAX).map(finding).collect());
        assert_eq!(ledger.len(), UNIT_FINDINGS_MAX);
    }
}
