//! The desk: what is done next for which certificate. It has no clock, no file and no connection.
//!
//! - Every certificate is for itself. One that fails waits longer each time, and has half of the
//!   places and turns at most where others wait that have not failed.
//! - Namespaces take turns: at places, at the orders of an authority, and at those for a registered
//!   domain. One that waits alone has all of them, but for some places that newcomers get at once.
//! - An authority is asked for no more orders than its budget has, no more at a time than there are
//!   places, and for nothing while it is in trouble.
//! - An order says by its stage what is next, so that after a crash it goes on where it was kept.

mod authorities;
mod clock;
mod counting;
mod members;
mod places;
mod results;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use self::authorities::Authorities;
use self::members::Members;
use super::budget::Budget;
use super::directory::AuthorityState;
use super::turns::Places;
use super::{
    AcmeIssuer, Challenge, DAY, DnsRecord, HOUR, HeldCertificate, MINUTE, Millis, Order, OrderKey,
    OrderStage, RenewalWindow, SECOND, SpentBudget, Suffixes,
};

/// The bounds of a desk.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Orders whose names are looked at together, before an authority is asked for anything or told
    /// that it can look as well.
    pub proofs_max: usize,
    /// Requests to one authority at a time.
    pub steps_max: usize,
    /// Orders of one authority that are placed and not over.
    pub open_max: usize,
    /// New orders at one authority in three hours.
    pub orders_per_authority: u32,
    /// New orders for one registered domain in a week, at one authority; renewals that it has asked
    /// for are not counted. Those that it takes as new orders alone are, and may be more by as many
    /// as there are requests at a time.
    pub orders_per_domain: u32,
    /// The longest time between two looks at when an authority wants a certificate renewed.
    pub look_max: Millis,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            proofs_max: 256,
            steps_max: 32,
            open_max: 2_000,
            orders_per_authority: 300,
            orders_per_domain: 50,
            look_max: DAY,
        }
    }
}

/// A certificate that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateWish {
    /// Its DNS names, sorted, at most [`NAMES_MAX`](super::NAMES_MAX).
    pub names: Vec<Box<str>>,
    /// The name of its issuer.
    pub issuer: Box<str>,
}

/// A step that is to be carried out.
#[derive(Clone, Debug)]
pub struct Task {
    /// The certificate.
    pub id: Arc<str>,
    /// The number of the step, which its result comes back with.
    pub ticket: u64,
    /// The step.
    pub step: TaskStep,
    /// The order as it stands; none where there is no order.
    pub order: Option<Box<Order>>,
    /// Whether the order has to be kept before the step.
    pub keep: bool,
    /// Whether a certificate is there whose place another one takes.
    pub is_renewal: bool,
    /// Whether an order that says which certificate it replaces may be placed as a new one at once,
    /// where the authority fails by that: there is room in the budgets of its domains.
    pub may_be_new: bool,
    has_failed: bool,
}

/// The kinds of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStep {
    /// Find out whether the names lead here.
    Prove,
    /// Ask for an order.
    Place,
    /// Bring the answers into service.
    Answer,
    /// Tell the authority that they are.
    Accept,
    /// See what the authority says to them.
    Look,
    /// Ask for the certificate.
    Finalise,
    /// Fetch it, check it and keep it.
    Fetch,
    /// Remove the records of DNS that were set.
    Clean,
    /// Ask when a certificate is to be renewed: at this directory, by this name.
    Window(Box<str>, Box<str>),
}

/// The good outcomes of steps.
#[derive(Clone, Debug)]
pub enum StepOutcome {
    /// The names lead here, and records of DNS for their challenges go there.
    Proven(Vec<DnsRecord>),
    /// The authority has an order of this URL, with these challenges that are not met yet.
    Placed(Box<str>, Vec<Challenge>),
    /// The same, as a new one: the authority fails by the certificate that it was to replace.
    PlacedNew(Box<str>, Vec<Challenge>),
    /// The answers are in service.
    Answered,
    /// The authority knows.
    Accepted,
    /// It is not through; it may be asked again after so many milliseconds.
    Pending(Millis),
    /// The challenges are met, and this is the key that the certificate shall have.
    Ready(OrderKey),
    /// The certificate is asked for.
    Finalised,
    /// The certificate is there and kept.
    Issued(HeldCertificate),
    /// The records are removed.
    Cleaned,
    /// When the authority wants it to be renewed; none where it does not say.
    Window(Option<RenewalWindow>),
}

