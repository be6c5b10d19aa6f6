//! Conditions of a rule that were written and not understood.
//!
//! A condition that is passed over makes its match wider, and a match without any condition takes
//! every request. Such a rule is closed: it may have been the one that led `/admin` elsewhere.

use myriad_api::istio::{Note, NoteKind, VirtualService};
use myriad_api::{Finding, Severity};

/// The field of a rule that was most likely meant as one of its conditions, where nothing else
/// narrows the rule: below `match`, or beside it under a name much like it.
pub(super) fn lost_condition(service: &VirtualService, at: usize) -> Option<&Note> {
    let rule = format!("spec.http[{at}].");
    service.notes.iter().find(|note| match note.kind {
        NoteKind::Unknown => note
            .field
            .strip_prefix(rule.as_str())
            .is_some_and(is_condition),
        // Whatever was left off the list may be one.
        NoteKind::More(_) => true,
        NoteKind::Refused => false,
    })
}

/// The finding about a rule that is closed for it.
pub(super) fn finding(service: &VirtualService, note: &Note) -> Finding {
    Finding::new(
        Severity::Error,
        &service.meta.key,
        &*note.field,
        "is no condition that Istio knows; without it the rule would take every request, so it \
         answers 503",
        "correct the name of the field, or remove it",
    )
}

/// Whether a field below a rule is meant as a condition.
fn is_condition(field: &str) -> bool {
    let is_below = field.starts_with("match[");
    let is_beside = !field.contains('.') && strsim::levenshtein(field, "match") <= 2;
    is_below || is_beside || field == "matches"
}

#[cfg(test)]
mod tests {
    use super::is_condition;

    #[test]
    fn what_is_much_like_match_or_below_it_is_meant_as_a_condition() {
        for field in [
            "match[0].url",
            "match[1].uri.prefx",
            "mach",
            "macth",
            "matches",
            "Match",
        ] {
            assert!(is_condition(field), "{field}");
        }
        for field in [
            "name2",
            "route[0].match",
            "statPrefix",
            "rewrite.match",
            "mirror2",
        ] {
            assert!(!is_condition(field), "{field}");
        }
    }
}
