//! A part of a rule that cannot be honoured.

/// A part of a rule that cannot be honoured: the field below the rule, what is wrong, and what
/// becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleProblem {
    /// The field below the rule.
    pub field: String,
    /// What is wrong, and what becomes of it.
    pub message: String,
    /// What to do.
    pub remedy: &'static str,
}