/// The bad outcomes of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepTrouble {
    /// A name does not lead here: why, and the remedy.
    Unproven(String, String),
    /// The authority refuses the order, in these words.
    Refused(String),
    /// It has had too many orders, and may be asked again after so many milliseconds.
    Limited(String, Millis),
    /// It cannot be asked, or answers with something that is no answer; nor for so long.
    Unreachable(String, Millis),
    /// It fails by an order that says which certificate it replaces, or altogether; which of both
    /// is not known, since it may not be asked for a new one now.
    Unreplaced(String),
    /// It has taken an order without the certificate that it replaces; it is placed again so.
    Unheeded(String),
    /// It does not know the order any more, or of one that is to be placed the place for that.
    Lost(String),
    /// It does not know the account, which is to be forgotten with its orders.
    NoAccount(String),
    /// This machine fails.
    Local(String),
}

/// Something that whoever runs the desk does at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep an order.
    Keep(Box<Order>),
    /// Forget the order of a certificate, and take its answers out of service.
    Drop(Arc<str>),
    /// Tell people how it is with a certificate; none where all is well.
    Tell(Arc<str>, Option<TroubleNotice>),
}

/// The trouble with a certificate, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubleNotice {
    /// The trouble.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeskCounts {
    /// Certificates that are wanted.
    pub wanted: usize,
    /// Of those, the ones that are there.
    pub held: usize,
    /// Orders that authorities have.
    pub open: usize,
    /// Orders that failed and wait for their next try.
    pub failing: usize,
    /// Certificates that are there and whose place others are to take: those of which it is known
    /// that their time has come.
    pub renewing: usize,
}

/// The desk.
pub struct Desk {
    bounds: Bounds,
    seed: u64,
    issuers: BTreeMap<Box<str>, AcmeIssuer>,
    /// Some 600 bytes for each that waits for its renewal, with its names and its places below.
    certificates: HashMap<Arc<str>, Box<Entry>>,
    /// The certificates that are wanted, by their issuers.
    members: Members,
    /// The orders that were restored, until it is known which certificates are wanted.
    restored: Vec<Arc<str>>,
    /// Certificates by the moments at which they are looked at.
    timers: BTreeSet<(Millis, Arc<str>)>,
    proofs: Places,
    authorities: Authorities,
    tickets: u64,
    /// How many certificates count in which figure, in the order of [`DeskCounts`].
    figures: [usize; FIGURES],
    visits: u64,
    /// The latest moment that was told.
    latest: Millis,
}

/// How many figures there are in [`DeskCounts`].
const FIGURES: usize = 5;

/// The most certificates that are looked at in one turn because their time or another issuer has
/// come; the others follow in the next ones.
const VISITS_MAX: usize = 256;

/// One certificate.
#[derive(Default)]
struct Entry {
    wish: Option<CertificateWish>,
    held: Option<HeldCertificate>,
    window: Option<RenewalWindow>,
    /// When the window is looked at next.
    look_at: Millis,
    order: Option<Box<Order>>,
    /// Whether the order has changed since it was kept.
    is_changed: bool,
    /// Whether any state of the order is kept.
    is_kept: bool,
    /// Whether a process before has placed the order: the authority may have looked at its answers
    /// while nobody gave them.
    is_found: bool,
    /// The directory of the authority where it counts among the open orders.
    counted: Option<Arc<str>>,
    /// The figures that it counts in.
    figures: [bool; FIGURES],
    state: Wait,
    timer: Option<Millis>,
    /// Whether people are told of a trouble.
    is_told: bool,
    /// How often it was tried to remove the order's records of DNS.
    sweeps: u32,
    /// When that is tried next.
    sweep_at: Millis,
}

