//! One place where a rule of the house is broken.

use std::fmt;

/// A violation: its place, the rule, the limit that it breaks, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// The rule's short name, as the ratchet file names it.
    pub(crate) rule: &'static str,
    /// The fact, and the limit where there is one.
    pub(crate) what: String,
    /// The remedy.
    pub(crate) remedy: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            what,
            remedy,
        } = self;
        write!(f, "{path}:{line}: {what}; {remedy} [{rule}]")
    }
}
