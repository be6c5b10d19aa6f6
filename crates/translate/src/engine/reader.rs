//! The tracked handle: the only way from a unit to objects.
//!
//! Here is what every kind of object has in common. Readers of single kinds stand beside what they
//! mean, as further functions of [`Reader`].

mod meaning;
mod open;
mod recent;
mod weight;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use myriad_api::{Meta, Object, ObjectKey, ObjectKind};
use myriad_model::Host;

use super::Shared;
use super::allowance::{Allowances, Beyond};
use super::choosing::{Choosing, LookedAtFact};
use super::claimed::Claimed;
use super::late::Late;
use super::meanings::Meanings;
use super::memory::Remembered;
use super::ports::{PortClaim, PortFact, PortKey, PortSpeech};
use super::stakes::{SeatFact, StakeClaim, Stakes};
use super::stamp::Stamp;
use super::tally::{Tally, TallyFact};
use super::unit::{Unit, UnitId};
use super::units::Units;
use super::viewpoint::{Step, Viewpoint};
use super::views::Views;
use crate::settings::Settings;
use crate::store::{Fact, Stored, object_fact};

pub(crate) use meaning::Told;
pub(crate) use open::{Kept, Moment, Open};
pub(crate) use recent::Recent;

/// The state that a unit reads beside objects.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// Values that every resource of a kind shares.
    pub shared: &'a Shared,
    /// All views.
    pub views: &'a Views,
    /// All units.
    pub units: &'a Units,
    /// The allowances of namespaces.
    pub allowances: &'a Allowances,
    /// The hosts that Gateways name.
    pub tally: &'a Tally,
    /// The selectors that choose workloads.
    pub choosing: &'a Choosing,
    /// Hosts that objects came to after their creation.
    pub late: &'a Late,
    /// The claims of units to seats.
    pub stakes: &'a Stakes,
    /// The units of objects that own none of the hosts that they claim.
    pub owning_none: &'a HashSet<UnitId>,
    /// The meanings of wildcards to the hosts below them.
    pub meanings: &'a HashMap<UnitId, Meanings>,
    /// The time, in seconds since the epoch.
    pub now: i64,
}

/// Hands out objects and remembers which facts about them were read.
pub struct Reader<'a> {
    stored: Stored<'a>,
    around: Surroundings<'a>,
    view: &'a Viewpoint<'a>,
    /// The unit that runs.
    unit: UnitId,
    opened: &'a mut Open,
    facts: Vec<u64>,
    visited: Visited,
}

/// The amounts that a run looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// Objects that it fetched.
    pub objects: u64,
    /// Entries of large lists in them.
    pub entries: u64,
    /// Texts in them that it read, and did not only fetch.
    pub texts: u64,
}

/// The facts that were read, and the questions to the view, while something was found apart from
/// the rest of a run.
pub struct Noted {
    facts: Vec<u64>,
    steps: Vec<Step>,
}

impl Noted {
    /// The questions alone, for who is run again when what was found is other.
    pub fn asked_alone(self) -> Self {
        Noted {
            facts: Vec::new(),
            ..self
        }
    }

    /// How much was noted.
    pub fn count(&self) -> usize {
        self.facts.len() + self.steps.len()
    }

    /// Whether any of the facts is among those that were noted.
    pub fn has_any(&self, facts: &BTreeSet<u64>) -> bool {
        let mut facts = facts.iter();
        facts.any(|fact| self.facts.binary_search(fact).is_ok())
    }
}

/// That it is read whether scopes leave open what is for nobody who is known: who reads it is
/// asked again for the views whose scope is another.
#[derive(Hash)]
pub(crate) struct ScopeFact;

impl Fact for ScopeFact {
    const FAMILY: u8 = 2;
}

