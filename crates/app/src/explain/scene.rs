//! The tables and objects that explanations are read from.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_proxy::route::tables::Tables;

/// The tables and objects that an explanation is read from.
pub struct Scene {
    pub(super) tables: Arc<Tables>,
    /// Every host that is known, for the names that were perhaps meant.
    pub(super) hosts: BTreeSet<Box<str>>,
    /// How many proxies in front are believed; none where no proxy is asked.
    pub(super) trusted_hops: usize,
}

impl Scene {
    /// The tables that requests are answered from.
    pub fn of_tables(tables: Arc<Tables>, trusted_hops: usize) -> Scene {
        let hosts = tables.hosts().map(|host| host.as_str().into()).collect();
        Scene {
            tables,
            hosts,
            trusted_hops,
        }
    }
}
