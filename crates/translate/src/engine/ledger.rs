//! The findings of all units, and whatever else they state.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Finding, Severity};

use super::Engine;
use super::output::Output;
use super::unit::UnitId;

/// The most findings of one unit; the rest is one line that counts them.
pub(super) const UNIT_FINDINGS_MAX: usize = 100;

/// Statements by unit. One that two units make (a Secret that two hosts miss) is one statement.
pub(super) struct Ledger<T> {
    by_unit: BTreeMap<u32, Box<[Arc<T>]>>,
    all: BTreeMap<Arc<T>, u32>,
    /// Statements touched in this batch, and whether they were there before it.
    touched: BTreeMap<Arc<T>, bool>,
}

/// How statements differ from those before.
#[derive(Clone, Debug)]
pub struct Difference<T> {
    /// New ones, sorted.
    pub added: Vec<Arc<T>>,
    /// Statements that no longer hold, sorted.
    pub removed: Vec<Arc<T>>,
}

/// How the findings differ from those before.
pub type FindingsChange = Difference<Finding>;

impl<T> Difference<T> {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl<T> Default for Difference<T> {
    fn default() -> Self {
        Difference {
            added: Vec::new(),
            removed: Vec::new(),
        }
    }
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Ledger {
            by_unit: BTreeMap::new(),
            all: BTreeMap::new(),
            touched: BTreeMap::new(),
        }
    }
}

impl<T: Ord> Ledger<T> {
    /// All statements in order; of findings the worst first, then by object and field.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.keys().map(|it| &**it)
    }

    /// The number of statements.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Replaces the statements of a unit.
    pub(super) fn replace(&mut self, unit: u32, mut statements: Vec<T>) {
        statements.sort();
        statements.dedup();
        let former = self.by_unit.remove(&unit).unwrap_or_default();
        if former.iter().map(|known| &**known).eq(&statements) {
            if !former.is_empty() {
                self.by_unit.insert(unit, former);
            }
            return;
        }
        for statement in &former {
            self.withdraw(statement);
        }
        if statements.is_empty() {
            return;
        }
        let kept = statements.into_iter().map(|it| self.state(it));
        let kept = kept.collect();
        self.by_unit.insert(unit, kept);
    }

    /// The changes since the last call.
    pub(super) fn settle(&mut self) -> Difference<T> {
        let mut change = Difference::default();
        for (statement, was_there) in std::mem::take(&mut self.touched) {
            match (was_there, self.all.contains_key(&statement)) {
                (false, true) => change.added.push(statement),
                (true, false) => change.removed.push(statement),
                _ => {}
            }
        }
        change
    }

    fn state(&mut self, statement: T) -> Arc<T> {
        let known = self.all.get_key_value(&statement);
        let statement = known.map_or_else(|| Arc::new(statement), |(known, _)| known.clone());
        let uses = self.all.entry(statement.clone()).or_insert(0);
        self.touched.entry(statement.clone()).or_insert(*uses > 0);
        *uses += 1;
        statement
    }

    fn withdraw(&mut self, statement: &Arc<T>) {
        self.touched.entry(statement.clone()).or_insert(true);
        if let Some(uses) = self.all.get_mut(statement) {
            *uses -= 1;
            if *uses == 0 {
                self.all.remove(statement);
            }
        }
    }
}

impl Engine {
    /// Keeps the findings, wishes, issuers, rivals and statuses of a unit, in place of those that
    /// it had.
    pub(super) fn state(&mut self, id: UnitId, output: &mut Output) {
        let findings = std::mem::take(&mut output.findings);
        self.ledger.replace(id, limit(findings));
        self.wishes.replace(id, std::mem::take(&mut output.wishes));
        let issuers = std::mem::take(&mut output.issuers);
        self.issuers.replace(id, issuers);
        self.rivals.replace(id, std::mem::take(&mut output.rivals));
        let statuses = std::mem::take(&mut output.statuses);
        self.statuses.replace(id, statuses);
    }
}

/// Cuts a long list, so that a broken object of thousands of lines stays readable.
fn limit(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort();
    findings.dedup();
    if findings.len() <= UNIT_FINDINGS_MAX {
        return findings;
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
    findings
}

#[cfg(test)]
mod tests {
    use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};

    use super::{Ledger, UNIT_FINDINGS_MAX, limit};

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
        ledger.replace(1, limit((0..10 * UNIT_FINDINGS_MAX).map(finding).collect()));
        assert_eq!(ledger.len(), UNIT_FINDINGS_MAX);
    }
}