/// The thing that a certificate waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Wait {
    /// A moment, or nothing.
    #[default]
    Idle,
    /// A place, with this number, in this line.
    Queued(u64, LineName),
    /// The outcome of a step, with this number.
    Running(u64),
}

/// A line that certificates wait in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LineName {
    /// The directory of the authority; none for the names themselves.
    authority: Option<Arc<str>>,
    /// Whether it is the line of orders that are to be placed there.
    is_placing: bool,
    /// Whether it is that of certificates that failed before.
    has_failed: bool,
}

/// The place where a certificate belongs.
enum Belongs {
    Nowhere,
    Timer(Millis),
    Line(LineName),
}

/// The most bytes of a directory that orders are counted at by what was kept of them.
const DIRECTORY_BYTES_MAX: usize = 4 << 10;

/// The span of the budget of an authority, and of a registered domain.
const AUTHORITY_SPAN: Millis = 3 * HOUR;
const DOMAIN_SPAN: Millis = 7 * DAY;

/// How far apart the first looks at renewal windows are, and how long they take at most, however
/// many there are.
const LOOK_INTERVAL: Millis = 50;
const LOOKS_SPAN: Millis = 6 * HOUR;

/// Within how much time names are looked at anew after a start that were to wait for no longer than
/// [`RESTORED_WAIT_MAX`]. Refusals of authorities wait for longer than that.
const RESTORED_WAIT: Millis = 10 * SECOND;
const RESTORED_WAIT_MAX: Millis = 4 * MINUTE;

impl Desk {
    /// A desk that nothing is wanted of. Equal seeds do alike.
    pub fn new(bounds: Bounds, seed: u64) -> Desk {
        Desk {
            bounds,
            seed,
            issuers: BTreeMap::new(),
            certificates: HashMap::new(),
            members: Members::default(),
            restored: Vec::new(),
            timers: BTreeSet::new(),
            proofs: Places::new(bounds.proofs_max),
            authorities: Authorities::new(
                (bounds.steps_max, bounds.open_max),
                (
                    Budget::new(bounds.orders_per_authority, AUTHORITY_SPAN),
                    Budget::new(bounds.orders_per_domain, DOMAIN_SPAN),
                ),
            ),
            tickets: 0,
            figures: [0; FIGURES],
            visits: 0,
            latest: Millis::MIN,
        }
    }

    /// The same desk, before anything is told to it, that counts orders by the domains which are
    /// registered below these suffixes.
    #[must_use]
    pub fn with_suffixes(mut self, suffixes: Suffixes) -> Desk {
        self.authorities.suffixes = suffixes;
        self
    }

    /// Adds an issuer, or puts it in the place of that of its name. Its certificates are looked at
    /// from now on, a few in each turn.
    pub fn put_issuer(&mut self, name: &str, issuer: AcmeIssuer, now: Millis) -> Vec<Effect> {
        let before = self.issuers.get(name);
        if before == Some(&issuer) {
            return Vec::new();
        }
        self.authorities.name(before, Some(&issuer), now);
        self.issuers.insert(name.into(), issuer);
        self.members.visit(name);
        self.visit_members(now)
    }

    /// Takes an issuer away. Certificates that are there stay, and nothing is ordered.
    pub fn remove_issuer(&mut self, name: &str, now: Millis) -> Vec<Effect> {
        let before = self.issuers.remove(name);
        self.authorities.name(before.as_ref(), None, now);
        self.members.visit(name);
        self.visit_members(now)
    }

    /// Looks at certificates whose issuer has changed, as many as one turn may have.
    fn visit_members(&mut self, now: Millis) -> Vec<Effect> {
        let ids = self.members.next(VISITS_MAX);
        ids.iter().flat_map(|id| self.settle(id, now)).collect()
    }

