//! The findings of all units, and whatever else they state.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Finding, Severity};

use super::Engine;
use super::batch::Run;
use super::output::Output;
use super::room::{Crowding, namespace_told, weight};
use super::unit::UnitId;

/// The most findings of one unit; one line stands for the rest.
pub(super) const UNIT_FINDINGS_MAX: usize = 100;

/// The most bytes that they may count for, but for that line: those of as many short findings, and
/// of some forty whose texts are as long as may be.
const UNIT_FINDING_BYTES_MAX: u64 = 128 << 10;

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

    /// The statements of a unit, in order.
    fn of(&self, unit: u32) -> &[Arc<T>] {
        let known = self.by_unit.get(&unit);
        known.map(|known| &**known).unwrap_or_default()
    }

    /// Takes some statements of a unit out.
    fn withdraw_of(&mut self, unit: u32, is_out: impl Fn(&T) -> bool) {
        let former = self.by_unit.remove(&unit).unwrap_or_default();
        let (out, kept): (Vec<Arc<T>>, Vec<Arc<T>>) = former.into_iter().partition(|it| is_out(it));
        for statement in &out {
            self.withdraw(statement);
        }
        if !kept.is_empty() {
            self.by_unit.insert(unit, kept.into());
        }
    }

    /// States what is no unit's to say, or withdraws it.
    fn set(&mut self, statement: T, holds: bool) {
        if holds {
            drop(self.state(statement));
            return;
        }
        let known = self.all.get_key_value(&statement);
        if let Some(known) = known.map(|(known, _)| known.clone()) {
            self.withdraw(&known);
        }
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
                // What came and went in one batch is kept for nobody.
                if self.touched.get(statement) == Some(&false) {
                    self.touched.remove(statement);
                }
            }
        }
    }
}

impl Engine {
    /// Keeps the findings, wishes, issuers, rivals and statuses of a unit, in place of those that
    /// it had.
    pub(super) fn state(&mut self, id: UnitId, output: &mut Output) {
        let findings = std::mem::take(&mut output.findings);
        self.state_findings(id, limit(findings));
        self.wishes.replace(id, std::mem::take(&mut output.wishes));
        let issuers = std::mem::take(&mut output.issuers);
        self.issuers.replace(id, issuers);
        self.rivals.replace(id, std::mem::take(&mut output.rivals));
        let statuses = std::mem::take(&mut output.statuses);
        self.statuses.replace(id, statuses);
    }

    /// Keeps the findings of a unit, as far as there is room for them in the namespaces of their
    /// objects. Others may have to make room then.
    fn state_findings(&mut self, id: UnitId, mut findings: Vec<Finding>) {
        let mut crowding = Crowding::default();
        if let Some(record) = self.units.get(id) {
            let former = self.ledger.of(id);
            crowding = self.room.admit((id, record.unit()), former, &mut findings);
        }
        self.ledger.replace(id, findings);
        for (unit, namespace) in crowding.out {
            if let Some(other) = self.units.find(&self.hasher, &unit) {
                let is_out = |it: &Finding| namespace_told(it) == Some(&*namespace);
                self.ledger.withdraw_of(other, is_out);
                self.room.leave_out(other, namespace);
            }
        }
        for (namespace, is_crowded) in crowding.turned {
            let finding = (self.rules.bounds.crowded)(&namespace, self.room.bound());
            self.ledger.set(finding, is_crowded);
        }
    }

    /// Lets units run again for whose findings there is room now: in turns of their namespaces, or
    /// at once where all is.
    pub(super) fn tell_again(&mut self, run: &mut Run) {
        for unit in self.room.take_back() {
            match self.units.find(&self.hasher, &unit) {
                Some(id) if run.is_whole => run.add(unit, id, true),
                Some(id) => self.postpone(id),
                None => {}
            }
        }
    }
}

/// Cuts a long list, so that a broken object of thousands of lines stays readable.
fn limit(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort();
    findings.dedup();
    let mut bytes = 0;
    let fitting = findings.iter().take_while(|finding| {
        bytes += weight(finding);
        bytes <= UNIT_FINDING_BYTES_MAX
    });
    let fitting = fitting.count();
    if fitting == findings.len() && fitting <= UNIT_FINDINGS_MAX {
        return findings;
    }
    let rest = findings.split_off(fitting.min(UNIT_FINDINGS_MAX - 1));
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

    use super::{Ledger, UNIT_FINDING_BYTES_MAX, UNIT_FINDINGS_MAX, limit, weight};

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

    #[test]
    fn a_unit_has_findings_of_a_bounded_number_of_bytes() {
        let long = |at: usize| {
            let mut finding = finding(at);
            finding.message = format!("{at:01024}");
            finding.remedy = "x".repeat(1 << 10);
            finding
        };
        let limited = limit((0..90).map(long).collect());
        let (last, told) = limited.split_last().unwrap();
        assert_eq!(last.message, "has more findings than are listed");
        assert_eq!(last.object, finding(0).object);
        let bytes: u64 = told.iter().map(weight).sum();
        assert!((UNIT_FINDING_BYTES_MAX - (4 << 10)..=UNIT_FINDING_BYTES_MAX).contains(&bytes));
        // As many as there may be are within it where their texts are short.
        let short: Vec<Finding> = (0..UNIT_FINDINGS_MAX).map(finding).collect();
        assert_eq!(limit(short.clone()), short);
    }

    #[test]
    fn what_comes_and_goes_in_one_batch_is_not_kept_until_its_end() {
        let mut ledger = Ledger::default();
        ledger.replace(1, vec![finding(1), finding(2)]);
        ledger.withdraw_of(1, |it| *it == finding(1));
        ledger.set(finding(3), true);
        ledger.set(finding(3), false);
        assert_eq!((ledger.of(1).len(), ledger.touched.len()), (1, 1));
        let change = ledger.settle();
        assert_eq!((change.added.len(), change.removed.len()), (1, 0));
        // What was there before is told to be gone.
        ledger.set(finding(4), true);
        assert_eq!(ledger.settle().added.len(), 1);
        ledger.set(finding(4), false);
        ledger.withdraw_of(1, |_| true);
        assert_eq!(ledger.settle().removed.len(), 2);
        assert_eq!(ledger.len(), 0);
    }
}
