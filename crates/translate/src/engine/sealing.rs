//! Sealing of what units made. The parts of many endpoints that a unit made before are not encoded
//! again.

use std::collections::{BTreeMap, HashMap};

use myriad_model::{Name, Resource, SealedArc, Value};

use super::Engine;
use super::memory::REMEMBERED_MAX;
use super::stamp::Stamp;
use super::unit::UnitId;

/// The parts of endpoints that units made last, as they were sealed.
#[derive(Default)]
pub(super) struct SealedParts {
    by_unit: BTreeMap<UnitId, Vec<SealedPart>>,
    count: usize,
}

struct SealedPart {
    sealed: SealedArc,
    /// The content; none where it is what was sealed.
    resource: Option<Resource>,
}

/// The parts of one unit, by their names. Views may see several of one name.
type Former = HashMap<Name, Vec<SealedPart>>;

impl SealedParts {
    /// How much is kept, counted in endpoints.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes out what a unit made last.
    fn take(&mut self, id: UnitId) -> Former {
        let mut former = Former::new();
        for part in self.by_unit.remove(&id).unwrap_or_default() {
            self.count -= part.count();
            let known = former.entry(part.sealed.name().clone());
            known.or_default().push(part);
        }
        former
    }

    /// Keeps what a unit makes now, if there is room for it.
    fn keep(&mut self, id: UnitId, parts: Vec<SealedPart>) {
        let count: usize = parts.iter().map(SealedPart::count).sum();
        if count > 0 && self.count + count <= REMEMBERED_MAX {
            self.count += count;
            self.by_unit.insert(id, parts);
        }
    }

    /// Forgets what a unit made.
    pub(super) fn forget(&mut self, id: UnitId) {
        drop(self.take(id));
    }
}

impl SealedPart {
    fn new(resource: Resource, sealed: SealedArc) -> Self {
        let is_there = sealed.resource().is_some();
        SealedPart {
            sealed,
            resource: (!is_there).then_some(resource),
        }
    }

    fn resource(&self) -> Option<&Resource> {
        self.resource.as_ref().or_else(|| self.sealed.resource())
    }

    fn count(&self) -> usize {
        match self.resource().map(|resource| &resource.value) {
            Some(Value::Endpoints(part)) => part.endpoints.len(),
            _ => 0,
        }
    }
}

/// Whether any of the resources is a part of the endpoints of an upstream.
pub(super) fn has_parts(resources: &[(Name, Resource)]) -> bool {
    resources.iter().any(|(_, resource)| is_part(resource))
}

fn is_part(resource: &Resource) -> bool {
    matches!(&resource.value, Value::Endpoints(endpoints) if endpoints.is_part)
}

/// The part of a name that is equal to a resource, taken out.
fn find(former: &mut Former, name: &Name, resource: &Resource) -> Option<SealedPart> {
    let known = former.get_mut(name)?;
    let at = known.iter().position(|it| it.resource() == Some(resource));
    at.map(|at| known.swap_remove(at))
}

impl Engine {
    /// Seals the resources of a unit, each for the views of its stamp.
    pub(super) fn seal(
        &mut self,
        id: UnitId,
        resources: Vec<(Name, Resource)>,
        stamps: &[Stamp],
    ) -> Vec<SealedArc> {
        let mut former = self.sealed_parts.take(id);
        let mut parts = Vec::new();
        let mut all = Vec::with_capacity(resources.len());
        for ((name, resource), stamp) in resources.into_iter().zip(stamps) {
            if !is_part(&resource) {
                all.push(self.writer.seal(name, resource, stamp.iter()));
                continue;
            }
            let known = find(&mut former, &name, &resource);
            let part = known.unwrap_or_else(|| {
                let sealed = self.writer.seal(name, resource.clone(), stamp.iter());
                SealedPart::new(resource, sealed)
            });
            all.push(part.sealed.clone());
            parts.push(part);
        }
        self.sealed_parts.keep(id, parts);
        all
    }
}
