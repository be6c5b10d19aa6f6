//! The sidecars that objects are for, so that one that comes or goes is led to the objects that it
//! sees, and a changed object to the sidecars that see it.

use std::collections::{BTreeMap, BTreeSet};

use super::stamp::Stamp;
use super::unit::UnitId;
use super::views::{Standing, Views};

/// The audience of units that sidecars have in common.
#[derive(Default)]
pub(super) struct Audience {
    /// Services and ServiceEntries: the namespaces they are exported to, empty for all; their
    /// namespace.
    reachable: BTreeSet<(Box<str>, Box<str>, UnitId)>,
    /// Units that are exported to some namespaces alone.
    exported: BTreeMap<UnitId, BTreeSet<Box<str>>>,
    /// Policies and what is recorded, by the namespace whose workloads they are for.
    held: BTreeSet<(Box<str>, UnitId)>,
}

impl Audience {
    /// Notes the namespaces that the unit of an object is exported to; `None` for all.
    pub(super) fn set_exported(
        &mut self,
        id: UnitId,
        namespace: &str,
        to: Option<BTreeSet<Box<str>>>,
    ) {
        self.remove_exported(id, namespace);
        match &to {
            Some(to) => {
                let entries = to.iter().map(|it| (it.clone(), namespace.into(), id));
                self.reachable.extend(entries);
            }
            None => drop(self.reachable.insert(("".into(), namespace.into(), id))),
        }
        if let Some(to) = to {
            self.exported.insert(id, to);
        }
    }

    /// Forgets the same.
    pub(super) fn remove_exported(&mut self, id: UnitId, namespace: &str) {
        let former = self.exported.remove(&id).unwrap_or_default();
        for to in former.into_iter().chain(["".into()]) {
            self.reachable.remove(&(to, namespace.into(), id));
        }
    }

    /// Notes that a unit is for the workloads of a namespace.
    pub(super) fn hold(&mut self, id: UnitId, namespace: &str) {
        self.held.insert((namespace.into(), id));
    }

    /// Notes that it is not any more.
    pub(super) fn release(&mut self, id: UnitId, namespace: &str) {
        self.held.remove(&(namespace.into(), id));
    }

    /// The units for workloads of a namespace.
    pub(super) fn held(&self, namespace: &str) -> impl Iterator<Item = UnitId> {
        let from = (namespace.into(), 0);
        let held = self.held.range(from..);
        let own = held.take_while(move |(of, _)| **of == *namespace);
        own.map(|(_, id)| *id)
    }

    /// The units of what a sidecar may reach anything of.
    pub(super) fn reachable(&self, standing: &Standing) -> Vec<UnitId> {
        let own = &*standing.view.namespace;
        let mut found = Vec::new();
        for to in ["", own] {
            match standing.scope.namespaces(own) {
                Some(namespaces) => {
                    let each = namespaces.into_iter();
                    each.for_each(|of| found.extend(self.range(to, Some(of))));
                }
                None => found.extend(self.range(to, None)),
            }
        }
        found
    }

    /// The sidecars that may reach what the unit of an object of a namespace is.
    pub(super) fn who_reaches(&self, id: UnitId, namespace: &str, views: &Views) -> Stamp {
        let importers = views.importers(namespace);
        match self.exported.get(&id) {
            Some(to) => {
                let to = to.iter().map(|to| views.of_namespace(to));
                let to = to.fold(Stamp::EMPTY, |all, one| all.union(&one));
                importers.common(&to)
            }
            None => importers,
        }
    }

    fn range(&self, to: &str, of: Option<&str>) -> impl Iterator<Item = UnitId> {
        let from = (to.into(), of.unwrap_or_default().into(), 0);
        let found = self.reachable.range(from..);
        let own = found.take_while(move |(known_to, known_of, _)| {
            **known_to == *to && of.is_none_or(|of| **known_of == *of)
        });
        own.map(|(_, _, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::views::Standing;
    use super::Audience;
    use crate::Settings;
    use crate::engine::scope::Scope;

    #[test]
    fn what_is_exported_to_some_is_found_by_them_alone() {
        let mut audience = Audience::default();
        let standing = |namespace: &str| {
            let mut view = Settings::default().main_view();
            view.namespace = namespace.into();
            Standing {
                view,
                ports: Default::default(),
                scope: Scope::default(),
            }
        };
        audience.set_exported(1, "shop", None);
        audience.set_exported(2, "shop", Some(["shop".into()].into()));
        audience.set_exported(3, "shop", Some(["other".into(), "shop".into()].into()));
        assert_eq!(audience.reachable(&standing("shop")), [1, 2, 3]);
        assert_eq!(audience.reachable(&standing("other")), [1, 3]);
        audience.set_exported(3, "shop", None);
        assert_eq!(audience.reachable(&standing("third")), [1, 3]);
        audience.remove_exported(1, "shop");
        audience.remove_exported(3, "shop");
        assert!(audience.reachable(&standing("other")).is_empty());
        assert_eq!(audience.reachable(&standing("shop")), [2]);
    }
}
