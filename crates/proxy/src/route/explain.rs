//! The contents of the tables around a name, for people who ask why. Nothing here is called by a
//! request.

use myriad_model::{Host, Name, SealedArc};

use super::entry::RouteEntry;
use super::leaf::Hosted as _;
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

    /// The host pattern among whose routes [`Tables::route`] looks for one, with its routes in
    /// the order of precedence.
    pub fn routes_for(&self, listener: &Name, name: &str) -> Option<(&Host, &[RouteEntry])> {
        let (_, entry) = self.served(listener, name)?;
        Some((entry.host(), entry.routes()))
    }
}
