//! Units: keyed functions. The engine knows how each kind of unit behaves, and not what it is for.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use myriad_api::{Object, ObjectKey, ObjectKind};
use myriad_model::{Host, Key};

use super::ports::{PortClaim, PortKey};
use crate::settings::Settings;
use crate::store::FactHasher;
use crate::view::{View, Workload};

/// The number of a unit, used again after it is gone.
pub(super) type UnitId = u32;

/// A keyed function. The order is the one in which units run: whoever needs runs first, so that
/// each unit runs at most once in a batch.
#[derive(Clone)]
pub struct Unit {
    kind: &'static UnitKind,
    key: UnitKey,
}

/// A key of a unit among those of its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnitKey {
    /// There is one unit of the kind.
    Alone,
    /// A name, such as the `namespace/name` of an object.
    Name(Arc<str>),
    /// An object.
    Object(ObjectKind, Arc<str>),
    /// A host pattern.
    Host(Host),
    /// A port of gateways.
    Port(PortKey),
    /// Where captured connections were meant to go, none for any address, and what is said of it.
    Capture(Option<IpAddr>, u16, u8),
    /// A workload beside whom there is a sidecar.
    Workload(Arc<Workload>),
}

/// A kind of unit, and how the engine treats it. Two kinds differ in their ranks.
pub struct UnitKind {
    /// The name, for people.
    pub name: &'static str,
    /// The place in the order in which units run.
    pub rank: u8,
    /// The kind of the object that a unit bears the name of and is there with, for units that
    /// nobody has to need.
    pub own: Own,
    /// How long a unit stays.
    pub stays: fn(&Unit, &Settings) -> Stays,
    /// The views that a unit is translated for.
    pub viewers: fn(&Unit, &Settings) -> Viewers,
    /// The resources that bear a unit's own name, so that they need not be stored.
    pub makes: fn(&UnitKey, &mut Vec<Key>),
    /// Whether all that a unit makes is stored, since nothing of it bears its name.
    pub stores_all: bool,
    /// The relation of a unit to those that it needs.
    pub bond: Bond,
    /// Whether a unit's object is told whether it is served: whether its unit needs any other.
    pub has_status: bool,
    /// The ports that an object claims on the proxies of a view.
    pub ports: Option<PortClaims>,
    /// Whether a unit makes such claims itself, in the views that it is translated for.
    pub claims_ports: bool,
    /// The fact of an object and a host that others read for how long it claims the host.
    pub claim_fact: Option<fn(&FactHasher, &str, &Host) -> u64>,
    /// The seat that its units claim for a name, where an object claims names and no hosts.
    pub claim_seat: Option<fn(&FactHasher, &Host) -> u64>,
    /// The seat of the claims to a host that others let in, where an object has hosts so.
    pub entered_seat: Option<fn(&FactHasher, &Host) -> u64>,
    /// The seat of the claims to a host by objects that name it, where others may keep an object
    /// from it.
    pub named_seat: Option<fn(&FactHasher, &Host) -> u64>,
    /// Whether it needs the hosts that its object names as far as others let it in, and no claim to
    /// a seat says so.
    pub is_let_in: bool,
    /// Whether it may run after the batch that marked it, where that takes too long: nothing that
    /// ran needs what it makes, but for what it made before.
    pub may_wait: bool,
    /// Whether it may do so where its own object is as it was and it only read what is other now.
    /// Until then it says what it said before, and whoever relies on that looks at the objects.
    pub waits_woken: bool,
    /// Whether its views may follow one after the other where it changes in very many: with what a
    /// view has of others fits what it has of this one before.
    pub in_turns: bool,
    /// Whether a view may part from the others without it running for those: it states nothing,
    /// needs nothing and reads the same for every view.
    pub parts_alone: bool,
}

/// The ports that an object claims on the proxies of a view.
pub(super) type PortClaims = fn(&Object, &View, &Settings) -> BTreeMap<PortKey, PortClaim>;

/// The object that a unit is there with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// None.
    Nothing,
    /// One of this kind, by its `namespace/name`.
    Of(ObjectKind),
    /// The one that is its key.
    Key,
}

/// How long a unit stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// As long as any other needs it.
    WhileNeeded,
    /// As long as its object is there.
    WithObject,
    /// As long as its object is beyond what its namespace may hold.
    WhileBeyond,
    /// As long as there is a view that it is for.
    WithViewers,
    /// For ever.
    Always,
}

/// The views that a unit is translated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewers {
    /// The views for which others need it.
    Needed,
    /// The same, and those that answer for Ingresses.
    NeededAndIngress,
    /// Views that answer for Ingresses.
    Ingress,
    /// Views of gateways, but for those of single Gateways of Gateway API.
    Gateways,
    /// Views of sidecars.
    Sidecars,
    /// All views.
    All,
    /// The main view, whatever others there are: of what is the same in all of them.
    Main,
    /// Views of gateways, and those of single Gateways of Gateway API that it says it enters.
    Entered,
    /// Views of the namespace of its object, and those of gateways; of the root namespace, all.
    Namespace,
    /// Sidecars that may reach its object.
    Reaching,
    /// Sidecars of its workload.
    Workload,
}

/// The relation of a unit to those that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bond {
    /// Whether they read who needs them, and so run again when that differs.
    pub is_read: bool,
    /// Whether they read its object whole, and so run whenever it did.
    pub is_read_whole: bool,
    /// Whether they ask each view by whom they are needed there, and so look again at those views
    /// alone for which that differs.
    pub is_read_by_view: bool,
}

