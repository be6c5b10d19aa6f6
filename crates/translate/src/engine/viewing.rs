//! Views that come, change and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::Object;
use myriad_model::{
    Delta, Key, Kind, Listener, ListenerProtocol, Name, Origin, Resource, SealedArc, Snapshot,
    Value,
};

use super::Engine;
use super::stamp::{MAIN_SLOT, Slot};
use super::unit::{Unit, UnitId, Viewers};
use super::viewpoint::Question;
use super::views::TooManyViews;
use crate::view::{Role, View, Workload};

impl Engine {
    /// Adds a view, or replaces the one of its name. The next outcome carries what is seen in it.
    ///
    /// # Errors
    /// There are too many.
    pub fn put_view(&mut self, view: View) -> Result<(), TooManyViews> {
        let bound = self.settings.bounds.views_max();
        let slot = self.views.room_for(&view, bound)?;
        let known = self.views.get(slot).map(|standing| &standing.view);
        if known.is_some_and(|known| known.is_like(&view)) {
            return Ok(());
        }
        let is_new = known.is_none();
        if slot != MAIN_SLOT && self.units.note_views() {
            self.ask_wildcards();
        }
        if is_new {
            self.run.came.insert(slot);
        }
        let role = view.role;
        if is_new && role == Role::Sidecar {
            self.add_sidecar(slot, view);
            return Ok(());
        }
        let workload = (role == Role::Sidecar).then(|| Arc::new(Workload::of(&view)));
        let former = self.views.place(slot, view);
        self.claim_all_ports(slot);
        self.settle_scope(slot);
        self.writer.add_view(slot);
        self.settle_listeners(slot, self.listeners(role));
        let before = former.as_ref().map(|former| former.role);
        self.mark_view(slot, [before, Some(role)]);
        let former = former.filter(|it| it.role == Role::Sidecar);
        let former = former.map(|former| Arc::new(Workload::of(&former)));
        if former != workload
            && let Some(former) = &former
        {
            self.forget_workload(slot, former);
        }
        for workload in [former, workload].into_iter().flatten() {
            self.mark_workload(workload);
        }
        Ok(())
    }

    /// Takes a view away with its snapshot, and says whether it was there. The main view stays.
    pub fn remove_view(&mut self, name: &str) -> bool {
        self.remove_view_by(name, None)
    }

    /// The same, because of what an object of the namespace `by` names, which is charged with what
    /// follows.
    pub fn part_view(&mut self, name: &str, by: &str) -> bool {
        self.remove_view_by(name, Some(by))
    }

    fn remove_view_by(&mut self, name: &str, by: Option<&str>) -> bool {
        let slot = self.views.find(name).filter(|slot| *slot != MAIN_SLOT);
        let Some(slot) = slot else {
            return false;
        };
        let Some(former) = self.take_out(slot, by) else {
            return false;
        };
        self.run.others.remove(&slot);
        self.run.came.remove(&slot);
        self.run.gone.insert(former.name);
        true
    }

    /// Takes a view out. What saw a sidecar forgets it by and by.
    fn take_out(&mut self, slot: Slot, by: Option<&str>) -> Option<View> {
        if self.views.of_sidecars().has(slot) {
            return self.visit_gone(slot, by);
        }
        let former = self.views.remove(slot)?.view;
        self.release_view(slot);
        self.visits.leave(slot);
        self.mark_view(slot, [Some(former.role), None]);
        self.forget_waiting(slot);
        Some(former)
    }

    /// Lets units that may run later forget a gateway's view that is gone: its place is given to
    /// another before they do.
    fn forget_waiting(&mut self, slot: Slot) {
        let mut run = std::mem::take(&mut self.run);
        let units = self.units.iter_ids();
        let waiting = units.filter(|(_, record)| record.unit().kind().may_wait);
        let waiting = waiting.filter(|(id, _)| self.units.seen(*id).has(slot));
        let waiting: Vec<(UnitId, Unit)> = waiting
            .map(|(id, record)| (id, record.unit().clone()))
            .collect();
        for (id, unit) in waiting {
            self.partings.leave(id, slot);
            let restamped = self.units.move_view(id, slot, None);
            self.settle_moved(&unit, restamped, &mut run);
            self.prune_needs(id, &mut run);
            let mut seen = self.units.seen(id);
            seen.remove(slot);
            self.units.set_seen(id, seen);
        }
        self.run = run;
    }

