//! The incremental engine: keyed units, the facts that they read, and what one batch changes.

mod admit;
mod allowance;
mod audience;
mod batch;
mod choosing;
mod claimed;
mod claiming;
mod copies;
mod drawn;
mod hints;
mod issuing;
mod late;
mod ledger;
mod meanings;
mod memory;
mod naming;
mod needs;
mod output;
mod parts;
mod ports;
mod postponed;
mod reach;
mod reader;
mod revisit;
mod rival;
mod room;
mod rotation;
mod row;
mod rules;
mod run;
mod scope;
mod sealing;
mod settling;
mod stakes;
mod stamp;
mod tally;
mod tenancy;
mod turning;
mod unit;
mod units;
mod viewing;
mod viewpoint;
mod views;
mod visits;
mod weighing;
mod wish;
mod woken;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use myriad_api::gateway::status::Status;
use myriad_api::{Change, Finding, ObjectKey};
use myriad_model::{Delta, Name, Position, Snapshot, TlsSettings, Writer};

pub(crate) use allowance::{Amounts, Beyond};
pub(crate) use choosing::{ChosenFact, LookedAtFact};
pub use claimed::Claimed;
pub(crate) use claimed::NewlyClaimed;
pub(crate) use copies::Weight;
pub(crate) use hints::HintFact;
pub use issuing::{
    AuthorityTerms, HashTerms, IssuerSecret, IssuerTerms, KeyTerms, ProofTerms, SolverTerms,
    StatedIssuer,
};
pub use late::{ClaimsChange, LateClaims};
pub use ledger::{Difference, FindingsChange};
pub(crate) use memory::Remembered;
pub use naming::MovedLabel;
pub(crate) use output::{Meaning, Output};
pub use ports::PortSpeech;
pub(crate) use ports::{PortClaim, PortFact, PortKey};
pub(crate) use reader::{Kept, Moment, Noted, Reader, Recent, ScopeFact, Told};
pub use rival::Rival;
pub(crate) use rules::{
    BoundRules, ChoiceRules, Dialect, Rules, Scene, States, Touched, Translate,
};
pub(crate) use scope::{Scope, Scoping};
pub(crate) use stakes::{CROWD_MIN, SeatFact, Stake, StakeClaim};
pub(crate) use stamp::Slot;
pub(crate) use tally::TallyFact;
pub(crate) use unit::{Bond, Own, Stays, Unit, UnitKey, UnitKind, Viewers, namespace_of};
pub(crate) use viewpoint::Viewpoint;
pub(crate) use views::Views;
pub use views::{TooManyViews, VIEWS_MAX};
pub use wish::Wish;

use crate::settings::{Holding, Settings};
use crate::store::{FactHasher, Objects};
use crate::view::Role;
use allowance::Allowances;
use audience::Audience;
use batch::Run;
use choosing::Choosing;
use copies::Copies;
use late::Late;
use ledger::Ledger;
use meanings::Meanings;
use memory::Memories;
use naming::Naming;
use parts::Parts;
use postponed::Postponed;
use revisit::Partings;
use room::Room;
use sealing::SealedParts;
use stakes::Stakes;
use tally::Tally;
use tenancy::Readmitted;
use turning::Turnings;
use unit::UnitId;
use units::Units;
use visits::Visits;
use woken::Lapsed;