impl<'a> Reader<'a> {
    /// A handle for one run of one unit.
    pub fn new(
        stored: Stored<'a>,
        around: Surroundings<'a>,
        view: &'a Viewpoint<'a>,
        unit: UnitId,
        opened: &'a mut Open,
    ) -> Self {
        opened.forget(Moment::Run);
        Reader {
            stored,
            around,
            view,
            unit,
            opened,
            facts: Vec::new(),
            visited: Visited::default(),
        }
    }

    /// The settings, which hold for the life of the engine and are no fact.
    pub fn settings(&self) -> &'a Settings {
        self.around.settings
    }

    /// Values that every resource of a kind shares.
    pub fn shared(&self) -> &'a Shared {
        self.around.shared
    }

    /// The view that is translated for. Whatever differs between views is asked of it.
    pub fn view(&self) -> &'a Viewpoint<'a> {
        self.view
    }

    /// Whether any view is of a namespace. No fact: what reads it runs again when views change.
    pub fn is_served(&self, namespace: &str) -> bool {
        !self.around.views.of_namespace(namespace).is_empty()
    }

    /// The namespaces of all gateways, the main one's first. No fact, as above.
    pub fn namespaces(&self) -> Vec<&'a str> {
        let mut namespaces: Vec<&str> = Vec::new();
        for standing in self.around.views.gateways() {
            let namespace = &*standing.view.namespace;
            if !namespaces.contains(&namespace) {
                namespaces.push(namespace);
            }
        }
        namespaces
    }

    /// The time of the run, in seconds since the epoch. Who reads it sets a deadline.
    pub fn now(&self) -> i64 {
        self.around.now
    }

    /// An object that is beyond what its namespace may hold. It changes when it gets there, so no
    /// fact is noted either.
    pub fn beyond(&self, key: &ObjectKey) -> Option<&'a Beyond> {
        self.around.allowances.beyond(key)
    }

    /// How many hosts the Gateways of a namespace name, up to a power of two.
    pub fn hosts_of(&mut self, namespace: &str) -> u64 {
        self.read(TallyFact(namespace));
        self.around.tally.told(namespace)
    }

    /// How many workloads of a namespace have the first label of a selector that chooses them, up
    /// to a power of two.
    pub fn looked_at(&mut self, namespace: &str, (key, value): (&str, &str)) -> u64 {
        self.read(LookedAtFact(namespace, key, value));
        self.around.choosing.told(namespace, (key, value))
    }

    /// Since when an object claims a host, if not since its creation. It changes with the object,
    /// and hosts run when they are told otherwise, so that no fact is noted.
    pub fn late_since(&self, meta: &Meta, host: &Host) -> Option<i64> {
        if !self.is_late(&meta.key) {
            return None;
        }
        self.claimed_since(meta, &Claimed::Host(host.clone()))
    }

    /// The same of any claim.
    pub fn claimed_since(&self, meta: &Meta, claimed: &Claimed) -> Option<i64> {
        self.around.late.since(&meta.key, meta.created, claimed)
    }

    /// Whether an object may make some claim since later than its creation. As above.
    pub fn is_late(&self, key: &ObjectKey) -> bool {
        self.around.late.is_late(key)
    }

    /// Whether the objects of a namespace make claims after everybody else. As above.
    pub fn is_youngest(&self, namespace: &str) -> bool {
        self.around.late.is_beyond(namespace)
    }

    /// Whether the object of a unit owns none of the hosts that it claims. Those run whenever the
    /// unit did, so that no fact is noted.
    pub fn owns_none(&self, unit: &Unit) -> bool {
        let known = self.around.owning_none;
        !known.is_empty() && self.find(unit).is_some_and(|id| known.contains(&id))
    }

    /// The creation of an object that claims the host of the unit that runs. It is not opened for
    /// it, and hosts run with those who claim them, so that no fact is noted.
    pub fn created(&self, kind: ObjectKind, id: &str) -> Option<i64> {
        self.stored.created(kind, id)
    }

    /// The units that need the one that runs, in the view. It runs again when they change, so no
    /// fact is noted.
    pub fn needers(&self) -> impl Iterator<Item = &'a Unit> + use<'a> {
        self.needers_of(self.unit)
    }

    /// Whether objects of several namespaces need the one that runs, in whatever views, where there
    /// are several views. It runs again when they change, so no fact is noted.
    pub fn is_needed_by_several(&self) -> bool {
        if self.around.views.is_single() {
            return false;
        }
        let units = self.around.units;
        let needers = units.needers(self.unit).into_iter();
        let mut namespaces = needers.filter_map(|id| units.get(id)?.unit().namespace());
        let first = namespaces.next();
        namespaces.any(|namespace| Some(namespace) != first)
    }

    /// Whether another unit, which may not be there, needs the one that runs, in the view. Views
    /// for which that differs look again, so no fact is noted.
    pub fn is_needed_by(&self, needer: &Unit) -> bool {
        let units = self.around.units;
        let found = self.find(needer);
        if self.around.views.is_single() {
            return found.is_some_and(|id| units.needers(self.unit).contains(&id));
        }
        let views = found.map_or(Stamp::EMPTY, |id| units.need(id, self.unit));
        self.view.is_needed_by(needer, self.unit, &views)
    }

    /// The number of another unit, if it is there. The caller noted that it reads who needs it.
    pub fn find(&self, unit: &Unit) -> Option<UnitId> {
        self.around.units.find(self.stored.hasher(), unit)
    }

    /// The units that need one, in the view.
    pub fn needers_of(&self, need: UnitId) -> impl Iterator<Item = &'a Unit> + use<'a> {
        let (units, view) = (self.around.units, self.view);
        let is_single = self.around.views.is_single();
        let needers = units.needers(need).into_iter();
        needers.filter_map(move |id| {
            let is_in = is_single || view.is_needed(id, need, &units.need(id, need));
            let record = units.get(id).filter(|_| is_in)?;
            Some(record.unit())
        })
    }

    /// An object, for the unit of its name, which runs again with it: no fact is noted.
    pub fn itself(&mut self, key: &ObjectKey) -> Option<Object> {
        self.visit(key.kind, key.id())
    }

    /// The protocol that is spoken on a port.
    pub fn speech(&mut self, port: &PortKey) -> Option<PortSpeech> {
        self.read(PortFact::Speech(port));
        Some(self.view.port(port)?.speech)
    }

    /// The object that has a port, and what is spoken there.
    pub fn port_owner(&mut self, port: &PortKey) -> Option<PortClaim> {
        self.read(PortFact::Owner(port));
        self.view.port(port).cloned()
    }

    /// The object that has the number of a port, at whatever address.
    pub fn number_owner(&mut self, port: &PortKey) -> Option<PortClaim> {
        self.read(PortFact::Number(port.number, port.is_udp));
        self.view.port_number(port.number, port.is_udp).cloned()
    }

    /// The claim that has a seat.
    pub fn seat(&mut self, seat: u64) -> Option<StakeClaim> {
        self.read(SeatFact::First(seat));
        self.around.stakes.first(seat).cloned()
    }

    /// How many claims to a seat there are.
    pub fn seat_count(&mut self, seat: u64) -> usize {
        self.read(SeatFact::Count(seat));
        self.around.stakes.count(seat)
    }

    /// The first claims to a seat, in their order, as many as are asked for.
    pub fn first_claims(&mut self, seat: u64, max: usize) -> Vec<StakeClaim> {
        self.read(SeatFact::All(seat));
        let claims = self.around.stakes.all(seat).take(max);
        claims.cloned().collect()
    }

    /// Whether a claim is, or would be, among so many first ones to a seat, at least
    /// [`super::CROWD_MIN`] of them.
    pub fn is_within(&mut self, seat: u64, claim: &StakeClaim, max: usize) -> bool {
        self.read(SeatFact::Crowd(seat));
        self.around.stakes.is_within(seat, claim, max)
    }

    /// Whether the view may connect to destinations that no object names.
    pub fn allows_any(&mut self) -> bool {
        self.read(ScopeFact);
        let allows = self.view.allows_any();
        allows.unwrap_or(self.around.settings.allows_any)
    }

    /// Notes that a fact is read, and returns its hash.
    pub fn read<F: Fact>(&mut self, fact: F) -> u64 {
        let fact = self.hash(fact);
        self.facts.push(fact);
        fact
    }

    /// The hash of a fact that is not noted.
    pub fn hash<F: Fact>(&self, fact: F) -> u64 {
        self.stored.hasher().fact(fact)
    }

    /// Notes that a whole object is read.
    pub fn read_object(&mut self, kind: ObjectKind, id: &str) {
        let fact = object_fact(self.stored.hasher(), kind, id);
        self.facts.push(fact);
    }

    /// An object by its `namespace/name`. The caller noted what of it is read.
    pub fn visit(&mut self, kind: ObjectKind, id: &str) -> Option<Object> {
        let object = self.stored.get(kind, id)?;
        self.visited.objects += 1;
        Some(object)
    }

    /// Counts objects that were visited otherwise.
    pub fn count(&mut self, visited: u64) {
        self.visited.objects += visited;
    }

    /// Counts entries of a list of an object, where there may be very many, that were looked at.
    pub fn count_entries(&mut self, visited: usize) {
        self.visited.entries += visited as u64;
    }

    /// The amounts that were looked at so far.
    pub fn visited(&self) -> Visited {
        self.visited
    }

    /// Counts a text of an object that is read, and not only fetched.
    pub fn count_text(&mut self) {
        self.visited.texts += 1;
    }

    /// The store, of which the caller notes what is read, and counts what is visited.
    pub fn stored(&self) -> Stored<'a> {
        self.stored
    }

    /// The objects under a fact that `pick` takes, in no order that has a meaning.
    pub fn collect<T>(&mut self, fact: u64, mut pick: impl FnMut(Object) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for object in self.stored.collection(fact) {
            self.visited.objects += 1;
            found.extend(pick(object));
        }
        found
    }

    /// Finds something of which nothing is noted, but by who is given what was.
    pub fn apart<T>(&mut self, find: impl FnOnce(&mut Self) -> T) -> (T, Noted) {
        let facts = std::mem::take(&mut self.facts);
        let asked = self.view.set_aside();
        let found = find(self);
        let steps = self.view.take_up(asked);
        let mut facts = std::mem::replace(&mut self.facts, facts);
        facts.sort_unstable();
        facts.dedup();
        (found, Noted { facts, steps })
    }

    /// Notes what was read and asked apart.
    pub fn note_all(&mut self, noted: &Noted) {
        self.facts.extend(&noted.facts);
        self.note_asked(noted);
    }

    /// Notes what was asked apart, for who runs again when what was found is other.
    pub fn note_asked(&self, noted: &Noted) {
        self.view.note_steps(&noted.steps);
    }

    /// Takes out the memory that the unit has of its former run, as far as it holds.
    pub fn recall<T: Remembered>(&mut self) -> Option<Box<T>> {
        let memory = self.opened.memory.take()?;
        memory.into_any().downcast().ok()
    }

    /// Lets the unit remember something until it runs again.
    pub fn remember<T: Remembered>(&mut self, memory: Box<T>) {
        self.opened.memory = Some(memory);
    }

    /// The open value of a type.
    pub fn open<T: Kept>(&self) -> Option<&T> {
        self.opened.get()
    }

    /// The open value of a type, to change it.
    pub fn open_mut<T: Kept + Default>(&mut self) -> Option<&mut T> {
        self.opened.get_mut()
    }

    /// The facts read, sorted, and the amounts that were looked at.
    pub fn finish(mut self) -> (Vec<u64>, Visited) {
        self.facts.sort_unstable();
        self.facts.dedup();
        (self.facts, self.visited)
    }
}
