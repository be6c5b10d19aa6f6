//! The judgement of the rules of an object: findings for people, and texts of conditions.

use std::collections::BTreeMap;

use myriad_api::{Finding, ObjectKey, Severity, finding};

use super::fault::{Gravity, RuleFault};
use super::plan::PlannedRule;
use crate::dialect::gateway::backend_problem::BackendProblem;
use crate::dialect::gateway::judgement::Judgement;

/// Judges rules.
pub(super) fn judge(key: &ObjectKey, rules: &[PlannedRule]) -> Judgement {
    let mut judgement = Judgement::default();
    let dropped = rules.iter().filter(|rule| rule.faults.dropping().is_some());
    let is_refused = !rules.is_empty() && dropped.count() == rules.len();
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, rule) in rules.iter().enumerate() {
        let scene = (number, rule, is_refused);
        let told = rule.faults.told().iter();
        let findings = told.map(|fault| finding_of(key, scene, fault));
        judgement.findings.extend(findings);
        judgement.findings.extend(untold(key, number, rule));
        if let Some(name) = rule.name.as_deref() {
            let first = *names.entry(name).or_insert(number);
            judgement.findings.extend(repeated(key, number, first));
        }
        note_dropped(scene, &mut judgement);
    }
    judgement.unresolved = unresolved(rules);
    judgement
}

/// The first reference that leads nowhere; one that is wrong itself goes before others.
fn unresolved(rules: &[PlannedRule]) -> Option<(BackendProblem, String)> {
    let numbered = rules.iter().enumerate();
    let all = numbered.flat_map(|(number, rule)| {
        let unresolved = rule.faults.unresolved();
        unresolved.map(move |(problem, fault)| (number, problem, fault))
    });
    let first = all.min_by_key(|(_, problem, _)| !problem.is_of_reference());
    first.map(|(number, problem, fault)| (problem, said(number, fault)))
}

/// Notes a rule that has no effect, for the conditions.
fn note_dropped(
    (number, rule, is_refused): (usize, &PlannedRule, bool),
    judgement: &mut Judgement,
) {
    let Some(fault) = rule.faults.dropping() else {
        return;
    };
    if !is_refused {
        let text = format!("Dropped Rule {number}: {}", said(number, fault));
        judgement.dropped.push(text);
        return;
    }
    if let Gravity::Dropped(reason) = fault.gravity
        && judgement.refused.is_none()
    {
        judgement.refused = Some((reason, said(number, fault)));
    }
}

/// The field of a rule below its object.
fn field_of(number: usize, field: &str) -> String {
    match field {
        "" => format!("spec.rules[{number}]"),
        field => format!("spec.rules[{number}].{field}"),
    }
}

/// A fault in one sentence.
fn said(number: usize, fault: &RuleFault) -> String {
    finding::cut(format!(
        "{} {}",
        field_of(number, &fault.field),
        fault.message
    ))
}

fn finding_of(
    key: &ObjectKey,
    (number, rule, is_refused): (usize, &PlannedRule, bool),
    fault: &RuleFault,
) -> Finding {
    let severity = match fault.gravity {
        Gravity::Changed => Severity::Warning,
        Gravity::Omitted | Gravity::Unresolved(_) | Gravity::Dropped(_) => Severity::Error,
    };
    let message = match (&fault.gravity, is_refused) {
        (Gravity::Dropped(_), true) => {
            format!("{}, so the route is not accepted", fault.message)
        }
        (Gravity::Dropped(_), false) if rule.matches.is_empty() => {
            format!("{}, so the rule is dropped", fault.message)
        }
        (Gravity::Dropped(_), false) => format!(
            "{}, so the rule is dropped, and what it takes gets {}",
            fault.message, rule.refusal
        ),
        (Gravity::Changed | Gravity::Omitted | Gravity::Unresolved(_), _) => fault.message.clone(),
    };
    let field = field_of(number, &fault.field);
    Finding::new(severity, key, field, message, fault.remedy)
}

/// The finding about faults that are not told one by one.
fn untold(key: &ObjectKey, number: usize, rule: &PlannedRule) -> Option<Finding> {
    let count = rule.faults.untold();
    (count > 0).then(|| {
        Finding::new(
            Severity::Error,
            key,
            field_of(number, ""),
            format!("has {count} further faults"),
            "correct those that are told",
        )
    })
}

/// The finding about a rule that has the name of one before it.
fn repeated(key: &ObjectKey, number: usize, first: usize) -> Option<Finding> {
    (first != number).then(|| {
        Finding::new(
            Severity::Warning,
            key,
            field_of(number, "name"),
            format!("is the name of rule {first} as well, so it tells neither"),
            "give each rule a name of its own",
        )
    })
}