/// Holds all objects, and keeps resources and findings in step with them.
pub struct Engine {
    /// The rules that the dialects give it for their kinds of objects.
    rules: &'static Rules,
    settings: Settings,
    shared: Shared,
    hasher: FactHasher,
    objects: Objects,
    units: Units,
    ledger: Ledger<Finding>,
    /// How much is told about each namespace.
    room: Room,
    wishes: Ledger<Wish>,
    issuers: Ledger<StatedIssuer>,
    rivals: Ledger<Rival>,
    statuses: Ledger<Status>,
    parts: Parts,
    memories: Memories,
    sealed_parts: SealedParts,
    views: Views,
    /// Which sidecars are led to which units.
    audience: Audience,
    partings: Partings,
    /// The meanings of wildcards to the hosts below them; none of those that have none.
    meanings: HashMap<UnitId, Meanings>,
    /// The units of objects that own none of the hosts that they claim.
    owning_none: HashSet<UnitId>,
    /// The bounds of namespaces, and their holdings.
    allowances: Allowances,
    /// How many hosts the Gateways of each namespace name.
    tally: Tally,
    /// The labels that selectors name.
    naming: Naming,
    /// The selectors that choose workloads by all of their labels.
    choosing: Choosing,
    /// Hosts that objects came to after their creation.
    late: Late,
    /// Hosts that namespaces lost a short while ago.
    lapsed: Lapsed,
    /// The claims of units to seats.
    stakes: Stakes,
    /// The Gateways with proxies of their own that units enter, by `namespace/name`.
    entered: HashMap<UnitId, BTreeSet<Arc<str>>>,
    writer: Writer,
    now: i64,
    /// The objects that were taken in and are not translated yet.
    run: Run,
    /// The units that run later: woken by objects of other namespaces, or without time.
    postponed: Postponed,
    /// The objects that are admitted again, since their namespaces may hold other amounts or others
    /// of them do.
    readmitted: Readmitted,
    /// The views of sidecars that have yet to look at what they may see.
    visits: Visits,
    /// The units that changed in very many views, which follow one after the other.
    turnings: Turnings,
    /// Whether views went last of what runs later.
    is_visited: bool,
    /// Whether an outcome was given; the first carries what follows from settings alone.
    is_started: bool,
}

/// Values that every resource of a kind shares.
pub struct Shared {
    /// Both listeners, sorted.
    pub listeners: Arc<[Name]>,
    /// The TLS listener alone.
    pub tls_listeners: Arc<[Name]>,
    /// How handshakes are done.
    pub tls: Arc<TlsSettings>,
    /// The certificate of the TLS listener.
    pub default_certificate: Option<Name>,
}

/// The changes of one batch, and their cost.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Changed resources of the main view.
    pub delta: Delta,
    /// Changed resources of each other view in which any changed, by its name.
    pub others: Vec<(Arc<str>, Delta)>,
    /// Views that are gone. One that comes has resources that changed.
    pub gone: Vec<Arc<str>>,
    /// Changed findings.
    pub findings: FindingsChange,
    /// Changed wishes.
    pub wishes: Difference<Wish>,
    /// Changed issuers.
    pub issuers: Difference<StatedIssuer>,
    /// Changed rivals.
    pub rivals: Difference<Rival>,
    /// Changed statuses. Where an object has one among those that were added, that is its status;
    /// where it has one among those that were removed alone, it has none any more.
    pub statuses: Difference<Status>,
    /// Ingresses that were translated and are served, by `namespace/name`.
    pub served: Vec<Arc<str>>,
    /// Ingresses that were served before, are still there and are not served any more.
    pub unserved: Vec<Arc<str>>,
    /// The changes of the claims that objects came to after their creation.
    pub claims: ClaimsChange,
    /// Objects to be put again as they are, though they have not changed: they were let go since
    /// they took more memory than their namespaces may hold, and there is room for them now.
    pub wanted: Vec<ObjectKey>,
    /// Counted work.
    pub work: Work,
}

/// Work, counted so that tests can hold it constant in the number of domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Calls of keyed translation functions.
    pub units_translated: u64,
    /// Views that units looked at: each time, whether one is like another was asked.
    pub views_asked: u64,
    /// Objects that units fetched through the tracked handle.
    pub objects_visited: u64,
    /// Texts of objects that units read, of which many of them may have use: the annotations of an
    /// Ingress, the fields of a ConfigMap, the names of a certificate, the hashes of users.
    pub texts_read: u64,
    /// Entries of large lists of objects that units looked at: ports, endpoints, labels, names.
    pub entries_visited: u64,
    /// Resources that appeared, changed or went.
    pub resources_changed: u64,
    /// Bytes encoded in order to be hashed or sent.
    pub bytes_encoded: u64,
    /// Slots of the hash tables of upstreams that changed, once for all views: proxies fill them
    /// anew.
    pub table_slots: u64,
    /// Steps that the regexes of routes which changed take each proxy at most, once for all views:
    /// those that it does not hold any more are compiled anew.
    pub regex_steps: u64,
}

