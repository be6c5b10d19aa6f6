//! Policies over all requests of a listener, as the tables hold them.

use std::sync::Arc;

use myriad_model::{
    AccessCheck, AccessPolicy, Authenticate, Authorize, Name, SealedArc, TokenIssuer,
};

use super::keys::{IssuerKeys, KeySlot};

/// All access policies at one moment, in the order of their names. There are few: one for each
/// policy that people wrote for the gateway.
#[derive(Clone, Default)]
pub struct AccessPolicies {
    entries: Arc<[Arc<AccessPolicyEntry>]>,
}

/// An access policy, with the keys of its issuers.
pub struct AccessPolicyEntry {
    sealed: SealedArc,
    /// One for each issuer.
    keys: Box<[IssuerKeys]>,
}

impl AccessPolicies {
    /// Whether nothing is guarded.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sealed access policies.
    pub fn iter(&self) -> impl Iterator<Item = &SealedArc> {
        self.entries.iter().map(|entry| &entry.sealed)
    }

    /// The access policies of a listener that admit and refuse.
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
            .filter_map(|(entry, access_policy)| match &access_policy.check {
                AccessCheck::Authorize(authorize) => Some((&entry.sealed, authorize)),
                AccessCheck::Authenticate(_) => None,
            })
    }

    /// The issuers of tokens that are known on a listener.
    pub fn issuers<'a>(
        &'a self,
        listener: &'a Name,
    ) -> impl Iterator<Item = (&'a TokenIssuer, &'a IssuerKeys)> {
        self.on(listener)
            .filter_map(|(entry, access_policy)| Some((entry, authenticate(access_policy)?)))
            .flat_map(|(entry, check)| check.issuers.iter().zip(&entry.keys))
    }

    /// The issuers of tokens that are known on any listener.
    pub fn all_issuers(&self) -> impl Iterator<Item = &TokenIssuer> {
        let access_policies = self
            .entries
            .iter()
            .filter_map(|entry| entry.sealed.access_policy());
        let checks = access_policies.filter_map(authenticate);
        checks.flat_map(|check| check.issuers.iter())
    }

    /// The keys that are fetched.
    pub fn slots(&self) -> impl Iterator<Item = &Arc<KeySlot>> {
        let keys = self.entries.iter().flat_map(|entry| &entry.keys);
        keys.filter_map(|keys| match keys {
            IssuerKeys::Fetched(slot) => Some(slot),
            IssuerKeys::Own(_) => None,
        })
    }

    /// These access policies with one of them put in, replaced or taken out.
    #[must_use]
    pub fn with(&self, name: &Name, new: Option<&SealedArc>) -> AccessPolicies {
        let others = self.entries.iter();
        let others = others.filter(|entry| entry.sealed.name() != name).cloned();
        let mut entries: Vec<Arc<AccessPolicyEntry>> = others.collect();
        entries.extend(new.map(|sealed| Arc::new(self.entry(sealed))));
        entries.sort_by(|a, b| a.sealed.name().cmp(b.sealed.name()));
        AccessPolicies {
            entries: entries.into(),
        }
    }

    fn entry(&self, sealed: &SealedArc) -> AccessPolicyEntry {
        let issuers = sealed.access_policy().and_then(authenticate);
        let issuers = issuers.map_or(&[][..], |check| &check.issuers);
        let keys = issuers
            .iter()
            .map(|issuer| IssuerKeys::of(&issuer.keys, self.slots().cloned()));
        AccessPolicyEntry {
            keys: keys.collect(),
            sealed: sealed.clone(),
        }
    }

    fn on<'a>(
        &'a self,
        listener: &'a Name,
    ) -> impl Iterator<Item = (&'a AccessPolicyEntry, &'a AccessPolicy)> + Clone {
        self.entries.iter().filter_map(move |entry| {
            let access_policy = entry.sealed.access_policy()?;
            // Policies are for who comes in, not for where a workload goes.
            let is_for_all = access_policy.listeners.is_empty() && !is_outbound(listener);
            let is_on = is_for_all || access_policy.listeners.contains(listener);
            is_on.then_some((&**entry, access_policy))
        })
    }
}

/// Whether a listener is of connections that a workload opens.
fn is_outbound(listener: &Name) -> bool {
    listener.as_str().starts_with("outbound/")
}

fn authenticate(access_policy: &AccessPolicy) -> Option<&Authenticate> {
    match &access_policy.check {
        AccessCheck::Authenticate(check) => Some(check),
        AccessCheck::Authorize(_) => None,
    }
}