    /// Lets the wildcards be read again by all below them, once there is another view than the main
    /// one: nobody noted what was asked of it as long as it was alone.
    fn ask_wildcards(&mut self) {
        let mut run = std::mem::take(&mut self.run);
        for (id, meanings) in &mut self.meanings {
            meanings.hash = !meanings.hash;
            if let Some(record) = self.units.get(*id) {
                run.add(record.unit().clone(), *id, true);
            }
        }
        self.run = run;
    }

    /// Lets go of the snapshot of a view that is gone.
    pub(super) fn release_view(&mut self, slot: Slot) {
        let snapshot = self.writer.snapshot_at(slot);
        for sealed in snapshot.iter().flat_map(|it| it.iter()) {
            self.parts.release(sealed);
        }
        self.writer.remove_view(slot);
    }

    /// Adds the view of a sidecar, which costs what it sees.
    fn add_sidecar(&mut self, slot: Slot, view: View) {
        self.views.place(slot, view);
        self.settle_scope(slot);
        self.writer.add_view(slot);
        self.visit_new(slot);
    }

    /// Whether a question to a view asks for no label, or for one that is named. Gateways share no
    /// view, so that they may be asked for any.
    pub(super) fn is_named(&self, view: &View, question: &Question) -> bool {
        match question {
            Question::HasLabel(key, _) if view.role == Role::Sidecar => {
                self.naming.has(&view.namespace, key)
            }
            _ => true,
        }
    }

    /// Notes the labels that a changed object names.
    pub(super) fn note_named(&mut self, before: Option<&Object>, after: Option<&Object>) {
        if !self.settings.sidecars {
            return;
        }
        let (named, settings, naming) = (self.rules.named, &self.settings, &mut self.naming);
        // The new ones first, so that what stays does not move.
        if let Some(object) = after {
            let by = object.key().namespace();
            named(object, settings, &mut |whose, key| {
                naming.insert(whose, key, by);
            });
        }
        if let Some(object) = before {
            let by = object.key().namespace();
            named(object, settings, &mut |whose, key| {
                naming.remove(whose, key, by);
            });
        }
    }

    /// All views with their newest snapshots, the main one first.
    pub fn views(&self) -> impl Iterator<Item = (&View, Snapshot)> {
        let views = self.views.iter();
        views.filter_map(|(slot, standing)| Some((&standing.view, self.writer.snapshot_at(slot)?)))
    }

    /// The newest snapshot of a view.
    pub fn snapshot_of(&self, name: &str) -> Option<Snapshot> {
        self.writer.snapshot_at(self.views.find(name)?)
    }

    /// Settles what the view at a place may reach, by the Sidecar that is for it. Returns whether
    /// that differs.
    pub(super) fn settle_scope(&mut self, slot: Slot) -> bool {
        let standing = self.views.get(slot);
        let Some(standing) = standing.filter(|it| it.view.role == Role::Sidecar) else {
            return false;
        };
        let scope = (self.rules.scope)(self.stored(), &self.settings, &standing.view);
        self.views.set_scope(slot, scope)
    }

    /// Takes what is accepted for a workload out of a view that is another's now: what that one
    /// accepts bears the same names.
    fn forget_workload(&mut self, slot: Slot, workload: &Arc<Workload>) {
        let unit = (self.rules.workload)(workload.clone());
        let found = self.units.find(&self.hasher, &unit);
        let Some((id, record)) = found.and_then(|id| Some((id, self.units.get(id)?))) else {
            return;
        };
        let keys = record.outputs();
        let delta = self.run.delta_of(slot);
        let changes = self.writer.replace_at(slot, &keys, &[], delta);
        self.parts.count(changes);
        self.run.work.resources_changed += changes.len() as u64;
        let mut seen = self.units.seen(id);
        seen.remove(slot);
        self.units.set_seen(id, seen);
    }

    /// Marks what is accepted for a workload.
    fn mark_workload(&mut self, workload: Arc<Workload>) {
        let mut run = std::mem::take(&mut self.run);
        self.root((self.rules.workload)(workload), &mut run);
        self.root((self.rules.elsewhere)(), &mut run);
        self.run = run;
    }

