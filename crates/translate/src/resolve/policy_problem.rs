//! A part of a traffic policy that is not as it was written.

/// A part of a traffic policy that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyProblem {
    /// The field below the traffic policy.
    pub field: String,
    /// The fault, and its effect.
    pub message: String,
    /// The way to mend it.
    pub remedy: &'static str,
    /// Whether it makes a difference to who is reached, and not only to how well.
    pub is_error: bool,
}

/// A field without effect on who is reached.
pub(super) fn warn(field: &str, message: impl Into<String>, remedy: &'static str) -> PolicyProblem {
    PolicyProblem {
        field: field.to_owned(),
        message: message.into(),
        remedy,
        is_error: false,
    }
}