/// How much the engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects in the store.
    pub objects: usize,
    /// Units.
    pub units: usize,
    /// Facts read, needs and deadlines of all units.
    pub links: usize,
    /// Policies, answers, redirects, changes of headers and issuer certificates that are stored
    /// once for all who use them.
    pub interned: usize,
    /// Endpoints of upstreams with many that are remembered, as they were read or as they were
    /// sent.
    pub remembered: usize,
    /// Findings.
    pub findings: usize,
    /// Claims that objects came to after their creation.
    pub late_claims: usize,
}

impl Engine {
    /// An engine without objects that is told these rules. The first outcome carries the listeners.
    pub(crate) fn with_rules(rules: &'static Rules, settings: Settings, writer: Writer) -> Engine {
        let [http, https] = ["http", "https"].map(Name::from);
        let shared = Shared {
            listeners: [http, https.clone()].into(),
            tls_listeners: [https].into(),
            tls: Arc::new(settings.tls.clone()),
            default_certificate: settings
                .default_certificate
                .as_ref()
                .map(|(namespace, name)| Name::new(format!("{namespace}/{name}"))),
        };
        let copies = Copies::new(settings.bounds.copies(), rules.bounds.place);
        let slots = settings.bounds.get(Holding::HashSlots);
        let slots = Copies::new(slots, rules.bounds.place);
        let joined = Copies::new(None, rules.bounds.joined_place);
        let mut engine = Engine {
            rules,
            shared,
            hasher: FactHasher::new(),
            objects: Objects::new(rules.found_under),
            units: Units::new(),
            ledger: Ledger::default(),
            room: Room::new(settings.bounds.findings()),
            wishes: Ledger::default(),
            issuers: Ledger::default(),
            rivals: Ledger::default(),
            statuses: Ledger::default(),
            parts: Parts::new(),
            memories: Memories::default(),
            sealed_parts: SealedParts::default(),
            views: Views::new(settings.main_view()),
            audience: Audience::default(),
            partings: Partings::default(),
            meanings: HashMap::new(),
            owning_none: HashSet::new(),
            allowances: Allowances::new(copies, slots, joined),
            tally: Tally::default(),
            naming: Naming::default(),
            choosing: Choosing::default(),
            late: Late::new(settings.late_claims, settings.bounds.late_claims),
            lapsed: Lapsed::default(),
            stakes: Stakes::default(),
            entered: HashMap::new(),
            settings,
            writer,
            now: 0,
            run: Run::default(),
            postponed: Postponed::default(),
            readmitted: Readmitted::default(),
            visits: Visits::default(),
            turnings: Turnings::default(),
            is_visited: false,
            is_started: false,
        };
        for key in rules.named_always {
            engine.naming.insert(None, key, "");
        }
        let listeners = engine.listeners(Role::Ingress);
        let delta = &mut engine.run.delta;
        let changes = engine.writer.replace(&[], listeners, delta);
        engine.run.work.resources_changed += changes.len() as u64;
        for view in std::mem::take(&mut engine.settings.views) {
            // Whoever has more than there may be is told by those that are missing.
            let _ = engine.put_view(view);
        }
        engine
    }

    /// Takes in a part of a list that is not complete yet: nothing is translated before the next
    /// [`Engine::apply`], and the parts are not kept beside the store.
    pub fn load(&mut self, changes: Vec<Change>) {
        let mut run = std::mem::take(&mut self.run);
        for change in changes {
            self.admit(change, &mut run);
        }
        self.run = run;
    }