    /// The listeners that every gateway has but those of one Gateway alone. The default certificate
    /// is for Ingresses.
    pub(super) fn listeners(&self, role: Role) -> Vec<(Name, Resource)> {
        if matches!(role, Role::Sidecar | Role::Dedicated) {
            return Vec::new();
        }
        let listener = |address, tls, default_certificate| Resource {
            origin: Origin::settings(),
            value: Value::Listener(Box::new(Listener {
                address,
                tls,
                default_certificate,
                protocol: ListenerProtocol::Http,
                capture: None,
            })),
        };
        let default_certificate = match role {
            Role::Ingress => self.shared.default_certificate.clone(),
            Role::Gateway | Role::Dedicated | Role::Sidecar => None,
        };
        let https = listener(self.settings.https, true, default_certificate);
        vec![
            ("http".into(), listener(self.settings.http, false, None)),
            ("https".into(), https),
        ]
    }

    /// The deltas of the views that are still there, by their names.
    pub(super) fn name_deltas(
        &self,
        mut deltas: BTreeMap<Slot, Delta>,
        came: &BTreeSet<Slot>,
    ) -> Vec<(Arc<str>, Delta)> {
        deltas.retain(|slot, delta| !delta.is_empty() || came.contains(slot));
        for slot in came.iter().filter(|slot| **slot != MAIN_SLOT) {
            deltas.entry(*slot).or_default();
        }
        let deltas = deltas.into_iter();
        deltas
            .filter_map(|(slot, delta)| Some((self.views.get(slot)?.view.name.clone(), delta)))
            .collect()
    }

    fn settle_listeners(&mut self, slot: Slot, listeners: Vec<(Name, Resource)>) {
        let listeners = listeners.into_iter();
        let all = self.views.all();
        let sealed: Vec<SealedArc> = listeners
            .map(|(name, resource)| self.writer.seal(name, resource, all.iter()))
            .collect();
        let delta = self.run.delta_of(slot);
        // One that was a gateway had them.
        let former = ["http", "https"].map(|name| Key::new(Kind::Listener, Name::from(name)));
        let changes = self.writer.replace_at(slot, &former, &sealed, delta);
        self.run.work.resources_changed += changes.len() as u64;
    }

    /// Claims the ports on the proxies of a new gateway. A walk over all units.
    fn claim_all_ports(&mut self, slot: Slot) {
        let mut claims = Vec::new();
        let view = self.views.get(slot).map(|standing| &standing.view);
        let Some(view) = view.filter(|view| view.role != Role::Dedicated) else {
            return;
        };
        for record in self.units.iter() {
            let unit = record.unit();
            let (Some(of), Some((kind, id))) = (unit.kind().ports, unit.object()) else {
                continue;
            };
            if let Some(object) = self.objects.get(&self.hasher, kind, id) {
                let mut of_object = of(&object, view, &self.settings);
                self.late.age(&mut of_object);
                claims.push((object.key().clone(), of_object));
            }
        }
        if let Some(standing) = self.views.get_mut(slot) {
            for (key, claims) in claims {
                standing.ports.state(&key, claims);
            }
        }
    }

    /// Marks whatever may be seen in a gateway's view that is new or gone, or in any that is
    /// replaced: units that are there by themselves, and those that were translated for it. A
    /// walk over all units.
    fn mark_view(&mut self, slot: Slot, roles: [Option<Role>; 2]) {
        let is_ingress = roles.contains(&Some(Role::Ingress));
        let is_sidecar = roles.contains(&Some(Role::Sidecar));
        let is_gateway = is_ingress || roles.contains(&Some(Role::Gateway));
        let mut marked = Vec::new();
        for (id, record) in self.units.iter_ids() {
            let unit = record.unit();
            let is_root = match unit.viewers(&self.settings) {
                Viewers::Ingress | Viewers::NeededAndIngress => is_ingress,
                Viewers::All => true,
                Viewers::Namespace | Viewers::Entered => self.wanted(unit, id).has(slot),
                Viewers::Reaching | Viewers::Sidecars => is_sidecar,
                Viewers::Gateways => is_gateway && unit.own_kind().is_some(),
                Viewers::Main => slot == MAIN_SLOT,
                Viewers::Needed | Viewers::Workload => false,
            };
            // As long as there is one view it is not noted what is for it: all is.
            if is_root || self.views.is_single() || self.units.seen(id).has(slot) {
                marked.push((record.unit().clone(), id));
            }
        }
        for (unit, id) in marked {
            self.run.add(unit, id, true);
        }
    }
}
