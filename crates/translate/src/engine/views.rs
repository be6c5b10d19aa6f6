//! The views that an engine translates for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ports::Ports;
use super::scope::Scope;
use super::stamp::{MAIN_SLOT, Slot, Stamp};
use crate::view::{Role, View, Workload};

/// The most views of one engine.
pub const VIEWS_MAX: usize = 1 << 14;

/// Why there is no room for a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyViews {
    /// There are [`VIEWS_MAX`] of all namespaces together.
    #[error("there are {VIEWS_MAX} views already")]
    OfAll,
    /// The sidecars of its namespace have as many as they may.
    #[error("the sidecars of its namespace have {0} views already")]
    OfNamespace(u64),
}

/// How many times as many views as there may be of a namespace count while some of them are gone
/// and not forgotten yet.
const LEAVING_TIMES: u64 = 2;

/// All views by their places. The first is the main one and always there.
pub struct Views {
    slots: Vec<Option<Standing>>,
    /// The places of views that are gone and that some unit may still remember, with the namespaces
    /// of sidecars.
    leaving: BTreeMap<Slot, Option<Box<str>>>,
    /// How many views sidecars of each namespace have, those that are leaving included; none is 0.
    held: BTreeMap<Box<str>, u64>,
    all: Stamp,
    ingress: Stamp,
    gateways: Stamp,
    sidecars: Stamp,
    len: usize,
    names: BTreeMap<Arc<str>, Slot>,
    /// Places that had a view and may be given to another.
    free: BTreeSet<Slot>,
    namespaces: Sets<Box<str>>,
    workloads: Sets<Workload>,
    /// Views of single Gateways of Gateway API, by `namespace/name`.
    dedicated: Sets<Box<str>>,
    /// Sidecars by the namespaces of which they may reach anything.
    importers: Sets<Box<str>>,
    /// Sidecars that may reach anything of any namespace.
    importers_of_all: Stamp,
}

/// Sets of views by what they have in common. None is empty.
struct Sets<K>(BTreeMap<K, Stamp>);

/// A view, and who has which port on its proxies.
pub struct Standing {
    /// The view.
    pub view: View,
    /// The claims to ports, and which of them is granted.
    pub ports: Ports,
    /// The scope of what it may reach, if it is a sidecar.
    pub scope: Scope,
}

impl Standing {
    /// The namespace of its workload, if it is a sidecar's.
    fn of_sidecar(&self) -> Option<Box<str>> {
        let is_sidecar = self.view.role == Role::Sidecar;
        is_sidecar.then(|| self.view.namespace.clone())
    }
}

impl<K: Ord> Sets<K> {
    fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Stamp
    where
        K: std::borrow::Borrow<Q>,
    {
        self.0.get(key).cloned().unwrap_or_default()
    }

    fn insert(&mut self, key: K, slot: Slot) {
        self.0.entry(key).or_default().insert(slot);
    }

    fn remove<Q: Ord + ?Sized>(&mut self, key: &Q, slot: Slot)
    where
        K: std::borrow::Borrow<Q>,
    {
        if let Some(stamp) = self.0.get_mut(key) {
            stamp.remove(slot);
            if stamp.is_empty() {
                self.0.remove(key);
            }
        }
    }
}

impl Views {
    /// The main view alone.
    pub fn new(main: View) -> Self {
        let mut views = Views {
            slots: Vec::new(),
            leaving: BTreeMap::new(),
            held: BTreeMap::new(),
            all: Stamp::EMPTY,
            ingress: Stamp::EMPTY,
            gateways: Stamp::EMPTY,
            sidecars: Stamp::EMPTY,
            len: 0,
            names: BTreeMap::new(),
            free: BTreeSet::new(),
            namespaces: Sets(BTreeMap::new()),
            workloads: Sets(BTreeMap::new()),
            dedicated: Sets(BTreeMap::new()),
            importers: Sets(BTreeMap::new()),
            importers_of_all: Stamp::EMPTY,
        };
        views.place(MAIN_SLOT, main);
        views
    }

