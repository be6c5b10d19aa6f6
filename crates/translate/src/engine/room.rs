//! The room for findings: which units tell theirs about the objects of a namespace, where there are
//! more than it may have.
//!
//! Findings follow from objects and are known once they are translated, so that no bound of
//! objects says how many they are. The first units tell theirs, as long as their sum is within the
//! bound, and of the others nothing is kept but that sum. So who tells does not depend on the order
//! in which they ran; one for which there is room again runs once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::Finding;

use super::row::{Moved, Row};
use super::unit::{Unit, UnitId};

/// The bytes of memory that a finding takes beside its texts, about: itself, and its places among
/// others, here and where people read it.
const FINDING_BYTES: u64 = 400;

/// The least that a finding counts for, by which the bound is one on their number as well.
const FINDING_BYTES_LEAST: u64 = 1 << 10;

/// The findings of units about each namespace, as far as they are told.
pub(super) struct Room {
    /// The bytes that they may count for in a namespace; none where that is not bounded.
    bound: Option<u64>,
    /// The units that find something about a namespace, and what that counts for.
    rows: BTreeMap<Arc<str>, Row<Unit>>,
    /// The namespaces about which units tell nothing of what they find. No finding is kept of them.
    left_out: BTreeSet<(UnitId, Arc<str>)>,
    /// Units for whose findings there is room again, and that have yet to run.
    back: BTreeSet<Unit>,
}

/// The effect of what a unit finds on what others tell.
#[derive(Default)]
pub(super) struct Crowding {
    /// Units that tell nothing any more about a namespace.
    pub out: Vec<(Unit, Arc<str>)>,
    /// Namespaces about which some unit tells nothing from now on, or none does so any more.
    pub turned: Vec<(Arc<str>, bool)>,
}

impl Room {
    /// Room for so many bytes in each namespace; none is no bound.
    pub(super) fn new(bound: Option<u64>) -> Self {
        Room {
            bound,
            rows: BTreeMap::new(),
            left_out: BTreeSet::new(),
            back: BTreeSet::new(),
        }
    }

    /// The bytes that the findings about a namespace may count for.
    pub(super) fn bound(&self) -> u64 {
        self.bound.unwrap_or(u64::MAX)
    }

    /// Takes in what a unit finds, in place of what it told and found before, and takes out of it
    /// what there is no room for.
    pub(super) fn admit(
        &mut self,
        (id, unit): (UnitId, &Unit),
        former: &[Arc<Finding>],
        findings: &mut Vec<Finding>,
    ) -> Crowding {
        let mut crowding = Crowding::default();
        let left_out = self.take_left_out(id);
        let is_silent = findings.is_empty() && former.is_empty() && left_out.is_empty();
        if self.bound.is_none() || is_silent {
            return crowding;
        }
        let left_out = left_out.into_iter().map(|namespace| (namespace, 0));
        let mut weights: BTreeMap<Arc<str>, u64> = left_out.collect();
        let former = former.iter().map(|finding| (&**finding, 0));
        let found = findings.iter().map(|finding| (finding, weight(finding)));
        for (finding, weight) in former.chain(found) {
            let Some(namespace) = namespace_told(finding) else {
                continue;
            };
            match weights.get_mut(namespace) {
                Some(sum) => *sum += weight,
                None => {
                    weights.insert(self.shared(namespace), weight);
                }
            }
        }
        let mut left_out: BTreeSet<Arc<str>> = BTreeSet::new();
        for (namespace, weight) in weights {
            if !self.place(&namespace, (unit, weight), &mut crowding) {
                self.leave_out(id, namespace.clone());
                left_out.insert(namespace);
            }
        }
        if !left_out.is_empty() {
            findings.retain(|it| namespace_told(it).is_none_or(|it| !left_out.contains(it)));
        }
        crowding
    }

    /// Notes what the findings of a unit about a namespace count for. Returns whether it tells
    /// them.
    fn place(
        &mut self,
        namespace: &Arc<str>,
        (unit, weight): (&Unit, u64),
        crowding: &mut Crowding,
    ) -> bool {
        let bound = self.bound();
        let row = self.rows.entry(namespace.clone()).or_default();
        let was_whole = row.is_whole();
        row.remove(unit);
        if weight > 0 {
            row.insert(unit.clone(), weight);
        }
        let mut moved = Moved::default();
        row.settle(bound, &mut moved);
        let (stays, is_whole) = (row.stays(unit), row.is_whole());
        if row.is_empty() {
            self.rows.remove(namespace);
        }
        let out = moved.out.into_iter().filter(|it| it != unit);
        crowding.out.extend(out.map(|it| (it, namespace.clone())));
        let back = moved.back.into_iter().filter(|it| it != unit);
        self.back.extend(back);
        if is_whole != was_whole {
            crowding.turned.push((namespace.clone(), !is_whole));
        }
        weight == 0 || stays
    }

    /// Notes that a unit tells nothing about a namespace of what it found.
    pub(super) fn leave_out(&mut self, id: UnitId, namespace: Arc<str>) {
        self.left_out.insert((id, namespace));
    }

    /// Takes out the namespaces about which a unit tells nothing of what it found.
    fn take_left_out(&mut self, id: UnitId) -> Vec<Arc<str>> {
        if self.left_out.is_empty() {
            return Vec::new();
        }
        let first: (UnitId, Arc<str>) = (id, Arc::default());
        let behind = self.left_out.range(first..);
        let of_unit = behind.take_while(|(of, _)| *of == id).cloned();
        let of_unit: Vec<(UnitId, Arc<str>)> = of_unit.collect();
        for left_out in &of_unit {
            self.left_out.remove(left_out);
        }
        of_unit
            .into_iter()
            .map(|(_, namespace)| namespace)
            .collect()
    }

    /// The one allocation of the name of a namespace.
    fn shared(&self, namespace: &str) -> Arc<str> {
        let known = self.rows.get_key_value(namespace);
        known.map_or_else(|| namespace.into(), |(known, _)| known.clone())
    }

    /// Takes out the units that have to run again, since there is room for what they find.
    pub(super) fn take_back(&mut self) -> BTreeSet<Unit> {
        std::mem::take(&mut self.back)
    }
}

/// The bytes of memory that a finding counts for.
pub(super) fn weight(finding: &Finding) -> u64 {
    let texts = finding.field.len() + finding.message.len() + finding.remedy.len();
    (FINDING_BYTES + texts as u64).max(FINDING_BYTES_LEAST)
}

/// The namespace of the object that a finding is about; none where it has none.
pub(super) fn namespace_told(finding: &Finding) -> Option<&str> {
    let namespace = finding.object.as_ref()?.namespace();
    Some(namespace).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests;
