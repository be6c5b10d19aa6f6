//! The namespace that serves a host, for whoever shares out what is short before a route is known.

use myriad_model::Name;

use super::tables::Tables;
use crate::admission::share::Owner;

impl Tables {
    /// The hash of the namespace whose routes serve a lower-case host on a listener: that of the
    /// first of them, where there are several. None for a host without routes.
    pub fn namespace_of(&self, listener: &Name, host: &str) -> Option<u64> {
        // Those on listeners of others may be a stranger's.
        let (listener, entry) = self.served(listener, host)?;
        let (origin, host) = entry.first_on(listener)?.owner()?;
        Some(Owner::of(origin, host).namespace)
    }
}
