//! Views that come, change and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Object, ObjectKind};
use myriad_model::{
    Delta, Listener, ListenerProtocol, Name, Origin, Resource, SealedArc, Snapshot, Value,
};

use super::Engine;
use super::stamp::{MAIN_SLOT, Slot};
use super::views::TooManyViews;
use crate::istio;
use crate::output::Unit;
use crate::view::{Role, View};

impl Engine {
    /// Adds a view, or replaces the one of its name. The next outcome carries what is seen in it.
    ///
    /// # Errors
    /// There are too many.
    pub fn put_view(&mut self, view: View) -> Result<(), TooManyViews> {
        let slot = self.views.room_for(&view.name)?;
        let known = self.views.get(slot).map(|standing| &standing.view);
        if known.is_some_and(|known| known.is_like(&view)) {
            return Ok(());
        }
        if slot != MAIN_SLOT {
            self.units.note_views();
        }
        let role = view.role;
        let former = self.views.place(slot, view);
        self.claim_all_ports(slot);
        self.writer.add_view(slot);
        self.settle_listeners(slot, self.listeners(role));
        self.mark_view(slot, [former.map(|former| former.role), Some(role)]);
        Ok(())
    }

    /// Takes a view away with its snapshot, and says whether it was there. The main view stays.
    pub fn remove_view(&mut self, name: &str) -> bool {
        let slot = self.views.find(name).filter(|slot| *slot != MAIN_SLOT);
        let removed = slot.and_then(|slot| Some((slot, self.views.remove(slot)?)));
        let Some((slot, former)) = removed else {
            return false;
        };
        let snapshot = self.writer.snapshot_at(slot);
        for sealed in snapshot.iter().flat_map(|it| it.iter()) {
            if let Some(route) = sealed.route() {
                self.policies.release(&route.policy);
            }
        }
        self.writer.remove_view(slot);
        self.run.others.remove(&slot);
        self.mark_view(slot, [Some(former.role), None]);
        true
    }

    /// All views with their newest snapshots, the main one first.
    pub fn views(&self) -> impl Iterator<Item = (&View, &Snapshot)> {
        let views = self.views.iter();
        views.filter_map(|(slot, standing)| Some((&standing.view, self.writer.snapshot_at(slot)?)))
    }

    /// The newest snapshot of a view.
    pub fn snapshot_of(&self, name: &str) -> Option<&Snapshot> {
        self.writer.snapshot_at(self.views.find(name)?)
    }

    /// The listeners that every gateway has. The default certificate is for Ingresses.
    pub(super) fn listeners(&self, role: Role) -> Vec<(Name, Resource)> {
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
            Role::Gateway => None,
        };
        let https = listener(self.settings.https, true, default_certificate);
        vec![
            ("http".into(), listener(self.settings.http, false, None)),
            ("https".into(), https),
        ]
    }

    /// The deltas of the views that are still there, by their names.
    pub(super) fn name_deltas(&self, deltas: BTreeMap<Slot, Delta>) -> Vec<(Arc<str>, Delta)> {
        let deltas = deltas.into_iter().filter(|(_, delta)| !delta.is_empty());
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
        let changes = self.writer.replace_at(slot, &[], &sealed, delta);
        self.run.work.resources_changed += changes.len() as u64;
    }

    /// Who has which port on the proxies of a new view. A walk over all Gateways.
    fn claim_all_ports(&mut self, slot: Slot) {
        let mut claims = Vec::new();
        let Some(view) = self.views.get(slot).map(|standing| &standing.view) else {
            return;
        };
        for record in self.units.iter() {
            let Unit::Gateway(id) = record.unit() else {
                continue;
            };
            let found = self.objects.get(&self.hasher, ObjectKind::IstioGateway, id);
            if let Some(Object::IstioGateway(gateway)) = found {
                claims.push(istio::claims(Some(&gateway), view, &self.settings));
            }
        }
        if let Some(standing) = self.views.get_mut(slot) {
            for claims in claims {
                standing.ports.replace(&BTreeMap::new(), &claims);
            }
        }
    }

    /// Marks whatever may be seen in a view that is new, other or gone: units that are there by
    /// themselves, and those that were translated for it. A walk over all units.
    fn mark_view(&mut self, slot: Slot, roles: [Option<Role>; 2]) {
        let is_ingress = roles.contains(&Some(Role::Ingress));
        let mut marked = Vec::new();
        for (id, record) in self.units.iter_ids() {
            let is_root = match record.unit() {
                Unit::Ingress(_) => is_ingress,
                Unit::Certificate(id) => is_ingress && self.is_default_certificate(id),
                Unit::Provider(_) => true,
                unit => unit.own_kind().is_some(),
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
