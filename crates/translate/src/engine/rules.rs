//! The rules that the dialects give the engine for their kinds of objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::istio::Labels;
use myriad_api::{Finding, Object, ObjectKey, ObjectKind};
use myriad_model::Host;

use super::allowance::Amounts;
use super::claimed::NewlyClaimed;
use super::copies::Weight;
use super::output::Output;
use super::reader::Reader;
use super::scope::Scope;
use super::unit::{Unit, UnitKind};
use super::views::Views;
use crate::settings::{Bounds, Holding, Settings};
use crate::store::{FactHasher, FoundUnder, Stored};
use crate::view::{View, Workload};

/// Tells of the keys of labels that an object names, each as often as it does, with the namespace
/// of the workloads that it asks for them; none for those of all.
pub(crate) type NamedKeys = fn(&Object, &Settings, &mut dyn FnMut(Option<&str>, &str));

/// Everything that the engine is told. It is made in one place, `dialect.rs`.
pub(crate) struct Rules {
    /// All kinds of units with their functions, in the order in which they run: each at the place
    /// of its rank.
    pub units: &'static [(&'static UnitKind, Translate)],
    /// The facts under which an object is found that is not found by its key alone.
    pub found_under: FoundUnder,
    /// Adds what differs between an object and its successor, either of which may be absent.
    pub touch: fn(&Scene<'_>, &ObjectKey, States<'_>, &mut Touched),
    /// The unit that an object is there with, for kinds that make claims.
    pub claimant: fn(&ObjectKey) -> Option<Unit>,
    /// The claims of an object, and those of them that may be new.
    pub newly_claimed: fn(&Object, &Object, &Settings) -> NewlyClaimed,
    /// Adds the keys of labels by which an object finds workloads, as often as it names them.
    pub named: NamedKeys,
    /// The keys that are named whatever objects there are.
    pub named_always: &'static [&'static str],
    /// The units that are there because of the settings.
    pub roots: fn(&Settings) -> Vec<Unit>,
    /// The unit of what is accepted for a workload.
    pub workload: fn(Arc<Workload>) -> Unit,
    /// The unit that is there with the first sidecar.
    pub elsewhere: fn() -> Unit,
    /// The units that every sidecar may see.
    pub of_sidecars: fn(&Settings) -> Vec<Unit>,
    /// The fact that hosts below a wildcard read, by its suffix.
    pub above: fn(&FactHasher, &str) -> u64,
    /// The suffix of a wildcard; none for a host that is none.
    pub suffix_of: fn(&Host) -> Option<&str>,
    /// The unit of a host.
    pub host: fn(&Host) -> Unit,
    /// The namespace of whom a unit is for or tells, where its object does not say so.
    pub told: fn(&Unit) -> Option<Box<str>>,
    /// The scope of a view: the hosts that it may reach.
    pub scope: fn(Stored<'_>, &Settings, &View) -> Scope,
    /// Whether a namespace has rules of its own for a host or wildcard.
    pub has_rules: fn(Stored<'_>, &Settings, &str, &str) -> bool,
    /// Whether a namespace has a ServiceEntry for a host or wildcard as it is written.
    pub declares: fn(Stored<'_>, &str, &str) -> bool,
    /// Selectors that choose workloads by all of their labels.
    pub choice: ChoiceRules,
    /// Bounds of namespaces.
    pub bounds: BoundRules,
}

/// The function of a unit.
pub(crate) type Translate = fn(&mut Reader<'_>, &Unit) -> Output;

/// An object before and after a change.
pub(crate) type States<'a> = (Option<&'a Object>, Option<&'a Object>);

/// The rest of an object, and whether it takes its place, by the annotations that are ignored.
type Hollow = fn(&Object, &BTreeSet<String>) -> Option<(Object, bool)>;

/// The rules for selectors that choose workloads of the namespaces of their objects.
pub(crate) struct ChoiceRules {
    /// The selector of an object, if it chooses any.
    pub selector: fn(&Object) -> Option<&Labels>,
    /// The labels of an object that may be chosen.
    pub labels: fn(&Object) -> Option<&Labels>,
    /// The number of objects of a namespace that have the first label of a selector.
    pub count: fn(Stored<'_>, &str, &Labels) -> usize,
}

/// The rules for the bounds of namespaces.
pub(crate) struct BoundRules {
    /// The holdings that objects of a kind count towards; memory goes first.
    pub holdings: fn(ObjectKind) -> &'static [Holding],
    /// The amounts that an object counts for.
    pub weigh: fn(&Bounds, &Object) -> Amounts,
    /// The rest that is kept of an object that takes more memory than its namespace may hold, and
    /// whether that takes its place; none for kinds whose memory is not bounded.
    pub hollow: Hollow,
    /// The object that takes the place of one beyond a bound; none where nothing does.
    pub reduce: fn(&Object, &BTreeSet<String>) -> Option<Object>,
    /// The unit that tells of an object beyond a bound.
    pub beyond: fn(&ObjectKey) -> Unit,
    /// The finding about a namespace of which more is found than the bytes that are told.
    pub crowded: fn(&str, u64) -> Finding,
    /// The kind of units that count for the endpoints that they have beside others.
    pub copying: &'static UnitKind,
    /// The weight of one of them, by its name.
    pub copies: fn(&mut Reader<'_>, &str) -> Option<Weight>,
    /// The weight of one of them in slots of hash tables, as far as no object counts for it.
    pub slots: fn(&mut Reader<'_>, &str) -> Option<Weight>,
    /// The kind of units for authorities, of which some are for those of several objects.
    pub joining: &'static UnitKind,
    /// The weight of such a one, by its name.
    pub joined: fn(&mut Reader<'_>, &str) -> Option<Weight>,
    /// The namespace that it counts for.
    pub joined_place: fn(&str) -> Option<(&str, bool)>,
    /// The number of hosts of an object on which others may say what each repeats.
    pub hosts: fn(&Object) -> u64,
    /// The namespace of such a unit, and whether it yields to those of whole ports.
    pub place: fn(&str) -> Option<(&str, bool)>,
}

/// One dialect, or what all of them share, as the engine hears of it.
pub(crate) struct Dialect {
    /// Adds what a changed object touches.
    pub touch: fn(&Scene<'_>, &ObjectKey, States<'_>, &mut Touched),
    /// The facts under which an object is found that is not found by its key alone.
    pub found_under: FoundUnder,
    /// The unit that an object is there with, for kinds that make claims.
    pub claimant: fn(&ObjectKey) -> Option<Unit>,
    /// The claims of an object, and those of them that may be new.
    pub newly_claimed: fn(&Object, &Object, &Settings) -> Option<NewlyClaimed>,
    /// Adds the units that are there because of the settings.
    pub roots: fn(&Settings, &mut Vec<Unit>),
}

impl Dialect {
    /// One whose objects touch nothing, claim no host and are found by their keys alone.
    pub(crate) const BLANK: Dialect = Dialect {
        touch: |_, _, _, _| {},
        found_under: |_, _, _| {},
        claimant: |_| None,
        newly_claimed: |_, _, _| None,
        roots: |_, _| {},
    };
}

/// The circumstances of a change.
pub(crate) struct Scene<'a> {
    /// The hasher of facts.
    pub hasher: &'a FactHasher,
    /// The settings.
    pub settings: &'a Settings,
    /// The views.
    pub views: &'a Views,
}

/// The namespaces that an object is exported to; none for all.
pub(super) type Exported = Option<BTreeSet<Box<str>>>;

/// The facts and units that a changed object touches.
#[derive(Default)]
pub(crate) struct Touched {
    /// Facts, whose readers run again.
    pub facts: Vec<u64>,
    /// The unit that bears the object's name and reads it whole, which needs no fact to say so.
    pub unit: Option<Unit>,
    /// Further units of the object, which are there with it as well.
    pub beside: Vec<Unit>,
    /// The same for what the object is to sidecars, with the namespaces that it is exported to;
    /// none for all.
    pub reachable: Option<(Unit, Exported)>,
    /// Whether those who need that unit run again too.
    pub needers: bool,
    /// Whether it says what workloads may reach.
    pub is_scope: bool,
}
