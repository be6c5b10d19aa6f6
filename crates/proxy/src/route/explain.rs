//! The contents of the tables around a name, for people who ask why. Nothing here is called by a
//! request.

use std::sync::Arc;

use myriad_model::{Host, Name, SealedArc};

use super::entry::RouteEntry;
use super::host::HostEntry;
use super::leaf::{Hosted as _, has_listener};
use super::tables::Tables;

impl Tables {
    /// All listeners, by name.
    pub fn listeners(&self) -> &[SealedArc] {
        &self.listeners
    }

    /// All host patterns that have routes or a domain, in no particular order; some twice.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        let hosts = self.hosts.iter().map(|entry| entry.host());
        hosts.chain(self.domains.iter().map(|entry| entry.host()))
    }

    /// The resource behind [`Tables::domain`].
    pub fn domain_resource(&self, listener: &Name, name: &str) -> Option<&SealedArc> {
        self.domains.most_specific(name, |entry| {
            let mut domains = entry.domains.iter();
            domains.find(|sealed| {
                let domain = sealed.domain();
                domain.is_some_and(|domain| has_listener(&domain.listeners, listener))
            })
        })
    }

    /// The host pattern among whose routes [`Tables::route`] looks for one, with its routes in
    /// the order of precedence.
    pub fn routes_for(&self, listener: &Name, name: &str) -> Option<(&Host, &[RouteEntry])> {
        let accept = |entry: &'_ Arc<HostEntry>| entry.is_on(listener);
        let entry = self
            .hosts
            .most_specific(name, |entry| accept(entry).then_some(entry))?;
        Some((entry.host(), entry.routes()))
    }
}