    /// Whether the main view is the only one, and always was.
    pub fn is_single(&self) -> bool {
        self.slots.len() == 1
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All views.
    pub fn all(&self) -> &Stamp {
        &self.all
    }

    /// The views that answer for Ingresses.
    pub fn of_ingress(&self) -> &Stamp {
        &self.ingress
    }

    /// The views of gateways, but for those of single Gateways of Gateway API.
    pub fn of_gateways(&self) -> &Stamp {
        &self.gateways
    }

    /// The views of sidecars.
    pub fn of_sidecars(&self) -> &Stamp {
        &self.sidecars
    }

    /// The views of the sidecars of a workload.
    pub fn of_workload(&self, workload: &Workload) -> Stamp {
        self.workloads.get(workload)
    }

    /// The views of a single Gateway of Gateway API, by its `namespace/name`.
    pub fn of_gateway(&self, id: &str) -> Stamp {
        self.dedicated.get(id)
    }

    /// The views of a namespace.
    pub fn of_namespace(&self, namespace: &str) -> Stamp {
        self.namespaces.get(namespace)
    }

    /// The views of sidecars that may reach anything of a namespace.
    pub fn importers(&self, namespace: &str) -> Stamp {
        self.importers_of_all.union(&self.importers.get(namespace))
    }

    /// The same gateways.
    pub fn gateways(&self) -> impl Iterator<Item = &Standing> {
        self.gateways.iter().filter_map(|slot| self.get(slot))
    }

    /// The view at a place.
    pub fn get(&self, slot: Slot) -> Option<&Standing> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The view at a place, to note who has which port.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Standing> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// All views with their places.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Standing)> {
        let slots = self.slots.iter().zip(0..);
        slots.filter_map(|(standing, slot)| Some((slot, standing.as_ref()?)))
    }

    /// The place of a view.
    pub fn find(&self, name: &str) -> Option<Slot> {
        self.names.get(name).copied()
    }

    /// The place that a view has, or would have, where the sidecars of each namespace may have so
    /// many; none where that is not bounded.
    ///
    /// # Errors
    /// There are too many.
    pub fn room_for(&self, view: &View, bound: Option<u64>) -> Result<Slot, TooManyViews> {
        if let Some(slot) = self.find(&view.name) {
            return Ok(slot);
        }
        if self.len + self.leaving.len() >= VIEWS_MAX {
            return Err(TooManyViews::OfAll);
        }
        let bound = bound.filter(|_| view.role == Role::Sidecar);
        if let Some(bound) = bound.filter(|bound| self.is_full(&view.namespace, *bound)) {
            return Err(TooManyViews::OfNamespace(bound));
        }
        let next = self.slots.len() as Slot;
        Ok(self.free.first().copied().unwrap_or(next))
    }

    /// Whether the sidecars of a namespace have as many views as they may. A label that comes to be
    /// named replaces all of them: so those that are leaving count apart.
    fn is_full(&self, namespace: &str, bound: u64) -> bool {
        let there = self.of_namespace(namespace).common(&self.sidecars).len() as u64;
        let held = self.held.get(namespace).copied().unwrap_or_default();
        there >= bound || held >= bound.saturating_mul(LEAVING_TIMES)
    }