impl Bond {
    /// Nobody reads who needs it.
    pub const NONE: Bond = Bond {
        is_read: false,
        is_read_whole: false,
        is_read_by_view: false,
    };

    /// It is read who needs it.
    pub const READ: Bond = Bond {
        is_read: true,
        ..Bond::NONE
    };
}

impl UnitKind {
    /// A kind of units that others need, and of which nothing bears its own name.
    pub const fn needed(name: &'static str, rank: u8) -> UnitKind {
        UnitKind {
            name,
            rank,
            own: Own::Nothing,
            stays: |_, _| Stays::WhileNeeded,
            viewers: |_, _| Viewers::Needed,
            makes: |_, _| {},
            stores_all: false,
            bond: Bond::NONE,
            has_status: false,
            ports: None,
            claims_ports: false,
            claim_fact: None,
            claim_seat: None,
            entered_seat: None,
            named_seat: None,
            is_let_in: false,
            may_wait: false,
            waits_woken: false,
            in_turns: false,
            parts_alone: false,
        }
    }

    /// A kind of units that are there with their objects.
    pub const fn of_object(name: &'static str, rank: u8, own: Own) -> UnitKind {
        UnitKind {
            own,
            stays: |_, _| Stays::WithObject,
            viewers: |_, _| Viewers::Gateways,
            bond: Bond::READ,
            ..UnitKind::needed(name, rank)
        }
    }
}

impl Unit {
    /// The unit of a kind and key.
    pub fn new(kind: &'static UnitKind, key: UnitKey) -> Unit {
        Unit { kind, key }
    }

    /// The unit of a kind and name.
    pub fn named(kind: &'static UnitKind, name: Arc<str>) -> Unit {
        Unit::new(kind, UnitKey::Name(name))
    }

    /// The unit of a kind and object.
    pub fn of_object(kind: &'static UnitKind, key: &ObjectKey) -> Unit {
        Unit::new(kind, UnitKey::Object(key.kind, key.id().clone()))
    }

    /// The kind.
    pub fn kind(&self) -> &'static UnitKind {
        self.kind
    }

    /// Whether the unit is of a kind.
    pub fn is(&self, kind: &UnitKind) -> bool {
        self.kind.rank == kind.rank
    }

    /// The key.
    pub fn key(&self) -> &UnitKey {
        &self.key
    }

    /// The name that is its key.
    pub fn name(&self) -> Option<&Arc<str>> {
        match &self.key {
            UnitKey::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The host pattern that is its key.
    pub fn host(&self) -> Option<&Host> {
        match &self.key {
            UnitKey::Host(host) => Some(host),
            _ => None,
        }
    }

    /// The port of gateways that is its key.
    pub fn port(&self) -> Option<&PortKey> {
        match &self.key {
            UnitKey::Port(port) => Some(port),
            _ => None,
        }
    }

    /// The kind of the object that the unit is there with, for units that nobody has to need.
    pub fn own_kind(&self) -> Option<ObjectKind> {
        match (self.kind.own, &self.key) {
            (Own::Of(kind), _) => Some(kind),
            (Own::Key, UnitKey::Object(kind, _)) => Some(*kind),
            _ => None,
        }
    }

    /// The object that is its key, or that it is there with, by kind and `namespace/name`.
    pub fn object(&self) -> Option<(ObjectKind, &Arc<str>)> {
        match (&self.key, self.kind.own) {
            (UnitKey::Object(kind, id), _) => Some((*kind, id)),
            (UnitKey::Name(id), Own::Of(kind)) => Some((kind, id)),
            _ => None,
        }
    }

    /// The key of that object.
    pub fn object_key(&self) -> Option<ObjectKey> {
        let (kind, id) = self.object()?;
        Some(ObjectKey::from_id(kind, id.clone()))
    }

    /// The namespace of that object.
    pub fn namespace(&self) -> Option<&str> {
        self.object().map(|(_, id)| namespace_of(id))
    }

    /// How long it stays.
    pub fn stays(&self, settings: &Settings) -> Stays {
        (self.kind.stays)(self, settings)
    }

    /// The views that it is translated for.
    pub fn viewers(&self, settings: &Settings) -> Viewers {
        (self.kind.viewers)(self, settings)
    }

    /// The namespace whose workloads it is for, of units that sidecars are led to by it.
    pub fn held_in(&self, settings: &Settings) -> Option<&str> {
        match self.viewers(settings) {
            Viewers::Namespace => self.namespace(),
            _ => None,
        }
    }
}

/// The namespace of a `namespace/name`.
pub(crate) fn namespace_of(id: &str) -> &str {
    id.split_once('/').map_or("", |(namespace, _)| namespace)
}

impl PartialEq for Unit {
    fn eq(&self, other: &Unit) -> bool {
        self.kind.rank == other.kind.rank && self.key == other.key
    }
}

impl Eq for Unit {}

impl PartialOrd for Unit {
    fn partial_cmp(&self, other: &Unit) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Unit {
    fn cmp(&self, other: &Unit) -> Ordering {
        let ranks = self.kind.rank.cmp(&other.kind.rank);
        ranks.then_with(|| self.key.cmp(&other.key))
    }
}

impl Hash for Unit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.rank.hash(state);
        self.key.hash(state);
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.name, self.key)
    }
}

/// There are millions of units.
const _: () = assert!(size_of::<Unit>() <= 32);
