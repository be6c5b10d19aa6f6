//! The faults of a rule: what was written there and does not hold.

use crate::dialect::gateway::backend_problem::BackendProblem;

/// The most faults of a rule that are told one by one: each filter of each backend may have many.
const FAULTS_MAX: usize = 16;

/// The reason of a condition about a value that has no meaning.
pub(super) const UNSUPPORTED_VALUE: &str = "UnsupportedValue";

/// The reason of a condition about filters that do not go together.
pub(super) const INCOMPATIBLE_FILTERS: &str = "IncompatibleFilters";

/// The remedy of most faults.
pub(super) const CORRECT: &str = "correct it";

/// A fault of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleFault {
    /// The field below the rule.
    pub field: String,
    /// The fault, with its effect unless that is on the whole rule.
    pub message: String,
    /// The way to mend it.
    pub remedy: &'static str,
    /// The effect.
    pub gravity: Gravity,
}

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gravity {
    /// A part of the rule has another effect than was written.
    Changed,
    /// A part of the rule has no effect.
    Omitted,
    /// A reference leads nowhere.
    Unresolved(BackendProblem),
    /// The whole rule has no effect, for this reason of a condition.
    Dropped(&'static str),
}

/// The faults of a rule.
#[derive(Debug, Default)]
pub(super) struct RuleFaults {
    told: Vec<RuleFault>,
    /// How many more there are.
    untold: usize,
    /// The first that drops the rule.
    dropping: Option<RuleFault>,
    /// The first reference with each problem.
    unresolved: Vec<RuleFault>,
}

impl RuleFaults {
    /// Adds a fault.
    pub(super) fn push(&mut self, fault: RuleFault) {
        match fault.gravity {
            Gravity::Dropped(_) if self.dropping.is_none() => {
                self.dropping = Some(fault.clone());
            }
            Gravity::Unresolved(_) => {
                let mut known = self.unresolved.iter();
                if !known.any(|known| known.gravity == fault.gravity) {
                    self.unresolved.push(fault.clone());
                }
            }
            Gravity::Dropped(_) | Gravity::Changed | Gravity::Omitted => {}
        }
        match self.told.len() < FAULTS_MAX {
            true => self.told.push(fault),
            false => self.untold += 1,
        }
    }

    /// Adds that a value has no meaning, so that the rule has none.
    pub(super) fn drop(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: &'static str,
    ) {
        self.add(field, message, remedy, Gravity::Dropped(UNSUPPORTED_VALUE));
    }

    /// Adds that filters do not go together, so that the rule has no effect.
    pub(super) fn oppose(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: &'static str,
    ) {
        let gravity = Gravity::Dropped(INCOMPATIBLE_FILTERS);
        self.add(field, message, remedy, gravity);
    }

    /// Adds that a part of the rule has no effect.
    pub(super) fn omit(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: &'static str,
    ) {
        self.add(field, message, remedy, Gravity::Omitted);
    }

    /// Adds that a part of the rule has another effect.
    pub(super) fn change(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: &'static str,
    ) {
        self.add(field, message, remedy, Gravity::Changed);
    }

    fn add(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: &'static str,
        gravity: Gravity,
    ) {
        self.push(RuleFault {
            field: field.into(),
            message: message.into(),
            remedy,
            gravity,
        });
    }

    /// The faults that are told one by one.
    pub(super) fn told(&self) -> &[RuleFault] {
        &self.told
    }

    /// How many more there are.
    pub(super) fn untold(&self) -> usize {
        self.untold
    }

    /// The first fault that drops the rule.
    pub(super) fn dropping(&self) -> Option<&RuleFault> {
        self.dropping.as_ref()
    }

    /// The first reference with each problem.
    pub(super) fn unresolved(&self) -> impl Iterator<Item = (BackendProblem, &RuleFault)> {
        self.unresolved
            .iter()
            .filter_map(|fault| match fault.gravity {
                Gravity::Unresolved(problem) => Some((problem, fault)),
                Gravity::Changed | Gravity::Omitted | Gravity::Dropped(_) => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::{CORRECT, FAULTS_MAX, Gravity, RuleFault, RuleFaults};
    use crate::dialect::gateway::backend_problem::BackendProblem;

    #[test]
    fn so_many_faults_are_told_and_none_that_decides_is_lost() {
        let mut faults = RuleFaults::default();
        for at in 0..FAULTS_MAX + 2 {
            faults.omit(format!("filters[{at}]"), "is none", CORRECT);
        }
        assert_eq!((faults.told().len(), faults.untold()), (FAULTS_MAX, 2));
        assert!(faults.dropping().is_none() && faults.unresolved().next().is_none());
        for field in ["matches[0]", "matches[1]"] {
            faults.drop(field, "is none", CORRECT);
        }
        for (field, problem) in [
            ("a", BackendProblem::PolicyInvalid),
            ("b", BackendProblem::PolicyInvalid),
            ("c", BackendProblem::BackendNotFound),
        ] {
            faults.push(RuleFault {
                field: field.into(),
                message: "leads nowhere".into(),
                remedy: CORRECT,
                gravity: Gravity::Unresolved(problem),
            });
        }
        assert_eq!((faults.told().len(), faults.untold()), (FAULTS_MAX, 7));
        assert_eq!(
            faults.dropping().map(|fault| &*fault.field),
            Some("matches[0]")
        );
        let unresolved: Vec<&str> = faults.unresolved().map(|(_, it)| &*it.field).collect();
        assert_eq!(unresolved, ["a", "c"]);
    }
}
