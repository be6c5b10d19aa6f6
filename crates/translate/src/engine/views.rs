//! The views that an engine translates for.

use std::sync::Arc;

use super::ports::Ports;
use super::stamp::{MAIN_SLOT, Slot, Stamp};
use crate::istio::mesh::{Scope, Workload};
use crate::view::{Role, View};

/// The most views of one engine.
pub const VIEWS_MAX: usize = 1 << 14;

/// There are [`VIEWS_MAX`] views already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {VIEWS_MAX} views already")]
pub struct TooManyViews;

/// All views by their places. The first is the main one and always there.
pub struct Views {
    slots: Vec<Option<Standing>>,
    /// Places whose view is gone and that some unit may still remember.
    leaving: Vec<Slot>,
    all: Stamp,
    ingress: Stamp,
    gateways: Stamp,
    sidecars: Stamp,
    len: usize,
}

/// A view, and who has which port on its proxies.
pub struct Standing {
    /// The view.
    pub view: View,
    /// Whose wish for a port is granted.
    pub ports: Ports,
    /// What it may reach, if it is a sidecar.
    pub scope: Scope,
}

impl Views {
    /// The main view alone.
    pub fn new(main: View) -> Self {
        let mut views = Views {
            slots: Vec::new(),
            leaving: Vec::new(),
            all: Stamp::EMPTY,
            ingress: Stamp::EMPTY,
            gateways: Stamp::EMPTY,
            sidecars: Stamp::EMPTY,
            len: 0,
        };
        views.place(MAIN_SLOT, main);
        views
    }

    /// Whether the main view is the only one, and always was.
    pub fn is_single(&self) -> bool {
        self.slots.len() == 1
    }

    /// All views.
    pub fn all(&self) -> &Stamp {
        &self.all
    }

    /// Those that answer for Ingresses.
    pub fn of_ingress(&self) -> &Stamp {
        &self.ingress
    }

    /// Those of gateways.
    pub fn of_gateways(&self) -> &Stamp {
        &self.gateways
    }

    /// Those of sidecars.
    pub fn of_sidecars(&self) -> &Stamp {
        &self.sidecars
    }

    /// Those of the sidecars of a workload. A walk over all sidecars.
    pub fn of_workload(&self, workload: &Workload) -> Stamp {
        let is_one = |slot: &Slot| {
            let standing = self.get(*slot);
            standing.is_some_and(|standing| workload.is_of(&standing.view))
        };
        self.sidecars.iter().filter(is_one).collect()
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

    /// All views, to note who has which port.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Standing> {
        self.slots.iter_mut().flatten()
    }

    /// The place of a view.
    pub fn find(&self, name: &str) -> Option<Slot> {
        let mut views = self.iter();
        views
            .find(|(_, standing)| *standing.view.name == *name)
            .map(|(slot, _)| slot)
    }

    /// The place that a view has, or would have.
    ///
    /// # Errors
    /// There are too many.
    pub fn room_for(&self, name: &Arc<str>) -> Result<Slot, TooManyViews> {
        if let Some(slot) = self.find(name) {
            return Ok(slot);
        }
        if self.len >= VIEWS_MAX {
            return Err(TooManyViews);
        }
        let is_free = |slot: &Slot| !self.leaving.contains(slot) && self.get(*slot).is_none();
        let slots = 0..=self.slots.len() as Slot + self.leaving.len() as Slot;
        let mut free = slots.into_iter().filter(is_free);
        free.next().ok_or(TooManyViews)
    }

    /// Puts a view at its place, and returns the former one.
    pub fn place(&mut self, slot: Slot, view: View) -> Option<View> {
        let at = slot as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.all.insert(slot);
        let role = view.role;
        for (stamp, is_in) in [
            (&mut self.ingress, role == Role::Ingress),
            (&mut self.gateways, role != Role::Sidecar),
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

    /// Takes a view out. Its place is not given to another before [`Views::settle`].
    pub fn remove(&mut self, slot: Slot) -> Option<View> {
        let former = self.slots.get_mut(slot as usize)?.take()?;
        self.all.remove(slot);
        self.ingress.remove(slot);
        self.gateways.remove(slot);
        self.sidecars.remove(slot);
        self.leaving.push(slot);
        self.len -= 1;
        Some(former.view)
    }

    /// Every unit has forgotten those that are gone.
    pub fn settle(&mut self) {
        self.leaving.clear();
    }
}