    /// Takes in what was kept of the budgets of an authority, before any order.
    pub fn restore_spent(&mut self, spent: &SpentBudget, now: Millis) {
        let restore = |it: &mut AuthorityState| it.restore(spent, now);
        self.authorities.change(&spent.directory, now, restore);
    }

    /// Takes in an order that was kept, before anything is wanted.
    pub fn restore_order(&mut self, mut order: Order, now: Millis) {
        let fast = order.placed_at.saturating_sub(now).max(0);
        order.placed_at -= fast;
        order.not_before = order.not_before.saturating_sub(fast);
        // Whoever died may have been the cause of what failed.
        let wait = order.not_before.saturating_sub(now);
        if order.stage == OrderStage::Proving && wait <= RESTORED_WAIT_MAX {
            let span = RESTORED_WAIT * Millis::from(share_of(&order.id)) / Millis::from(u16::MAX);
            order.not_before = order.not_before.min(now.saturating_add(span));
            order.failures = order.failures.min(1);
        }
        let (names, directory, placed_at) = (
            order.names.clone(),
            order.directory.clone(),
            order.placed_at,
        );
        // The certificate of one that is over counts for it.
        let is_over = order.stage == OrderStage::Leaving;
        let authority = self.authorities.get(&directory);
        let is_noted = authority.is_some_and(|it| placed_at <= it.noted_at);
        if placed_at > 0 && order.replaces.is_none() && !is_over && !is_noted {
            self.note_placed(&names, &directory, placed_at, now);
        }
        let is_open = order.stage.is_open();
        if is_open {
            let add = |it: &mut AuthorityState| it.open.add(&order.id);
            self.authorities.change(&directory, now, add);
        }
        let id = order.id.clone();
        let entry = self.certificates.entry(id.clone()).or_default();
        entry.counted = is_open.then(|| Arc::from(&*directory));
        entry.is_kept = true;
        entry.is_found = order.stage.placed().is_some();
        entry.order = Some(Box::new(order));
        self.count(&id);
        self.restored.push(id);
    }

    /// Takes in a certificate that is there. When it was ordered counts in budgets, and is to be
    /// told only where it was kept by whoever runs the desk.
    pub fn restore_certificate(&mut self, id: &Arc<str>, held: HeldCertificate, now: Millis) {
        if let (Some(directory), Some(placed_at)) = (held.directory.clone(), held.placed_at) {
            self.note_placed(&held.names, &directory, placed_at, now);
        }
        // The first looks after a start do not come all at once, and none is put off for long.
        let before = i64::try_from(self.certificates.len()).unwrap_or(i64::MAX);
        let span = LOOKS_SPAN.min(self.bounds.look_max);
        let latest = span * Millis::from(share_of(id)) / Millis::from(u16::MAX);
        let wait = before.saturating_mul(LOOK_INTERVAL).min(latest);
        let entry = self.certificates.entry(id.clone()).or_default();
        entry.look_at = now.saturating_add(wait);
        entry.held = Some(held);
        self.count(id);
    }

    /// Forgets the orders of certificates that nobody wants, once it is known what is wanted.
    pub fn sweep(&mut self, now: Millis) -> Vec<Effect> {
        let mut ids = std::mem::take(&mut self.restored);
        let is_unwanted = |id: &Arc<str>| {
            let entry = self.certificates.get(id);
            entry.is_some_and(|entry| entry.wish.is_none())
        };
        ids.retain(is_unwanted);
        ids.iter().flat_map(|id| self.settle(id, now)).collect()
    }

    /// Forgets certificates that are over and that nobody wants, and returns them: a walk over all,
    /// for once.
    pub fn forget_over(&mut self, now: Millis) -> Vec<Arc<str>> {
        let is_over = |entry: &Entry| {
            let is_over = entry.held.as_ref().is_some_and(|held| held.until <= now);
            is_over && entry.wish.is_none() && entry.order.is_none()
        };
        let all = self.certificates.iter();
        let over = all.filter(|(_, entry)| is_over(entry));
        let ids: Vec<Arc<str>> = over.map(|(id, _)| id.clone()).collect();
        for id in &ids {
            if let Some(entry) = self.certificates.get_mut(id) {
                entry.held = None;
            }
            self.count(id);
        }
        ids
    }

