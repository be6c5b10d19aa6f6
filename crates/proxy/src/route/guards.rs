//! Policies over all requests of a listener, as the tables hold them.

use std::sync::Arc;

use myriad_model::{Authenticate, Authorize, Guard, GuardCheck, Name, SealedArc, TokenIssuer};

use super::keys::{KeySlot, Keys};

/// All guards at one moment, in the order of their names. There are few: one for each policy
/// that people wrote for the gateway.
#[derive(Clone, Default)]
pub struct Guards {
    entries: Arc<[Arc<GuardEntry>]>,
}

/// A guard, with the keys of its issuers.
pub struct GuardEntry {
    sealed: SealedArc,
    /// One for each issuer.
    keys: Box<[Keys]>,
}

impl Guards {
    /// Whether nothing is guarded.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sealed guards.
    pub fn iter(&self) -> impl Iterator<Item = &SealedArc> {
        self.entries.iter().map(|entry| &entry.sealed)
    }

    /// The guards of a listener that admit and refuse.
    pub fn authorizing<'a>(
        &'a self,
        listener: &'a Name,
    ) -> impl Iterator<Item = &'a Authorize> + Clone {
        self.authorizing_by_name(listener)
            .map(|(_, authorize)| authorize)
    }

    /// The same with their resources.
    pub fn authorizing_by_name<'a>(
        &'a self,
        listener: &'a Name,
    ) -> impl Iterator<Item = (&'a SealedArc, &'a Authorize)> + Clone {
        self.on(listener)
            .filter_map(|(entry, guard)| match &guard.check {
                GuardCheck::Authorize(authorize) => Some((&entry.sealed, authorize)),
                GuardCheck::Authenticate(_) => None,
            })
    }

    /// The issuers of tokens that are known on a listener.
    pub fn issuers<'a>(
        &'a self,
        listener: &'a Name,
    ) -> impl Iterator<Item = (&'a TokenIssuer, &'a Keys)> {
        self.on(listener)
            .filter_map(|(entry, guard)| Some((entry, authenticate(guard)?)))
            .flat_map(|(entry, check)| check.issuers.iter().zip(&entry.keys))
    }

    /// The issuers of tokens that are known on any listener.
    pub fn all_issuers(&self) -> impl Iterator<Item = &TokenIssuer> {
        let guards = self.entries.iter().filter_map(|entry| entry.sealed.guard());
        let checks = guards.filter_map(authenticate);
        checks.flat_map(|check| check.issuers.iter())
    }

    /// The keys that are fetched.
    pub fn slots(&self) -> impl Iterator<Item = &Arc<KeySlot>> {
        let keys = self.entries.iter().flat_map(|entry| &entry.keys);
        keys.filter_map(|keys| match keys {
            Keys::Fetched(slot) => Some(slot),
            Keys::Own(_) => None,
        })
    }

    /// These guards with one of them put in, replaced or taken out.
    #[must_use]
    pub fn with(&self, name: &Name, new: Option<&SealedArc>) -> Guards {
        let others = self.entries.iter();
        let others = others.filter(|entry| entry.sealed.name() != name).cloned();
        let mut entries: Vec<Arc<GuardEntry>> = others.collect();
        entries.extend(new.map(|sealed| Arc::new(self.entry(sealed))));
        entries.sort_by(|a, b| a.sealed.name().cmp(b.sealed.name()));
        Guards {
            entries: entries.into(),
        }
    }

    fn entry(&self, sealed: &SealedArc) -> GuardEntry {
        let issuers = sealed.guard().and_then(authenticate);
        let issuers = issuers.map_or(&[][..], |check| &check.issuers);
        let keys = issuers
            .iter()
            .map(|issuer| Keys::of(&issuer.keys, self.slots().cloned()));
        GuardEntry {
            keys: keys.collect(),
            sealed: sealed.clone(),
        }
    }

    fn on<'a>(
        &'a self,
        listener: &'a Name,
    ) -> impl Iterator<Item = (&'a GuardEntry, &'a Guard)> + Clone {
        self.entries.iter().filter_map(move |entry| {
            let guard = entry.sealed.guard()?;
            // Policies are for who comes in, not for where a workload goes.
            let is_for_all = guard.listeners.is_empty() && !is_outbound(listener);
            let is_on = is_for_all || guard.listeners.contains(listener);
            is_on.then_some((&**entry, guard))
        })
    }
}

/// Whether a listener is of connections that a workload opens.
fn is_outbound(listener: &Name) -> bool {
    listener.as_str().starts_with("outbound/")
}

fn authenticate(guard: &Guard) -> Option<&Authenticate> {
    match &guard.check {
        GuardCheck::Authenticate(check) => Some(check),
        GuardCheck::Authorize(_) => None,
    }
}