    /// Puts a view at its place, and returns the former one.
    pub fn place(&mut self, slot: Slot, view: View) -> Option<View> {
        let at = slot as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.unlist(slot);
        if let Some(former) = self.get(slot).and_then(Standing::of_sidecar) {
            self.let_go(&former);
        }
        if view.role == Role::Sidecar {
            *self.held.entry(view.namespace.clone()).or_default() += 1;
        }
        self.free.remove(&slot);
        self.all.insert(slot);
        self.names.insert(view.name.clone(), slot);
        self.namespaces.insert(view.namespace.clone(), slot);
        if let Some(gateway) = view.gateway() {
            self.dedicated.insert(gateway, slot);
        }
        let role = view.role;
        if role == Role::Sidecar {
            self.workloads.insert(Workload::of(&view), slot);
            self.importers_of_all.insert(slot);
        }
        let is_gateway = matches!(role, Role::Ingress | Role::Gateway);
        for (stamp, is_in) in [
            (&mut self.ingress, role == Role::Ingress),
            (&mut self.gateways, is_gateway),
            (&mut self.sidecars, role == Role::Sidecar),
        ] {
            match is_in {
                true => stamp.insert(slot),
                false => stamp.remove(slot),
            }
        }
        let standing = Standing {
            view,
            ports: Ports::default(),
            scope: Scope::default(),
        };
        let former = self.slots.get_mut(at)?.replace(standing);
        self.len += usize::from(former.is_none());
        former.map(|former| former.view)
    }

    /// Takes a view out. Its place is not given to another before [`Views::free`].
    pub fn remove(&mut self, slot: Slot) -> Option<Standing> {
        self.unlist(slot);
        let former = self.slots.get_mut(slot as usize)?.take()?;
        self.all.remove(slot);
        self.names.remove(&former.view.name);
        self.ingress.remove(slot);
        self.gateways.remove(slot);
        self.sidecars.remove(slot);
        self.leaving.insert(slot, former.of_sidecar());
        self.len -= 1;
        Some(former)
    }

    /// Sets what the sidecar at a place may reach. Returns whether that differs.
    pub fn set_scope(&mut self, slot: Slot, scope: Scope) -> bool {
        let Some(Some(standing)) = self.slots.get_mut(slot as usize) else {
            return false;
        };
        if standing.scope.is_like(&scope) {
            // Whoever lists what it accepts is another all the same.
            standing.scope = scope;
            return false;
        }
        list_scope(
            (&mut self.importers, &mut self.importers_of_all),
            (slot, standing),
            false,
        );
        standing.scope = scope;
        list_scope(
            (&mut self.importers, &mut self.importers_of_all),
            (slot, standing),
            true,
        );
        true
    }

    /// Frees the places of views that are gone once every unit has forgotten them.
    pub fn free(&mut self, slots: Vec<Slot>) {
        for slot in &slots {
            if let Some(namespace) = self.leaving.remove(slot).flatten() {
                self.let_go(&namespace);
            }
        }
        self.free.extend(slots);
    }

    /// Counts one view less of the sidecars of a namespace.
    fn let_go(&mut self, namespace: &str) {
        if let Some(held) = self.held.get_mut(namespace) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(namespace);
            }
        }
    }

    /// Takes a place out of the sets by which views are found.
    fn unlist(&mut self, slot: Slot) {
        let Some(Some(standing)) = self.slots.get(slot as usize) else {
            return;
        };
        let view = &standing.view;
        self.namespaces.remove(&view.namespace, slot);
        if let Some(gateway) = view.gateway() {
            self.dedicated.remove(&gateway, slot);
        }
        if view.role == Role::Sidecar {
            self.workloads.remove(&Workload::of(view), slot);
            list_scope(
                (&mut self.importers, &mut self.importers_of_all),
                (slot, standing),
                false,
            );
        }
    }
}

/// Notes, or does not any more, of which namespaces a sidecar may reach anything.
fn list_scope(
    (importers, of_all): (&mut Sets<Box<str>>, &mut Stamp),
    (slot, standing): (Slot, &Standing),
    is_there: bool,
) {
    match (
        standing.scope.namespaces(&standing.view.namespace),
        is_there,
    ) {
        (None, true) => of_all.insert(slot),
        (None, false) => of_all.remove(slot),
        (Some(namespaces), true) => {
            let namespaces = namespaces.into_iter();
            namespaces.for_each(|it| importers.insert(it.into(), slot));
        }
        (Some(namespaces), false) => {
            let namespaces = namespaces.into_iter();
            namespaces.for_each(|it| importers.remove(it, slot));
        }
    }
}
