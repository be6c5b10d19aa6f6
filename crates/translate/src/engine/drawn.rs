//! The outputs of one unit for several views, put together.

use std::collections::HashMap;

use myriad_api::Finding;
use myriad_model::{Kind, Name};

use super::output::Output;
use super::stamp::Stamp;
use super::unit::Unit;

/// The outputs of a unit, with the views that each part is for.
#[derive(Default)]
pub(super) struct Drawn {
    /// All parts. A resource that is the same in several views stands there once; one that
    /// differs, once for each content.
    pub output: Output,
    /// The views that each resource is for.
    pub resources: Vec<Stamp>,
    /// The views that each need is for; none stands there twice.
    pub needs: Vec<Stamp>,
    /// The views that the unit was translated for.
    pub views: Stamp,
}

/// Puts together what a unit gave, each for other views.
pub(super) fn put_together(outputs: Vec<(Stamp, Output)>) -> Drawn {
    let mut drawn = Drawn::default();
    let told = outputs.iter().map(|(_, output)| output);
    drawn.output.findings = common(&told.collect::<Vec<_>>());
    let mut resources: HashMap<(Kind, Name), Vec<usize>> = HashMap::new();
    let mut needs: HashMap<Unit, usize> = HashMap::new();
    for (stamp, output) in outputs {
        drawn.views = drawn.views.union(&stamp);
        drawn.output.findings.extend(output.findings);
        drawn.output.wishes.extend(output.wishes);
        drawn.output.issuers.extend(output.issuers);
        drawn.output.rivals.extend(output.rivals);
        drawn.output.statuses.extend(output.statuses);
        drawn.output.stakes.extend(output.stakes);
        drawn.output.let_in.extend(output.let_in);
        let deadlines = [drawn.output.deadline, output.deadline];
        drawn.output.deadline = deadlines.into_iter().flatten().min();
        for (name, resource) in output.resources {
            let same_key = resources.entry((resource.value.kind(), name.clone()));
            let same_key = same_key.or_default();
            let same = same_key.iter().find(|at| {
                let known = drawn.output.resources.get(**at);
                known.is_some_and(|(_, known)| *known == resource)
            });
            match same {
                Some(at) => drawn.resources[*at] = drawn.resources[*at].union(&stamp),
                None => {
                    same_key.push(drawn.resources.len());
                    drawn.resources.push(stamp.clone());
                    drawn.output.resources.push((name, resource));
                }
            }
        }
        for need in output.needs {
            match needs.get(&need) {
                Some(at) => drawn.needs[*at] = drawn.needs[*at].union(&stamp),
                None => {
                    needs.insert(need.clone(), drawn.needs.len());
                    drawn.needs.push(stamp.clone());
                    drawn.output.needs.push(need);
                }
            }
        }
    }
    drawn
}

/// The findings of a unit by what it gave, each for other views.
pub(super) fn findings(outputs: &[&Output]) -> Vec<Finding> {
    let mut findings = common(outputs);
    let told = outputs.iter().flat_map(|output| output.findings.iter());
    findings.extend(told.cloned());
    findings
}

/// The findings of all views that an object concerns; where it concerns none, those of all.
fn common(outputs: &[&Output]) -> Vec<Finding> {
    let is_any = outputs.iter().any(|output| output.is_concerned);
    let concerned = outputs.iter();
    let mut concerned = concerned.filter(|output| output.is_concerned || !is_any);
    let Some(first) = concerned.next() else {
        return Vec::new();
    };
    let mut common = first.doubts.clone();
    for output in concerned {
        common.retain(|finding| output.doubts.contains(finding));
    }
    common
}

#[cfg(test)]
mod tests;
