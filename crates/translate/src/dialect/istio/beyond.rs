//! Matches with a regex beyond those that a host may have.
//!
//! Such a match cannot be asked. A later rule may let through what it restricted, so that it
//! closes at least what it took; where it did not restrict, later rules decide.

use myriad_api::istio::StringMatch;
use myriad_model::{Action, PathMatch, Policy, Test, ValueMatch};

use crate::regex::{Regexes, literal_start};

/// The rest of a match without its regexes beyond the bound: it takes at least as much.
pub(super) struct Rest {
    /// The path, or how all of its paths begin.
    pub path: PathMatch,
    /// The conditions that can be asked.
    pub conditions: Vec<ValueMatch>,
    /// Whether it takes no more than the match did: the regex is in what its rule does.
    pub is_exact: bool,
}

impl Rest {
    /// The rest of a match with this `uri`, once one of its regexes was too many.
    pub(super) fn of(
        uri: Option<&StringMatch>,
        path: PathMatch,
        conditions: Vec<ValueMatch>,
        regexes: &mut Regexes,
    ) -> Rest {
        let mut is_held = |pattern: &str| regexes.admit(pattern).is_ok();
        let is_path_held = match &path {
            PathMatch::Regex(pattern) => is_held(pattern),
            PathMatch::Exact(_) | PathMatch::Prefix(_) | PathMatch::Start(_) => true,
        };
        let path = match is_path_held {
            true => path,
            false => beginning(uri),
        };
        let count = conditions.len();
        let is_asked = |condition: &ValueMatch| match &condition.test {
            Test::Regex(pattern) => is_held(pattern),
            Test::Exact(_) | Test::Present | Test::Start(_) => true,
        };
        let conditions: Vec<ValueMatch> = conditions.into_iter().filter(is_asked).collect();
        Rest {
            path,
            is_exact: is_path_held && conditions.len() == count,
            conditions,
        }
    }

    /// Whether it has to be closed when a rule does this.
    pub(super) fn is_closed(&self, action: &Action, policy: &Policy) -> bool {
        self.is_exact || restricts(action, policy)
    }

    /// The outcome for what it takes, in the words of a finding.
    pub(super) fn becomes(&self, is_closed: bool) -> String {
        if !is_closed {
            return "so the match has no effect".to_owned();
        }
        if self.is_exact {
            return "so what it takes gets 503".to_owned();
        }
        let path = match &self.path {
            PathMatch::Prefix(start) | PathMatch::Start(start) => {
                format!("begins with {start} and")
            }
            PathMatch::Exact(_) | PathMatch::Regex(_) => "has its path and".to_owned(),
        };
        format!("so what {path} fits its other conditions gets 503")
    }
}

/// Whether a later rule may let through what a rule with these does not.
fn restricts(action: &Action, policy: &Policy) -> bool {
    let fault = policy.fault.as_ref();
    match action {
        Action::Redirect(_) | Action::Respond(_) => true,
        Action::Forward(upstreams) => {
            upstreams.is_empty()
                || policy.processor.is_some()
                || fault.is_some_and(|fault| fault.abort.is_some())
        }
    }
}

/// How all paths begin that a regex takes, which regards case.
fn beginning(uri: Option<&StringMatch>) -> PathMatch {
    match uri {
        Some(StringMatch::Regex(text)) => match literal_start(text) {
            start if start == "/" => PathMatch::Prefix("/".into()),
            start => PathMatch::Start(start.into()),
        },
        _ => PathMatch::Prefix("/".into()),
    }
}
