//! The tables and objects that explanations are read from.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_base::clock;
use myriad_model::{Endpoints, Key, Kind, SealedArc};
use myriad_proxy::route::tables::Tables;

use crate::board;

/// The tables and objects that an explanation is read from.
pub struct Scene {
    pub(super) tables: Arc<Tables>,
    /// Every host that is known, for the names that were perhaps meant.
    pub(super) hosts: BTreeSet<Box<str>>,
    /// How many proxies in front are believed; none where no proxy is asked.
    pub(super) trusted_hops: usize,
    /// All that concerns the names that are asked about, where it was looked for.
    pub(super) concerned: Concerned,
    /// The moment that it is of, in seconds since the epoch; none for the present.
    pub(super) at_unix: Option<i64>,
}

/// The resources that concern some names, there or missing, and the objects that they came from.
#[derive(Debug, Default)]
pub struct Concerned {
    keys: BTreeSet<Key>,
    objects: BTreeSet<ObjectKey>,
}

impl Scene {
    /// The tables that requests are answered from.
    pub fn of_tables(tables: Arc<Tables>, trusted_hops: usize) -> Scene {
        let hosts = tables.hosts().map(|host| host.as_str().into()).collect();
        Scene {
            tables,
            hosts,
            trusted_hops,
            concerned: Concerned::default(),
            at_unix: None,
        }
    }

    /// The moment that it is of, in seconds since the epoch.
    pub(super) fn now_unix(&self) -> i64 {
        self.at_unix.unwrap_or_else(clock::unix_seconds)
    }
}

impl Concerned {
    /// The resources that are there, which have values, and those that they refer to.
    pub(super) fn of(there: &[SealedArc], needed: BTreeSet<Key>) -> Concerned {
        let mut concerned = Concerned {
            keys: needed,
            objects: BTreeSet::new(),
        };
        for sealed in there {
            concerned.keys.insert(sealed.key().clone());
            let Some(resource) = sealed.resource() else {
                continue;
            };
            // Rows of a block have origins of their own.
            for at in 0..resource.value.routes_len().max(1) {
                let object = board::object_of(resource.origin_of(at));
                concerned.objects.extend(object);
            }
        }
        concerned
    }

    /// Whether a resource is among them, or has some of the endpoints of one.
    pub fn has_resource(&self, key: &Key) -> bool {
        let is_part = || {
            let upstream = Endpoints::upstream_of(&key.name);
            self.keys.contains(&Key::new(Kind::Endpoints, upstream))
        };
        self.keys.contains(key) || key.kind == Kind::Endpoints && is_part()
    }

    /// Whether an object is among them.
    pub fn has_object(&self, object: &ObjectKey) -> bool {
        self.objects.contains(object)
    }

    /// Takes in what concerns the same names at another moment.
    pub fn join(&mut self, other: Concerned) {
        self.keys.extend(other.keys);
        self.objects.extend(other.objects);
    }
}