    /// Takes in one change at a time (seconds since the epoch), which the next [`Engine::apply`]
    /// translates with its own.
    pub fn take_in(&mut self, change: Change, now: i64) {
        self.now = self.now.max(now);
        let mut run = std::mem::take(&mut self.run);
        self.admit(change, &mut run);
        self.run = run;
    }

    /// Applies one batch at a time (seconds since the epoch) and all that was postponed, and
    /// returns what it changed. Of several changes of one object the last one holds.
    pub fn apply(&mut self, changes: Vec<Change>, now: i64) -> Outcome {
        self.now = self.now.max(now);
        self.load(changes);
        let mut run = std::mem::take(&mut self.run);
        run.is_whole = true;
        self.mark_readmitted(&mut run);
        for id in self.postponed.take_all() {
            self.mark(id, true, &mut run);
        }
        self.mark_visited(&mut run);
        self.run = run;
        self.apply_taken_in(now)
    }

    /// Applies what was taken in (seconds since the epoch) and returns what it changed. Units
    /// beyond the first that objects of other namespaces wake are postponed.
    pub fn apply_taken_in(&mut self, now: i64) -> Outcome {
        self.apply_taken_in_while(now, &mut || true)
    }

    /// The same for as long as there is time: hosts that come after it has run out are postponed.
    pub fn apply_taken_in_while(
        &mut self,
        now: i64,
        has_time: &mut dyn FnMut() -> bool,
    ) -> Outcome {
        let bytes_encoded = self.writer.bytes_encoded();
        self.now = self.now.max(now);
        let mut run = std::mem::take(&mut self.run);
        if !std::mem::replace(&mut self.is_started, true) {
            (run.is_whole, run.is_first) = (true, true);
            self.compare_claims(&mut run);
            for unit in (self.rules.roots)(&self.settings) {
                self.root(unit, &mut run);
            }
            self.mark_visited(&mut run);
        }
        self.mark_due(&mut run);
        self.drain(&mut run, has_time, true);
        self.conclude(run, bytes_encoded)
    }

    /// Whether anything runs later: units, objects that are admitted again, or what views have yet
    /// to look at.
    pub fn has_postponed(&self) -> bool {
        let is_empty =
            self.postponed.is_empty() && self.readmitted.is_empty() && self.visits.is_empty();
        self.is_started && !is_empty
    }

    /// The namespaces that have postponed units or objects, or views that look at something because
    /// of what they changed.
    pub fn postponed(&self) -> impl Iterator<Item = &str> {
        let units = self.postponed.namespaces();
        let others = self.readmitted.namespaces();
        units.chain(others).chain(self.visits.namespaces())
    }

    /// Whether views went in the last part that [`Engine::work_off`] ran: one of many small parts.
    pub fn has_visited(&self) -> bool {
        self.is_visited
    }

    /// Runs some of what runs later, for as long as there is time after each unit (seconds since
    /// the epoch): postponed units of the namespace whose turn it is, among those that may run, and
    /// by turns what views have yet to look at. Returns the namespace that caused it, and what that
    /// changed; for views that came nobody is named.
    pub fn work_off(
        &mut self,
        now: i64,
        has_time: &mut dyn FnMut() -> bool,
        may_run: &dyn Fn(&str) -> bool,
    ) -> Option<(Box<str>, Outcome)> {
        if !self.has_postponed() {
            return None;
        }
        let bytes_encoded = self.writer.bytes_encoded();
        self.now = self.now.max(now);
        let mut run = std::mem::take(&mut self.run);
        let may_visit = self.visits.may_go(may_run);
        let was_visited = std::mem::take(&mut self.is_visited);
        let is_visit = may_visit && !was_visited;
        let mut next = None;
        if !is_visit {
            next = self.postponed.next_turn(&self.readmitted, may_run);
        }
        if let Some(namespace) = &next {
            // An object that is admitted is there before what runs for it.
            match self.readmit(namespace, &mut run) {
                true => self.drain(&mut run, has_time, true),
                false => self.run_postponed(namespace, &mut run, has_time),
            }
        }
        if next.is_none() && may_visit {
            self.is_visited = true;
            next = self.go_on_visiting(&mut run, has_time, may_run);
        }
        let Some(namespace) = next else {
            self.run = run;
            return None;
        };
        Some((namespace, self.conclude(run, bytes_encoded)))
    }

