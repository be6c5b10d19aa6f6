//! A part of a rule that cannot be honoured.

/// A part of a rule that cannot be honoured: the field below the rule, what is wrong, and what
/// becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleProblem {
    /// The field below the rule.
    pub field: String,
    /// The fault, and its effect.
    pub message: String,
    /// The way to mend it.
    pub remedy: &'static str,
}
