//! The namespace that serves a host, for whoever shares out what is short before a route is known.

use myriad_model::Name;

use super::tables::Tables;
use crate::admission::share::Owner;

impl Tables {
    /// The hash of the namespace whose routes serve a lower-case host on a listener: that of the
    /// first of them, where there are several. None for a host without routes.
    pub fn namespace_of(&self, listener: &Name, host: &str) -> Option<u64> {
        let (_, entry) = self.served(listener, host)?;
        let (origin, host) = entry.routes().first()?.owner()?;
        Some(Owner::of(origin, host).namespace)
    }
}