    /// The outcome of a batch, before which so many bytes were encoded.
    fn conclude(&mut self, mut run: Run, bytes_encoded: u64) -> Outcome {
        self.note_lapsed(&mut run);
        self.objects.settle();
        self.parts.settle();
        let mut left = self.visits.take_left();
        // Whoever has yet to follow a unit is remembered by it.
        for slot in left.extract_if(.., |slot| self.turnings.has_left(*slot)) {
            self.visits.leave(slot);
        }
        self.views.free(left);
        self.naming.settle();
        run.work.bytes_encoded = self.writer.bytes_encoded() - bytes_encoded;
        // Read once, and not in every batch again.
        run.opened.forget(Moment::End);
        self.run.opened = run.opened;
        // One that is back is another to nobody.
        let gone = run.gone.into_iter();
        let gone = gone.filter(|name| self.views.find(name).is_none());
        Outcome {
            delta: run.delta,
            others: self.name_deltas(run.others, &run.came),
            gone: gone.collect(),
            findings: self.ledger.settle(),
            wishes: self.wishes.settle(),
            issuers: self.issuers.settle(),
            rivals: self.rivals.settle(),
            statuses: self.statuses.settle(),
            served: run.served,
            unserved: run.unserved,
            claims: self.late.settle(self.now),
            wanted: self.allowances.take_wanted(),
            work: run.work,
        }
    }

    /// Lets time pass, so that certificates come of age, near their end and expire.
    pub fn tick(&mut self, now: i64) -> Outcome {
        self.apply_taken_in(now)
    }

    /// When [`Engine::tick`] next has something to do, in seconds since the epoch.
    pub fn next_deadline(&self) -> Option<i64> {
        self.units.next_deadline()
    }

    /// Moves the position of the newest snapshot.
    pub fn set_position(&mut self, position: Position) {
        self.writer.set_position(position);
    }

    /// Notes in the snapshots that what goes next is only missing: nobody was seen to remove it.
    pub fn note_inference(&mut self) {
        self.writer.note_inference();
    }

    /// The newest snapshot of the main view.
    pub fn snapshot(&self) -> &Snapshot {
        self.writer.snapshot()
    }

    /// All findings, the worst first, then by object and field.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.ledger.iter()
    }

    /// All wishes, in order.
    pub fn wishes(&self) -> impl Iterator<Item = &Wish> {
        self.wishes.iter()
    }

    /// All issuers that objects make, in order.
    pub fn issuers(&self) -> impl Iterator<Item = &StatedIssuer> {
        self.issuers.iter()
    }

    /// All namespaces that claim what others claim too, by host and in order.
    pub fn rivals(&self) -> impl Iterator<Item = &Rival> {
        self.rivals.iter()
    }

    /// All statuses, by object.
    pub fn statuses(&self) -> impl Iterator<Item = &Status> {
        self.statuses.iter()
    }

    /// All Ingresses that are served, by `namespace/name`. A walk over all units: for a process
    /// that begins to lead, and never for a change.
    pub fn served(&self) -> impl Iterator<Item = &Arc<str>> {
        let claiming = self.units.iter().filter(|it| it.has_needs());
        let units = claiming.map(|record| record.unit());
        let units = units.filter(|unit| unit.kind().has_status && !self.is_beyond(unit));
        units.filter_map(|unit| unit.name())
    }

    /// How much is held.
    pub fn usage(&self) -> Usage {
        Usage {
            objects: self.objects.len(),
            units: self.units.len(),
            links: self.units.links_len(),
            interned: self.parts.len() + self.objects.issuers_len(),
            remembered: self.memories.count() + self.sealed_parts.count(),
            findings: self.ledger.len(),
            late_claims: self.late.len(),
        }
    }
}