    /// A certificate is wanted.
    pub fn want(&mut self, id: &Arc<str>, wish: CertificateWish, now: Millis) -> Vec<Effect> {
        let entry = self.certificates.entry(id.clone()).or_default();
        if entry.wish.as_ref() == Some(&wish) {
            return Vec::new();
        }
        self.members.add(&wish.issuer, id);
        let issuer = wish.issuer.clone();
        if let Some(before) = entry.wish.replace(wish)
            && before.issuer != issuer
        {
            self.members.remove(&before.issuer, id);
        }
        self.settle(id, now)
    }

    /// A certificate is not wanted any more.
    pub fn unwant(&mut self, id: &Arc<str>, now: Millis) -> Vec<Effect> {
        let Some(entry) = self.certificates.get_mut(id) else {
            return Vec::new();
        };
        if let Some(before) = entry.wish.take() {
            self.members.remove(&before.issuer, id);
        }
        self.settle(id, now)
    }

    /// A certificate is not there any more: somebody else has taken it away.
    pub fn lose(&mut self, id: &Arc<str>, now: Millis) -> Vec<Effect> {
        let Some(entry) = self.certificates.get_mut(id) else {
            return Vec::new();
        };
        entry.held = None;
        entry.window = None;
        self.settle(id, now)
    }

    /// The next step that may be carried out, if there is one. It is for whoever runs the desk to
    /// call [`Desk::done`] with what came of it.
    pub fn next(&mut self, now: Millis) -> (Option<Task>, Vec<Effect>) {
        let mut effects = self.note_time(now);
        effects.extend(self.visit_members(now));
        self.authorities.forget(now);
        for _ in 0..VISITS_MAX {
            let first = self.timers.first().filter(|(moment, _)| *moment <= now);
            let Some((_, id)) = first.cloned() else {
                break;
            };
            self.timers.pop_first();
            if let Some(entry) = self.certificates.get_mut(&id) {
                entry.timer = None;
            }
            effects.extend(self.settle(&id, now));
        }
        (self.pop(now, &mut effects), effects)
    }

    /// When there is next something to do though nothing happens before.
    pub fn due(&self) -> Option<Millis> {
        let timer = self.timers.first().map(|(moment, _)| *moment);
        let proofs = self.proofs.has_next().then_some(Millis::MIN);
        let members = self.members.is_visiting().then_some(Millis::MIN);
        let others = [timer, proofs, members, self.authorities.due()];
        others.into_iter().flatten().min()
    }

    /// How often a certificate was looked at since the desk began: the measure of its work.
    pub fn visits(&self) -> u64 {
        self.visits
    }

    /// Counts an order that was placed, where that is not too long ago to matter.
    fn note_placed(&mut self, names: &[Box<str>], directory: &str, at: Millis, now: Millis) {
        let is_recent = now.saturating_sub(AUTHORITY_SPAN.max(DOMAIN_SPAN)) <= at;
        if is_recent && directory.len() <= DIRECTORY_BYTES_MAX {
            let note = |it: &mut AuthorityState| it.note(names, at, now);
            self.authorities.change(directory, now, note);
        }
    }

    /// Takes back what a placing has spent that nobody took.
    fn give_back_placing(&mut self, order: &Order, now: Millis) {
        self.authorities.change(&order.directory, now, |it| {
            it.budget.give_back();
            if order.replaces.is_none() {
                it.domains.give_back(&order.names);
            }
        });
    }

    /// A number between 0 and the largest, another one each time.
    fn random(&mut self) -> u32 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }
}

/// The share of a span that belongs to a certificate: the same each time, and another one for most
/// others.
fn share_of(id: &str) -> u16 {
    let hash = blake3::hash(id.as_bytes());
    let [first, second, ..] = *hash.as_bytes();
    u16::from_be_bytes([first, second])
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}
